"""The one place that events leave through (ENG-12, ENG-22).

A slow reader slows the run down and loses nothing; the time spent on it counts in no deadline.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import anyio

from loopctl._cancel import native_cancellations
from loopctl._deadline import Deadline
from loopctl._failures import goes_through

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectSendStream

    from loopctl.events import Event

logger = logging.getLogger("loopctl.plugins")


class Emitter:
    """Tells the events of one run to the plugins that listen and to the stream, if there is one."""

    __slots__ = ("_failed", "_listeners", "_stream", "active", "late")

    def __init__(
        self,
        listeners: Sequence[tuple[str, Callable[[Event], object]]] = (),
        stream: MemoryObjectSendStream[Event] | None = None,
    ) -> None:
        self._listeners = tuple(listeners)
        self._stream = stream
        self._failed: set[str] = set()
        self.active = bool(listeners) or stream is not None
        """Whether anybody listens; events need not be made otherwise."""
        self.late: deque[Event] = deque()
        """What `tell` found no room for. It comes before the run's next event."""

    def tell(self, event: Event) -> None:
        """Tell an event that others cause, perhaps the reader itself: it waits for nobody."""
        self.tell_listeners(event)
        if self._stream is None:
            return
        try:
            if self.late:
                raise anyio.WouldBlock
            self._stream.send_nowait(event)
        except anyio.WouldBlock:
            self.late.append(event)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # nobody reads any more

    async def send(self, event: Event, deadline: Deadline | None = None) -> None:
        """Tell one event; `deadline` stands still while a slow reader is waited for."""
        self.tell_listeners(event)
        if self._stream is None:
            return
        try:
            if not self.late:
                self._stream.send_nowait(event)
                return
        except anyio.WouldBlock:
            pass
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return
        if deadline is not None:
            deadline.pause()
        try:
            while self.late:
                await self._stream.send(self.late.popleft())
            await self._stream.send(event)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return
        finally:
            if deadline is not None:
                deadline.resume()

    def tell_listeners(self, event: Event) -> None:
        """Tell the plugins alone. A failing one is logged once for each run and stays (CTX-24)."""
        for name, listener in self._listeners:
            try:
                listener(event)
            except BaseException as error:
                passing = goes_through(error, native_cancellations())
                if passing is not None:
                    raise passing from None
                if name not in self._failed:
                    self._failed.add(name)
                    logger.exception("on_event of plugin %s failed", name)

    def close(self) -> None:
        """No event follows: let the reader come to its end."""
        if self._stream is not None:
            self._stream.close()
