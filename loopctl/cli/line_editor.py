"""One line of input as it is typed: keys in, lines out. Pure: nothing here reads or prints.

The keys are those of a terminal that sends them one by one. The usual ones edit, up and down go
through what was entered before, a paste of several lines stays one entry. Other escape sequences
are swallowed whole.
"""

from __future__ import annotations

import codecs
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from rich.cells import cell_len

MAX_SEQUENCE = 64
"""After so many characters an escape sequence that has no end is given up."""

_PASTE, _PASTED = "[200~", "[201~"


@dataclass(frozen=True, slots=True)
class View:
    """What is seen of a line: a piece of it, and the column of the cursor in this piece."""

    text: str
    cursor: int


class LineEditor:
    """The line that is being typed."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text: list[str] = []
        self._cursor = 0
        self._entered: list[str] = []
        self._recalled = 0
        """Which of the entered lines is shown; their number stands for the new one."""
        self._draft: list[str] = []
        self._escape: str | None = None
        self._pasting = False
        left, right = partial(self._move, -1), partial(self._move, 1)
        home, end = partial(self._move, -sys.maxsize), partial(self._move, sys.maxsize)
        up, down = partial(self._recall, -1), partial(self._recall, 1)
        self._keys: dict[str, Callable[[], None]] = {
            "\x7f": self._rub_out,
            "\b": self._rub_out,
            "\x04": self._delete,
            "\x02": left,
            "\x06": right,
            "\x01": home,
            "\x05": end,
            "\x10": up,
            "\x0e": down,
            "\x17": self._cut_word,
            "\x15": self._cut_before,
            "\x0b": self._cut_behind,
        }
        self._sequences: dict[str, Callable[[], None]] = {
            **dict.fromkeys(("[D", "OD"), left),
            **dict.fromkeys(("[C", "OC"), right),
            **dict.fromkeys(("[H", "OH", "[1~", "[7~"), home),
            **dict.fromkeys(("[F", "OF", "[4~", "[8~"), end),
            **dict.fromkeys(("[A", "OA"), up),
            **dict.fromkeys(("[B", "OB"), down),
            "[3~": self._delete,
            "\x7f": self._cut_word,
        }

    @property
    def text(self) -> str:
        """What has been typed."""
        return "".join(self._text)

    def feed(self, data: bytes) -> list[str | None]:
        """Take keys; gives the lines that they complete, `None` for Ctrl-D on an empty line."""
        done: list[str | None] = []
        for key in self._decoder.decode(data):
            if self._escape is not None:
                self._in_escape(key)
            elif key == "\x1b":
                self._escape = ""
            elif self._pasting:
                self._insert("\n" if key == "\r" else key)
            elif key in "\r\n":
                done.append(self._enter())
            elif key == "\x04" and not self._text:
                done.append(None)
            elif key in self._keys:
                self._keys[key]()
            elif key.isprintable():
                self._insert(key)
        return done

    def put(self, text: str) -> None:
        """Have a text stand there as if it had been typed, in front of what has been."""
        self._text[:0] = text
        self._cursor = len(self._text)

    def clear(self) -> bool:
        """Forget what has been typed; `False` if nothing has."""
        had = bool(self._text)
        self._replace([])
        return had

    def view(self, columns: int) -> View:
        """The piece around the cursor that fits so many columns, control characters written out."""
        shown = [c if c.isprintable() else ascii(c)[1:-1] for c in self._text]
        widths = [cell_len(each) for each in shown]
        first, room = self._cursor, columns - 1
        while first and (room := room - widths[first - 1]) >= 0:
            first -= 1
        before = sum(widths[first : self._cursor])
        last, room = self._cursor, columns - before
        while last < len(shown) and (room := room - widths[last]) >= 0:
            last += 1
        return View("".join(shown[first:last]), before)

    # -- editing ------------------------------------------------------------------------------

    def _insert(self, key: str) -> None:
        self._text.insert(self._cursor, key)
        self._cursor += 1

    def _replace(self, text: list[str]) -> None:
        self._text, self._cursor = text, len(text)

    def _enter(self) -> str:
        text = self.text
        if text.strip() and text not in self._entered[-1:]:
            self._entered.append(text)
        self._recalled = len(self._entered)
        self._replace([])
        return text

    def _recall(self, step: int) -> None:
        if self._recalled == len(self._entered):
            self._draft = self._text
        wanted = min(max(self._recalled + step, 0), len(self._entered))
        if wanted != self._recalled:
            self._recalled = wanted
            last = wanted == len(self._entered)
            self._replace(self._draft if last else list(self._entered[wanted]))

    def _move(self, step: int) -> None:
        self._cursor = min(max(self._cursor + step, 0), len(self._text))

    def _cut(self, first: int, last: int) -> None:
        first = max(first, 0)
        del self._text[first:last]
        self._cursor = first

    def _rub_out(self) -> None:
        self._cut(self._cursor - 1, self._cursor)

    def _delete(self) -> None:
        self._cut(self._cursor, self._cursor + 1)

    def _cut_before(self) -> None:
        self._cut(0, self._cursor)

    def _cut_behind(self) -> None:
        self._cut(self._cursor, len(self._text))

    def _cut_word(self) -> None:
        first = len(self.text[: self._cursor].rstrip())
        while first and not self._text[first - 1].isspace():
            first -= 1
        self._cut(first, self._cursor)

    # -- escape sequences ---------------------------------------------------------------------

    def _in_escape(self, key: str) -> None:
        sequence = f"{self._escape}{key}"
        if len(sequence) < MAX_SEQUENCE and (
            sequence in ("[", "O") or (sequence[0] == "[" and not "@" <= key <= "~")
        ):
            self._escape = sequence
            return
        self._escape = None
        if sequence in (_PASTE, _PASTED):
            self._pasting = sequence == _PASTE
        elif not self._pasting and sequence in self._sequences:
            self._sequences[sequence]()
