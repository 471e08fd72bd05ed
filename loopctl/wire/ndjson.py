"""Newline-delimited JSON, fed in pieces of bytes (MOD-7).

Lines end at LF and at nothing else: JSON may carry U+2028 or U+0085 raw. The lines, and the error
after them if there is one, are the same however the bytes are cut. Blank lines say nothing.
"""

from __future__ import annotations

from loopctl import _json
from loopctl.errors import InvalidResponseError, ModelError, StreamIncomplete
from loopctl.wire.sse import MAX_BODY, MAX_LINE

_BLANK = " \t\r"


class NdjsonReader:
    """Turns bytes into lines of text: `feed` each piece, then `close` at the end of the body.

    Raises `InvalidResponseError` for a line over `max_line`, a body over `max_body` or bytes that
    are not UTF-8. The lines in front of the fault are returned first; if there are some, the next
    call raises.
    """

    def __init__(self, *, max_line: int = MAX_LINE, max_body: int = MAX_BODY) -> None:
        self._max_line = max_line
        self._max_body = max_body
        self._read = 0
        self._pieces: list[bytes] = []  # of a line whose end has not come
        self._pending = 0
        self._lines: list[str] = []
        self._fault: ModelError | None = None

    def feed(self, data: bytes) -> list[str]:
        """The lines that `data` completes."""
        if self._fault is None:
            self._take(data)
        lines, self._lines = self._lines, []
        if self._fault is not None and not lines:
            raise self._fault
        return lines

    def close(self) -> list[str]:
        """Say that the body has ended; the last line, where only its LF is missing.

        Raises the fault that `feed` held back, and `StreamIncomplete` for a line that was cut.
        """
        if self._fault is not None:
            raise self._fault
        rest = b"".join(self._pieces)
        self._pieces, self._pending = [], 0
        try:
            text = rest.decode().strip(_BLANK)
        except UnicodeDecodeError as error:
            if error.reason == "unexpected end of data":
                raise StreamIncomplete("the body ended inside a character") from None
            raise InvalidResponseError(_NOT_UTF8) from None
        if text and _json.parse_object(text) is None:
            raise StreamIncomplete("the body ended inside a line")
        return [text] if text else []

    def _take(self, data: bytes) -> None:
        fault: ModelError | None = None
        if self._read + len(data) > self._max_body:
            fault = InvalidResponseError(f"the body is longer than {self._max_body} bytes")
            data = data[: self._max_body - self._read]
        self._read += len(data)
        *ended, rest = data.split(b"\n")
        for piece in ended:
            self._pieces.append(piece)
            self._line(b"".join(self._pieces))
            self._pieces, self._pending = [], 0
            if self._fault is not None:
                return
        if rest:
            self._pieces.append(rest)
            self._pending += len(rest)
            if self._pending > self._max_line:
                fault = self._too_long()
        self._fault = fault

    def _line(self, raw: bytes) -> None:
        if len(raw) > self._max_line:
            self._fault = self._too_long()
            return
        try:
            text = raw.decode().strip(_BLANK)
        except UnicodeDecodeError:
            self._fault = InvalidResponseError(_NOT_UTF8)
            return
        if text:
            self._lines.append(text)

    def _too_long(self) -> ModelError:
        return InvalidResponseError(f"a line is longer than {self._max_line} bytes")


_NOT_UTF8 = "the body is not UTF-8"
