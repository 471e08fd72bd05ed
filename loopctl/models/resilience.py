"""The one layer that retries, and the deadlines of an attempt (MOD-14, MOD-15).

Time limits lie around each wait for the inner client and around nothing else: while the reader
of a stream is not asking for more, while a retry backs off and while a `RateLimiter` waits, no
limit runs. Nothing about a call is kept on the client, so calls may overlap.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, fields
from typing import Any, Self, TypeGuard, TypeVar, cast

import anyio
from anyio import sleep

from loopctl._clock import SYSTEM_CLOCK, Clock
from loopctl._deadline import Deadline
from loopctl.errors import (
    ConfigError,
    ModelError,
    RateLimitError,
    StreamIncomplete,
    StreamStalled,
)
from loopctl.models.client import ModelClient, ModelRequest
from loopctl.models.limiter import ATTEMPT
from loopctl.replies import ModelResponse
from loopctl.usage import Usage
from loopctl.wire.stream_events import (
    AttemptStarted,
    MessageStart,
    MessageStop,
    StreamEvent,
    UsageReport,
)

__all__ = ["AttemptStarted", "ResilientClient", "RetryPolicy"]

_T = TypeVar("_T")


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


class ResilientClient:
    """A `ModelClient` that makes failed calls of another one again.

    Only recoverable errors are retried; any other is raised after its first attempt. A stream
    that failed, before or after visible output, goes on with `AttemptStarted` and the events of
    the next attempt. An error that is raised carries the cost of its own attempt as `usage`.

    Raises `ConfigError` for a client that is resilient already: waits must not multiply.
    """

    def __init__(
        self, client: ModelClient, policy: RetryPolicy | None = None, *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        if isinstance(client, ResilientClient):
            raise ConfigError("a ResilientClient must not wrap another: one layer retries")
        self.client = client
        self.policy = policy if policy is not None else RetryPolicy()
        self._clock = clock

    @property
    def model(self) -> str:
        """The model's name at its provider."""
        return self.client.model

    @property
    def provider(self) -> str:
        """The provider's name."""
        return self.client.provider

    @property
    def context_window(self) -> int | None:
        """The model's window in tokens, `None` when unknown."""
        return self.client.context_window

    async def complete(
        self,
        request: ModelRequest,
        *,
        on_failure: Callable[[Usage | None], object] | None = None,
    ) -> ModelResponse:
        """The whole reply at once.

        `on_failure` is given what each attempt that is made again had cost; the reply's own usage
        holds its own attempt only.
        """
        tries: _Tries | None = None
        while True:
            deadline = Deadline(self.policy.attempt_timeout)
            token = ATTEMPT.set(deadline)
            try:
                with deadline:
                    return await self.client.complete(request)
                failure: ModelError = self._stalled("no reply", self.policy.attempt_timeout)
            except ModelError as error:
                failure = error
            finally:
                ATTEMPT.reset(token)
            tries = tries or _Tries(self.policy, self._clock)
            delay = tries.delay_after(failure)
            if delay is None:
                raise failure
            if on_failure is not None:
                on_failure(failure.usage)
            await sleep(delay)

    async def follow(
        self,
        request: ModelRequest,
        receive: Callable[[StreamEvent, Deadline | None], Awaitable[None]],
    ) -> None:
        """The same as `stream`, told event by event, for who reads all of it in one place.

        `receive` runs under the attempt's deadline, which it is given: it is to pause it while it
        waits for anything but the provider.
        """
        tries = _Tries(self.policy, self._clock)
        while True:
            attempt = _Attempt(self.policy)
            token = ATTEMPT.set(attempt)
            try:
                with attempt:
                    async with self.client.stream(request) as source:
                        try:
                            async for event in source:
                                attempt.note(event)
                                await receive(event, attempt)
                                if type(event) is MessageStop:
                                    return
                        finally:
                            await _close(source)
                failure: ModelError = self._unfinished(attempt)
            except ModelError as error:
                failure = error
            finally:
                ATTEMPT.reset(token)
            if failure.usage is None:
                failure.usage = attempt.usage
            delay = tries.delay_after(failure)
            if delay is None:
                raise failure
            await receive(AttemptStarted(tries.made, str(failure), failure.usage), None)
            await sleep(delay)

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[StreamEvent]]:
        """The reply as it comes, `AttemptStarted` in front of every attempt but the first."""
        async with aclosing(self._events(request)) as events:
            yield events

    async def aclose(self) -> None:
        """Close the inner client."""
        await self.client.aclose()

    async def _events(self, request: ModelRequest) -> AsyncGenerator[StreamEvent]:
        tries = _Tries(self.policy, self._clock)
        while True:
            watch = _Watch(self)
            try:
                async with AsyncExitStack() as stack:
                    entering = stack.enter_async_context(self.client.stream(request))
                    source = await watch.over(entering)
                    stack.push_async_callback(_close, source)
                    while (event := await watch.over(anext(source, None))) is not None:
                        watch.note(event)
                        yield event
                        if isinstance(event, MessageStop):
                            return
                raise StreamIncomplete(
                    "the stream ended before the provider said that the reply was complete",
                    provider=self.provider,
                    model=self.model,
                )
            except ModelError as error:
                failure = error
            if failure.usage is None:
                failure.usage = watch.usage
            delay = tries.delay_after(failure)
            if delay is None:
                raise failure
            yield AttemptStarted(tries.made, str(failure), failure.usage)
            await sleep(delay)

    def _unfinished(self, attempt: _Attempt) -> ModelError:
        if attempt.expired:
            return self._stalled(*attempt.which())
        return StreamIncomplete(
            "the stream ended before the provider said that the reply was complete",
            provider=self.provider,
            model=self.model,
        )

    def _stalled(self, what: str, seconds: float | None) -> StreamStalled:
        return StreamStalled(
            f"{what} within {seconds:g} s", provider=self.provider, model=self.model
        )


