"""Arguments that fit, and the words for those that do not (TOL-4).

A tool made of a function is checked by pydantic. A tool that brings only a JSON schema is checked
here as far as a glance at its top level goes: required, unknown and plainly mistyped fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from loopctl import _json
from loopctl.errors import without_secrets
from loopctl.messages import ToolCallPart

MAX_PROBLEMS = 5
"""How many problems an error result lists."""

MAX_FIELDS = 30
"""How many expected fields an error result lists."""

MAX_QUOTE_CHARS = 200
"""How much of a value or of unusable text an error result quotes, in characters."""


class ArgumentsInvalid(ValueError):
    """Arguments that the tool cannot take; `problems` says why, one sentence each."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


def check(schema: Mapping[str, Any], arguments: dict[str, Any]) -> None:
    """Raise `ArgumentsInvalid` for arguments that cannot fit the top level of a JSON schema."""
    properties = _mapping(schema.get("properties"))
    required = schema.get("required")
    names = cast("list[object]", required) if isinstance(required, list) else []
    problems = [f"{n}: this field is required" for n in names if n not in arguments]
    if schema.get("additionalProperties") is False and "patternProperties" not in schema:
        problems += [f"{n}: there is no such field" for n in arguments if n not in properties]
    for name, value in arguments.items():
        problem = _mismatch(_mapping(properties.get(name)), value)
        if problem:
            problems.append(f"{name}: {problem}")
    if problems:
        raise ArgumentsInvalid(problems)


def invalid_text(name: str, problems: Sequence[str], schema: Mapping[str, Any]) -> str:
    """The error result for arguments that do not fit: tool, first problems, expected fields."""
    lines = [f"The tool {name!r} was not run: its arguments do not fit."]
    lines += [f"- {without_secrets(problem)}" for problem in problems[:MAX_PROBLEMS]]
    if len(problems) > MAX_PROBLEMS:
        lines.append(f"- and {len(problems) - MAX_PROBLEMS} more")
    return "\n".join([*lines, expected(schema)])


def unusable_text(call: ToolCallPart, schema: Mapping[str, Any] | None) -> str:
    """The error result for arguments that were cut off, or are no JSON object."""
    name = call.name
    if call.truncated:
        return (
            f"The tool {name!r} was not run: the reply was cut off by the output limit inside this"
            " call. Send it again, in smaller pieces if its arguments are long."
        )
    problem = f"not a JSON object: {quote(call.unusable or '')}"
    return invalid_text(name, [problem], schema or {})


def unknown_text(name: str, names: Sequence[str]) -> str:
    """The error result for a name that no tool has."""
    known = ", ".join(names) if names else "none"
    return f"There is no tool {quote(name)}. Available tools: {known}."


def expected(schema: Mapping[str, Any]) -> str:
    """One line that names the fields of a schema, their types, and which are required."""
    return f"Expected: {fields(schema) or 'no arguments, {}'}."


def fields(schema: Mapping[str, Any]) -> str:
    """The fields of a schema with their types, those that are required marked; may be empty."""
    properties = _mapping(schema.get("properties"))
    required = cast("Sequence[str]", schema.get("required") or ())
    named = [
        f"{name} ({_type_name(_mapping(field))}{', required' if name in required else ''})"
        for name, field in list(properties.items())[:MAX_FIELDS]
    ]
    more = len(properties) - MAX_FIELDS
    return f"{', '.join(named)}{f' and {more} more' if more > 0 else ''}"


def quote(value: object) -> str:
    """A value as short JSON text."""
    text = _json.dumps(_json.to_plain(value))
    return text if len(text) <= MAX_QUOTE_CHARS else text[:MAX_QUOTE_CHARS] + "…"


def _type_name(field: Mapping[str, Any]) -> str:
    if "enum" in field:
        return "one of " + ", ".join(quote(item) for item in field["enum"])
    if "const" in field:
        return quote(field["const"])
    kind = field.get("type")
    if isinstance(kind, str):
        return kind
    if isinstance(kind, list):
        return " or ".join(str(item) for item in cast("list[object]", kind))
    options = field.get("anyOf") or field.get("oneOf")
    if isinstance(options, list):
        names = [_type_name(_mapping(option)) for option in cast("list[object]", options)]
        return " or ".join(dict.fromkeys(names))
    reference = field.get("$ref")
    return str(reference).rpartition("/")[2] if reference else "any"


def _mismatch(field: Mapping[str, Any], value: object) -> str | None:
    if "enum" in field and value not in field["enum"]:
        return f"must be {_type_name(field)}, not {quote(value)}"
    kinds = field.get("type")
    wanted = cast("list[object]", kinds) if isinstance(kinds, list) else [kinds]
    tests = [_TYPES[kind] for kind in wanted if isinstance(kind, str) and kind in _TYPES]
    if not tests or len(tests) < len(wanted) or any(test(value) for test in tests):
        return None
    return f"must be {_type_name(field)}, not {quote(value)}"


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_TYPES: dict[str, Callable[[object], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: _is_number(value) and float(cast("float", value)).is_integer(),
    "number": _is_number,
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
}
