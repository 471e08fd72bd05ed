"""The registry of tools."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, cast

import pytest

from loopctl.errors import ConfigError
from loopctl.tools.function import tool
from loopctl.tools.registry import ToolRegistry
from loopctl.tools.types import Tool, ToolContext, ToolOutput

SCHEMA: dict[str, Any] = {"type": "object", "properties": {}}


class Plain:
    """A tool by protocol."""

    def __init__(self, name: str, description: str = "It is plain.") -> None:
        self.name = name
        self.description = description
        self.input_schema = SCHEMA

    async def call(self, arguments: dict[str, Any], ctx: ToolContext[Any]) -> ToolOutput:
        return ToolOutput(self.description)


def greet(name: str) -> str:
    """Greet."""
    return name


def test_tools_keep_the_order_of_their_registration() -> None:
    """TOL-3, I1: names and schemas in order, plain functions among them."""
    registry = ToolRegistry([Plain("b"), greet, Plain("a")])
    assert registry.names == ("b", "greet", "a")
    assert [schema.name for schema in registry.schemas] == ["b", "greet", "a"]
    assert [made.name for made in registry] == ["b", "greet", "a"]
    assert len(registry) == 3
    assert "greet" in registry
    assert "Greet" not in registry
    assert registry.schemas[1].description == "Greet."
    assert registry.schemas[0].input_schema is SCHEMA


def test_schemas_are_one_object_until_something_changes() -> None:
    """TOL-3: what was derived from the schemas may be kept beside them."""
    registry = ToolRegistry([greet])
    first = registry.schemas
    assert registry.schemas is first
    registry.register(Plain("b"))
    second = registry.schemas
    assert second is not first
    assert second[0] is first[0]
    assert registry.unregister("b")
    assert not registry.unregister("b")
    assert registry.schemas == first


def test_the_same_name_replaces_in_place_with_a_warning() -> None:
    """TOL-3: last one wins, at the first one's place."""
    registry = ToolRegistry([Plain("a", "old"), Plain("b")])
    newer = Plain("a", "new")
    with pytest.warns(UserWarning, match="'a' replaces another"):
        assert registry.register(newer) is newer
    assert registry.names == ("a", "b")
    assert registry.schemas[0].description == "new"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        registry.register(newer)


def test_lookup_is_exact_and_dispatch_is_lenient() -> None:
    """B19: blanks and a `functions.` prefix are known slips of models."""
    registry = ToolRegistry([greet])
    assert registry.get("greet") is not None
    assert registry.get(" greet\n") is None
    for written in ("greet", " greet\n", "functions.greet", " functions.greet"):
        assert registry.entry(written) is registry.entry("greet")
    for written in ("", " ", "nope", "functions.", "Greet"):
        assert registry.entry(written) is None


class _Incomplete:
    name = "a"
    description = "b"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Plain("two words"), "two words"),
        (lambda: Plain(""), "1 to 64"),
        (lambda: Plain("a", cast("Any", None)), "must be text"),
        (lambda: Plain, "not the class"),
        (_Incomplete, "lacks input_schema, call"),
        (lambda: 3, "lacks name"),
    ],
)
def test_what_is_no_tool_is_refused(make: Callable[[], Any], words: str) -> None:
    """TOL-3: errors when the tool is registered, saying what is missing."""
    with pytest.raises(ConfigError, match=words):
        ToolRegistry([make()])


def test_a_schema_that_is_no_object_is_refused() -> None:
    plain = Plain("a")
    plain.input_schema = {"type": "string"}
    with pytest.raises(ConfigError, match="type object"):
        ToolRegistry([plain])


def test_a_method_must_be_taken_from_an_instance() -> None:
    class Library:
        @tool
        def find(self, query: str) -> str:
            return query

    with pytest.raises(ConfigError, match="take it from an instance"):
        ToolRegistry([Library.find])
    assert ToolRegistry([Library().find]).names == ("find",)


def test_function_tools_keep_the_protocol() -> None:
    """TOL-1: what `tool` makes is a Tool."""
    assert isinstance(tool(greet), Tool)
    assert isinstance(Plain("a"), Tool)
