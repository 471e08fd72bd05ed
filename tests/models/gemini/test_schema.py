from __future__ import annotations

import enum
import json
from typing import Any, Literal

import pytest
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from loopctl.models.gemini.schema import MAX_DEPTH, gemini_schema
from loopctl.tools.function import tool


def converted(schema: dict[str, Any]) -> Any:
    before = json.dumps(schema)
    made = gemini_schema(schema)
    assert json.dumps(schema) == before
    if made is not None:
        types.JSONSchema.model_validate(made)
        assert "$ref" not in json.dumps(made)
    return made


def of(schema: Any, **more: Any) -> Any:
    """The conversion of one property."""
    made = converted({"type": "object", "properties": {"a": schema}, **more})
    return None if made is None else made["properties"]["a"]


def test_references_are_inlined() -> None:
    """MOD-21, F9: with what stands beside them; definitions are gone."""
    point = {"type": "object", "properties": {"x": {"type": "integer"}}, "title": "Point"}
    beside = {"$ref": "#/$defs/Point", "description": "where"}
    made = of({"type": "array", "items": beside}, **{"$defs": {"Point": point}})
    inlined = {
        "type": "object",
        "description": "where",
        "properties": {"x": {"type": "integer"}},
    }
    assert made == {"type": "array", "items": inlined}
    assert of({"$ref": "#/definitions/a~1b"}, definitions={"a/b": {"type": "string"}}) == {
        "type": "string"
    }


def test_references_that_never_end_are_cut() -> None:
    """F9: a tree is an object whose children are objects of any shape."""
    node = {
        "type": "object",
        "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/N"}}},
    }
    made = of({"$ref": "#/$defs/N"}, **{"$defs": {"N": node}})
    assert made["properties"]["kids"]["items"] == {"type": "object", "description": "(as N above)"}
    made = of({"$ref": "#"})
    assert made["properties"]["a"] == {"type": "object", "description": "(as the whole above)"}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"const": "x"}, {"enum": ["x"], "type": "string"}),
        ({"enum": [1, 2]}, {"enum": [1, 2], "type": "integer"}),
        ({"enum": ["a", 1]}, {"enum": ["a", 1]}),
        ({"enum": ["a", None]}, {"enum": ["a"], "type": ["string", "null"]}),
        ({"const": None}, {"type": "null"}),
        ({"const": True}, {"type": "boolean", "description": "(one of: [true])"}),
        ({"enum": [[1]]}, {"description": "(one of: [[1]])"}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"type": ["string", "null"]}),
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        (
            {"oneOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]},
            {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]},
        ),
        (
            {"allOf": [{"type": "object", "properties": {"x": True}, "required": ["x"]}]},
            {"type": "object", "properties": {"x": {}}, "required": ["x"]},
        ),
        ({"type": "string", "format": "date"}, {"type": "string", "format": "date"}),
        (
            {"type": "string", "format": "email", "minLength": 1, "description": "who"},
            {"type": "string", "description": 'who (format: "email", minLength: 1)'},
        ),
        ({"type": "integer", "default": None}, {"type": "integer"}),
        ({"type": "integer", "default": 3}, {"type": "integer", "description": "(default: 3)"}),
        (
            {"type": "object", "additionalProperties": {"const": "x"}},
            {"type": "object", "additionalProperties": {"enum": ["x"], "type": "string"}},
        ),
        ({"type": "object", "additionalProperties": True}, {"type": "object"}),
        ({"title": "A", "$comment": "c", "x-mine": 1, "if": {}}, {}),
    ],
)
def test_what_the_subset_lacks_is_said_in_other_words(
    schema: dict[str, Any], expected: dict[str, Any]
) -> None:
    """MOD-21: const to enum, null into the type, the rest into the description or away."""
    assert of(schema) == expected


def test_tuples_are_lists_with_a_beginning() -> None:
    """MOD-21: `prefixItems` is part of the subset."""
    pair = {"type": "array", "prefixItems": [{"const": 1}, {"type": "string"}], "items": False}
    made = gemini_schema({"type": "object", "properties": {"a": pair}})
    assert made is not None
    assert made["properties"]["a"]["prefixItems"][0] == {"enum": [1], "type": "integer"}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "https://example.org/schema"},
        {"$ref": "#/$defs/gone"},
        {"$ref": 3},
        False,
        "text",
        {"type": "object", "properties": {"näme": {"type": "string"}}},
        {"type": "object", "properties": {"x" * 65: {"type": "string"}}},
        {"type": "object", "properties": 3},
        {"format": []},
        {"anyOf": 3},
    ],
)
def test_what_cannot_be_said_is_nothing(schema: Any) -> None:
    """MOD-21: and so is what is no schema."""
    assert of(schema) is None


def test_a_schema_that_grows_without_measure_is_given_up() -> None:
    """F9: references may double at each level; depth and size have an end."""
    definitions: dict[str, Any] = {"d0": {"type": "string"}}
    for n in range(1, 14):
        both = {name: {"$ref": f"#/$defs/d{n - 1}"} for name in ("a", "b")}
        definitions[f"d{n}"] = {"type": "object", "properties": both}
    assert of({"$ref": "#/$defs/d3"}, **{"$defs": definitions}) is not None
    assert of({"$ref": "#/$defs/d13"}, **{"$defs": definitions}) is None
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(MAX_DEPTH):
        deep = {"type": "array", "items": deep}
    assert of(deep) is None


class Colour(enum.Enum):
    RED = "red"


class Leaf(BaseModel):
    kind: Literal["leaf"]
    size: int = Field(3, ge=0, lt=10)


class Tree(BaseModel):
    kind: Literal["tree"]
    kids: list[Tree | Leaf] = Field(default=[], max_length=4)
    colour: Colour | None = None


@tool
def plant(
    tree: Tree,
    when: float | None,
    tags: dict[str, str],
    anything: Any,
    mode: Literal["a", "b"] = "a",
    either: Leaf | Tree | str | None = None,
) -> str:
    """Plant a tree."""
    return ""


def test_the_schemas_of_loopctls_own_tools_can_be_said() -> None:
    """TOL-2, MOD-21, F6, F7: unions, enums, literals, mappings, models, recursion."""
    made = converted(dict(plant.input_schema))
    assert made["required"] == ["tree", "when", "tags", "anything"]
    found = made["properties"]
    assert found["when"]["type"] == ["number", "null"]
    assert found["mode"]["enum"] == ["a", "b"]
    assert found["tree"]["properties"]["colour"]["type"] == ["string", "null"]


KEYWORDS = """
    type const enum anyOf allOf oneOf items properties required $ref format description
    additionalProperties default nullable prefixItems
"""
keywords = st.sampled_from(KEYWORDS.split())
rubbish = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["string", "#", "object", "null"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keywords, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(keywords, rubbish, max_size=5))
def test_no_schema_breaks_the_conversion(schema: dict[str, Any]) -> None:
    """MOD-21: it is said, or it is not; never an exception."""
    made = gemini_schema(schema)
    assert made is None or isinstance(json.dumps(made), str)
