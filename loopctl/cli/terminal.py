"""Where a run is shown: a terminal or a pipe for people, or JSON lines for programs.

The answer goes to standard output, everything else to standard error. A terminal sees the text
of every turn as it comes; a pipe gets the answer alone, once it is complete, because what has
been written to it cannot be taken back when an attempt fails or a tool is called.
"""

from __future__ import annotations

import re
from typing import NoReturn, Protocol, TextIO

from rich.console import Console
from rich.status import Status
from rich.text import Text

from loopctl.cli.screen import Line, Place, lines, visible
from loopctl.events import Event, ReplyReceived, RunEnded, TextDelta, to_json

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
    """Shows a run to people."""

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._out = out
        self._live = out.isatty()
        self._console = console_for(err)
        self._spinner: Status | None = None
        self._mid_line = False
        self._held = ""

    def show(self, event: Event, place: Place) -> None:
        """Show one event: the answer's text, or lines about what happens."""
        if isinstance(event, TextDelta):
            if self._live:
                self._write(event.text)
                return
        else:
            for line in lines(event):
                self.say(line)
        if isinstance(event, ReplyReceived):
            self._end_line()
        if isinstance(event, RunEnded):
            self.close()
            if not self._live and event.output is not None:
                self._write(event.output)
                self._end_line()
            return
        self._spin(place)

    def say(self, line: Line) -> None:
        """Say a line on standard error."""
        self._end_line()
        self._console.print(Text(line.text, line.style), soft_wrap=True)

    def close(self) -> None:
        """Take the spinner away and end the line that is being written."""
        self._rest()
        self._end_line()

    def _write(self, text: str) -> None:
        self._rest()
        text = self._held + text
        self._held = text[-1] if text.endswith("\r") else ""
        text = visible(text.removesuffix("\r"))
        if text:
            self._mid_line = not text.endswith("\n")
            self._out.write(text)
            self._out.flush()

    def _end_line(self) -> None:
        self._held = ""
        if self._mid_line:
            self._write("\n")

    def _spin(self, place: Place) -> None:
        if not self._console.is_terminal or self._mid_line:
            return
        text = Text(f"{place.activity} ...", "dim")
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
