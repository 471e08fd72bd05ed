from __future__ import annotations

import datetime
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import pytest

from loopctl import BareLoop, RetryPolicy
from loopctl.config import RequestOptions
from loopctl.errors import (
    AuthError,
    BadRequestError,
    ConfigError,
    ConnectError,
    ContextOverflowError,
    FallbackExhausted,
    InvalidResponseError,
    LoopError,
    ModelError,
    QuotaError,
    RateLimitError,
    ServerError,
    StreamIncomplete,
)
from loopctl.messages import Message, ThinkingPart, ToolCallPart, ToolResultPart
from loopctl.models.client import ModelClient, ModelRequest, ToolSchema
from loopctl.models.connect import connect
from loopctl.models.fallback import Asked, FallbackChain
from loopctl.models.ollama import OllamaClient
from loopctl.models.openai_chat import OpenAIChatClient
from loopctl.models.providers import PROVIDERS
from loopctl.models.resilience import ResilientClient
from loopctl.models.retries import RetryingClient
from loopctl.replies import ModelResponse
from loopctl.testing import (
    ByteServer,
    Close,
    FixedClock,
    Playable,
    ScriptedClient,
    call,
    chat_pieces,
    chat_reply,
    respond,
    respond_json,
    respond_sse,
    stream_events,
)
from loopctl.testing.ollama_replies import ollama_reply
from loopctl.usage import Usage
from loopctl.wire.accumulator import Accumulator
from loopctl.wire.stream_events import AttemptStarted, MessageStop, StreamEvent

pytestmark = pytest.mark.anyio

ASK = ModelRequest(messages=(Message.user("hi"),))
ONCE = RetryPolicy(retries=0, rate_limit_retries=0)
MINUTE = datetime.timedelta(seconds=60)


class Named(ScriptedClient):
    """A scripted client with a name, and a provider."""

    def __init__(self, name: str, *replies: Any, **rest: Any) -> None:
        super().__init__(*replies, model=name, **rest)
        self.provider = f"{name}-provider"


def chained(
    primary: list[Any], *backups: list[Any], clock: FixedClock | None = None
) -> tuple[FallbackChain, list[Named]]:
    """A chain that does not retry, and its members."""
    names = ("primary", "backup", "second", "third")
    members = [
        Named(name, *replies) for name, replies in zip(names, (primary, *backups), strict=False)
    ]
    clock = clock or FixedClock()
    return FallbackChain(members[0], members[1:], retry=ONCE, clock=clock), members


async def completed(chain: ModelClient, request: ModelRequest = ASK) -> str:
    return (await chain.complete(request)).message.text


async def streamed(chain: ModelClient, request: ModelRequest = ASK) -> str:
    accumulator = Accumulator()
    async with chain.stream(request) as events:
        async for event in events:
            accumulator.feed(event)
    return accumulator.response().message.text


async def followed(chain: RetryingClient, request: ModelRequest = ASK) -> str:
    accumulator = Accumulator()
    await chain.follow(request, lambda event, deadline: accumulator.feed(event))
    return accumulator.response().message.text


WAYS = [completed, streamed, followed]


@pytest.mark.parametrize("way", WAYS)
async def test_a_backup_serves_the_call_that_failed(way: Any) -> None:
    """MOD-18: in the same turn, each time, and the primary is asked again in the next."""
    chain, (primary, backup) = chained([ServerError, "one", ServerError], ["two", "three"])
    assert [await way(chain) for _ in range(3)] == ["two", "one", "three"]
    assert (primary.remaining, backup.remaining) == (0, 0)


@pytest.mark.parametrize("way", WAYS)
async def test_the_primary_is_left_alone_then_probed_and_comes_back(way: Any) -> None:
    """MOD-18: three failures in a row, 60 seconds, two successes."""
    clock = FixedClock()
    chain, (primary, backup) = chained(
        [ServerError] * 3 + ["probe 1", "probe 2", ServerError, "back"], ["b"] * 5, clock=clock
    )
    assert [await way(chain) for _ in range(4)] == ["b"] * 4
    assert len(primary.requests) == 3
    clock.advance(MINUTE)
    assert [await way(chain) for _ in range(4)] == ["probe 1", "probe 2", "b", "back"]
    assert (primary.remaining, backup.remaining) == (0, 0)


