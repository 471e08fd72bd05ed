from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from loopctl._clock import SystemClock
from loopctl._deadline import Deadline
from loopctl.errors import (
    AuthError,
    BadRequestError,
    ConfigError,
    ConnectError,
    ModelError,
    OverloadedError,
    QuotaError,
    RateLimitError,
    ServerError,
    StreamIncomplete,
    StreamStalled,
)
from loopctl.messages import Message
from loopctl.models.client import ModelClient, ModelRequest
from loopctl.models.limiter import ATTEMPT
from loopctl.models.resilience import ResilientClient
from loopctl.models.retries import RetryPolicy
from loopctl.replies import ModelResponse, StopReason
from loopctl.testing import ScriptedClient
from loopctl.usage import Usage
from loopctl.wire.accumulator import Accumulator
from loopctl.wire.stream_events import (
    AttemptStarted,
    MessageStart,
    MessageStop,
    PartDelta,
    Stop,
    StreamEvent,
    UsageReport,
)

pytestmark = pytest.mark.anyio

ASK = ModelRequest(messages=(Message.user("hi"),))
AT_ONCE = RetryPolicy(base_delay=0)
TINY = 0.02


class Dice(SystemClock):
    """A clock whose random number is the largest."""

    def random(self) -> float:
        return 1.0


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What is slept for, instead of sleeping."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("loopctl.models.resilience.sleep", sleep)
    monkeypatch.setattr("loopctl.models.resilient_stream.sleep", sleep)
    return slept


Step = StreamEvent | BaseException | Callable[[], Awaitable[object]]


class Steps:
    """A client whose streams play steps: events, errors, waits. Each list is one attempt."""

    model, provider, context_window = "m", "acme", 1000

    def __init__(self, *attempts: list[Step]) -> None:
        self.attempts = list(attempts)
        self.open = 0

    async def complete(self, request: ModelRequest) -> ModelResponse:
        for step in self.attempts.pop(0):
            if isinstance(step, BaseException):
                raise step
            if callable(step):
                await step()
        return ModelResponse(message=Message.assistant("done"))

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[StreamEvent]]:
        steps = self.attempts.pop(0)
        self.open += 1
        try:
            yield self._play(steps)
        finally:
            self.open -= 1

    async def _play(self, steps: list[Step]) -> AsyncIterator[StreamEvent]:
        for step in steps:
            if isinstance(step, BaseException):
                raise step
            if callable(step):
                await step()
            else:
                yield step

    async def aclose(self) -> None:
        self.open = -1


WHOLE: list[Step] = [
    MessageStart("m"),
    PartDelta("text", 0, "Hello"),
    Stop(StopReason.END),
    MessageStop(),
]


async def read(client: ModelClient) -> list[StreamEvent]:
    async with client.stream(ASK) as events:
        return [event async for event in events]


async def test_a_recoverable_failure_is_tried_again_and_only_the_last_reply_counts() -> None:
    """MOD-14, MOD-15: complete and stream alike."""
    failure = ConnectError("gone")
    client = ResilientClient(ScriptedClient(failure, "a", failure, "b"), AT_ONCE)
    assert isinstance(client, ModelClient)
    assert (await client.complete(ASK)).message.text == "a"
    accumulator = Accumulator()
    for event in await read(client):
        accumulator.feed(event)
    assert accumulator.response().message.text == "b"


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("failure", "attempts"),
    [
        (ConnectError(), 4),
        (ServerError(), 4),
        (OverloadedError(), 4),
        (StreamIncomplete(), 4),
        (StreamStalled(), 4),
        (RateLimitError(), 6),
        (QuotaError(), 1),
        (AuthError(), 1),
        (BadRequestError(), 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, ModelError) else str(value),
)
async def test_attempts_are_counted_by_kind(
    failure: ModelError, attempts: int, streaming: bool, naps: list[float]
) -> None:
    """MOD-14, E2, E4: 3 retries for faults, 5 for rate limits, none for what is permanent."""
    scripted = ScriptedClient(*[failure] * 10)
    client = ResilientClient(scripted, clock=Dice())
    with pytest.raises(type(failure)) as caught:
        await (read(client) if streaming else client.complete(ASK))
    assert caught.value is failure
    assert len(scripted.requests) == attempts
    assert naps == [0.5, 1.0, 2.0, 4.0, 8.0][: attempts - 1]


