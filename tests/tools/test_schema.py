"""Schemas and validation of function tools."""

# ruff: noqa: UP007, UP045 - the older spellings are what is tested

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import subprocess
import sys
import typing
from collections.abc import Callable
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict, Union, cast

import pytest
from pydantic import BaseModel, Field

from loopctl.errors import ConfigError
from loopctl.tools.arguments import ArgumentsInvalid
from loopctl.tools.function import FunctionTool, tool
from loopctl.tools.types import ToolContext


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Author(BaseModel):
    name: str
    born: datetime.date | None = None
    tags: list[str] = []


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Options(TypedDict):
    depth: int
    label: NotRequired[str]


class Deep(TypedDict, total=False):
    options: list[Options]


def properties(made: FunctionTool) -> dict[str, Any]:
    found: dict[str, Any] = made.input_schema["properties"]
    return found


def test_every_kind_of_annotation_has_its_schema() -> None:
    """TOL-2, F6: Literal, enums, unions, Optional, nested models, dataclasses, Annotated."""

    @tool
    def search(
        a: Literal["a", "b"],
        b: Literal[1, 2],
        d: Optional[list[Author]],
        e: Union[int, str],
        f: Annotated[int, Field(ge=1, le=9, description="from one to nine")],
        g: Point,
        c: Colour = Colour.RED,
        h: int | None = None,
        i: float = Field(default=0.5, gt=0),
    ) -> str:
        return ""

    assert search.input_schema["type"] == "object"
    assert search.input_schema["required"] == ["a", "b", "d", "e", "f", "g"]
    assert search.input_schema["additionalProperties"] is False
    assert properties(search)["a"] == {"enum": ["a", "b"], "type": "string"}
    assert properties(search)["b"] == {"enum": [1, 2], "type": "integer"}
    assert properties(search)["c"] == {"$ref": "#/$defs/Colour", "default": "red"}
    assert properties(search)["d"] == {
        "anyOf": [{"type": "array", "items": {"$ref": "#/$defs/Author"}}, {"type": "null"}]
    }
    assert properties(search)["e"] == {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    assert properties(search)["f"]["description"] == "from one to nine"
    assert properties(search)["f"]["maximum"] == 9
    assert properties(search)["g"] == {"$ref": "#/$defs/Point"}
    assert properties(search)["h"]["default"] is None
    assert properties(search)["i"] == {"default": 0.5, "exclusiveMinimum": 0, "type": "number"}
    assert "title" not in str(search.input_schema)


def test_typed_dicts_of_the_standard_library_work() -> None:
    """TOL-2: TypedDicts, also those that pydantic refuses below Python 3.12."""

    @tool
    def walk(options: Options, more: dict[str, Deep] | None = None) -> None: ...

    schema = walk.input_schema["$defs"]["Options"]
    assert schema["required"] == ["depth"]
    assert schema["properties"]["label"] == {"type": "string"} | schema["properties"]["label"]
    values = walk.validate('{"options":{"depth":"3"},"more":{"a":{"options":[{"depth":1}]}}}')
    assert values == {"options": {"depth": 3}, "more": {"a": {"options": [{"depth": 1}]}}}
    with pytest.raises(ArgumentsInvalid, match="options.depth"):
        walk.validate('{"options":{}}')


def test_values_arrive_as_what_the_annotation_says() -> None:
    """TOL-4: arguments are validated into the function's own types."""

    @tool
    def take(author: Author, colour: Colour, day: datetime.date, pair: tuple[int, str]) -> None: ...

    text = '{"author":{"name":"Ann"},"colour":"blue","day":"2026-01-02","pair":["1","x"]}'
    values = take.validate(text)
    assert values["author"] == Author(name="Ann")
    assert values["colour"] is Colour.BLUE
    assert values["day"] == datetime.date(2026, 1, 2)
    assert values["pair"] == (1, "x")


def test_local_classes_are_found_behind_postponed_annotations() -> None:
    """TOL-2: `from __future__ import annotations` (this module has it) and local classes."""

    class Local(BaseModel):
        size: int

    @tool
    def bare(local: Local) -> None: ...

    @tool(name="called")
    def called(local: Local) -> None: ...

    for made in (bare, called):
        assert made.validate('{"local":{"size":2}}') == {"local": Local(size=2)}


def test_names_that_pydantic_keeps_for_itself_are_fine() -> None:
    """TOL-2: any parameter name works."""

    @tool
    def odd(schema: str, model_config: int, _hidden: int, copy: bool, json: str = "") -> None: ...

    assert list(properties(odd)) == ["schema", "model_config", "_hidden", "copy", "json"]
    values = odd.validate('{"schema":"s","model_config":1,"_hidden":2,"copy":true}')
    assert values == {"schema": "s", "model_config": 1, "_hidden": 2, "copy": True}


def test_no_parameters_is_an_object_without_properties() -> None:
    """B14: a tool without parameters takes {}."""

    @tool
    def ping() -> None: ...

    assert ping.input_schema == {
        "additionalProperties": False,
        "properties": {},
        "type": "object",
    }
    assert ping.validate("{}") == {}


def test_defaults_are_the_functions_own() -> None:
    """F7: without strict schemas defaults are optional; left out, the function's default holds."""
    shared: list[int] = []

    @tool
    def add(a: int, b: int = 2, c: list[int] = shared, d: int = Field(default=4)) -> None: ...

    assert add.input_schema["required"] == ["a"]
    assert add.validate('{"a":1}') == {"a": 1, "d": 4}


def test_null_stands_for_a_default_that_is_not_nullable() -> None:
    """F7: strict mode sends null for what was left out; it is mapped back to the default."""

    class Inner(BaseModel):
        depth: int = 3
        note: str | None = "n"

    @tool
    def add(a: int, b: int = 2, c: int | None = 5, inner: Inner | None = None) -> None: ...

    text = '{"a":1,"b":null,"c":null,"inner":{"depth":null,"note":null}}'
    assert add.validate(text) == {"a": 1, "c": None, "inner": Inner(depth=3, note=None)}
    with pytest.raises(ArgumentsInvalid, match="a: this field is required"):
        add.validate('{"a":null,"b":null}')


def test_what_does_not_fit_is_named() -> None:
    """TOL-4: problems name their field and quote what was given."""

    @tool
    def add(a: int, b: Author) -> None: ...

    with pytest.raises(ArgumentsInvalid) as caught:
        add.validate('{"a":"many","b":{"born":1.5},"z":1}')
    problems = caught.value.problems
    assert problems[0].startswith("a: Input should be a valid integer")
    assert problems[0].endswith('not "many"')
    assert "b.name: this field is required" in problems
    assert "z: there is no such field" in problems


def test_a_lone_surrogate_in_an_argument_is_replaced() -> None:
    """F4: text that UTF-8 cannot encode costs no call."""

    @tool
    def say(text: str) -> None: ...

    assert say.validate('{"text":"a\\ud83d"}') == {"text": "a\ufffd"}
    assert say.validate('{"text":"a\ud83d"}') == {"text": "a\ufffd"}


def test_descriptions_come_from_the_docstring_unless_given() -> None:
    """TOL-1: name, description and the parameters' descriptions."""

    @tool
    def search(query: str, limit: Annotated[int, Field(description="own words")] = 3) -> None:
        """Find books.

        Args:
            query: What to look for.
            limit: Not used.
        """

    assert (search.name, search.description) == ("search", "Find books.")
    assert properties(search)["query"]["description"] == "What to look for."
    assert properties(search)["limit"]["description"] == "own words"

    @tool(name="find-it", description="Other.")
    def other() -> None:
        """Not this."""

    assert (other.name, other.description) == ("find-it", "Other.")


@pytest.mark.parametrize(
    "annotation",
    [
        ToolContext,
        ToolContext[int],
        Optional[ToolContext[int]],
        ToolContext | None,
        Annotated[ToolContext[int], "note"],
        Annotated[Optional[ToolContext], "note"],
        "ToolContext[int]",
        "ToolContext[int] | None",
    ],
    ids=repr,
)
def test_the_context_is_injected_and_not_in_the_schema(annotation: Any) -> None:
    """TOL-1: a parameter annotated ToolContext, wherever it stands."""

    def function(a, ctx, b): ...  # type: ignore[no-untyped-def]

    function.__annotations__ = {"a": int, "ctx": annotation, "b": int}
    made = tool(function)
    assert list(properties(made)) == ["a", "b"]


def _args(*args: int) -> None: ...
def _kwargs(**kwargs: int) -> None: ...
def _positional(first: int, /) -> None: ...
def _untyped(first) -> None: ...  # type: ignore[no-untyped-def]
def _unresolved(first: Nowhere) -> None: ...  # type: ignore[name-defined] # noqa: F821
def _no_schema(first: Callable[[], int]) -> None: ...
def _unknown_type(first: object, second: subprocess.Popen[str]) -> None: ...


@pytest.mark.parametrize(
    ("function", "parameter"),
    [
        (_args, "args"),
        (_kwargs, "kwargs"),
        (_positional, "first"),
        (_untyped, "first"),
        (_unresolved, "first"),
        (_no_schema, "first"),
        (_unknown_type, "second"),
    ],
)
def test_what_cannot_be_a_parameter_is_refused_by_name(
    function: Callable[..., Any], parameter: str
) -> None:
    """TOL-2, F6: errors when the tool is made, naming the parameter and the tool."""
    with pytest.raises(ConfigError, match=f"'{parameter}' of the tool '{function.__name__}'"):
        tool(function)


class Library:
    """Find things."""

    def __init__(self, shelf: str) -> None:
        self.shelf = shelf

    def find(self, query: str) -> str:
        """Find one."""
        return f"{self.shelf}: {query}"

    @tool(read_only=True)
    async def search(self, query: str) -> str:
        """Search all."""
        return f"{self.shelf}: {query}!"

    def __call__(self, query: str) -> str:
        return query

    @classmethod
    def make(cls, query: str) -> str:
        return query


def test_methods_partials_and_objects_become_tools() -> None:
    """TOL-2: bound methods, partials, callable objects, class methods."""
    library = Library("A")
    assert tool(library.find).name == "find"
    assert tool(library.find)("q") == "A: q"
    assert (tool(library).name, tool(library).description) == ("Library", "Find things.")
    assert tool(Library.make).validate('{"query":"q"}') == {"query": "q"}

    def add(a: int, b: int, c: int = 3) -> int:
        """Add up."""
        return a + b + c

    partial = tool(functools.partial(add, 1, c=5))
    assert (partial.name, partial.description) == ("add", "Add up.")
    assert list(properties(partial)) == ["b"]
    assert partial(b=1) == 7


def test_a_decorated_method_is_taken_from_an_instance() -> None:
    """TOL-1: `@tool` in a class body."""
    assert Library("A").search is not Library("B").search
    assert list(properties(Library("A").search)) == ["query"]
    assert Library("A").search.read_only
    assert Library.search.unbound


def test_wrapped_functions_show_the_signature_of_what_they_wrap() -> None:
    def add(a: int) -> int:
        return a

    @functools.wraps(add)
    def wrapper(*args: Any, **kwargs: Any) -> int:
        return add(*args, **kwargs)

    assert list(properties(tool(wrapper))) == ["a"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: tool(lambda: None), "<lambda>"),
        (lambda: tool(name="two words")(_args), "two words"),
        (lambda: tool(name="x" * 65)(_args), "1 to 64"),
        (lambda: tool(Library), "cannot be a tool"),
        (lambda: tool(cast("Any", 3)), "cannot be a tool"),
        (lambda: tool(name="a", timeout=0)(lambda: None), "timeout=0"),
        (lambda: tool(name="a", timeout=True)(lambda: None), "timeout=True"),
        (lambda: tool(name="a", timeout=float("nan"))(lambda: None), "timeout=nan"),
        (lambda: tool(print), "args"),
    ],
)
def test_what_cannot_be_a_tool_is_refused(make: Callable[[], object], words: str) -> None:
    """TOL-2, TOL-3: names, timeouts and things that are no functions."""
    with pytest.raises(ConfigError, match=words):
        make()


def test_async_generators_are_refused() -> None:
    async def stream() -> typing.AsyncIterator[int]:
        yield 1

    with pytest.raises(ConfigError, match="async generator"):
        tool(stream)


PROGRAM = """
from loopctl import _json
from loopctl.tools.registry import ToolRegistry
import enum, typing
class E(enum.Enum):
    A = "a"
    B = "b"
def one(e: E, s: set[str] = {"x", "y", "z", "w"}, l: typing.Literal["q", "r"] = "q") -> None:
    "One."
def two(a: int | str | None = None) -> None:
    "Two."
for schema in ToolRegistry([one, two]).schemas:
    print(schema.name, _json.dumps(schema.input_schema))
"""


def test_the_same_tools_give_the_same_bytes_in_any_process() -> None:
    """I1: nothing of a schema depends on the process that made it."""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=50,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(outputs) == 1
    assert b'"default":["w","x","y","z"]' in outputs.pop()