@pytest.mark.parametrize("error", [RateLimitError, ServerError, ConnectError, InvalidResponseError])
async def test_a_failed_probe_reopens_at_once_and_the_turn_is_served(
    error: type[ModelError], naps: list[float]
) -> None:
    """MOD-18, E7: a probe is one attempt, whatever the policy and the wait that is asked for."""
    clock = FixedClock()
    primary = Named("primary", *[ServerError] * 3, error("no", retry_after=30), "good")
    backup = Named("backup", *["b"] * 5)
    patient = RetryPolicy(retries=5, rate_limit_retries=5)
    chain = FallbackChain(
        ResilientClient(primary, replace(patient, retries=0)), [backup], clock=clock
    )
    for _ in range(3):
        await completed(chain)
    clock.advance(MINUTE)
    assert await completed(chain) == "b"
    assert primary.remaining == 1
    assert await completed(chain) == "b"
    assert primary.remaining == 1
    assert naps == []
    clock.advance(MINUTE)
    assert await completed(chain) == "good"


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What is slept for, instead of sleeping."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("loopctl.models.resilience.sleep", sleep)
    monkeypatch.setattr("loopctl.models.resilient_stream.sleep", sleep)
    return slept


@pytest.mark.parametrize("way", WAYS)
async def test_each_member_is_retried_by_its_own_policy_before_the_chain_moves_on(
    way: Any, naps: list[float]
) -> None:
    """MOD-14, MOD-18, E2: retries do not multiply, and one call is one failure."""
    primary = Named("primary", *[ServerError] * 12)
    own = Named("own", *[ServerError] * 3, *["own"] * 3)
    second = ResilientClient(own, RetryPolicy(retries=1))
    chain = FallbackChain(
        primary, [second, Named("third", "third")], retry=RetryPolicy(retries=2), clock=FixedClock()
    )
    assert await way(chain) == "third"
    assert (len(primary.requests), len(own.requests)) == (3, 2)
    assert await way(chain) == "own"
    assert (len(primary.requests), len(own.requests)) == (6, 4)
    assert await way(chain) == "own"
    assert await way(chain) == "own"
    assert len(primary.requests) == 9


@pytest.mark.parametrize(
    "error", [AuthError, BadRequestError, QuotaError, ContextOverflowError, ConfigError]
)
@pytest.mark.parametrize("way", WAYS)
async def test_what_the_primary_refuses_for_good_counts_for_nothing(
    way: Any, error: type[LoopError]
) -> None:
    """MOD-18, E7: raised as it is; it neither trips the breaker nor clears its tally."""
    chain, (primary, backup) = chained(
        [ServerError, ServerError, error, error, error, error, ServerError], ["b"] * 4
    )
    assert [await way(chain) for _ in range(2)] == ["b"] * 2
    for _ in range(4):
        with pytest.raises(error):
            await way(chain)
    assert await way(chain) == "b"
    assert primary.remaining == 0
    assert await way(chain) == "b"  # the third failure in a row: it is open
    assert backup.remaining == 0


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("error", [AuthError, BadRequestError])
async def test_a_probe_that_is_refused_frees_its_place(way: Any, error: type[ModelError]) -> None:
    """E7: the next call may probe."""
    clock = FixedClock()
    chain, (primary, _) = chained([ServerError] * 3 + [error, "good"], ["b"] * 3, clock=clock)
    for _ in range(3):
        await way(chain)
    clock.advance(MINUTE)
    with pytest.raises(error):
        await way(chain)
    assert await way(chain) == "good"
    assert primary.remaining == 0


@pytest.mark.parametrize("way", WAYS)
async def test_a_cancelled_probe_frees_its_place(way: Any) -> None:
    """E7, ENG-18: and while it is out, calls go to the backup."""
    clock = FixedClock()
    asked = anyio.Event()

    async def hang(request: ModelRequest) -> str:
        asked.set()
        await anyio.sleep_forever()
        return ""

    chain, _ = chained([ServerError] * 3 + [hang, "good"], ["b"] * 4, clock=clock)
    for _ in range(3):
        await way(chain)
    clock.advance(MINUTE)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(way, chain)
        await asked.wait()
        assert await way(chain) == "b"
        tasks.cancel_scope.cancel()
    assert await way(chain) == "good"


