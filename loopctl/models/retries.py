"""How often a failed call is made again, and when (MOD-14)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, TypeAlias, TypeGuard

from loopctl._clock import Clock
from loopctl._deadline import Deadline
from loopctl.errors import ConfigError, ModelError, RateLimitError, StreamStalled
from loopctl.models.client import ModelClient, ModelRequest
from loopctl.replies import ModelResponse
from loopctl.usage import Usage

if TYPE_CHECKING:
    from loopctl.wire.stream_events import StreamEvent


class RetryingClient(ABC):
    """A `ModelClient` that makes failed calls again by itself: no other layer may retry it."""

    @abstractmethod
    async def complete(
        self,
        request: ModelRequest,
        *,
        on_failure: Callable[[Usage | None], object] | None = None,
    ) -> ModelResponse:
        """The whole reply; `on_failure` is given what each attempt that is made again had cost."""

    @abstractmethod
    async def follow(self, request: ModelRequest, receive: Receive) -> None:
        """The reply as it comes, told event by event, under the deadline of each attempt."""


Receive: TypeAlias = "Callable[[StreamEvent, Deadline | None], Awaitable[None] | None]"
"""Who follows a stream: takes an event, returns what to await before the next."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryPolicy:
    """How often a failed call is made again, and how long one attempt may take.

    `retries` (3) for faults of the transport and the server, `rate_limit_retries` (5) for rate
    limits; 0 switches them off. The wait before a retry is random between 0 and `base_delay`
    (0.5 s) doubled with each, up to `max_delay` (10 s); what the provider asks for is obeyed
    instead, up to `max_retry_after` (60 s). Limits of one attempt, in seconds, `None` for none:
    `first_event_timeout` (120) and `event_timeout` (180, between pieces of content; keep-alives
    and usage reports do not count) for streams, `attempt_timeout` (600) for the whole.
    """

    retries: int = 3
    rate_limit_retries: int = 5
    base_delay: float = 0.5
    max_delay: float = 10.0
    max_retry_after: float = 60.0
    first_event_timeout: float | None = 120.0
    event_timeout: float | None = 180.0
    attempt_timeout: float | None = 600.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value: object = getattr(self, field.name)
            if field.name.endswith("retries"):
                good = type(value) is int and value >= 0
                wanted = "a whole number ≥ 0"
            elif field.name.endswith("timeout"):
                good = value is None or (_is_number(value) and 0 < value < math.inf)
                wanted = "a number > 0 or None"
            else:
                good = _is_number(value) and 0 <= value < math.inf
                wanted = "a number ≥ 0"
            if not good:
                raise ConfigError(f"RetryPolicy.{field.name}={value!r}: must be {wanted}")


class Tries:
    """Counts the failures of one call and says how long to wait after each."""

    def __init__(self, policy: RetryPolicy, clock: Clock) -> None:
        self.made = 0
        self._policy = policy
        self._clock = clock
        self._limited = 0
        self._failed = 0

    def delay_after(self, error: ModelError) -> float | None:
        """Seconds until the next attempt; `None` when there is none."""
        policy = self._policy
        if not error.recoverable:
            return None
        if isinstance(error, RateLimitError):
            self._limited += 1
        else:
            self._failed += 1
        if self._limited > policy.rate_limit_retries or self._failed > policy.retries:
            return None
        self.made += 1
        if error.retry_after is not None and not math.isnan(error.retry_after):
            return min(max(error.retry_after, 0.0), policy.max_retry_after)
        ceiling = min(policy.max_delay, policy.base_delay * 2.0 ** (self.made - 1))
        return self._clock.random() * ceiling


def _is_number(value: object) -> TypeGuard[int | float]:
    return type(value) in (int, float)


def stalled(client: ModelClient, what: str, seconds: float | None) -> StreamStalled:
    """The error of an attempt that a limit ended."""
    return StreamStalled(
        f"{what} within {seconds:g} s", provider=client.provider, model=client.model
    )
