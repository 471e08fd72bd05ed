from __future__ import annotations

from typing import Any

import anyio
import pytest

from loopctl._deadline import Deadline
from loopctl.errors import ConfigError, RateLimitError
from loopctl.models.limiter import ATTEMPT, RateLimiter

pytestmark = pytest.mark.anyio


class Time:
    """A clock that moves when someone sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.slept: list[float] = []
        monkeypatch.setattr("loopctl.models.limiter.monotonic", lambda: self.now)
        monkeypatch.setattr("loopctl.models.limiter.sleep", self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 6))
        self.now += seconds


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    return Time(monkeypatch)


async def test_a_full_bucket_lets_its_requests_go_and_then_spaces_them(time: Time) -> None:
    """MOD-17: requests_per_minute at once, then one each interval."""
    limiter = RateLimiter(60)
    for _ in range(62):
        await limiter.wait("a")
    assert time.slept == [1.0, 1.0]
    time.now += 60
    for _ in range(60):
        await limiter.wait("a")
    assert len(time.slept) == 2


async def test_each_base_url_has_a_bucket_of_its_own(time: Time) -> None:
    """MOD-17: one limiter, several providers."""
    limiter = RateLimiter(1)
    await limiter.wait("a")
    await limiter.wait("b")
    assert time.slept == []


async def test_a_wait_longer_than_allowed_is_an_error_that_says_how_long(time: Time) -> None:
    """MOD-17: max_wait, None for batches."""
    limiter = RateLimiter(1)
    await limiter.wait("a")
    with pytest.raises(RateLimitError) as caught:
        await limiter.wait("a")
    assert caught.value.retry_after == 60
    batch = RateLimiter(1, max_wait=None)
    for _ in range(3):
        await batch.wait("a")
    assert time.slept == [60, 60]


async def test_a_cancelled_wait_gives_its_place_back() -> None:
    """MOD-14, MOD-17: every wait can be cancelled."""
    limiter = RateLimiter(1, max_wait=None)
    await limiter.wait("a")
    for _ in range(5):
        with anyio.CancelScope() as scope:
            scope.cancel()
            await limiter.wait("a")
        assert scope.cancelled_caught
    with pytest.raises(RateLimitError) as caught:
        limiter.max_wait = 0
        await limiter.wait("a")
    assert caught.value.retry_after is not None
    assert caught.value.retry_after <= 60


async def test_the_attempts_time_stands_still_while_a_limiter_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """MOD-14: rate waits count in no deadline."""
    limiter = RateLimiter(1, max_wait=None)
    await limiter.wait("a")
    with Deadline(5) as deadline:

        async def sleep(seconds: float) -> None:
            assert deadline.when == float("inf")

        monkeypatch.setattr("loopctl.models.limiter.sleep", sleep)
        token = ATTEMPT.set(deadline)
        await limiter.wait("a")
        ATTEMPT.reset(token)
        assert deadline.when < float("inf")


@pytest.mark.parametrize("arguments", [{"requests_per_minute": 0}, {"max_wait": -1}])
async def test_values_out_of_range_are_refused(arguments: dict[str, Any]) -> None:
    """MOD-17: a limit is a number above zero."""
    with pytest.raises(ConfigError, match=next(iter(arguments))):
        RateLimiter(**{"requests_per_minute": 1, **arguments})


def test_one_limiter_serves_one_event_loop_after_another() -> None:
    """MOD-17: shared between loops."""
    limiter = RateLimiter(2)
    for backend in ("asyncio", "trio"):
        anyio.run(limiter.wait, "a", backend=backend)
