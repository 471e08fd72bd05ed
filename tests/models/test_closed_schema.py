from __future__ import annotations

from typing import Any

import pytest

from loopctl.models.closed_schema import Closed, closed_schema, open_schema


def obj(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    names = list(properties) if required is None else required
    return {"type": "object", "properties": properties, "required": names}


def closed(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    return {**obj(required, **properties), "additionalProperties": False}


def made(schema: dict[str, Any]) -> dict[str, Any]:
    found = closed_schema(schema)
    assert found is not None
    return found.schema


def test_every_object_is_closed_and_optional_properties_stay_optional() -> None:
    """MOD-21: nested ones too; what is limited for a request is counted."""
    schema = obj(
        ["a"],
        a={"type": "array", "items": obj([], b={"type": ["string", "null"], "title": "B"})},
        c={"oneOf": [{"type": "string"}, {"type": "integer"}]},
    )
    expected = closed(
        ["a"],
        a={"type": "array", "items": closed([], b={"type": ["string", "null"]})},
        c={"anyOf": [{"type": "string"}, {"type": "integer"}]},
    )
    assert closed_schema(schema) == Closed(expected, optional=2, unions=2)


def test_references_are_put_in_place() -> None:
    """MOD-21: of both kinds; recursion cannot be expressed."""
    point = obj(x={"type": "number"})
    for name in ("$defs", "definitions"):
        schema = {**obj(a={"$ref": f"#/{name}/P", "description": "A."}), name: {"P": point}}
        assert made(schema) == closed(a={**closed(x={"type": "number"}), "description": "A."})
    node = obj(["v"], v={"type": "integer"}, next={"$ref": "#/$defs/N"})
    assert closed_schema({**obj(a={"$ref": "#/$defs/N"}), "$defs": {"N": node}}) is None
    assert closed_schema(obj(a={"$ref": "#/$defs/Nowhere"})) is None


def test_what_the_subset_lacks_is_told_in_words() -> None:
    """MOD-21: bounds, patterns, formats of other kinds; the tool checks them."""
    schema = obj(
        a={"type": "integer", "minimum": 1, "description": "Count."},
        b={"type": "string", "pattern": "^a"},
        c={"type": "string", "format": "date"},
        d={"type": "string", "format": "color"},
        e={"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3},
        f={"const": "x"},
    )
    assert made(schema)["properties"] == {
        "a": {"type": "integer", "description": "Count. (minimum: 1)"},
        "b": {"type": "string", "description": '(pattern: "^a")'},
        "c": {"type": "string", "format": "date"},
        "d": {"type": "string", "description": '(format: "color")'},
        "e": {
            "type": "array",
            "items": {"type": "string"},
            "minItems": 1,
            "description": "(maxItems: 3)",
        },
        "f": {"enum": ["x"]},
    }


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "string"}},
        obj(a={}),
        obj(a={"type": "object"}),
        obj(a={"type": "object", "additionalProperties": {"type": "string"}}),
        obj(a={"allOf": [{"type": "string"}]}),
        obj(a={"enum": [{"x": 1}]}),
        obj(a=True),
        {"type": "object", "properties": ["a"]},
    ],
)
def test_what_cannot_be_expressed_is_none(schema: dict[str, Any]) -> None:
    """MOD-21: that tool is sent without the promise."""
    assert closed_schema(schema) is None


def test_a_tools_root_is_one_object() -> None:
    """MOD-21: whatever it was."""
    assert open_schema({}) == {"type": "object", "properties": {}}
    assert open_schema({"type": ["object", "null"], "properties": None}) == open_schema({})
    own = {"type": "object", "properties": {"a": {"type": "string"}}, "description": "D."}
    united = open_schema({**own, "oneOf": [{"required": ["a"]}, True], "allOf": []})
    assert united["properties"] == own["properties"]
    assert united["description"] == 'D. (oneOf: [{"required": ["a"]}, true])'
