"""The schema of a tool's arguments as Ollama's servers read it (MOD-21).

They keep what their own types hold and drop the rest, references among it, and refuse the whole
request for a value of another type than theirs. So references are inlined, `const` and `oneOf`
are said in the words that they know, and what is no schema becomes one that allows anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from loopctl import _json

MAX_DEPTH = 16
"""How deep properties are followed; what lies deeper may be anything."""

MAX_NODES = 2_000
"""How many schemas one may hold once its references are inlined."""


def tool_parameters(schema: Mapping[str, Any]) -> dict[str, Any]:
    """`schema` as an object's, without references."""
    plain = _json.to_plain(schema)
    root = plain if isinstance(plain, dict) else {}
    out = _Inlining(root).convert(root, 0, ())
    out["type"] = "object"
    out.setdefault("properties", {})
    return out


class _Inlining:
    """One schema's conversion; it knows the definitions and counts."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._nodes = 0

    def convert(self, schema: object, depth: int, above: tuple[str, ...]) -> dict[str, Any]:
        """One schema; `above` are the references that are being inlined."""
        self._nodes += 1
        if not isinstance(schema, Mapping) or depth > MAX_DEPTH or self._nodes > MAX_NODES:
            return {}
        given = dict(cast("Mapping[str, Any]", schema))
        pointer = given.pop("$ref", None)
        if isinstance(pointer, str):
            target = self._target(pointer)
            if pointer in above:  # it would go on for ever
                kept = {key: target[key] for key in ("type", "description") if key in target}
                target = kept
            return self.convert({**target, **given}, depth + 1, (*above, pointer))
        out: dict[str, Any] = {}
        for key, value in given.items():
            if key in ("$defs", "definitions"):
                continue
            if key == "const":
                out["enum"] = [value]
            elif key == "properties":
                if isinstance(value, Mapping):
                    named = cast("Mapping[str, Any]", value)
                    out[key] = {n: self.convert(v, depth + 1, above) for n, v in named.items()}
            elif key in ("anyOf", "oneOf"):
                if isinstance(value, list):
                    options = cast("list[Any]", value)
                    out["anyOf"] = [self.convert(each, depth + 1, above) for each in options]
            elif key == "allOf":
                for each in cast("list[Any]", value) if isinstance(value, list) else ():
                    out = {**self.convert(each, depth + 1, above), **out}
            elif key in ("items", "additionalProperties"):
                is_schema = isinstance(value, Mapping)
                out[key] = (
                    self.convert(cast(object, value), depth + 1, above) if is_schema else value
                )
            elif isinstance(value, _TYPES.get(key, object)):
                out[key] = value
        return out

    def _target(self, pointer: str) -> Mapping[str, Any]:
        found: object = self._root
        for step in pointer.lstrip("#").split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            found = cast("Mapping[str, Any]", found).get(step) if isinstance(found, dict) else None
        return cast("Mapping[str, Any]", found) if isinstance(found, dict) else {}


_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "type": (str, list),
    "description": str,
    "enum": list,
    "required": list,
}
"""What these keywords must hold."""