async def test_a_stream_that_is_left_early_counts_for_nothing() -> None:
    """E7, D2: neither as a success nor as a failure; read to its last event it is a success."""
    clock = FixedClock()
    chain, (primary, _) = chained(
        [ServerError] * 3 + ["probe"] * 4 + [ServerError] * 2, ["b"] * 5, clock=clock
    )
    for _ in range(3):
        await streamed(chain)
    clock.advance(MINUTE)
    for _ in range(2):
        async with chain.stream(ASK) as events:
            async for _ in events:
                break
    for _ in range(2):
        async with chain.stream(ASK) as events:
            async for event in events:
                if isinstance(event, MessageStop):
                    break
    assert [await streamed(chain) for _ in range(2)] == ["b", "b"]  # closed: two may fail
    assert primary.remaining == 0


async def test_an_error_that_is_no_models_passes_through() -> None:
    """MOD-18: a fault of a client's own code is not hidden, and frees the probe."""
    clock = FixedClock()
    chain, _ = chained([ServerError] * 3 + [KeyError("x"), "good"], ["b"] * 3, clock=clock)
    for _ in range(3):
        await completed(chain)
    clock.advance(MINUTE)
    with pytest.raises(KeyError):
        await completed(chain)
    assert await completed(chain) == "good"


@pytest.mark.parametrize("way", WAYS)
async def test_a_backup_with_two_failures_is_skipped(way: Any) -> None:
    """MOD-18: the next one serves; after a pause it is asked again."""
    clock = FixedClock()
    chain, (_, backup, second) = chained(
        [ServerError] * 5, [ServerError, ServerError, "b"], ["s"] * 4, clock=clock
    )
    assert [await way(chain) for _ in range(4)] == ["s"] * 4
    assert backup.remaining == 1
    clock.advance(MINUTE)
    assert await way(chain) == "b"
    assert (backup.remaining, second.remaining) == (0, 0)


@pytest.mark.parametrize("way", WAYS)
async def test_when_all_are_spent_the_chain_is_exhausted_without_another_call(way: Any) -> None:
    """MOD-18: before the cooldown, with what each said last; after it the primary is probed."""
    clock = FixedClock()
    chain, (primary, backup) = chained(
        [ServerError("p")] * 3 + ["good"], [StreamIncomplete("b")] * 2, clock=clock
    )
    for _ in range(4):
        with pytest.raises(FallbackExhausted) as caught:
            await way(chain)
        assert caught.value.recoverable
        assert [type(cause) for cause in caught.value.causes] == [ServerError, StreamIncomplete]
    assert (primary.remaining, backup.remaining) == (1, 0)
    clock.advance(MINUTE)
    assert await way(chain) == "good"


@pytest.mark.parametrize("way", WAYS)
async def test_a_backup_that_refuses_is_passed_over_and_keeps_its_tally(way: Any) -> None:
    """MOD-18: a wrong key, an option that it lacks, a prompt too long for it."""
    refusals = [AuthError, ConfigError("no"), ContextOverflowError]
    chain, (_, backup, second) = chained([ServerError] * 3, [*refusals, "b"], ["s"] * 3)
    assert [await way(chain) for _ in range(4)] == ["s", "s", "s", "b"]
    assert (backup.remaining, second.remaining) == (0, 0)


async def test_a_backup_whose_window_cannot_hold_the_request_is_skipped() -> None:
    """MOD-18: messages, system text, tools and the reply's own limit are counted."""
    small = Named("small", "small", "small", context_window=1_000)
    chain = FallbackChain(
        Named("primary", *[ServerError] * 6), [small, Named("large", *["large"] * 5)], retry=ONCE
    )
    text = "word " * 900
    tool = ToolSchema(name="t", description=text, input_schema={})
    assert await completed(chain) == "small"
    for request in (
        ModelRequest(messages=(Message.user(text),)),
        replace(ASK, system=text),
        replace(ASK, tools=(tool,)),
        replace(ASK, options=RequestOptions(max_output_tokens=1_000)),
    ):
        assert await completed(chain, request) == "large"
    assert await completed(chain) == "small"


async def test_a_chain_whose_backups_are_too_small_says_so() -> None:
    """MOD-18: with the figures."""
    small = Named("small", context_window=100)
    chain = FallbackChain(Named("primary", ServerError), [small], retry=ONCE)
    with pytest.raises(FallbackExhausted, match="too long for this backup") as caught:
        await completed(chain, ModelRequest(messages=(Message.user("word " * 900),)))
    lack = caught.value.causes[1]
    assert isinstance(lack, ContextOverflowError)
    assert (lack.model, lack.limit) == ("small", 100)


