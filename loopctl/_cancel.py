"""Telling real cancellation from its look-alikes.

A tool may swallow a cancellation, or raise one of its own that nobody asked for (TOL-9, ENG-19).
Whether the present task is really meant to stop is a fact of the event loop, not of the exception.
"""

from __future__ import annotations

import math

import anyio
import anyio.lowlevel

from loopctl._backend import asyncio_task, effective_deadline


def cancellation_pending(baseline: int = 0) -> bool:
    """Whether the current task is being cancelled, by a scope around it or by its framework.

    `baseline` is `native_cancellations()` from before the work began: requests that are older
    than the work do not count.
    """
    return _is_pending(native_cancellations(), baseline)


def native_cancellations() -> int:
    """How many unanswered `Task.cancel()` requests the current asyncio task has; 0 elsewhere."""
    task = asyncio_task()
    return 0 if task is None else task.cancelling()


async def stop_if_cancelled(baseline: int = 0) -> None:
    """Raise the cancellation that is pending, even one that foreign code has swallowed (ENG-19).

    A task that cancels a scope of its own is not told by asyncio before it waits, so the scopes
    are looked at as well.
    """
    task = asyncio_task()
    if task is None:
        await anyio.lowlevel.checkpoint_if_cancelled()
    elif _is_pending(task.cancelling(), baseline):
        await anyio.lowlevel.checkpoint_if_cancelled()
        raise anyio.get_cancelled_exc_class()


def _is_pending(asked: int, baseline: int) -> bool:
    return asked > baseline or effective_deadline() == -math.inf
