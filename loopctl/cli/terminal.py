"""Where a run is shown: a terminal or a pipe for people, or JSON lines for programs.

The answer goes to standard output, everything else to standard error. A terminal sees the text
of every turn as it comes; a pipe gets the answer alone, once it is complete, because what has
been written to it cannot be taken back when an attempt fails or a tool is called.
"""

from __future__ import annotations

import re
from typing import NoReturn, Protocol, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.status import Status
from rich.text import Text

from loopctl.cli.line_editor import View
from loopctl.cli.screen import Line, Place, lines, visible
from loopctl.events import Event, ReplyReceived, RunEnded, TextDelta, to_json

PROMPT = "> "
"""What stands in front of the line that is typed."""

_SHOW_CURSOR = "\r\x1b[2K\x1b[?25h"
_UNESCAPED = re.compile("[\x7f-\x9f]")


class Screen(Protocol):
    """Something that shows a run."""

    def show(self, event: Event, place: Place) -> None:
        """Show one event; `place` is where the run is after it."""
        ...

    def say(self, line: Line) -> None:
        """Say a line that stems from no event."""
        ...

    def close(self) -> None:
        """Leave the terminal as it was found."""
        ...


class Terminal:
    """Shows a run to people, and below it the line that somebody types."""

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self.hint = ""
        """What the line about what goes on ends with."""
        self._out, self._err = out, err
        self._live = out.isatty()
        self._console = console_for(err)
        self._spinner: Status | None = None
        self._place: Place | None = None
        self._mid_line = False
        self._column = 0
        self._held = ""
        self._typed: View | None = None
        self._laid = False

    @property
    def columns(self) -> int:
        """How many columns there are for what is typed."""
        return max(self._console.width - len(PROMPT) - 1, 4)

    def show(self, event: Event, place: Place) -> None:
        """Show one event: the answer's text, or lines about what happens."""
        self._lift()
        self._place = place
        self._tell(event)
        self._lay()

    def say(self, line: Line) -> None:
        """Say a line on standard error."""
        self._lift()
        self._say(line)
        self._lay()

    def under(self, typed: View | None) -> None:
        """Show the line that is typed below the output; `None` takes it away."""
        self._lift()
        self._typed = typed
        self._lay()

    def close(self) -> None:
        """Take away what is below the output, and end the line that is being written."""
        self._lift()
        self._typed = self._place = None
        self._rest()
        self._end_line()

    # -- the output ---------------------------------------------------------------------------

    def _tell(self, event: Event) -> None:
        if isinstance(event, TextDelta):
            if self._live:
                self._write(event.text)
            return
        for line in lines(event):
            self._say(line)
        if isinstance(event, ReplyReceived):
            self._end_line()
        if isinstance(event, RunEnded):
            self._place = None
            self._rest()
            self._end_line()
            if not self._live and event.output is not None:
                self._write(event.output)
                self._end_line()

    def _say(self, line: Line) -> None:
        self._end_line()
        self._console.print(Text(line.text, line.style), soft_wrap=True)

    def _write(self, text: str) -> None:
        self._rest()
        text = self._held + text
        self._held = text[-1] if text.endswith("\r") else ""
        text = visible(text.removesuffix("\r"))
        if text:
            self._mid_line = not text.endswith("\n")
            self._column = column_after(text, self._column, self._console.width)
            self._out.write(text)
            self._out.flush()

    def _end_line(self) -> None:
        self._held = ""
        if self._mid_line:
            self._write("\n")

    # -- below it -----------------------------------------------------------------------------

    def _lift(self) -> None:
        """Take the typed line away and go back to where the output ends."""
        if not self._laid:
            return
        self._laid = False
        back = "\r\x1b[J"
        if self._mid_line:
            if self._column < self._console.width:
                back += f"\x1b[A\r\x1b[{self._column}C" if self._column else "\x1b[A"
            else:  # it ends with its row, and goes on in the next
                self._column = 0
        self._err.write(back)
        self._err.flush()

    def _lay(self) -> None:
        """Put below the output what belongs there: the typed line, or what goes on."""
        if self._typed is not None:
            self._rest()
            start = "\n" if self._mid_line else ""
            at = len(PROMPT) + self._typed.cursor
            self._err.write(f"{start}{PROMPT}{self._typed.text}\r\x1b[{at}C")
            self._err.flush()
            self._laid = True
        elif self._place is not None:
            self._spin(self._place)

    def _spin(self, place: Place) -> None:
        if not self._console.is_terminal or self._mid_line:
            return
        text = Text(f"{place.activity} ...{self.hint}", "dim")
        if self._spinner is None:
            utf8 = self._console.encoding.startswith("utf")
            self._spinner = self._console.status(text, spinner="dots" if utf8 else "line")
            self._spinner.start()
        else:
            self._spinner.update(text)

    def _rest(self) -> None:
        if self._spinner is not None:
            self._spinner.stop()
            self._spinner = None


def column_after(text: str, column: int, width: int) -> int:
    """The column in which a terminal so wide is after a text; `width` behind a full row."""
    _, newline, last = text.rpartition("\n")
    column = 0 if newline else column
    for character in last:
        if character == "\t":
            column = min(column - column % 8 + 8, width - 1)
            continue
        cells = cell_len(character)
        column = cells if column + cells > width else column + cells
    return column


class JsonLines:
    """Writes the events of a run as JSON lines, and nothing else, to standard output."""

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._out = out
        self._console = console_for(err)

    def show(self, event: Event, place: Place) -> None:
        """Write one event."""
        self._out.write(json_line(to_json(event)))
        self._out.flush()

    def say(self, line: Line) -> None:
        """Say a line on standard error."""
        self._console.print(Text(line.text, line.style), soft_wrap=True)

    def close(self) -> None:
        """There is nothing to put back."""


def json_line(document: str) -> str:
    """A line of JSON that holds no control character."""
    return _UNESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", document) + "\n"


class _Console(Console):
    """A console that tells of a broken pipe instead of ending the process."""

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


def console_for(file: TextIO, *, width: int | None = None) -> Console:
    """A console that decorates only what a person sees, and takes no text for markup."""
    seen = file.isatty()
    return _Console(
        file=file,
        width=width,
        force_terminal=seen,
        force_interactive=seen,
        markup=False,
        emoji=False,
        highlight=False,
    )


def complain(err: TextIO, text: str, *, error: bool = True) -> None:
    """Say why the command ends; `error` unless it was asked to."""
    line = Text(f"Error: {text}", "red") if error else Text(text, "yellow")
    console_for(err).print(line, soft_wrap=True)


def last_words(err: TextIO) -> bytes:
    """What puts a terminal in order when the process is about to vanish."""
    return f"{_SHOW_CURSOR if err.isatty() else ''}stopped at once\n".encode()