async def test_a_backup_gets_the_request_without_what_names_the_primary() -> None:
    """MOD-18: its model override; an extra body that was written for another provider."""
    options = RequestOptions(model="big", temperature=1, extra_body={"x": 1})
    chain, (primary, backup) = chained([ServerError], ["b"])
    await completed(chain, replace(ASK, options=options))
    assert primary.requests[0].options == options
    assert backup.requests[0].options == RequestOptions(temperature=1)
    assert backup.requests[0].messages is ASK.messages

    sibling = Named("sibling", "s")
    sibling.provider = "primary-provider"
    chain = FallbackChain(Named("primary", ServerError), [sibling], retry=ONCE)
    await completed(chain, replace(ASK, options=options))
    assert sibling.requests[0].options == replace(options, model=None)


def costing(error: type[ModelError], tokens: int) -> ModelError:
    made = error("x")
    made.usage = Usage(input_tokens=tokens)
    return made


async def test_what_failed_attempts_cost_is_told(naps: list[float]) -> None:
    """MOD-15: by every member; the last one's stands on the error when none could serve."""
    primary = Named("primary", costing(ServerError, 1), costing(ServerError, 2))
    backup = Named("backup", costing(ServerError, 3), "b")
    chain = FallbackChain(primary, [backup], retry=RetryPolicy(retries=1), clock=FixedClock())
    costs: list[Usage | None] = []
    await chain.complete(ASK, on_failure=costs.append)
    assert [cost and cost.input_tokens for cost in costs] == [1, 2, 3]
    chain, _ = chained([costing(ServerError, 1)], [costing(ServerError, 2)])
    costs.clear()
    with pytest.raises(FallbackExhausted) as caught:
        await chain.complete(ASK, on_failure=costs.append)
    assert costs == [Usage(input_tokens=1)]
    assert caught.value.usage == Usage(input_tokens=2)


@pytest.mark.parametrize("pushed", [True, False])
async def test_attempts_are_counted_over_all_members(pushed: bool, naps: list[float]) -> None:
    """MOD-15, E3: a new one voids what was said before, whoever said it."""
    primary = Named("primary", costing(ServerError, 1), costing(ServerError, 2))
    backup = Named("backup", costing(ServerError, 3), "b")
    chain = FallbackChain(primary, [backup], retry=RetryPolicy(retries=1), clock=FixedClock())
    events: list[StreamEvent] = []
    if pushed:
        await chain.follow(ASK, lambda event, deadline: events.append(event))
    else:
        async with chain.stream(ASK) as source:
            events += [event async for event in source]
    started = [event for event in events if isinstance(event, AttemptStarted)]
    assert [event.attempt for event in started] == [1, 2, 3]
    assert [event.failed_usage for event in started] == [
        Usage(input_tokens=tokens) for tokens in (1, 2, 3)
    ]
    assert "x" in started[1].reason


class Breaks:
    """A client that says something, and then fails."""

    model, provider, context_window = "breaks", "acme", None

    async def complete(self, request: ModelRequest) -> ModelResponse:
        raise StreamIncomplete("cut")

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[StreamEvent]]:
        async def half() -> AsyncGenerator[StreamEvent]:
            response = ModelResponse(message=Message.assistant("half of something"))
            for event in list(stream_events(response))[:3]:
                yield event
            raise StreamIncomplete("cut")

        yield half()

    async def aclose(self) -> None:
        pass


@pytest.mark.parametrize("way", WAYS)
async def test_what_a_failed_member_had_said_is_void(way: Any) -> None:
    """E3: one copy of the text."""
    chain = FallbackChain(Breaks(), [Named("backup", "whole")], retry=ONCE)
    assert await way(chain) == "whole"