async def test_waits_double_up_to_their_limit_with_full_jitter(naps: list[float]) -> None:
    """MOD-14: random between nothing and the doubled wait."""

    class Half(SystemClock):
        def random(self) -> float:
            return 0.5

    policy = RetryPolicy(retries=6)
    await ResilientClient(ScriptedClient(*[ServerError()] * 6, "x"), policy, clock=Half()).complete(
        ASK
    )
    assert naps == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0]


@pytest.mark.parametrize(
    ("asked", "waited"), [(0.0, 0.0), (1.5, 1.5), (1e12, 60.0), (-5, 0.0), (float("nan"), 0.5)]
)
async def test_the_wait_that_a_provider_asks_for_is_obeyed_up_to_a_cap(
    asked: float, waited: float, naps: list[float]
) -> None:
    """E1, MOD-14: never negative, never hours."""
    scripted = ScriptedClient(RateLimitError(retry_after=asked), "x")
    await ResilientClient(scripted, clock=Dice()).complete(ASK)
    assert naps == [waited]


async def test_a_retry_after_visible_output_is_announced_before_its_events() -> None:
    """E3, MOD-15, ENG-25: the failed attempt's usage is told with it."""
    shown: list[Step] = [
        MessageStart("m"),
        PartDelta("text", 0, "Hel"),
        UsageReport(Usage(input_tokens=5)),
        UsageReport(Usage(input_tokens=5, output_tokens=2)),
        ConnectError("reset"),
    ]
    client = ResilientClient(Steps(shown, WHOLE), AT_ONCE)
    events = await read(client)
    (at,) = [n for n, event in enumerate(events) if isinstance(event, AttemptStarted)]
    assert events[at] == AttemptStarted(1, "reset", Usage(input_tokens=5, output_tokens=2))
    assert events[at + 1 :] == WHOLE
    accumulator = Accumulator()
    for event in events:
        accumulator.feed(event)
    assert accumulator.response().message.text == "Hello"
    assert accumulator.response().usage is None


async def test_the_cost_of_the_last_failure_is_on_its_error() -> None:
    """MOD-15: usage of failed attempts is counted, the last one's too."""
    spent: list[Step] = [UsageReport(Usage(input_tokens=5)), BadRequestError()]
    with pytest.raises(BadRequestError) as caught:
        await read(ResilientClient(Steps(spent)))
    assert caught.value.usage == Usage(input_tokens=5)


async def test_the_cost_of_failed_replies_is_told() -> None:
    """MOD-15: `on_failure` hears of each attempt that is made again."""
    costly = ServerError()
    costly.usage = Usage(input_tokens=7)
    client = ResilientClient(ScriptedClient(costly, ServerError(), "x"), AT_ONCE)
    costs: list[Usage | None] = []
    await client.complete(ASK, on_failure=costs.append)
    assert costs == [Usage(input_tokens=7), None]


async def test_a_stream_without_its_terminal_signal_is_tried_again() -> None:
    """B7, MOD-8: a clean end is not success."""
    client = ResilientClient(Steps(WHOLE[:-1], WHOLE), AT_ONCE)
    assert isinstance((await read(client))[3], AttemptStarted)


async def test_nothing_behind_the_terminal_signal_counts() -> None:
    """MOD-8: a connection that breaks after the reply was whole."""
    client = ResilientClient(Steps([*WHOLE, ConnectError()]))
    assert await read(client) == WHOLE


async def forever() -> None:
    await anyio.sleep_forever()


