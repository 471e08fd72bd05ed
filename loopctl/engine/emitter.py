"""The one place that events leave through (ENG-12, ENG-22).

A slow reader slows the run down and loses nothing; the time spent on it counts in no deadline.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import anyio

from loopctl._deadline import Deadline

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectSendStream

    from loopctl.events import Event

logger = logging.getLogger("loopctl.plugins")


class Emitter:
    """Tells the events of one run to the plugins that listen and to the stream, if there is one."""

    __slots__ = ("_failed", "_listeners", "_stream", "active")

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

    async def send(self, event: Event, deadline: Deadline | None = None) -> None:
        """Tell one event; `deadline` stands still while a slow reader is waited for."""
        self.tell_listeners(event)
        if self._stream is None:
            return
        try:
            self._stream.send_nowait(event)
            return
        except anyio.WouldBlock:
            pass
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return
        if deadline is not None:
            deadline.pause()
        try:
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
            except Exception:
                if name not in self._failed:
                    self._failed.add(name)
                    logger.exception("on_event of plugin %s failed", name)

    def close(self) -> None:
        """No event follows: let the reader come to its end."""
        if self._stream is not None:
            self._stream.close()