async def test_each_member_is_told_before_it_is_asked() -> None:
    """MOD-18: so that every change can be told, whoever shares the chain."""
    clock = FixedClock()
    chain, _ = chained([ServerError("down")] * 3 + ["good"] * 2, ["b"] * 4, clock=clock)
    told: list[Asked] = []

    async def later(asked: Asked) -> None:
        await anyio.lowlevel.checkpoint()
        told.append(asked)

    for number in range(5):
        told.clear()
        if number == 4:
            clock.advance(MINUTE)
        await chain.complete(ASK, on_asked=later if number % 2 else told.append)
        first, *rest = told
        if number < 3:
            assert (first.model, first.provider) == ("primary", "primary-provider")
            assert [(a.model, "down" in a.reason) for a in rest] == [("backup", True)]
        elif number == 3:
            assert (first.model, "down" in first.reason, rest) == ("backup", True, [])
        else:
            assert (first.model, first.reason, rest) == ("primary", "its pause is over", [])
    async with chain.stream(ASK, on_asked=told.append) as events:
        async for _ in events:
            break
    assert told[-1].model == "primary"


async def test_a_listener_that_fails_frees_the_probe() -> None:
    """E7: also when it is cancelled there."""
    clock = FixedClock()
    chain, _ = chained([ServerError] * 3 + ["good"], ["b"] * 3, clock=clock)
    for _ in range(3):
        await completed(chain)
    clock.advance(MINUTE)

    async def fails(asked: Asked) -> None:
        await anyio.lowlevel.checkpoint()
        raise ZeroDivisionError

    def fails_at_once(asked: Asked) -> None:
        raise ZeroDivisionError

    for listener in (fails, fails_at_once):
        with pytest.raises(ZeroDivisionError):
            await chain.complete(ASK, on_asked=listener)
    assert await completed(chain) == "good"


def test_what_makes_no_chain_is_refused() -> None:
    """MOD-14, MOD-18: retries are not wrapped twice, and a chain needs somebody to fall back to."""
    member = Named("m")
    chain = FallbackChain(member, [member])
    assert isinstance(chain, ModelClient)
    assert (chain.model, chain.provider, chain.context_window) == ("m", "m-provider", 128_000)
    for make in (
        lambda: FallbackChain(member, []),
        lambda: FallbackChain(chain, [member]),
        lambda: FallbackChain(member, [chain]),
        lambda: ResilientClient(chain),
    ):
        with pytest.raises(ConfigError):
            make()


async def test_closing_closes_every_member(nothing_left: None) -> None:
    """MOD-5: and each may be used again."""
    async with ByteServer(chat_reply("Hi"), respond("", status=500), ollama_reply("Ho")) as server:
        chain = FallbackChain(
            OpenAIChatClient("m", base_url=server.url),
            [OllamaClient("m", base_url=server.url)],
            retry=ONCE,
        )
        assert [await completed(chain) for _ in range(2)] == ["Hi", "Ho"]
        await chain.aclose()
        await server.wait_closed()


THOUGHT = ThinkingPart(
    "Hm.", provider="deepseek", model="deepseek-v4-pro", kind="reasoning_content"
)
SIGNED = ThinkingPart("", signature="sealed", provider="anthropic", model="claude", kind="thinking")
HISTORY = (
    Message.user("q"),
    Message.assistant(SIGNED, ToolCallPart("toolu_" + "x" * 50, "look.up", {"a": 1})),
    Message.user(ToolResultPart("toolu_" + "x" * 50, "look.up", "seen")),
    Message.assistant(THOUGHT, ToolCallPart("functions.add:0", "add", {})),
    Message.user(ToolResultPart("functions.add:0", "add", "", is_error=True)),
    Message.system("a note"),
)


