"""A limit on requests per minute, kept by waiting (MOD-17)."""

from __future__ import annotations

import math
import threading
from contextvars import ContextVar
from time import monotonic

from anyio import sleep

from loopctl._deadline import Deadline
from loopctl.errors import ConfigError, RateLimitError

ATTEMPT: ContextVar[Deadline | None] = ContextVar("loopctl_attempt", default=None)
"""The deadline of the attempt that is being made: it stands still while a limiter waits."""


class RateLimiter:
    """A token bucket of `requests_per_minute`, refilled steadily; first come, first served.

    Give one limiter to every client that shares the limit; several event loops and threads may
    use it. A request that would have to wait longer than `max_wait` seconds (30; `None`: as long
    as it takes, for batches) raises `RateLimitError` at once, with the wait as `retry_after`.
    """

    def __init__(self, requests_per_minute: float, *, max_wait: float | None = 30.0) -> None:
        if not 0 < requests_per_minute < math.inf:
            raise ConfigError(
                f"RateLimiter.requests_per_minute={requests_per_minute!r}: must be a number > 0"
            )
        if max_wait is not None and not 0 <= max_wait < math.inf:
            raise ConfigError(f"RateLimiter.max_wait={max_wait!r}: must be a number ≥ 0 or None")
        self.requests_per_minute = requests_per_minute
        self.max_wait = max_wait
        self._interval = 60.0 / requests_per_minute
        self._burst = max(1.0, requests_per_minute)
        # One moment says all about a bucket: when it will be, or was, full. Each request moves it
        # on by one interval, so the order of asking is the order of going.
        self._full_at: dict[str, float] = {}
        self._lock = threading.Lock()

    async def wait(self, base_url: str) -> None:
        """Return when the next request to `base_url` may go.

        Raises `RateLimitError` if that is later than `max_wait`. A wait that is cancelled gives
        its place back.
        """
        delay = self._reserve(base_url)
        if delay <= 0:
            return
        attempt = ATTEMPT.get()
        if attempt is not None:
            attempt.pause()
        try:
            await sleep(delay)
        except BaseException:
            self._give_back(base_url)
            raise
        finally:
            if attempt is not None:
                attempt.resume()

    def _reserve(self, base_url: str) -> float:
        with self._lock:
            now = monotonic()
            full_at = max(self._full_at.get(base_url, now), now) + self._interval
            delay = full_at - now - self._burst * self._interval
            if self.max_wait is not None and delay > self.max_wait:
                raise RateLimitError(
                    f"the limit of {self.requests_per_minute:g} requests per minute would make"
                    f" this one wait {delay:.1f} s, longer than max_wait={self.max_wait:g}",
                    retry_after=delay,
                )
            self._full_at[base_url] = full_at
            return delay

    def _give_back(self, base_url: str) -> None:
        with self._lock:
            self._full_at[base_url] -= self._interval
