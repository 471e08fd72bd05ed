from __future__ import annotations

from typing import Any

import pytest

from loopctl.models.strict import strict_schema


def obj(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    names = list(properties) if required is None else required
    return {"type": "object", "properties": properties, "required": names}


def closed(**properties: Any) -> dict[str, Any]:
    return {**obj(**properties), "additionalProperties": False}


def test_every_object_is_closed_and_every_property_required() -> None:
    """MOD-21: nested ones too."""
    schema = obj(a={"type": "array", "items": obj(b={"type": "string", "title": "B"})})
    assert strict_schema(schema) == closed(
        a={"type": "array", "items": closed(b={"type": "string"})}
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"type": "string", "default": "x"}, {"type": ["string", "null"]}),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        ({"enum": ["a"], "type": "string"}, {"enum": ["a", None], "type": ["string", "null"]}),
        ({"const": 1}, {"enum": [1, None]}),
        (
            {"anyOf": [{"type": "string"}, {"type": "null"}]},
            {"anyOf": [{"type": "string"}, {"type": "null"}]},
        ),
        (
            {"oneOf": [{"type": "string"}, {"type": "integer"}]},
            {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]},
        ),
        ({"$ref": "#/$defs/A"}, {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]}),
    ],
)
def test_an_optional_property_becomes_nullable(given: Any, expected: Any) -> None:
    """MOD-21: null stands for the default."""
    assert strict_schema(obj([], a=given)) == closed(a=expected)


def test_definitions_are_kept_and_closed() -> None:
    """MOD-21: a reference has no siblings; recursion is no trouble."""
    node = obj(["v"], v={"type": "integer"}, next={"$ref": "#/definitions/N", "title": "x"})
    schema = {**obj(a={"$ref": "#/definitions/N"}), "definitions": {"N": node}}
    made = strict_schema(schema)
    assert made is not None
    assert made["properties"]["a"] == {"$ref": "#/$defs/N"}
    assert made["$defs"]["N"]["required"] == ["v", "next"]


def test_what_the_subset_lacks_is_told_in_words() -> None:
    """MOD-21: the tool checks it, the model reads it."""
    schema = obj(
        a={"type": "string", "minLength": 3, "description": "A name."},
        b={"type": "string", "format": "uri"},
        c={"type": "string", "format": "date", "pattern": "^a"},
        d={"type": "string", "pattern": "(?=a)"},
    )
    made = strict_schema(schema)
    assert made is not None
    assert made["properties"] == {
        "a": {"type": "string", "description": "A name. (minLength: 3)"},
        "b": {"type": "string", "description": '(format: "uri")'},
        "c": {"type": "string", "format": "date", "pattern": "^a"},
        "d": {"type": "string", "description": '(pattern: "(?=a)")'},
    }


DEEP: dict[str, Any] = {"type": "integer"}
for _ in range(12):
    DEEP = obj(a=DEEP)


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [obj(), obj()]},
        {"type": "array", "items": {"type": "string"}},
        {"type": "object", "additionalProperties": True},
        obj(a={"type": "object"}),
        obj(a={"type": "object", "additionalProperties": {"type": "string"}}),
        obj(a={}),
        obj(a=True),
        obj(a={"type": "array"}),
        obj(a={"type": "array", "prefixItems": [{"type": "string"}]}),
        obj(a={"allOf": [{"type": "string"}]}),
        obj(a={"not": {"type": "string"}}),
        obj(None, **{f"p{n}": {"type": "string"} for n in range(5001)}),
        DEEP,
    ],
)
def test_what_cannot_be_expressed_is_not(schema: dict[str, Any]) -> None:
    """MOD-21: the caller falls back to non-strict."""
    assert strict_schema(schema) is None


def test_a_reply_is_not_made_nullable() -> None:
    """MOD-21: what a program reads must fit the schema that it gave."""
    assert strict_schema(obj([], a={"type": "string"}), nullable=False) is None
    assert strict_schema(obj(a={"type": "string"}), nullable=False) is not None
