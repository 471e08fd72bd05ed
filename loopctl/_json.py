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
import itertools
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

MAX_ITEMS = 100_000
"""How many values `to_plain` takes from an iterable, which may have no end."""

MAX_BITS = 4_096
"""Longer integers are written in hexadecimal, as text: Python refuses to print or read them."""


def dumps(value: Any) -> str:
    """Encode plain JSON as compact text; `loads` gives an equal value back."""
    text = _text(value)
    return text if text.isascii() else _SURROGATE.sub(_escape, text)


def wire(value: Any) -> bytes:
    """Encode plain JSON as UTF-8 for a server; lone surrogates become U+FFFD."""
    text = _text(value)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", joined(text)).encode()


def loads(text: str | bytes | bytearray) -> Any:
    """Decode JSON text; raises `ValueError` when it is none, or nested beyond reason."""
    try:
        if isinstance(text, str):
            return _READER.decode(text)
        return json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def joined(text: str) -> str:
    """Put together characters that a stream cut in two: pairs of surrogates become one."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


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
    candidate = text
    for _ in range(2):
        candidate = candidate.strip()
        if fenced := _FENCE.fullmatch(candidate):
            candidate = fenced.group(1)
        value = _lenient(candidate)
        if not isinstance(value, str):
            return cast("dict[str, Any]", value) if isinstance(value, dict) else None
        candidate = value
    return None


def to_plain(value: Any) -> Json:
    """Turn any Python value into plain JSON without ever raising (TOL-5).

    Models and dataclasses become objects, enums their value, sets sorted lists, bytes text or
    base64, dates ISO text, decimals and UUIDs text, NaN and infinities text, odd keys text. A
    cycle and whatever lies deeper than `MAX_DEPTH` become a short marker.
    """
    return _plain(value, (), 0)


_PLAIN = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_SURROGATE = re.compile("[\ud800-\udfff]")
_FENCE = re.compile(r"```[A-Za-z0-9_-]*\s*\n?(.*?)\n?\s*```", re.DOTALL)
# A string (closed or not) or a comma before a closing bracket; each character is read once.
_COMMA = re.compile(r'"(?:[^"\\]|\\.|\\\Z)*+(?:"|\Z)|,(?=\s*[}\]])', re.DOTALL)


def _text(value: Any) -> str:
    try:
        return _PLAIN.encode(value)
    except ValueError:  # NaN, an infinity, a cycle, an integer of thousands of digits
        return _PLAIN.encode(to_plain(value))


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_READER = json.JSONDecoder(parse_constant=_no_constant)  # json.loads would make one for each text


def _lenient(text: str) -> Any:
    """Decode with raw control characters, then also without trailing commas; `None` if neither."""
    for attempt in (text, _COMMA.sub(lambda m: "" if m[0] == "," else m[0], text)):
        try:
            return json.loads(attempt, strict=False)
        except (ValueError, RecursionError):
            continue
    return None


def _plain(value: Any, above: tuple[int, ...], depth: int) -> Json:
    if value is None or type(value) in (bool, str):
        return cast("Json", value)
    try:
        scalar = _scalar(value)
        if scalar is not None:
            return scalar
        if id(value) in above:
            return f"<cycle: {type(value).__name__}>"
        if depth >= MAX_DEPTH:
            return f"<too deep: {type(value).__name__}>"
        return _container(value, (*above, id(value)), depth + 1)
    except Exception:
        return f"<{type(value).__name__}>"


def _scalar(value: Any) -> int | float | str | None:
    """What is one JSON value by itself; `None` for anything else."""
    if isinstance(value, enum.Enum):
        return _scalar(value.value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value) if value.bit_length() <= MAX_BITS else hex(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
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
    if isinstance(value, enum.Enum):
        return _plain(value.value, above, depth)
    if isinstance(value, BaseModel):
        return _mapping(_fields(value), above, depth)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        named = {f.name: getattr(value, f.name, None) for f in dataclasses.fields(value)}
        return _mapping(named, above, depth)
    if isinstance(value, Mapping):
        return _mapping(cast("Mapping[Any, Any]", value), above, depth)
    if isinstance(value, (set, frozenset)):
        items = [_plain(item, above, depth) for item in cast("frozenset[Any]", value)]
        return sorted(items, key=_PLAIN.encode)
    if isinstance(value, Iterable):
        few = itertools.islice(cast("Iterable[Any]", value), MAX_ITEMS)
        return [_plain(item, above, depth) for item in few]
    return str(value)


def _fields(model: BaseModel) -> dict[str, Any]:
    """A model's fields as its own serialisers give them; as they are where those fail."""
    try:
        return model.model_dump(warnings=False)
    except Exception:
        fields = {name: getattr(model, name, None) for name in type(model).model_fields}
        return {**fields, **(model.model_extra or {})}


def _mapping(value: Mapping[Any, Any], above: tuple[int, ...], depth: int) -> Json:
    plain: dict[str, Json] = {}
    for key, item in value.items():
        name = key if type(key) is str else _key(key)
        plain[name] = _plain(item, above, depth)
    return plain


def _key(key: Any) -> str:
    plain = _plain(key, (), 0)
    return plain if isinstance(plain, str) else _PLAIN.encode(plain)
