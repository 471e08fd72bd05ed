"""The tools of a session, in the order in which they were registered (TOL-3)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from loopctl import _json
from loopctl.errors import ConfigError
from loopctl.models.client import ToolSchema
from loopctl.tools.types import Tool

if TYPE_CHECKING:
    from loopctl.tools.function import FunctionTool, Resource

ToolLike: TypeAlias = Tool | Callable[..., Any]
"""A tool, or a function that `tool` can make one of."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A registered tool and what dispatching needs to know of it, looked up once.

    `function` is the tool itself when it was made of a function; `origin` is who brought it.
    """

    tool: Tool
    schema: ToolSchema
    function: FunctionTool | None
    concurrency_safe: bool
    timeout: float | None
    resource: Resource | None
    origin: str | None

    def prepare(self, text: str) -> dict[str, Any]:
        """Validated arguments for the tool, from the JSON text of an object.

        Raises `ArgumentsInvalid`.
        """
        if self.function is not None:
            return self.function.validate(text)
        from loopctl.tools import arguments

        given: dict[str, Any] = _json.loads(text)
        arguments.check(self.schema.input_schema, given)
        return given


class ToolRegistry:
    """Tools by name, in order of registration. Plain functions are made tools of by `tool`."""

    def __init__(self, tools: Iterable[ToolLike] = ()) -> None:
        self._entries: dict[str, Entry] = {}
        self._schemas: tuple[ToolSchema, ...] | None = None
        for given in tools:
            self.register(given)

    @property
    def schemas(self) -> tuple[ToolSchema, ...]:
        """What the model is told, in order; the same object until something changes."""
        if self._schemas is None:
            self._schemas = tuple(entry.schema for entry in self._entries.values())
        return self._schemas

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tools, in order."""
        return tuple(self._entries)

    def get(self, name: str) -> Tool | None:
        """The tool of that exact name."""
        entry = self._entries.get(name)
        return None if entry is None else entry.tool

    def entry(self, name: str) -> Entry | None:
        """What is registered under a name as a model wrote it.

        Blanks around it and a `functions.` in front of it are known slips and are overlooked.
        """
        found = self._entries.get(name)
        if found is None:
            found = self._entries.get(name.strip().removeprefix("functions."))
        return found

    def origin(self, name: str) -> str | None:
        """The distribution or plugin that brought a tool; `None` for the session's own."""
        entry = self._entries.get(name)
        return None if entry is None else entry.origin

    def register(self, given: ToolLike, *, origin: str | None = None) -> Tool:
        """Add a tool; one of the same name is replaced where it stands, with a warning.

        `origin` names the distribution or plugin that brings it. Raises `ConfigError` for what is
        no tool, or has a name or schema that cannot work.
        """
        made = _as_tool(given)
        entry = _entry(made, origin)
        name = entry.schema.name
        old = self._entries.get(name)
        if old is not None and old.tool is not made:
            warnings.warn(f"the tool {name!r} replaces another of its name", stacklevel=2)
        self._entries[name] = entry
        self._schemas = None
        return made

    def unregister(self, name: str) -> bool:
        """Take a tool out; whether it was there."""
        if self._entries.pop(name, None) is None:
            return False
        self._schemas = None
        return True

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[Tool]:
        return iter([entry.tool for entry in self._entries.values()])

    def __len__(self) -> int:
        return len(self._entries)


def _as_tool(given: ToolLike) -> Tool:
    has_shape = all(hasattr(given, part) for part in _SHAPE)
    if has_shape and not isinstance(given, type):
        return cast("Tool", given)
    if isinstance(given, type):
        raise ConfigError(f"{given!r} is no tool: give an instance, not the class")
    if not callable(given):
        missing = ", ".join(part for part in _SHAPE if not hasattr(given, part))
        raise ConfigError(f"{given!r} is no tool: it lacks {missing}")
    from loopctl.tools.function import tool

    return tool(given)


_SHAPE = ("name", "description", "input_schema", "call")


def _entry(made: Tool, origin: str | None) -> Entry:
    from loopctl.tools.function import FunctionTool, check_name, check_timeout

    name = check_name(made.name)
    function = made if isinstance(made, FunctionTool) else None
    if function is not None and function.unbound:
        raise ConfigError(f"the tool {name!r} is a method: take it from an instance of its class")
    schema = cast("object", made.input_schema)
    if not isinstance(schema, Mapping) or cast("Mapping[str, Any]", schema).get("type") != "object":
        raise ConfigError(f"the input_schema of the tool {name!r} must be a schema of type object")
    description = cast("object", made.description)
    if not isinstance(description, str):
        raise ConfigError(f"the description of the tool {name!r} must be text")
    timeout = getattr(made, "timeout", None)
    check_timeout(name, timeout)
    return Entry(
        tool=made,
        schema=ToolSchema(name=name, description=description, input_schema=made.input_schema),
        function=function,
        concurrency_safe=bool(getattr(made, "concurrency_safe", False)),
        timeout=timeout,
        resource=getattr(made, "resource", None),
        origin=origin,
    )
