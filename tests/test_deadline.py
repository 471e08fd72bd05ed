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
        assert deadline.scope.deadline == math.inf
        await anyio.lowlevel.checkpoint()
    assert not deadline.expired


async def test_a_paused_deadline_stands_still() -> None:
    """ENG-22: waiting for a slow reader or an approval counts in no deadline."""
    with Deadline(5) as deadline:
        deadline.scope.deadline -= 3  # as if three of the five seconds had passed
        before = deadline.scope.deadline
        deadline.pause()
        deadline.pause()
        assert deadline.scope.deadline == math.inf
        assert anyio.current_effective_deadline() == math.inf
        deadline.resume()
        assert before <= deadline.scope.deadline < before + 2
        again = deadline.scope.deadline
        deadline.resume()
        assert deadline.scope.deadline == again


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
