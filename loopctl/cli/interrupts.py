"""Ctrl-C: once to stop the run in an orderly way, twice to be gone at once (ENG-19)."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from types import FrameType
from typing import NoReturn, Self

import anyio.lowlevel

from loopctl.cli.exits import Exit


class Interrupts:
    """Calls `stop` on the event loop at the first Ctrl-C, and ends the process at the second.

    Enter it on the event loop, in the main thread. The second works whatever the event loop is
    doing; `restore` puts the terminal's settings back before it. A process that was started to
    ignore interrupts goes on ignoring them.

    A signal that comes just before an event loop falls asleep would be noticed only when something
    else wakes it. trio guards against that by itself; asyncio is given a socket to be woken by.
    """

    def __init__(
        self,
        stop: Callable[[], object],
        *,
        last_words: bytes = b"",
        restore: Callable[[], object] | None = None,
    ) -> None:
        self._stop = stop
        self._last_words = last_words
        self._restore = restore
        self._asked = False
        self._before = signal.getsignal(signal.SIGINT)
        self._alarm: Alarm | None = None

    def __enter__(self) -> Self:
        self._token = anyio.lowlevel.current_token()
        if self._before is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self._interrupted)
            loop: object = self._token.native_token
            if isinstance(loop, asyncio.AbstractEventLoop):
                self._alarm = Alarm(loop)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self._before)
        if self._alarm is not None:
            self._alarm.close()

    def rearm(self) -> None:
        """Nothing had to be stopped: the next Ctrl-C is a first one again."""
        self._asked = False

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            self._vanish()
        self._asked = True
        # It runs between any two steps of the program, so it only leaves word.
        self._token.backend_class.run_sync_soon(self._stop, (), self._token.native_token)

    def _vanish(self) -> NoReturn:
        try:
            if self._restore is not None:
                self._restore()
            os.write(2, self._last_words)
        finally:
            os._exit(Exit.CANCELLED)


class Alarm:
    """Wakes an asyncio event loop whenever a signal comes."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._awake, self._bell = socket.socketpair()
        self._awake.setblocking(False)
        self._bell.setblocking(False)
        loop.add_reader(self._awake, self._awake.recv, 4096)
        self._before = signal.set_wakeup_fd(self._bell.fileno(), warn_on_full_buffer=False)

    def close(self) -> None:
        """Leave everything as it was."""
        signal.set_wakeup_fd(self._before, warn_on_full_buffer=False)
        self._loop.remove_reader(self._awake)
        self._awake.close()
        self._bell.close()
