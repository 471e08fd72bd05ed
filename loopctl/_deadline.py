"""A time limit that can stand still, and costs little where it is kept.

Time spent waiting for a slow reader of events, or for a person's approval, counts in no deadline
(ENG-22, TOL-10): whoever waits for those pauses the deadline that it works under.

A timer for each deadline would be the largest part of what a turn costs. On asyncio all deadlines
of an event loop share one bell, which rings at the earliest and finds out which are over; a
deadline that is kept, as nearly all are, sets no timer of its own. trio's scopes have none either.
"""

from __future__ import annotations

import math
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Self
from weakref import WeakKeyDictionary

import anyio

from loopctl._backend import asyncio_task, new_scope

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


class Deadline:
    """A cancel scope that ends its block `seconds` after it was made; `None` never does.

    `expired` says afterwards that the block was ended by it; `when` is the moment by the event
    loop's clock, infinity while it stands still.
    """

    __slots__ = ("_bell", "_left", "scope", "seconds", "when")

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self._left: float | None = None
        task = asyncio_task()
        if task is None:
            self._bell: _Bell | None = None
            self.when = math.inf if seconds is None else anyio.current_time() + seconds
            self.scope = anyio.CancelScope(deadline=self.when)
            return
        loop = task.get_loop()
        self._bell = None if seconds is None else _bell_of(loop)
        self.when = math.inf if seconds is None else loop.time() + seconds
        self.scope = new_scope()

    def __enter__(self) -> Self:
        self.scope.__enter__()
        if self._bell is not None:
            self._bell.watch(self)
            if self.seconds is not None and self.seconds <= 0:
                self.scope.cancel()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if self._bell is not None:
            self._bell.forget(self)
        return bool(self.scope.__exit__(kind, error, traceback))

    @property
    def expired(self) -> bool:
        """Whether the block was ended by this deadline."""
        return self.scope.cancelled_caught

    @property
    def left(self) -> float:
        """The seconds that are left, also while it stands still."""
        return self.when - anyio.current_time() if self._left is None else self._left

    def pause(self) -> None:
        """Stop the time; does nothing when it stands still already."""
        if self.when != math.inf:
            self._left = self.when - anyio.current_time()
            self.move(math.inf)

    def resume(self) -> None:
        """Let the time run on from where it was paused."""
        if self._left is not None:
            left, self._left = self._left, None
            self.move(anyio.current_time() + left)

    def move(self, when: float) -> None:
        """Set the moment by the event loop's clock; infinity stops the time."""
        self.when = when
        if self._bell is None:
            self.scope.deadline = when
        else:
            self._bell.watch(self)


class _Bell:
    """One timer for all deadlines of an asyncio event loop.

    It keeps no reference to the loop: a bell that is set for a moment when nothing is over any
    more rings for nothing, and one that was set before an earlier one is not listened to.
    """

    __slots__ = ("_next", "_watched")

    def __init__(self) -> None:
        self._watched: set[Deadline] = set()
        self._next = math.inf

    def watch(self, deadline: Deadline) -> None:
        self._watched.add(deadline)
        if deadline.when < self._next:
            self._set(deadline.when)

    def forget(self, deadline: Deadline) -> None:
        self._watched.discard(deadline)

    def _set(self, when: float) -> None:
        from asyncio import get_running_loop  # it is loaded where there is a bell

        self._next = when
        get_running_loop().call_at(when, self._ring, when)

    def _ring(self, when: float) -> None:
        from asyncio import get_running_loop

        if when != self._next:
            return
        self._next = math.inf
        now = max(when, get_running_loop().time())  # loops ring a little early
        for deadline in [each for each in self._watched if each.when <= now]:
            self._watched.discard(deadline)
            deadline.scope.cancel()
        earliest = min((each.when for each in self._watched), default=math.inf)
        if earliest != math.inf:
            self._set(earliest)


_bells: WeakKeyDictionary[AbstractEventLoop, _Bell] = WeakKeyDictionary()
_making = threading.Lock()


def _bell_of(loop: AbstractEventLoop) -> _Bell:
    bell = _bells.get(loop)
    if bell is None:
        with _making:
            bell = _bells.setdefault(loop, _Bell())
    return bell
