"""What a failing tool, hook, layer or contributor costs: its own result, or the run (TOL-9).

Errors and cancellations that nobody asked for are the failing code's own. Real cancellation,
`KeyboardInterrupt`, `SystemExit` and their like go through, never inside a group.
"""

from __future__ import annotations

from typing import cast

import anyio

from loopctl._cancel import cancellation_pending
from loopctl.errors import without_secrets


def error_text(error: BaseException) -> str:
    """`Type: message`, without traceback and secrets; a group of one speaks for its member."""
    error = unwrapped(error)
    try:
        message = str(error)
    except Exception:
        message = ""
    kind = type(error).__name__
    return without_secrets(f"{kind}: {message}" if message.strip() else kind)


def unwrapped(error: BaseException) -> BaseException:
    """The only error inside groups of one, or the error itself."""
    while len(inner := _members(error)) == 1:
        error = inner[0]
    return error


def goes_through(error: BaseException, baseline: int) -> BaseException | None:
    """The error that must go on, bare, or `None` when it only fails the code that raised it.

    Ask in the task and under the scopes that the code ran in. `baseline` is what
    `native_cancellations()` said before it ran.
    """
    if isinstance(error, Exception):
        return None
    import asyncio  # whose cancellation may be raised by mistake elsewhere too

    if isinstance(error, (asyncio.CancelledError, anyio.get_cancelled_exc_class())):
        return error if cancellation_pending(baseline) else None
    inner = _members(error)
    if not inner:
        return error
    passing = [found for found in (goes_through(e, baseline) for e in inner) if found is not None]
    cancelled = anyio.get_cancelled_exc_class()
    # An interrupt matters more than the cancellations that it set off beside it.
    return next((e for e in passing if not isinstance(e, cancelled)), next(iter(passing), None))


def _members(error: BaseException) -> tuple[BaseException, ...]:
    if not isinstance(error, BaseExceptionGroup):
        return ()
    return cast("BaseExceptionGroup[BaseException]", error).exceptions
