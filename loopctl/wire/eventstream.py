"""`application/vnd.amazon.eventstream`, fed in pieces of bytes (MOD-7).

A frame is: its length and that of its headers (4 bytes each, the most significant first), the
CRC32 of those eight, the headers, the payload, and the CRC32 of all before. The frames, and the
error after them if there is one, are the same however the bytes are cut.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias
from zlib import crc32

from loopctl.errors import InvalidResponseError, ModelError, StreamIncomplete
from loopctl.wire.sse import MAX_BODY, MAX_LINE

MAX_HEADERS = 128 * 1024
"""How long the headers of one frame may be, in bytes: what the format allows."""

MEDIA_TYPE = "application/vnd.amazon.eventstream"

HeaderValue: TypeAlias = bool | int | str | bytes
"""Bytes are a UUID's too; a timestamp is a number of milliseconds."""

_PRELUDE = struct.Struct("!III")
_CRC = struct.Struct("!I")
_LENGTH = struct.Struct("!H")
_OVERHEAD = _PRELUDE.size + _CRC.size
_NUMBERS = {
    2: struct.Struct("!b"),
    3: struct.Struct("!h"),
    4: struct.Struct("!i"),
    5: struct.Struct("!q"),
    8: struct.Struct("!q"),
}
_BYTES, _TEXT, _UUID = 6, 7, 9
_KEPT_HEADERS = 32


@dataclass(frozen=True, slots=True)
class EventFrame:
    """One frame. The names of headers that AWS gives begin with a colon, as `:event-type`."""

    headers: Mapping[str, HeaderValue]
    payload: bytes

    def text(self, name: str) -> str:
        """A header's text, blank where there is none."""
        value = self.headers.get(name)
        return value if isinstance(value, str) else ""


class EventFrameReader:
    """Turns bytes into frames: `feed` each piece, then `close` at the end of the body.

    Raises `InvalidResponseError` for a wrong checksum, headers that cannot be read or are longer
    than `MAX_HEADERS`, a payload over `max_payload` and a body over `max_body` bytes. The frames
    in front of the fault are returned first; if there are some, the next call raises.
    """

    def __init__(self, *, max_payload: int = MAX_LINE, max_body: int = MAX_BODY) -> None:
        self._max_payload = max_payload
        self._max_body = max_body
        self._read = 0
        self._data = bytearray()
        self._wanted = _PRELUDE.size  # how much must be there before it is looked at again
        self._fault: ModelError | None = None
        self._known: dict[bytes, Mapping[str, HeaderValue]] = {}  # most frames begin alike

    def feed(self, data: bytes) -> list[EventFrame]:
        """The frames that `data` completes."""
        frames: list[EventFrame] = []
        if self._fault is None:
            over = self._read + len(data) - self._max_body
            if over > 0:
                data = data[: self._max_body - self._read]
            self._read += len(data)
            self._data += data
            if len(self._data) >= self._wanted:
                self._take(frames)
            if over > 0 and self._fault is None:
                self._fault = InvalidResponseError(
                    f"the body is longer than {self._max_body} bytes"
                )
        if self._fault is not None and not frames:
            raise self._fault
        return frames

    def close(self) -> None:
        """Say that the body has ended.

        Raises the fault that `feed` held back, and `StreamIncomplete` inside a frame.
        """
        if self._fault is not None:
            raise self._fault
        if self._data:
            raise StreamIncomplete("the body ended inside a frame")

    def _take(self, frames: list[EventFrame]) -> None:
        """Take every whole frame off the buffer, at once: what is left is moved one time."""
        view, at, length = bytes(self._data), 0, len(self._data)
        self._wanted = _PRELUDE.size
        try:
            while length - at >= _PRELUDE.size:
                total, headers, checksum = _PRELUDE.unpack_from(view, at)
                self._check(view, at, total, headers, checksum)
                if length - at < total:
                    self._wanted = total
                    break
                frames.append(self._frame(view, at, total, headers))
                at += total
        except ModelError as fault:
            self._fault = fault
        del self._data[:at]

    def _check(self, view: bytes, at: int, total: int, headers: int, checksum: int) -> None:
        if crc32(view[at : at + 8]) != checksum:
            raise InvalidResponseError("no event stream, or a damaged one: a checksum is wrong")
        if headers > MAX_HEADERS:
            raise InvalidResponseError(
                f"the headers of a frame are longer than {MAX_HEADERS} bytes"
            )
        payload = total - headers - _OVERHEAD
        if payload < 0:
            raise InvalidResponseError("a frame is shorter than its headers")
        if payload > self._max_payload:
            raise InvalidResponseError(f"a payload is longer than {self._max_payload} bytes")

    def _frame(self, view: bytes, at: int, total: int, headers: int) -> EventFrame:
        end = at + total - _CRC.size
        if crc32(view[at:end]) != _CRC.unpack_from(view, end)[0]:
            raise InvalidResponseError("a damaged frame: its checksum is wrong")
        begin = at + _PRELUDE.size + headers
        raw = view[at + _PRELUDE.size : begin]
        known = self._known.get(raw)
        if known is None:
            known = _headers(raw)
            if len(self._known) < _KEPT_HEADERS:
                self._known[raw] = known
        return EventFrame(known, view[begin:end])


def _headers(data: bytes) -> dict[str, HeaderValue]:
    headers: dict[str, HeaderValue] = {}
    at, end = 0, len(data)
    try:
        while at < end:
            begin = at + 1
            at = begin + data[at]
            name = _piece(data, begin, at).decode()
            kind = data[at]
            at += 1
            if name in headers:
                raise InvalidResponseError(f"a frame has the header {name!r} twice")
            if kind in (_BYTES, _TEXT):
                begin = at + _LENGTH.size
                at = begin + _LENGTH.unpack_from(data, at)[0]
                raw = _piece(data, begin, at)
                headers[name] = raw.decode() if kind == _TEXT else raw
            elif kind in _NUMBERS:
                headers[name] = _NUMBERS[kind].unpack_from(data, at)[0]
                at += _NUMBERS[kind].size
            elif kind == _UUID:
                headers[name] = _piece(data, at, at + 16)
                at += 16
            elif kind in (0, 1):
                headers[name] = kind == 0
            else:
                raise InvalidResponseError(f"a header of the unknown type {kind}")
    except (IndexError, struct.error, UnicodeDecodeError):
        raise InvalidResponseError("the headers of a frame cannot be read") from None
    return headers


def _piece(data: bytes, begin: int, end: int) -> bytes:
    """The bytes from `begin` to `end`, all of them."""
    if end > len(data):
        raise IndexError
    return data[begin:end]
