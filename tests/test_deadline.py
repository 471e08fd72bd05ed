"""A time limit that can stand still: ENG-22, TOL-10."""

from __future__ import annotations

import math

import anyio
import anyio.lowlevel
import pytest

from loopctl._deadline import Deadline

pytestmark = pytest.mark.anyio


async def test_a_deadline_ends_its_block_and_says_so() -> None:
    """TOL-10: what is too slow is stopped."""
    with Deadline(0) as deadline:
        await anyio.sleep_forever()
    assert deadline.expired


async def test_a_block_that_is_done_in_time_has_not_expired() -> None:
    """TOL-10: nothing is said of a limit that was kept."""
    with Deadline(100) as deadline:
        await anyio.lowlevel.checkpoint()
    assert not deadline.expired


async def test_none_never_ends() -> None:
    """TOL-10: `None` is no limit, and pausing it is harmless."""
    with Deadline(None) as deadline:
        deadline.pause()
        deadline.resume()
        assert deadline.when == math.inf
        await anyio.lowlevel.checkpoint()
    assert not deadline.expired


async def test_a_paused_deadline_stands_still() -> None:
    """ENG-22: waiting for a slow reader or an approval counts in no deadline."""
    with Deadline(5) as deadline:
        deadline.when -= 3  # as if three of the five seconds had passed
        before = deadline.when
        deadline.pause()
        deadline.pause()
        assert deadline.when == math.inf
        assert 1 < deadline.left <= 2
        assert anyio.current_effective_deadline() == math.inf
        deadline.resume()
        assert before <= deadline.when < before + 2
        again = deadline.when
        deadline.resume()
        assert deadline.when == again


async def test_time_that_was_up_before_the_pause_is_up_after_it() -> None:
    """ENG-22: a pause gives no time as a present."""
    with Deadline(0) as deadline:
        deadline.pause()
        deadline.resume()
        await anyio.sleep_forever()
    assert deadline.expired


async def test_a_cancellation_from_outside_is_not_this_deadlines() -> None:
    """ENG-19: a timeout and a cancellation are told apart."""
    deadline = Deadline(100)
    with anyio.CancelScope() as outer:
        with deadline:
            outer.cancel()
            await anyio.sleep_forever()
    assert outer.cancelled_caught
    assert not deadline.expired


async def test_an_error_passes_through() -> None:
    """TOL-9: a deadline hides nothing."""
    with pytest.raises(KeyError), Deadline(100):
        raise KeyError


async def test_the_inner_of_two_deadlines_ends_only_its_own_block() -> None:
    """TOL-10: a tool's limit leaves the turn alone."""
    inner = Deadline(0)
    with Deadline(100) as outer:
        with inner:
            await anyio.sleep_forever()
        await anyio.lowlevel.checkpoint()
    assert (inner.expired, outer.expired) == (True, False)


@pytest.mark.parametrize("first", [0.02, 60.0])
async def test_many_deadlines_of_one_event_loop_end_each_at_its_own_time(first: float) -> None:
    """TOL-10: a later one waits for no earlier one, and one that was kept rings for none."""
    ended: list[float] = []

    async def wait(seconds: float) -> None:
        with Deadline(seconds) as deadline:
            await anyio.sleep_forever()
        if deadline.expired:
            ended.append(seconds)

    with Deadline(first):
        pass
    async with anyio.create_task_group() as tasks:
        for seconds in (60.0, 0.03, 0.01, 0.02, 60.0):
            tasks.start_soon(wait, seconds)
        while len(ended) < 3:
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert ended == [0.01, 0.02, 0.03]


async def test_a_deadline_that_was_moved_ends_at_its_new_time() -> None:
    """MOD-14: nearer, further and nearer again."""
    with Deadline(60) as deadline:
        deadline.move(anyio.current_time() + 0.01)
        deadline.move(anyio.current_time() + 60)
        with anyio.CancelScope() as still:
            for _ in range(3):
                await anyio.lowlevel.checkpoint()
        assert not still.cancel_called
        deadline.move(anyio.current_time() + 0.01)
        await anyio.sleep_forever()
    assert deadline.expired


def test_a_closed_event_loop_is_not_kept() -> None:
    """ENG-11: deadlines leave nothing behind that lives as long as the process."""
    import asyncio
    import gc
    import weakref

    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def once() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        with Deadline(600):
            await anyio.lowlevel.checkpoint()

    anyio.run(once, backend="asyncio")
    gc.collect()
    assert loops[0]() is None


async def test_a_deadline_in_the_past_ends_at_once() -> None:
    """MOD-14: also when the time was up while it stood still."""
    with Deadline(60) as deadline:
        deadline.pause()
        deadline._left = -1.0
        deadline.resume()
        await anyio.sleep_forever()
    assert deadline.expired
