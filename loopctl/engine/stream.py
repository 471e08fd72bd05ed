"""EventStream: a run that is read along (ENG-21, ENG-22).

Events pass through a memory object stream between the run's task and the reader. No public
generator yields inside a task group or a cancel scope; the block itself is left where it was
entered, and everything that it started has ended by then.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio

from loopctl.engine.flight import Flight
from loopctl.engine.run import fly
from loopctl.errors import LoopError
from loopctl.runs import Run
from loopctl.tools.failures import unwrapped

if TYPE_CHECKING:
    from anyio.abc import TaskGroup
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from loopctl.events import Event

BUFFERED_EVENTS = 16
"""How many events a run may be ahead of its reader."""


class EventStream:
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

    @property
    def run(self) -> Run[str] | None:
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
        group.start_soon(self._fly, self._flight, self._done, name=f"loopctl {self._flight.run_id}")
        return self

    async def _fly(self, flight: Flight, done: anyio.Event) -> None:
        """The run's task. What ends the run is kept for the reader and never reaches the group."""
        try:
            await fly(flight)
        except Exception as error:
            self._error = error
        except BaseException as error:
            self._error = error
            raise
        finally:
            done.set()

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
        if anyio.get_current_task().id != self._entered_in:
            raise LoopError(
                "this event stream is left in another task than it was entered in;"
                " give stream() a task_group that outlives both"
            ) from error
        if self._own_group is None:
            await self._wait_for_the_run()
            return
        cancelled = isinstance(error, anyio.get_cancelled_exc_class())
        passed = (kind, error, traceback) if cancelled else (None, None, None)
        try:
            await self._own_group.__aexit__(*passed)
        except BaseExceptionGroup as group:
            raise unwrapped(group) from None

    async def _wait_for_the_run(self) -> None:
        """The run ends in its own group; a task that is itself cancelled does not stay for it."""
        assert self._done is not None
        if anyio.current_effective_deadline() != -math.inf:
            await self._done.wait()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._receive is None or self._flight is None or self._done is None:
            raise LoopError("enter the stream first: async with agent.stream(…) as stream")
        try:
            return self._receive.receive_nowait()
        except anyio.WouldBlock:
            pass
        except anyio.EndOfStream:
            return await self._end()
        except anyio.ClosedResourceError:
            raise StopAsyncIteration from None
        try:
            return await self._receive.receive()
        except anyio.EndOfStream:
            return await self._end()

    async def _end(self) -> Event:
        """The last event, then the end: quiet for a completed run, else what `run()` raises."""
        assert self._flight is not None
        assert self._done is not None
        ended = self._flight.ended
        if ended is not None and not self._told_end:
            self._told_end = True
            return ended
        await self._done.wait()
        if isinstance(self._error, Exception):
            raise self._error
        raise StopAsyncIteration