@pytest.mark.parametrize(
    ("limit", "steps", "words"),
    [
        ("first_event_timeout", [forever], "no first event"),
        ("event_timeout", [MessageStart("m"), forever], "no more content"),
        ("event_timeout", [*WHOLE[:2], forever], "no more content"),
        ("attempt_timeout", [*WHOLE[:2], forever], "no complete reply"),
    ],
)
async def test_silence_in_a_stream_is_a_stall(limit: str, steps: list[Step], words: str) -> None:
    """D7, MOD-14: before the first event, between pieces of content, in the whole."""
    limits: dict[str, float | None] = dict.fromkeys(
        ("first_event_timeout", "event_timeout", "attempt_timeout")
    )
    inner = Steps(steps, WHOLE)
    client = ResilientClient(inner, RetryPolicy(base_delay=0, **{**limits, limit: TINY}))  # type: ignore[arg-type] # names of limits
    with anyio.fail_after(10):
        events = await read(client)
    (started,) = [event for event in events if isinstance(event, AttemptStarted)]
    assert words in started.reason
    assert inner.open == 0


async def test_usage_reports_are_no_content() -> None:
    """MOD-14: what is not content does not keep a stream alive."""
    report = UsageReport(Usage(input_tokens=1))

    async def drip() -> None:
        await anyio.sleep(TINY / 2)

    steps: list[Step] = [*WHOLE[:2]]
    for _ in range(200):
        steps += [drip, report]
    client = ResilientClient(Steps(steps), RetryPolicy(retries=0, event_timeout=TINY))
    with anyio.fail_after(10), pytest.raises(StreamStalled):
        await read(client)


async def test_a_reply_in_one_piece_has_the_attempts_limit() -> None:
    """MOD-14: there are no events between which silence could be measured."""
    client = ResilientClient(
        Steps([forever], WHOLE),
        RetryPolicy(base_delay=0, first_event_timeout=TINY / 10, attempt_timeout=TINY),
    )
    with anyio.fail_after(10):
        assert (await client.complete(ASK)).message.text == "done"


async def test_a_slow_reader_runs_into_no_limit() -> None:
    """ENG-22, MOD-14: time between two questions for the next event counts in none."""
    policy = RetryPolicy(
        retries=0, first_event_timeout=TINY, event_timeout=TINY, attempt_timeout=TINY
    )
    async with ResilientClient(Steps(WHOLE), policy).stream(ASK) as events:
        seen = [await anext(events)]
        with anyio.move_on_after(3 * TINY):
            await anyio.sleep_forever()  # the reader is busy
        seen += [event async for event in events]
    assert seen == WHOLE


async def test_time_that_a_limiter_waits_runs_into_no_limit() -> None:
    """MOD-14: rate waits are no part of an attempt."""

    async def limited() -> None:
        attempt = ATTEMPT.get()
        assert attempt is not None
        attempt.pause()
        with anyio.move_on_after(3 * TINY):
            await anyio.sleep_forever()
        attempt.resume()

    policy = RetryPolicy(retries=0, first_event_timeout=TINY, attempt_timeout=TINY)
    assert await read(ResilientClient(Steps([limited, *WHOLE]), policy)) == WHOLE
    await ResilientClient(Steps([limited]), policy).complete(ASK)
    assert ATTEMPT.get() is None


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_backoff_can_be_cancelled(streaming: bool) -> None:
    """MOD-14: every wait."""
    client = ResilientClient(ScriptedClient(ServerError(retry_after=60), "never"), clock=Dice())
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            if streaming:
                tasks.start_soon(read, client)
            else:
                tasks.start_soon(client.complete, ASK)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
    assert client.client.remaining == 1  # type: ignore[attr-defined] # the scripted one


async def test_leaving_a_stream_closes_the_inner_one_at_once() -> None:
    """D2: in the middle of an attempt and in front of the next."""
    inner = Steps(WHOLE, [MessageStart("m"), ServerError()], WHOLE)
    client = ResilientClient(inner, AT_ONCE)
    async with client.stream(ASK) as events:
        async for _ in events:
            break
    assert inner.open == 0
    async with client.stream(ASK) as events:
        async for event in events:
            if isinstance(event, AttemptStarted):
                break
    assert inner.open == 0
    assert len(inner.attempts) == 1


