"""JSON schemas in the subset that strict mode takes (MOD-21).

Strict mode wants every object closed and every property required. A property that may be left
out is made nullable; loopctl's tools take `null` for it as if it were absent. Keywords that the
subset lacks become words in the description: tools check their arguments themselves anyway.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, cast

MAX_DEPTH = 10
MAX_PROPERTIES = 5_000

_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
)
_LOOK_AROUND = re.compile(r"\(\?<?[=!]")
_KEPT = frozenset(
    {"type", "enum", "description", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
    | {"multipleOf", "minItems", "maxItems"}
)
_TOLD = frozenset(
    {"minLength", "maxLength", "uniqueItems", "minProperties", "maxProperties", "examples"}
)
_DROPPED = frozenset({"title", "default", "$schema", "$id", "$comment", "deprecated", "readOnly"})
_NULL: dict[str, Any] = {"type": "null"}


class _NotExpressible(Exception):
    pass


def strict_schema(schema: Mapping[str, Any], *, nullable: bool = True) -> dict[str, Any] | None:
    """The strict form of an object's schema; `None` when the subset cannot express it.

    Without `nullable`, a schema with optional properties is not expressible either.
    """
    conversion = _Conversion(nullable)
    try:
        converted = conversion.convert(schema, 0)
        if converted.get("type") != "object":
            return None
        definitions = cast("Mapping[str, Any]", schema.get("$defs") or schema.get("definitions"))
        if definitions:
            converted["$defs"] = {
                name: conversion.convert(value, 1) for name, value in definitions.items()
            }
    except (_NotExpressible, RecursionError):
        return None
    return converted


class _Conversion:
    """One schema's conversion; it counts properties."""

    def __init__(self, nullable: bool) -> None:
        self._nullable = nullable
        self._properties = 0

    def convert(self, schema: object, depth: int) -> dict[str, Any]:
        if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
            raise _NotExpressible
        given = cast("Mapping[str, Any]", schema)
        out: dict[str, Any] = {}
        told: list[str] = []
        for key, value in given.items():
            if key in _KEPT or _is_kept(key, value):
                out[key] = value
            elif key == "const":
                out["enum"] = [value]
            elif key in _TOLD or key in ("pattern", "format"):
                told.append(f"{key}: {json.dumps(value, ensure_ascii=False)}")
            elif key in ("anyOf", "oneOf"):
                out["anyOf"] = [self.convert(option, depth + 1) for option in value]
            elif key == "items":
                out[key] = self.convert(value, depth + 1)
            elif key == "$ref":
                out[key] = str(value).replace("#/definitions/", "#/$defs/")
            elif key == "properties" or key in _DROPPED or (key in ("$defs", "definitions")):
                continue
            elif key not in ("required", "additionalProperties"):
                raise _NotExpressible
        if told:
            words = f"({', '.join(told)})"
            out["description"] = f"{out['description']} {words}" if "description" in out else words
        if "$ref" in out:
            return {"$ref": out["$ref"]}  # no sibling is allowed beside it
        if out.get("type") == "object":
            self._close(given, out, depth)
        elif out.get("type") == "array" and "items" not in out:
            raise _NotExpressible
        if not out.keys() & {"type", "enum", "anyOf"}:
            raise _NotExpressible  # anything at all
        return out

    def _close(self, given: Mapping[str, Any], out: dict[str, Any], depth: int) -> None:
        if given.get("additionalProperties", False) not in (False, None):
            raise _NotExpressible  # a mapping with keys of its own
        if depth and "properties" not in given:
            raise _NotExpressible  # an object of any shape
        properties = cast("Mapping[str, Any]", given.get("properties") or {})
        self._properties += len(properties)
        if self._properties > MAX_PROPERTIES:
            raise _NotExpressible
        required = set(cast("list[str]", given.get("required") or []))
        closed: dict[str, Any] = {}
        for name, value in properties.items():
            converted = self.convert(value, depth + 1)
            if name not in required:
                if not self._nullable:
                    raise _NotExpressible
                converted = _or_null(converted)
            closed[name] = converted
        out["properties"] = closed
        out["required"] = list(closed)
        out["additionalProperties"] = False


def _is_kept(key: str, value: Any) -> bool:
    """Whether a keyword is in the subset for this value of it."""
    if key == "pattern":
        return not _LOOK_AROUND.search(value)
    return key == "format" and value in _FORMATS


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    if "anyOf" in schema:
        options = cast("list[Any]", schema["anyOf"])
        return schema if _NULL in options else {**schema, "anyOf": [*options, _NULL]}
    if "$ref" in schema:
        return {"anyOf": [schema, _NULL]}
    out = dict(schema)
    if "enum" in out and None not in out["enum"]:
        out["enum"] = [*out["enum"], None]
    kind = out.get("type")
    if isinstance(kind, str) and kind != "null":
        out["type"] = [kind, "null"]
    elif isinstance(kind, list) and "null" not in kind:
        out["type"] = [*cast("list[str]", kind), "null"]
    return out
