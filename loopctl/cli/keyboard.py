"""The keys of a terminal while the command works, one by one (CTX-23).

The terminal goes on making signals of Ctrl-C and Ctrl-Z, so what interrupts does is the same
whether somebody can type or not.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections import deque
from types import FrameType
from typing import Self, TextIO

import anyio

from loopctl.cli.line_editor import LineEditor
from loopctl.cli.screen import Line, visible
from loopctl.cli.terminal import Terminal

if sys.platform != "win32":  # whose terminals work otherwise: nothing can be typed to a run there
    import termios

_PASTES_ARE_MARKED, _PASTES_ARE_KEYS = b"\x1b[?2004h", b"\x1b[?2004l"
_IN_THE_BACKGROUND = 0.5
"""How often, in seconds, a command in the background looks whether the terminal is its again."""


def keyboard(stdin: TextIO | None, err: TextIO, screen: Terminal) -> Keyboard | None:
    """The keyboard, where there is one and a person who sees what is typed on it."""
    if sys.platform == "win32" or stdin is None or not (stdin.isatty() and err.isatty()):
        return None
    fd = stdin.fileno()
    if not _is_ours(fd):
        return None
    screen.hint = " (type to steer)"
    return Keyboard(fd, err.fileno(), screen)


class Keyboard:
    """Lines that are typed while it is entered; the line being typed shows below the output.

    `open` until the terminal is gone.
    """

    def __init__(self, fd: int, shown_on: int, screen: Terminal) -> None:
        self.open = True
        self._fd, self._shown_on, self._screen = fd, shown_on, screen
        self._editor = LineEditor()
        self._done: deque[str | None] = deque()

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(self._fd)
        self._grab()
        self._continued = signal.signal(signal.SIGCONT, self._come_back)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGCONT, self._continued)
        self.restore()

    def restore(self) -> None:
        """Leave the terminal as it was found."""
        if _is_ours(self._fd):
            with contextlib.suppress(OSError, termios.error):
                termios.tcsetattr(self._fd, termios.TCSANOW, self._before)
                os.write(self._shown_on, _PASTES_ARE_KEYS)

    async def line(self, *, idle: bool = False) -> str | None:
        """The next line; `None` for Ctrl-D on an empty one, and when the terminal is gone.

        A prompt shows as soon as something is typed, and always when `idle`. What is typed when
        the wait is cancelled is kept for the next one.
        """
        try:
            while not self._done:
                view = self._editor.view(self._screen.columns)
                self._screen.under(view if idle or self._editor.text else None)
                await anyio.wait_readable(self._fd)
                await self._until_ours()
                self._read()
        finally:
            self._screen.under(None)
        said = self._done.popleft()
        if said is not None and said.strip():
            self._screen.say(Line(f"> {visible(said)}"))
        return said

    def put(self, text: str) -> None:
        """Have a text stand there as if it had been typed."""
        self._editor.put(text)

    def clear(self) -> bool:
        """Forget what is being typed; `False` if nothing is."""
        cleared = self._editor.clear()
        if cleared:
            self._screen.under(self._editor.view(self._screen.columns))
        return cleared

    def _read(self) -> None:
        try:
            data = os.read(self._fd, 4096)
        except OSError:  # how a terminal says that the other side is gone
            data = b""
        if data:
            self._done.extend(self._editor.feed(data))
        else:
            self.open = False
            self._done.append(None)

    async def _until_ours(self) -> None:
        """To read, or to change settings, would stop a command that was sent to the background."""
        if not _is_ours(self._fd):
            while not _is_ours(self._fd):  # noqa: ASYNC110  # nothing tells of it
                await anyio.sleep(_IN_THE_BACKGROUND)
            self._grab()

    def _come_back(self, number: int, frame: FrameType | None) -> None:
        if _is_ours(self._fd):
            self._grab()

    def _grab(self) -> None:
        modes = termios.tcgetattr(self._fd)
        modes[3] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN)
        modes[6][termios.VMIN], modes[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self._fd, termios.TCSANOW, modes)
        os.write(self._shown_on, _PASTES_ARE_MARKED)


def _is_ours(fd: int) -> bool:
    """Whether we may use the terminal now; one that controls nobody is always free."""
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return True
