"""What stands in the items and counts of a Responses reply: pure readers that never fail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, cast

from loopctl.usage import Usage

Object: TypeAlias = Mapping[str, Any]
"""A JSON object."""


def named(given: Object) -> tuple[str, str]:
    """The id and the name of a call. Results name the `call_id`, which the item's own is not."""
    return string(given.get("call_id")) or string(given.get("id")), string(given.get("name"))


def _parts(given: Object, name: str, kind: str, field: str) -> list[str]:
    parts = given.get(name)
    if isinstance(parts, str):
        return [parts] if kind == "output_text" else []
    found = map(mapping, cast("list[Any]", parts if isinstance(parts, list) else []))
    return [string(part.get(field)) for part in found if part.get("type") == kind]


def said(given: Object) -> str:
    """The text of a message."""
    return "".join(_parts(given, "content", "output_text", "text"))


def refusals(given: Object) -> list[str]:
    """What a message says instead of an answer."""
    return _parts(given, "content", "refusal", "refusal")


def thought(given: Object) -> str:
    """What a reasoning item shows: its summary, and its text where that is not sealed."""
    summary = _parts(given, "summary", "summary_text", "text")
    content = _parts(given, "content", "reasoning_text", "text")
    return "\n\n".join(text for text in (*summary, *content) if text)


def usage_of(given: object) -> Usage | None:
    """Token counts; `None` where none are told."""
    counts = mapping(given)
    if not counts:
        return None
    read = mapping(counts.get("input_tokens_details"))
    written = mapping(counts.get("output_tokens_details"))
    return Usage(
        input_tokens=_count(counts, "input_tokens"),
        output_tokens=_count(counts, "output_tokens"),
        cached_tokens=_count(read, "cached_tokens"),
        cache_write_tokens=_count(read, "cache_write_tokens"),
        thinking_tokens=_count(written, "reasoning_tokens"),
    )


def _count(counts: Object, name: str) -> int | None:
    value = counts.get(name)
    return value if type(value) is int and value >= 0 else None


def string(value: object) -> str:
    """`value` if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def mapping(value: object) -> Object:
    """`value` if it is an object, else an empty one."""
    return cast("Object", value) if isinstance(value, dict) else {}
