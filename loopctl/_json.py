"""The one JSON encoder: text for documents, bytes for the wire, plain values for anything.

Three rules hold everywhere. Output is compact and keeps the order of keys, so that the same
state gives the same bytes in any process (CTX-20). Text that UTF-8 cannot encode never raises
(MOD-2): documents escape a lone surrogate and load it back equal, the wire sends U+FFFD instead,
because servers refuse the escape. NaN and the infinities are not JSON and become strings.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import decimal
import enum
import json
import math
import pathlib
import re
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, cast

from pydantic import BaseModel

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""A plain JSON value."""

MAX_DEPTH = 64
"""How deep `to_plain` follows nested values before it writes their type instead."""


def dumps(value: Any) -> str:
    """Encode plain JSON as compact text; `loads` gives an equal value back."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return text


def wire(value: Any) -> bytes:
    """Encode plain JSON as UTF-8 for a server; lone surrogates become U+FFFD."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text).encode()


def loads(text: str | bytes | bytearray) -> Any:
    """Decode JSON text; raises `ValueError` when it is none, or nested beyond reason."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def parse_object(text: str) -> dict[str, Any] | None:
    """Decode text that is exactly one JSON object; `None` when it is anything else."""
    try:
        value = loads(text)
    except ValueError:
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def repair_object(text: str) -> dict[str, Any] | None:
    """Read an object out of what models are known to write instead of one (TOL-4).

    Tried in order: a code fence around it, a second layer of JSON string encoding, raw control
    characters inside strings, trailing commas. `None` when no object comes out. Text that stops
    in the middle is never completed: a call that was cut off must not run.
    """
    candidate = text.strip()
    fenced = _FENCE.fullmatch(candidate)
    if fenced:
        candidate = fenced.group(1).strip()
    for _ in range(2):
        for attempt in (candidate, _drop_trailing_commas(candidate)):
            try:
                value = json.loads(attempt, strict=False)
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                return cast("dict[str, Any]", value)
            if isinstance(value, str):
                candidate = value.strip()
                break
            return None
        else:
            return None
    return None


def to_plain(value: Any) -> Json:
    """Turn any Python value into plain JSON without ever raising (TOL-5).

    Models and dataclasses become objects, enums their value, sets sorted lists, bytes text or
    base64, dates ISO text, decimals and UUIDs text, NaN and infinities text, odd keys text. A
    cycle and whatever lies deeper than `MAX_DEPTH` become a short marker.
    """
    return _plain(value, (), 0)


_SURROGATE = re.compile("[\ud800-\udfff]")
_FENCE = re.compile(r"```[A-Za-z0-9_-]*\s*\n?(.*?)\n?\s*```", re.DOTALL)


def _drop_trailing_commas(text: str) -> str:
    """Remove commas that stand before a closing bracket, outside strings."""
    kept: list[str] = []
    inside = escaped = False
    for index, char in enumerate(text):
        if inside:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == '"':
                inside = False
        elif char == '"':
            inside = True
        elif char == ",":
            rest = text[index + 1 :].lstrip()
            if rest[:1] in ("}", "]"):
                continue
        kept.append(char)
    return "".join(kept)


def _plain(value: Any, above: tuple[int, ...], depth: int) -> Json:
    if value is None or type(value) in (bool, str):
        return cast("Json", value)
    if isinstance(value, enum.Enum):
        return _plain(value.value, above, depth)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    scalar = _scalar(value)
    if scalar is not None:
        return scalar
    if id(value) in above:
        return f"<cycle: {type(value).__name__}>"
    if depth >= MAX_DEPTH:
        return f"<too deep: {type(value).__name__}>"
    return _container(value, (*above, id(value)), depth + 1)


def _scalar(value: Any) -> str | None:
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (decimal.Decimal, uuid.UUID, datetime.timedelta, pathlib.PurePath)):
        return str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(cast("bytes", value))
        try:
            return data.decode()
        except UnicodeDecodeError:
            return base64.b64encode(data).decode("ascii")
    return None


def _container(value: Any, above: tuple[int, ...], depth: int) -> Json:
    if isinstance(value, BaseModel):
        fields = {name: getattr(value, name, None) for name in type(value).model_fields}
        return _mapping({**fields, **(value.model_extra or {})}, above, depth)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        named = {f.name: getattr(value, f.name, None) for f in dataclasses.fields(value)}
        return _mapping(named, above, depth)
    if isinstance(value, Mapping):
        return _mapping(cast("Mapping[Any, Any]", value), above, depth)
    if isinstance(value, (set, frozenset)):
        items = [_plain(item, above, depth) for item in cast("frozenset[Any]", value)]
        return sorted(items, key=lambda item: json.dumps(item, sort_keys=True))
    if isinstance(value, Iterable):
        return [_plain(item, above, depth) for item in cast("Iterable[Any]", value)]
    try:
        return str(value)
    except Exception:
        return f"<{type(value).__name__}>"


def _mapping(value: Mapping[Any, Any], above: tuple[int, ...], depth: int) -> Json:
    plain: dict[str, Json] = {}
    for key, item in value.items():
        name = key if type(key) is str else _key(key)
        plain[name] = _plain(item, above, depth)
    return plain


def _key(key: Any) -> str:
    if isinstance(key, enum.Enum):
        return _key(key.value)
    if isinstance(key, str):
        return str(key)
    if key is None or isinstance(key, (bool, int, float)):
        return json.dumps(key) if not isinstance(key, float) or math.isfinite(key) else str(key)
    return _scalar(key) or str(key)
