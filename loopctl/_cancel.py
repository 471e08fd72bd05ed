"""Telling real cancellation from its look-alikes.

A tool may swallow a cancellation, or raise one of its own that nobody asked for (TOL-9, ENG-19).
Whether the present task is really meant to stop is a fact of the event loop, not of the exception.
"""

from __future__ import annotations

import math
import sys

import anyio
import anyio.lowlevel


def cancellation_pending(baseline: int = 0) -> bool:
    """Whether the current task is being cancelled, by a scope around it or by its framework.

    `baseline` is `native_cancellations()` from before the work began: requests that are older
    than the work do not count.
    """
    if anyio.current_effective_deadline() == -math.inf:
        return True
    return native_cancellations() > baseline


def native_cancellations() -> int:
    """How many unanswered `Task.cancel()` requests the current asyncio task has; 0 elsewhere."""
    if "asyncio" not in sys.modules:
        return 0
    import asyncio

    try:
        task = asyncio.current_task()
    except RuntimeError:
        return 0
    return task.cancelling() if task is not None else 0


async def stop_if_cancelled(baseline: int = 0) -> None:
    """Raise the cancellation that is pending, even one that foreign code has swallowed (ENG-19)."""
    await anyio.lowlevel.checkpoint_if_cancelled()
    if native_cancellations() > baseline:
        raise anyio.get_cancelled_exc_class()
