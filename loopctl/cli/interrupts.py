"""Ctrl-C: once to stop the run in an orderly way, twice to be gone at once (ENG-19)."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import NoReturn, Self

import anyio.lowlevel

from loopctl.cli.exits import Exit


class Interrupts:
    """Calls `stop` on the event loop at the first Ctrl-C, and ends the process at the second.

    Enter it on the event loop, in the main thread. The second works whatever the event loop is
    doing. A process that was started to ignore interrupts goes on ignoring them.
    """

    def __init__(self, stop: Callable[[], object], *, last_words: bytes = b"") -> None:
        self._stop = stop
        self._last_words = last_words
        self._asked = False
        self._before = signal.getsignal(signal.SIGINT)

    def __enter__(self) -> Self:
        self._token = anyio.lowlevel.current_token()
        if self._before is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self._interrupted)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self._before)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            self._vanish()
        self._asked = True
        # It runs between any two steps of the program, so it only leaves word.
        self._token.backend_class.run_sync_soon(self._stop, (), self._token.native_token)

    def _vanish(self) -> NoReturn:
        try:
            os.write(2, self._last_words)
        finally:
            os._exit(Exit.CANCELLED)
