"""EventStream: a run that is read along (ENG-21, ENG-22).

Events pass through a memory object stream between the run's task and the reader. No public
generator yields inside a task group or a cancel scope; the block itself is left where it was
entered, and everything that it started has ended by then.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self

import anyio
import anyio.lowlevel

from loopctl._failures import unwrapped
from loopctl.engine.flight import Flight
from loopctl.engine.run import fly
from loopctl.errors import LoopError, RunCancelled
from loopctl.machine import Outcome
from loopctl.runs import Run

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=str)
else:
    from typing import TypeVar

    T = TypeVar("T")

if TYPE_CHECKING:
    from anyio.abc import TaskGroup
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from loopctl.events import Event

BUFFERED_EVENTS = 16
"""How many events a run may be ahead of its reader."""

_BATCHES = 3
"""After so many turns of the event loop a new task has taken its first step."""

_NOTHING = (None, None, None)


class EventStream(Generic[T]):
    """The events of one run, as they happen.

    Use it as `async with agent.stream(…) as stream`, and iterate once. Iteration yields
    `RunEnded` last, then stops if the run completed, and otherwise raises what `run()` would
    raise. Leaving early cancels the run and raises nothing. `run` is set afterwards in every case.
    """

    def __init__(
        self,
        take_off: Callable[[MemoryObjectSendStream[Event]], Flight],
        task_group: TaskGroup | None = None,
    ) -> None:
        self._take_off = take_off
        self._given_group = task_group
        self._own_group: TaskGroup | None = None
        self._flight: Flight | None = None
        self._receive: MemoryObjectReceiveStream[Event] | None = None
        self._done: anyio.Event | None = None
        self._error: BaseException | None = None
        self._told_end = False
        self._cancelled_early = False
        self._entered_in: int | None = None
        self._began = False

    @property
    def run(self) -> Run[T] | None:
        """The run as it ended; `None` while it is in flight."""
        return None if self._flight is None else self._flight.run

    def cancel(self) -> bool:
        """Cancel the run, even before it has started; `False` if it has ended (ENG-19)."""
        if self._flight is None:
            was, self._cancelled_early = self._cancelled_early, True
            return not was
        return self._flight.cancel()

    async def __aenter__(self) -> Self:
        if self._entered_in is not None:
            raise LoopError("an event stream is entered once; call stream() again")
        self._entered_in = anyio.get_current_task().id
        send, self._receive = anyio.create_memory_object_stream["Event"](BUFFERED_EVENTS)
        try:
            self._flight = self._take_off(send)
        except BaseException:
            send.close()
            self._receive.close()
            raise
        if self._cancelled_early:
            self._flight.cancel()
        self._done = anyio.Event()
        group = self._given_group
        if group is None:
            group = self._own_group = anyio.create_task_group()
            await group.__aenter__()
        name = f"loopctl {self._flight.run_id}"
        try:
            group.start_soon(self._fly, self._flight, self._done, name=name)
        except BaseException:
            self._never_began(self._flight)
            self._receive.close()
            raise
        return self

    async def _fly(self, flight: Flight, done: anyio.Event) -> None:
        """The run's task. What ends the run is kept for the reader and never reaches the group.

        Neither does a cancellation of this task alone; whoever cancels the group has told it.
        """
        self._began = True
        try:
            await fly(flight)
        except (Exception, anyio.get_cancelled_exc_class()) as error:
            self._error = error
        except BaseException as error:
            self._error = error
            raise
        finally:
            done.set()

    async def _begins(self, flight: Flight) -> None:
        """See to it that the run has begun or has ended.

        A task that asyncio cancels in front of its first step never takes one.
        """
        for _ in range(_BATCHES):
            if self._began:
                return
            await anyio.lowlevel.checkpoint()
        if not self._began:
            self._never_began(flight)

    def _never_began(self, flight: Flight) -> None:
        """Settle a run whose task is dead already."""
        assert self._done is not None
        self._began = True
        self._error = flight.settle(Outcome(ending="cancelled"), None).error
        self._done.set()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._flight is not None
        assert self._receive is not None
        self._flight.cancel()
        self._receive.close()
        if not self._began:
            with anyio.CancelScope(shield=True):
                await self._begins(self._flight)
        if self._own_group is not None and anyio.get_current_task().id == self._entered_in:
            await self._leave_group(error)
            return
        assert self._done is not None
        with anyio.CancelScope(shield=True):  # it was cancelled: the session is free afterwards
            await self._done.wait()
        if self._own_group is not None:
            raise LoopError(
                "this event stream is left in another task than it was entered in;"
                " give stream() a task_group that outlives both"
            ) from error

    async def _leave_group(self, error: BaseException | None) -> None:
        """Leave the group that the block owns: the run's task ends first."""
        assert self._own_group is not None
        cancelled = isinstance(error, anyio.get_cancelled_exc_class())
        passed = (type(error), error, error.__traceback__) if error and cancelled else _NOTHING
        try:
            await self._own_group.__aexit__(*passed)
        except BaseExceptionGroup as group:
            raise unwrapped(group) from None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._receive is None or self._flight is None or self._done is None:
            raise LoopError("enter the stream first: async with agent.stream(…) as stream")
        try:
            return self._receive.receive_nowait()
        except anyio.WouldBlock:
            if self._flight.emitter.late:
                return self._flight.emitter.late.popleft()
        except anyio.EndOfStream:
            return await self._end()
        except anyio.ClosedResourceError:
            raise StopAsyncIteration from None
        if not self._began:
            await self._begins(self._flight)
        try:
            return await self._receive.receive()
        except anyio.EndOfStream:
            return await self._end()

    async def _end(self) -> Event:
        """The last event, then the end: quiet for a completed run, else what `run()` raises."""
        assert self._flight is not None
        assert self._done is not None
        if self._flight.emitter.late:
            return self._flight.emitter.late.popleft()
        ended = self._flight.ended
        if ended is not None and not self._told_end:
            self._told_end = True
            return ended
        await self._done.wait()
        if self._error is None:
            raise StopAsyncIteration
        if isinstance(self._error, Exception):
            raise self._error
        cancelled = RunCancelled()
        cancelled.run = self._flight.run
        raise cancelled from self._error