async def test_history_is_written_anew_for_each_member_that_gets_it(nothing_left: None) -> None:
    """MOD-18, MOD-20, C7: ids, thinking and shapes, on the outgoing copy alone, there and back."""
    failing = respond_json({"error": {"message": "busy"}}, status=503)
    async with ByteServer(failing, failing, ollama_reply("Ho"), chat_reply("Hi")) as server:
        deepseek = OpenAIChatClient(
            "d", base_url=server.url, profile="deepseek", provider="deepseek"
        )
        mistral = OpenAIChatClient("m", base_url=server.url, profile="mistral", provider="mistral")
        ollama = OllamaClient("o", base_url=server.url)
        chain = FallbackChain(deepseek, [mistral, ollama], retry=ONCE)
        request = ModelRequest(messages=HISTORY, system="s")
        before = [message.to_json() for message in HISTORY]
        assert [await completed(chain, request) for _ in range(2)] == ["Ho", "Hi"]
        assert [message.to_json() for message in HISTORY] == before
        await chain.aclose()
    first, second, third, fourth = server.requests
    assert first.body == fourth.body == deepseek.encode(request).body
    assert second.body == mistral.encode(request).body
    assert third.body == ollama.encode(request).body
    assert b"sealed" not in b"".join(each.body for each in server.requests)
    to_deepseek, to_mistral, to_ollama = (
        each.json()["messages"] for each in (first, second, third)
    )
    assert [m.get("reasoning_content") for m in to_deepseek if m["role"] == "assistant"] == [
        "",
        "Hm.",
    ]
    assert "Hm." not in json.dumps(to_mistral) + json.dumps(to_ollama)
    calls = [m["tool_calls"][0] for m in to_mistral if m.get("tool_calls")]
    results = [m["tool_call_id"] for m in to_mistral if m["role"] == "tool"]
    assert [c["id"] for c in calls] == results
    assert all(len(c["id"]) == 9 and c["id"].isalnum() for c in calls)
    assert calls[0]["function"] == {"name": "look_up", "arguments": '{"a":1}'}
    assert to_ollama[2]["tool_calls"][0]["function"] == {"name": "look.up", "arguments": {"a": 1}}


FOREIGN = [
    ThinkingPart("Hm. " + name, signature=f"sealed by {name}", provider=name, model="m", kind=kind)
    for name, kind in (("deepseek", "reasoning_content"), ("anthropic", "thinking"))
]
FOREIGN += [
    ThinkingPart("Hm. gemini", signature="sealed by gemini", provider="gemini", model="m"),
    ThinkingPart("", signature="sealed by openai", provider="openai", model="m", kind="reasoning"),
    ThinkingPart("", signature="gone", redacted=True, provider="bedrock", model="m", prefix="p"),
]
MIXED = (
    *HISTORY,
    *(
        message
        for number, thought in enumerate(FOREIGN)
        for message in (
            Message.assistant(thought, "So.", ToolCallPart(f"call:{number}", "add", {"a": 1})),
            Message.user(ToolResultPart(f"call:{number}", "add", "2"), "go on"),
        )
    ),
)


@pytest.mark.parametrize("prefix", PROVIDERS)
def test_no_member_is_sent_what_others_thought(
    prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MOD-18, MOD-20: and what one dialect made of a message is not what another one sends."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "k")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://r.openai.azure.com")
    add = ToolSchema(name="add", description="Add.", input_schema={"type": "object"})

    def encoded(prefix: str, messages: tuple[Message, ...]) -> bytes:
        client: Any = connect(f"{prefix}:m", api_key="k")
        body: bytes = client.encode(ModelRequest(messages=messages, tools=(add,))).body
        return body

    fresh = tuple(Message(message.role, message.parts) for message in MIXED)
    alone = encoded(prefix, fresh)
    for other in PROVIDERS:
        encoded(other, MIXED)
    assert encoded(prefix, MIXED) == alone
    for thought in FOREIGN:
        if thought.provider != prefix:
            assert (thought.text or "sealed by openai").encode() not in alone
            assert str(thought.signature).encode() not in alone


async def test_a_whole_run_changes_models_in_the_middle_of_a_turn(nothing_left: None) -> None:
    """MOD-18: the tool runs once, whoever asked for it, and one copy of the text is told."""
    added: list[int] = []

    def add(a: int) -> int:
        """Add one."""
        added.append(a)
        return a + 1

    pieces = chat_pieces("half a text of the primary, which then breaks")
    scripts: list[Playable] = [
        respond_sse(*pieces[:4], Close()),
        ollama_reply(["Let me add.", call("add", id="call_1", a=1)]),
        chat_reply("Two."),
    ]
    async with ByteServer(*scripts) as server:
        chain = FallbackChain(
            OpenAIChatClient("m", base_url=server.url),
            [OllamaClient("o", base_url=server.url)],
            retry=ONCE,
        )
        agent = BareLoop(chain, [add], retry=None)
        async with agent.stream("1 + 1?") as stream:
            async for _ in stream:
                pass
        assert stream.run is not None
        assert (stream.run.output, added) == ("Two.", [1])
        texts = [message.text for message in agent.history if message.role == "assistant"]
        assert texts == ["Let me add.", "Two."]
        await chain.aclose()
