"""Server-sent events by the rules of the WHATWG, fed in pieces of bytes (MOD-7).

Lines end at LF, CR or CRLF and at nothing else: JSON may carry U+2028 or U+0085 raw. The events,
and the error after them if there is one, are the same however the bytes are cut. An event that
no empty line ended is not dispatched; whether that matters is for the dialect to say (MOD-8).
"""

from __future__ import annotations

from dataclasses import dataclass

from loopctl.errors import InvalidResponseError, ModelError, StreamIncomplete

MAX_LINE = 1024 * 1024
"""The longest line, in bytes without its end."""

MAX_BODY = 10 * 1024 * 1024
"""The longest body, in bytes."""

_NOT_UTF8 = "the body is not UTF-8"


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event: its data (lines joined by LF), its type (`""`: none given), the last id seen."""

    data: str
    event: str = ""
    id: str = ""


class EventStreamReader:
    """Turns bytes into events: `feed` each piece, then `close` at the end of the body.

    Raises `InvalidResponseError` for a line over `max_line`, a body over `max_body` or bytes that
    are not UTF-8. The events in front of the fault are returned first; if there are some, the
    next call raises.
    """

    def __init__(self, *, max_line: int = MAX_LINE, max_body: int = MAX_BODY) -> None:
        self._max_line = max_line
        self._max_body = max_body
        self._read = 0
        self._pieces: list[bytes] = []  # of a line whose end has not come
        self._pending = 0
        self._after_cr = False
        self._first_line = True
        self._data: list[str] = []
        self._event = ""
        self._id = ""
        self._events: list[ServerSentEvent] = []
        self._fault: ModelError | None = None

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        """The events that `data` completes."""
        if self._fault is None:
            self._take(data)
        events, self._events = self._events, []
        if self._fault is not None and not events:
            raise self._fault
        return events

    def close(self) -> None:
        """Say that the body has ended.

        Raises the fault that `feed` held back, and `StreamIncomplete` for a character cut in two.
        """
        if self._fault is not None:
            raise self._fault
        try:
            b"".join(self._pieces).decode()
        except UnicodeDecodeError as error:
            if error.reason == "unexpected end of data":
                raise StreamIncomplete("the body ended inside a character") from None
            raise InvalidResponseError(_NOT_UTF8) from None

    def _take(self, data: bytes) -> None:
        fault: ModelError | None = None
        if self._read + len(data) > self._max_body:
            fault = InvalidResponseError(f"the body is longer than {self._max_body} bytes")
            data = data[: self._max_body - self._read]
        self._read += len(data)
        if self._after_cr and data:
            self._after_cr = False
            data = data[1:] if data[:1] == b"\n" else data
        if b"\r" in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        end = data.rfind(b"\n")
        if end < 0:
            self._keep(data)
        else:
            self._pieces.append(data[:end])
            block = b"".join(self._pieces)
            self._pieces, self._pending = [], 0
            self._lines(block)
            self._keep(data[end + 1 :])
        self._fault = self._fault or fault

    def _keep(self, rest: bytes) -> None:
        if rest and self._fault is None:
            self._pieces.append(rest)
            self._pending += len(rest)
            if self._pending > self._max_line:
                self._fault = self._too_long()

    def _lines(self, block: bytes) -> None:
        if len(block) > self._max_line:
            raw_lines = block.split(b"\n")
            for number, raw in enumerate(raw_lines):
                if len(raw) > self._max_line:
                    for earlier in raw_lines[:number]:
                        self._lines(earlier)
                    self._fault = self._fault or self._too_long()
                    return
        if self._first_line:
            self._first_line = False
            block = block.removeprefix(b"\xef\xbb\xbf")
        try:
            text = block.decode()
        except UnicodeDecodeError as error:
            good = block.rfind(b"\n", 0, error.start)
            if good >= 0:
                self._lines(block[:good])
            self._fault = InvalidResponseError(_NOT_UTF8)
            return
        data = self._data
        for line in text.split("\n"):
            if line.startswith("data: "):
                data.append(line[6:])
            elif line:
                self._field(line)
            else:
                if data:
                    self._events.append(ServerSentEvent("\n".join(data), self._event, self._id))
                    data.clear()
                self._event = ""

    def _field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self._id = value

    def _too_long(self) -> ModelError:
        return InvalidResponseError(f"a line is longer than {self._max_line} bytes")