async def followed(client: ResilientClient) -> list[StreamEvent]:
    events: list[StreamEvent] = []

    async def receive(event: StreamEvent, deadline: Deadline | None) -> None:
        events.append(event)

    await client.follow(ASK, receive)
    return events


async def test_following_tells_what_a_stream_tells() -> None:
    """MOD-14, MOD-15: failures, stalls, cuts and the whole reply."""
    attempts: list[list[Step]] = [
        [*WHOLE[:2], ConnectError("reset")],
        [*WHOLE[:2], forever],
        WHOLE[:-1],
        WHOLE,
    ]
    policy = RetryPolicy(base_delay=0, first_event_timeout=None, event_timeout=TINY)
    with anyio.fail_after(10):
        told = await followed(ResilientClient(Steps(*attempts), policy))
        assert told == await read(ResilientClient(Steps(*attempts), policy))
    with pytest.raises(BadRequestError):
        await followed(ResilientClient(ScriptedClient(BadRequestError())))


async def test_a_slow_follower_that_pauses_runs_into_no_limit() -> None:
    """ENG-22: who receives may stop the time."""

    async def receive(event: StreamEvent, deadline: Deadline | None) -> None:
        assert deadline is not None
        deadline.pause()
        with anyio.move_on_after(2 * TINY):
            await anyio.sleep_forever()
        deadline.resume()

    policy = RetryPolicy(
        retries=0, first_event_timeout=TINY, event_timeout=TINY, attempt_timeout=TINY
    )
    await ResilientClient(Steps(WHOLE), policy).follow(ASK, receive)


async def test_calls_may_overlap() -> None:
    """MOD-14: nothing about a call is kept on the client."""
    failure = ServerError()
    client = ResilientClient(ScriptedClient(*[failure] * 3, *["x"] * 4), AT_ONCE)
    texts: list[str] = []

    async def one() -> None:
        texts.append((await client.complete(ASK)).message.text)

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(one)
    assert texts == ["x"] * 4


async def test_an_error_of_another_kind_passes() -> None:
    """ENG-16: a fault of the client itself is not the network's."""
    with pytest.raises(ZeroDivisionError):
        await ResilientClient(ScriptedClient(ZeroDivisionError())).complete(ASK)
    with pytest.raises(ZeroDivisionError):
        await read(ResilientClient(ScriptedClient(ZeroDivisionError())))


async def test_it_is_the_client_that_it_wraps() -> None:
    """MOD-3: model, provider, window and closing are the inner client's."""
    inner = Steps()
    client = ResilientClient(inner)
    assert (client.model, client.provider, client.context_window) == ("m", "acme", 1000)
    await client.aclose()
    assert inner.open == -1


async def test_it_is_never_wrapped_twice() -> None:
    """MOD-14, E2: one layer retries."""
    with pytest.raises(ConfigError, match="one layer"):
        ResilientClient(ResilientClient(ScriptedClient()))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retries", -1),
        ("retries", 1.5),
        ("retries", True),
        ("rate_limit_retries", None),
        ("base_delay", -0.1),
        ("max_delay", float("inf")),
        ("max_retry_after", "60"),
        ("first_event_timeout", 0),
        ("event_timeout", float("nan")),
        ("attempt_timeout", -1),
    ],
)
async def test_a_policy_refuses_what_makes_no_sense(name: str, value: Any) -> None:
    """MOD-14, ENG-14: the error names the field."""
    with pytest.raises(ConfigError, match=f"RetryPolicy.{name}="):
        RetryPolicy(**{name: value})


async def test_the_defaults_are_those_of_the_contract() -> None:
    """MOD-14: numbers that people rely on."""
    assert RetryPolicy() == RetryPolicy(
        retries=3,
        rate_limit_retries=5,
        base_delay=0.5,
        max_delay=10,
        max_retry_after=60,
        first_event_timeout=120,
        event_timeout=180,
        attempt_timeout=600,
    )
