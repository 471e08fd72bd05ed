"""JSON schemas as Claude takes them, through the Messages API or another (MOD-21).

Strict tools and schemas of replies are a subset: every object closed, no recursion, no bounds, and
only so many optional properties and unions in one request. Keywords that the subset lacks become
words in the description: tools check their arguments themselves anyway. Other tools may have any
schema whose root is one object.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from loopctl import _json

_MAX_DEPTH = 32

_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}
)
_KEPT = frozenset({"type", "description"})
_DROPPED = frozenset({"title", "default", "$schema", "$id", "$comment", "deprecated", "readOnly"})
_TOLD = frozenset(
    {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength"}
    | {"maxLength", "pattern", "minItems", "maxItems", "uniqueItems", "minProperties"}
    | {"maxProperties", "examples", "format"}
)
_ELSEWHERE = frozenset({"properties", "required", "additionalProperties", "$defs", "definitions"})
_ROOT_UNIONS = ("oneOf", "anyOf", "allOf")


class _NotExpressible(Exception):
    pass


@dataclass(frozen=True, slots=True)
class Closed:
    """A schema in the subset, and what it takes of the request's allowance."""

    schema: dict[str, Any]
    optional: int
    unions: int


def closed_schema(schema: Mapping[str, Any]) -> Closed | None:
    """The strict form of an object's schema; `None` when the subset cannot express it."""
    conversion = _Conversion(schema)
    try:
        converted = conversion.convert(schema, ())
    except (_NotExpressible, RecursionError, TypeError, AttributeError):
        return None
    if converted.get("type") != "object":
        return None
    return Closed(converted, conversion.optional, conversion.unions)


class _Conversion:
    """One schema's conversion; references are put in place, and what is limited is counted."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.optional = 0
        self.unions = 0
        self._definitions: Mapping[str, Any] = {
            **(root.get("definitions") or {}),
            **(root.get("$defs") or {}),
        }

    def convert(self, schema: object, above: tuple[str, ...]) -> dict[str, Any]:
        if not isinstance(schema, Mapping) or len(above) > _MAX_DEPTH:
            raise _NotExpressible
        given = cast("Mapping[str, Any]", schema)
        if "$ref" in given:
            return self._referred(given, above)
        out: dict[str, Any] = {}
        told: list[str] = []
        for key, value in given.items():
            if key in _KEPT or _is_kept(key, value):
                out[key] = value
            elif key == "const":
                out["enum"] = [value]
            elif key == "enum":
                out["enum"] = list(value)
            elif key in ("anyOf", "oneOf"):
                out["anyOf"] = [self.convert(option, (*above, "")) for option in value]
            elif key == "items":
                out["items"] = self.convert(value, (*above, ""))
            elif key in _TOLD:
                told.append(f"{key}: {json.dumps(value, ensure_ascii=False)}")
            elif key not in _DROPPED and key not in _ELSEWHERE:
                raise _NotExpressible
        if told:
            words = f"({', '.join(told)})"
            out["description"] = f"{out['description']} {words}" if "description" in out else words
        if any(isinstance(value, (dict, list)) for value in out.get("enum", ())):
            raise _NotExpressible
        self.unions += "anyOf" in out or isinstance(out.get("type"), list)
        if out.get("type") == "object":
            self._close(given, out, above)
        if not out.keys() & {"type", "enum", "anyOf"}:
            raise _NotExpressible  # anything at all
        return out

    def _referred(self, given: Mapping[str, Any], above: tuple[str, ...]) -> dict[str, Any]:
        reference = str(given["$ref"])
        definition = self._definitions.get(reference.rpartition("/")[2])
        if definition is None or reference in above:
            raise _NotExpressible  # recursion, or a reference to elsewhere
        converted = self.convert(definition, (*above, reference))
        return {**converted, **{key: given[key] for key in ("description",) if key in given}}

    def _close(self, given: Mapping[str, Any], out: dict[str, Any], above: tuple[str, ...]) -> None:
        if given.get("additionalProperties", False) not in (False, None):
            raise _NotExpressible  # a mapping with keys of its own
        if above and "properties" not in given:
            raise _NotExpressible  # an object of any shape
        properties = cast("Mapping[str, Any]", given.get("properties") or {})
        needed = cast("list[str]", given.get("required") or [])
        required = [name for name in needed if name in properties]
        self.optional += len(properties) - len(required)
        out["properties"] = {
            name: self.convert(value, (*above, "")) for name, value in properties.items()
        }
        out["required"] = required
        out["additionalProperties"] = False


def _is_kept(key: str, value: Any) -> bool:
    """Whether a keyword is in the subset for this value of it."""
    return (key == "format" and value in _FORMATS) or (key == "minItems" and value in (0, 1))


def open_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A tool's schema with one object at its root: no unions there, which are refused.

    The properties of the united ones are offered together; which of them go together is told in
    words, and checked by the tool.
    """
    plain = _json.to_plain(schema)
    root: dict[str, Any] = {"type": "object", "properties": {}}
    root.update(plain if isinstance(plain, dict) else {})
    root["type"] = "object"
    if not isinstance(root["properties"], dict):
        root["properties"] = {}
    for key in _ROOT_UNIONS:
        branches = root.pop(key, None)
        if not isinstance(branches, list) or not branches:
            continue
        told = f"({key}: {json.dumps(branches, ensure_ascii=False)})"
        root["description"] = " ".join([*filter(None, [root.get("description")]), told])
        for branch in cast("list[Any]", branches):
            given = cast("dict[str, Any]", branch) if isinstance(branch, dict) else {}
            properties = given.get("properties")
            if isinstance(properties, dict):
                root["properties"] = {**cast("dict[str, Any]", properties), **root["properties"]}
    return root
