"""Streams that are made again when they fail, and the time limits of each attempt (MOD-14, MOD-15).

`follow` pushes the events of a reply to one who reads all of it in one place, under one deadline
for each attempt; `events` lets a reader pull them, under one for each wait.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Awaitable
from contextlib import AsyncExitStack
from typing import Any, Self, TypeVar, cast

from anyio import sleep

from loopctl._backend import running_clock
from loopctl._clock import Clock
from loopctl._deadline import Deadline
from loopctl.errors import ModelError, StreamIncomplete, StreamStalled
from loopctl.models.client import ModelClient, ModelRequest
from loopctl.models.limiter import ATTEMPT
from loopctl.models.retries import Receive, RetryPolicy, Tries, stalled
from loopctl.usage import Usage
from loopctl.wire.stream_events import (
    AttemptStarted,
    MessageStart,
    MessageStop,
    StreamEvent,
    UsageReport,
)

_T = TypeVar("_T")


async def follow(
    client: ModelClient,
    policy: RetryPolicy,
    clock: Clock,
    request: ModelRequest,
    receive: Receive,
) -> None:
    """Push every event to `receive`, with the deadline that it runs under."""
    tries = Tries(policy, clock)
    while True:
        attempt = _Attempt(policy)
        token = ATTEMPT.set(attempt)
        try:
            with attempt:
                async with client.stream(request) as source:
                    try:
                        async for event in source:
                            attempt.note(event)
                            waiting = receive(event, attempt)
                            if waiting is not None:
                                await waiting
                            if type(event) is MessageStop:
                                return
                    finally:
                        await _close(source)
            failure: ModelError = _unfinished(client, attempt)
        except ModelError as error:
            failure = error
        finally:
            ATTEMPT.reset(token)
        if failure.usage is None:
            failure.usage = attempt.usage
        delay = tries.delay_after(failure)
        if delay is None:
            raise failure
        waiting = receive(AttemptStarted(tries.made, str(failure), failure.usage), None)
        if waiting is not None:
            await waiting
        await sleep(delay)


async def events(
    client: ModelClient, policy: RetryPolicy, clock: Clock, request: ModelRequest
) -> AsyncGenerator[StreamEvent]:
    """Yield every event; no limit runs while the reader is not asking."""
    tries = Tries(policy, clock)
    while True:
        watch = _Watch(client, policy)
        try:
            async with AsyncExitStack() as stack:
                entering = stack.enter_async_context(client.stream(request))
                source = await watch.over(entering)
                stack.push_async_callback(_close, source)
                while (event := await watch.over(anext(source, None))) is not None:
                    watch.note(event)
                    yield event
                    if isinstance(event, MessageStop):
                        return
            raise _incomplete(client)
        except ModelError as error:
            failure = error
        if failure.usage is None:
            failure.usage = watch.usage
        delay = tries.delay_after(failure)
        if delay is None:
            raise failure
        yield AttemptStarted(tries.made, str(failure), failure.usage)
        await sleep(delay)


def _unfinished(client: ModelClient, attempt: _Attempt) -> ModelError:
    return stalled(client, *attempt.which()) if attempt.expired else _incomplete(client)


def _incomplete(client: ModelClient) -> StreamIncomplete:
    return StreamIncomplete(
        "the stream ended before the provider said that the reply was complete",
        provider=client.provider,
        model=client.model,
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
        self._step = math.inf if policy.event_timeout is None else policy.event_timeout / 100
        self._now = running_clock()
        self._set_at = 0.0
        self._paused_at: float | None = None

    def __enter__(self) -> Self:
        self._set_at = self._now()
        if self._policy.attempt_timeout is not None:
            self._whole_end = self._set_at + self._policy.attempt_timeout
        super().__enter__()
        return self

    def note(self, event: StreamEvent) -> None:
        """Count an event; only content gives the full time to the next one."""
        kind = type(event)
        if kind is UsageReport:
            self.usage = cast("UsageReport", event).usage.peak(self.usage)
            return
        soon = self._begun and self._now() - self._set_at < self._step
        if soon or (self._begun and kind is MessageStart):
            return
        self._begun = True
        self._set_at = self._now()
        limit = self._policy.event_timeout
        ahead = math.inf if limit is None else self._set_at + limit
        self.move(min(self._whole_end, ahead))

    def pause(self) -> None:
        """Stop both limits."""
        if self._paused_at is None:
            self._paused_at = self._now()
            super().pause()

    def resume(self) -> None:
        """Let both limits run on from where they were paused."""
        if self._paused_at is not None:
            stood = self._now() - self._paused_at
            self._whole_end += stood
            self._set_at += stood
            self._paused_at = None
            super().resume()

    def which(self) -> tuple[str, float | None]:
        """What was not there in time, and the limit."""
        return _late(self._policy, over=self._now() >= self._whole_end, begun=self._begun)


class _Watch:
    """The time that one attempt of a stream has left, spent only while it is waited for."""

    def __init__(self, client: ModelClient, policy: RetryPolicy) -> None:
        self.usage: Usage | None = None
        self._client = client
        self._policy = policy
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
            spent = limit - deadline.left
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
            self._event_left = self._policy.event_timeout
        self._begun = True

    def _stalled(self) -> StreamStalled:
        over = self._attempt_left is not None and self._attempt_left <= 0
        return stalled(self._client, *_late(self._policy, over=over, begun=self._begun))


def _late(policy: RetryPolicy, *, over: bool, begun: bool) -> tuple[str, float | None]:
    """What was not there in time, and the limit; `over`: the whole attempt's."""
    if over:
        return "no complete reply", policy.attempt_timeout
    if begun:
        return "no more content", policy.event_timeout
    return "no first event", policy.first_event_timeout


async def _close(source: object) -> None:
    """Close a client's generator that was left in the middle: not every client closes its own."""
    if isinstance(source, AsyncGenerator):
        await cast(AsyncGenerator[Any], source).aclose()


def _least(left: float | None, right: float | None) -> float | None:
    return right if left is None else left if right is None else min(left, right)


def _minus(left: float | None, spent: float) -> float | None:
    return None if left is None else left - spent
