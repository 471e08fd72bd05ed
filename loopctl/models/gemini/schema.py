"""JSON schemas in the subset that Gemini reads (MOD-21, F9).

References are inlined, where they would go on for ever they end in an object of any shape;
`const` becomes `enum`, a union with null becomes a type that may be null, and keywords that the
subset lacks become words in the description: tools check their arguments themselves anyway.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from loopctl import _json

MAX_DEPTH = 32
MAX_NODES = 5_000
"""How many schemas one may hold once its references are inlined."""

_PROPERTY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_KEPT = frozenset(
    {"type", "description", "minimum", "maximum", "minItems", "maxItems", "propertyOrdering"}
)
_FORMATS = frozenset({"date-time", "date", "time", "int32", "int64", "float", "double"})
_TOLD = frozenset(
    {"pattern", "minLength", "maxLength", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
    | {"uniqueItems", "minProperties", "maxProperties", "examples", "default", "not"}
    | {"patternProperties", "propertyNames", "contains"}
)
_TYPES: Mapping[type, str] = {str: "string", int: "integer", float: "number"}


class _NotExpressible(Exception):
    """The subset has no words for it."""


def gemini_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """`schema` in Gemini's subset; `None` when it cannot be said in it."""
    plain = _json.to_plain(schema)
    if not isinstance(plain, dict):
        return None
    try:
        return _Conversion(plain).convert(plain, 0, ())
    except (_NotExpressible, RecursionError, LookupError, TypeError, AttributeError):
        return None  # or it is no schema


class _Conversion:
    """One schema's conversion; it knows the definitions and counts."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._nodes = 0

    def convert(self, schema: object, depth: int, above: tuple[str, ...]) -> dict[str, Any]:
        """One schema; `above` are the references that are being inlined."""
        self._nodes += 1
        if schema is True:
            return {}
        if not isinstance(schema, Mapping) or depth > MAX_DEPTH or self._nodes > MAX_NODES:
            raise _NotExpressible
        given = cast("Mapping[str, Any]", schema)
        if "$ref" in given:
            return self._inlined(given, depth, above)
        out: dict[str, Any] = {}
        told: list[str] = []
        nullable = given.get("nullable") is True
        for key, value in given.items():
            if key in _KEPT or (key == "format" and value in _FORMATS):
                out[key] = value
            elif key in ("const", "enum"):
                values = cast("Sequence[Any]", [value] if key == "const" else value)
                nullable |= _choices(values, out, told)
            elif (key in _TOLD and value is not None) or key == "format":
                told.append(f"{key}: {json.dumps(value, ensure_ascii=False)}")
            elif key == "items" and not isinstance(value, bool):
                out[key] = self.convert(value, depth + 1, above)
            elif key == "prefixItems":
                items = cast("Sequence[Any]", value)
                out[key] = [self.convert(item, depth + 1, above) for item in items]
            elif key == "additionalProperties" and value is not True:
                out[key] = value and self.convert(value, depth + 1, above)
        self._close(given, out, depth, above)
        for name in ("anyOf", "oneOf"):
            if name in given:
                nullable |= self._union(given[name], out, depth, above)
        for option in cast("Sequence[Any]", given.get("allOf") or ()):
            _merge(out, self.convert(option, depth, above))
        if told:
            words = f"({', '.join(told)})"
            out["description"] = f"{out['description']} {words}" if "description" in out else words
        return _or_null(out) if nullable else out

    def _inlined(
        self, given: Mapping[str, Any], depth: int, above: tuple[str, ...]
    ) -> dict[str, Any]:
        """What a reference points at, with what stands beside it."""
        beside = {key: value for key, value in given.items() if key != "$ref"}
        pointer = given["$ref"]
        target = self._target(pointer)
        if pointer in above:
            kind = target.get("type", "object")
            name = str(pointer).rpartition("/")[2].strip("#") or "the whole"
            told = f"(as {name} above)"
            return {"type": kind, "description": f"{beside.get('description', '')} {told}".strip()}
        return self.convert({**target, **beside}, depth + 1, (*above, pointer))

    def _target(self, pointer: object) -> Mapping[str, Any]:
        if not isinstance(pointer, str) or not pointer.startswith("#"):
            raise _NotExpressible
        found: Any = self._root
        for step in pointer[1:].split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            found = cast("Mapping[str, Any]", found)[step]
        if not isinstance(found, Mapping):
            raise _NotExpressible
        return cast("Mapping[str, Any]", found)

    def _close(
        self, given: Mapping[str, Any], out: dict[str, Any], depth: int, above: tuple[str, ...]
    ) -> None:
        """The properties of an object and which of them must be there."""
        properties = cast("Mapping[str, Any] | None", given.get("properties"))
        if properties is None:
            return
        for name in properties:
            if not _PROPERTY.fullmatch(name):
                raise _NotExpressible
        out["properties"] = {
            name: self.convert(value, depth + 1, above) for name, value in properties.items()
        }
        required = [name for name in given.get("required") or () if name in properties]
        if required:
            out["required"] = required

    def _union(
        self, options: Sequence[Any], out: dict[str, Any], depth: int, above: tuple[str, ...]
    ) -> bool:
        """Put a union into `out`; true when null is one of its options."""
        converted = [self.convert(option, depth + 1, above) for option in options]
        others = [option for option in converted if option.get("type") != "null"]
        if len(others) == 1:
            _merge(out, others[0])
        elif others:
            out["anyOf"] = others
        return len(others) < len(converted)


def _choices(values: Sequence[Any], out: dict[str, Any], told: list[str]) -> bool:
    """Put the values of an enum into `out`; true when null is one of them."""
    others = [value for value in values if value is not None]
    kinds: set[type] = {type(value) for value in others}
    if not others:
        out["type"] = "null"
        return False
    if kinds <= set(_TYPES):
        out["enum"] = others
        if len(kinds) == 1:
            out.setdefault("type", _TYPES[kinds.pop()])
    else:  # truth values, lists and objects cannot be listed
        if kinds == {bool}:
            out.setdefault("type", "boolean")
        told.append(f"one of: {json.dumps(list(others), ensure_ascii=False)}")
    return len(others) < len(values)


def _merge(out: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add what another schema asks; what is said already stands."""
    for key, value in more.items():
        if key == "properties":
            out[key] = {**value, **out.get(key, {})}
        elif key == "required":
            out[key] = list(dict.fromkeys([*out.get(key, ()), *value]))
        else:
            out.setdefault(key, value)


def _or_null(out: dict[str, Any]) -> dict[str, Any]:
    kind = out.get("type")
    if isinstance(kind, str) and kind != "null":
        out["type"] = [kind, "null"]
    elif isinstance(kind, list) and "null" not in kind:
        out["type"] = [*cast("list[str]", kind), "null"]
    elif "anyOf" in out:
        out["anyOf"] = [*out["anyOf"], {"type": "null"}]
    return out