class _Attempt(Deadline):
    """The time that one attempt of a stream has left, as a whole and until its next content.

    The limit for the next content is moved when a hundredth of it has passed since it was last
    set: exact enough for a limit, and cheap for a thousand small events.
    """

    def __init__(self, policy: RetryPolicy) -> None:
        super().__init__(_least(policy.first_event_timeout, policy.attempt_timeout))
        self.usage: Usage | None = None
        self._policy = policy
        self._begun = False
        self._whole_end = math.inf
        self._set_at = 0.0
        self._paused_at: float | None = None

    def __enter__(self) -> Self:
        self._set_at = anyio.current_time()
        if self._policy.attempt_timeout is not None:
            self._whole_end = self._set_at + self._policy.attempt_timeout
        super().__enter__()
        return self

    def note(self, event: StreamEvent) -> None:
        """Count an event; only content gives the full time to the next one."""
        if isinstance(event, UsageReport):
            self.usage = event.usage.peak(self.usage)
            return
        first, self._begun = not self._begun, True
        if not first and isinstance(event, MessageStart):
            return
        limit = self._policy.event_timeout
        now = anyio.current_time()
        if first or limit is None or now - self._set_at > limit / 100:
            self._set_at = now
            self.scope.deadline = min(self._whole_end, math.inf if limit is None else now + limit)

    def pause(self) -> None:
        """Stop both limits."""
        if self._paused_at is None:
            self._paused_at = anyio.current_time()
            super().pause()

    def resume(self) -> None:
        """Let both limits run on from where they were paused."""
        if self._paused_at is not None:
            stood = anyio.current_time() - self._paused_at
            self._whole_end += stood
            self._set_at += stood
            self._paused_at = None
            super().resume()

    def which(self) -> tuple[str, float | None]:
        """What was not there in time, and the limit."""
        policy = self._policy
        if anyio.current_time() >= self._whole_end:
            return "no complete reply", policy.attempt_timeout
        if self._begun:
            return "no more content", policy.event_timeout
        return "no first event", policy.first_event_timeout


class _Watch:
    """The time that one attempt of a stream has left, spent only while it is waited for."""

    def __init__(self, client: ResilientClient) -> None:
        policy = client.policy
        self.usage: Usage | None = None
        self._client = client
        self._attempt_left = policy.attempt_timeout
        self._event_left = policy.first_event_timeout
        self._begun = False

    async def over(self, waiting: Awaitable[_T]) -> _T:
        """Wait; raises `StreamStalled` when either limit is reached."""
        limit = _least(self._attempt_left, self._event_left)
        if limit is None:
            return await waiting
        deadline = Deadline(max(limit, 0.0))
        token = ATTEMPT.set(deadline)
        try:
            with deadline:
                return await waiting
        finally:
            ATTEMPT.reset(token)
            spent = limit - (deadline.scope.deadline - anyio.current_time())
            self._attempt_left = _minus(self._attempt_left, spent)
            self._event_left = _minus(self._event_left, spent)
        raise self._stalled()

    def note(self, event: StreamEvent) -> None:
        """Count an event; only content gives the full time to the next one."""
        if isinstance(event, UsageReport):
            self.usage = event.usage.peak(self.usage)
        elif isinstance(event, MessageStart) and self._begun:
            return
        if not self._begun or not isinstance(event, UsageReport):
            self._event_left = self._client.policy.event_timeout
        self._begun = True

    def _stalled(self) -> StreamStalled:
        policy = self._client.policy
        if self._attempt_left is not None and self._attempt_left <= 0:
            what, seconds = "no complete reply", policy.attempt_timeout
        elif self._begun:
            what, seconds = "no more content", policy.event_timeout
        else:
            what, seconds = "no first event", policy.first_event_timeout
        return self._client._stalled(what, seconds)  # pyright: ignore[reportPrivateUsage]


class _Tries:
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


async def _close(source: object) -> None:
    """Close a client's generator that was left in the middle: not every client closes its own."""
    if isinstance(source, AsyncGenerator):
        await cast(AsyncGenerator[Any], source).aclose()


def _is_number(value: object) -> TypeGuard[int | float]:
    return type(value) in (int, float)


def _least(left: float | None, right: float | None) -> float | None:
    return right if left is None else left if right is None else min(left, right)


def _minus(left: float | None, spent: float) -> float | None:
    return None if left is None else left - spent
