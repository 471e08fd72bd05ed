"""A time limit that can stand still.

Time spent waiting for a slow reader of events, or for a person's approval, counts in no deadline
(ENG-22, TOL-10): whoever waits for those pauses the deadline that it works under.
"""

from __future__ import annotations

import math
from types import TracebackType
from typing import Self

import anyio

from loopctl._backend import cancel_scope


class Deadline:
    """A cancel scope that ends its block `seconds` after it was made; `None` never does.

    `expired` says afterwards that the block was ended by it.
    """

    __slots__ = ("_left", "scope", "seconds")

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self.scope = cancel_scope(seconds)
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
