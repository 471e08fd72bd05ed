"""A time limit that can stand still.

Time spent waiting for a slow reader of events, or for a person's approval, counts in no deadline
(ENG-22, TOL-10): whoever waits for those pauses the deadline that it works under.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Self

import anyio


def running_clock() -> Callable[[], float]:
    """The clock of the event loop that runs, to be asked many times: cheaper than finding it."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None:
        try:
            clock: Callable[[], float] = asyncio.get_running_loop().time
        except RuntimeError:
            return anyio.current_time
        return clock
    return anyio.current_time


class Deadline:
    """A cancel scope that ends its block `seconds` after it was made; `None` never does.

    `expired` says afterwards that the block was ended by it.
    """

    __slots__ = ("_left", "scope", "seconds")

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self.scope = (
            anyio.CancelScope()
            if seconds is None
            else anyio.CancelScope(deadline=running_clock()() + seconds)
        )
        self._left: float | None = None

    def __enter__(self) -> Self:
        self.scope.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        return bool(self.scope.__exit__(kind, error, traceback))

    @property
    def expired(self) -> bool:
        """Whether the block was ended by this deadline."""
        return self.scope.cancelled_caught

    def pause(self) -> None:
        """Stop the time; does nothing when it stands still already."""
        if self.scope.deadline != math.inf:
            self._left = self.scope.deadline - anyio.current_time()
            self.scope.deadline = math.inf

    def resume(self) -> None:
        """Let the time run on from where it was paused."""
        if self._left is not None:
            self.scope.deadline = anyio.current_time() + self._left
            self._left = None
