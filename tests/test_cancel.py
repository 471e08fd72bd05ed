"""Telling real cancellation from its look-alikes: ENG-19, TOL-9, and the fault D4."""

from __future__ import annotations

import asyncio

import anyio
import anyio.lowlevel
import pytest

from loopctl._cancel import cancellation_pending, native_cancellations, stop_if_cancelled
from loopctl._deadline import Deadline


@pytest.mark.anyio
async def test_nothing_is_pending_in_a_task_that_nobody_stops() -> None:
    """ENG-19: an exception alone proves nothing."""
    assert not cancellation_pending()
    await stop_if_cancelled()


@pytest.mark.anyio
async def test_a_scope_around_the_task_is_seen_before_it_is_delivered() -> None:
    """ENG-19: the driver checks before the next step."""
    with anyio.CancelScope() as scope:  # noqa: ASYNC100 # the point of the test
        scope.cancel()
        assert cancellation_pending()
    assert not cancellation_pending()


@pytest.mark.anyio
async def test_a_swallowed_cancellation_is_still_pending() -> None:
    """D4: a tool that catches the cancellation and returns text does not stop it."""
    with anyio.CancelScope() as scope:
        scope.cancel()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            pass
        assert cancellation_pending()
        await stop_if_cancelled()
        pytest.fail("the block went on")
    assert scope.cancelled_caught


@pytest.mark.anyio
async def test_a_shield_hides_what_is_outside() -> None:
    """ENG-19: bookkeeping under a shield is not being cancelled."""
    with anyio.CancelScope() as outer:
        outer.cancel()
        with anyio.CancelScope(shield=True):
            assert not cancellation_pending()
            await stop_if_cancelled()


@pytest.mark.anyio
async def test_an_expired_limit_leaves_nothing_pending_behind_it() -> None:
    """TOL-10: one slow tool does not look like a cancelled run."""
    baseline = native_cancellations()
    with Deadline(0):
        await anyio.sleep_forever()
    assert not cancellation_pending(baseline)
    await stop_if_cancelled(baseline)


def test_a_task_that_its_framework_cancels_is_pending() -> None:
    """ENG-19: `Task.cancel()` counts, although no scope knows of it."""

    async def main() -> None:
        async def work() -> list[bool]:
            seen = [cancellation_pending()]
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                seen.append(cancellation_pending())
            with pytest.raises(asyncio.CancelledError):
                await stop_if_cancelled()
            return seen

        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        task.cancel()
        assert await task == [False, True]

    asyncio.run(main())


def test_a_stray_cancellation_is_not_pending() -> None:
    """D4, TOL-9: a tool that raises `CancelledError` itself was not cancelled."""

    async def main() -> None:
        try:
            raise asyncio.CancelledError
        except asyncio.CancelledError:
            assert not cancellation_pending()

    asyncio.run(main())


def test_requests_from_before_the_work_began_do_not_count() -> None:
    """ENG-19: a run in a task that once swallowed a cancellation is not stopped by it."""

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(0)
        baseline = native_cancellations()
        assert baseline == 1
        assert not cancellation_pending(baseline)
        await stop_if_cancelled(baseline)
        task.cancel()
        assert cancellation_pending(baseline)
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(0)
        task.uncancel()
        task.uncancel()

    asyncio.run(main())


@pytest.mark.anyio
async def test_there_are_no_native_cancellations_without_asyncio(anyio_backend: str) -> None:
    """ENG-19: scopes are all there is on trio."""
    assert native_cancellations() == 0
