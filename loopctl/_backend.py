"""Which event loop runs here, found without a search.

anyio asks for the backend at every call, which costs more than what is asked of it; on the path of
every turn this module answers from the task that runs. Under trio, also in guest mode inside an
asyncio loop, no asyncio task runs, and anyio itself is asked.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

if TYPE_CHECKING:
    import asyncio

    from anyio.abc import AsyncBackend


def asyncio_task() -> asyncio.Task[Any] | None:
    """The asyncio task that runs, `None` where none does."""
    loaded = sys.modules.get("asyncio")
    if loaded is None:
        return None
    try:
        task: asyncio.Task[Any] | None = loaded.current_task()
    except RuntimeError:
        return None
    return task


def running_clock() -> Callable[[], float]:
    """The clock of the event loop that runs, to be asked many times."""
    task = asyncio_task()
    return anyio.current_time if task is None else task.get_loop().time


def new_scope() -> anyio.CancelScope:
    """A cancel scope without a deadline."""
    if asyncio_task() is None:
        return anyio.CancelScope()
    return _asyncio_backend().create_cancel_scope()


def effective_deadline() -> float:
    """The nearest deadline around the task that runs; minus infinity when it is cancelled."""
    if asyncio_task() is None:
        return anyio.current_effective_deadline()
    return _asyncio_backend().current_effective_deadline()


@functools.cache
def _asyncio_backend() -> type[AsyncBackend]:
    """Anyio's side of asyncio. Only asked where an asyncio task runs."""
    return anyio.lowlevel.current_token().backend_class
