"""The window's lines in the driver: deferral, passes, salvage (CTX-28 … CTX-33, CMP-1 … CMP-9).

One character is one token here, and messages cost nothing beside their text.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import AsyncIterator, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from loopctl import (
    Attachment,
    BareLoop,
    CompactionAdvice,
    CompactionContext,
    Contribution,
    FileAttachment,
    MemoryAttachment,
    Message,
    RatioTokenCounter,
    RequestOptions,
    RunConfig,
    SessionConfig,
    TodoAttachment,
    TodoItem,
    TruncatingCompactor,
    hookimpl,
    tool,
)
from loopctl.errors import (
    ConfigError,
    ContextExceeded,
    ContextOverflowError,
    LoopBusyError,
    RunCancelled,
    ServerError,
)
from loopctl.events import (
    CompactionFailed,
    CompactionFinished,
    CompactionSkipped,
    CompactionStarted,
    Event,
    RunEnded,
    SteeringDelivered,
    TurnDeferred,
    TurnStarted,
)
from loopctl.messages import ToolResultPart
from loopctl.models.client import ModelRequest
from loopctl.models.openai_chat import OpenAIChatClient
from loopctl.replies import ModelResponse
from loopctl.testing import ScriptedClient, assert_valid_conversation, call
from loopctl.testing.scripted import Answer
from loopctl.usage import Usage

pytestmark = pytest.mark.anyio

CHARS = RatioTokenCounter(1, per_message=0)
CHAT = OpenAIChatClient("any", base_url="http://127.0.0.1:1")


def config(window: int = 8_000, **settings: Any) -> SessionConfig:
    return SessionConfig(context_window=window, **settings)


def history(runs: int = 6, size: int = 1_000) -> list[Message]:
    """Runs of one question and one answer that make `size` characters together."""
    made: list[Message] = []
    for number in range(runs):
        question = f"question {number} "
        made.append(Message.user(question.ljust(size // 2, "q")))
        made.append(Message.assistant(f"answer {number} ".ljust(size - size // 2, "a")))
    return made


def session(client: ScriptedClient, *tools: Any, window: int = 8_000, **given: Any) -> BareLoop:
    settings = given.pop("settings", {})
    options: dict[str, Any] = {"retry": None, "counter": CHARS} | given
    return BareLoop(client, tools, config(window, **settings), **options)


async def read(agent: BareLoop, input: str | None, run_config: RunConfig | None = None) -> Any:
    """The events of a run, and what it raised."""
    events: list[Event] = []
    try:
        async with agent.stream(input, run_config) as stream:
            async for event in stream:
                events.append(event)
    except Exception as error:
        return events, error
    return events, None


def names(events: Sequence[Event]) -> list[str]:
    return [type(event).__name__ for event in events if isinstance(event, _NAMED)]


_NAMED = (
    CompactionStarted,
    CompactionFinished,
    CompactionSkipped,
    CompactionFailed,
    TurnDeferred,
    TurnStarted,
    SteeringDelivered,
    RunEnded,
)


def size_of(request: ModelRequest) -> float:
    return sum(CHARS.count(message) for message in request.messages)


class Telling:
    """A contributor of a given size that says which consultation it is in and what it sees."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.seen: list[int] = []

    def contribute(self, ctx: Any) -> str:
        self.seen.append(len(ctx.conversation))
        return f"note {len(self.seen)} of {len(ctx.conversation)} ".ljust(self.size, "n")


# -- deferral -------------------------------------------------------------------------------------


async def test_a_deferred_turn_consults_contributors_again_and_drops_the_first_answers() -> None:
    """CTX-31, A1: seen in the request's bytes; the pass leaves room for what rides."""
    client = ScriptedClient("done")
    agent = session(client, history=history(6))
    note = Telling(1_000)
    agent.add_contributor(note)
    events, error = await read(agent, "and now?")
    assert error is None
    assert names(events) == [
        "TurnDeferred",
        "CompactionStarted",
        "CompactionFinished",
        "TurnStarted",
        "RunEnded",
    ]
    first, second = note.seen
    assert (first, second < first) == (13, True)
    body = CHAT.encode(client.requests[0]).body.decode()
    assert f"note 2 of {second}" in body
    assert "note 1 of" not in body
    assert size_of(client.requests[0]) < 6_400
    deferred = next(event for event in events if isinstance(event, TurnDeferred))
    assert (deferred.tokens, deferred.line) == (7_008, 6_400)
    started = next(event for event in events if isinstance(event, CompactionStarted))
    assert (started.reason, started.tokens, started.target) == ("deferral", 6_008, 2_200)
    turn = next(event for event in events if isinstance(event, TurnStarted))
    assert turn.over_line == 0
    assert_valid_conversation(agent.history)


async def test_a_contributor_that_grows_at_the_retry_is_served_and_nothing_repeats() -> None:
    """CTX-31, CTX-32: the provider's answer decides."""
    client = ScriptedClient("done")
    agent = session(client, history=history(6))
    asked = 0

    def growing(ctx: Any) -> str:
        nonlocal asked
        asked += 1
        return "n" * (1_000 if asked == 1 else 9_000)

    agent.add_contributor(growing)
    events, error = await read(agent, "and now?")
    assert error is None
    assert asked == 2
    assert names(events).count("CompactionStarted") == 1
    turn = next(event for event in events if isinstance(event, TurnStarted))
    assert turn.over_line > 2_600


async def test_transients_that_are_over_the_line_alone_leave_the_history_alone() -> None:
    """CTX-31: no pass can help."""
    client = ScriptedClient("done")
    agent = session(client, history=history(2))
    agent.add_contributor(lambda ctx: "n" * 9_000)
    events, error = await read(agent, "and now?")
    assert error is None
    assert names(events) == ["TurnStarted", "RunEnded"]
    assert len(agent.history) == 6


async def test_an_attachment_that_crosses_the_line_defers_the_turn_and_stays_verbatim() -> None:
    """CTX-17, A3: attachments are no business of a compactor's."""
    client = ScriptedClient("done")
    pinned = FileAttachment.inline("notes.txt", "keep me " * 125)
    agent = session(client, history=history(6), attachments=[pinned])
    events, error = await read(agent, "and now?")
    assert error is None
    assert names(events)[:2] == ["TurnDeferred", "CompactionStarted"]
    assert client.requests[0].messages[0].text == pinned.render()


async def test_a_deferred_turn_renders_its_attachments_again() -> None:
    """CTX-31, A1: what was pinned while the pass went on is in the request."""
    agent: BareLoop

    async def pins(messages: Sequence[Message]) -> Sequence[Message]:
        await agent.set_attachment(MemoryAttachment("fact", "new " * 200))
        return [messages[0], messages[-1]]

    client = ScriptedClient("done")
    pinned = MemoryAttachment("fact", "old " * 200)
    agent = session(client, history=history(6), attachments=[pinned], compactor=Returns(pins))
    events, error = await read(agent, "and now?")
    assert error is None
    assert names(events)[0] == "TurnDeferred"
    assert client.requests[0].messages[0].text == MemoryAttachment("fact", "new " * 200).render()
    assert "old old" not in str(client.requests[0])


async def test_without_a_window_nothing_is_measured() -> None:
    """CTX-30: 0 switches the lines off."""
    client = ScriptedClient("done")
    agent = session(client, history=history(60), window=0)
    agent.add_contributor(lambda ctx: "n" * 90_000)
    events, error = await read(agent, "and now?")
    assert error is None
    assert names(events) == ["TurnStarted", "RunEnded"]


# -- the lines ------------------------------------------------------------------------------------


async def test_the_threshold_makes_a_pass_before_the_contributors_are_asked() -> None:
    """CTX-31, step 3; with the reserve of the turn before."""
    client = ScriptedClient("first", "second")
    agent = session(client, history=history(5))
    note = Telling(700)
    agent.add_contributor(note)
    await agent.run("one")
    events, error = await read(agent, "two".ljust(1_500))
    assert error is None
    assert names(events) == ["CompactionStarted", "CompactionFinished", "TurnStarted", "RunEnded"]
    started = next(event for event in events if isinstance(event, CompactionStarted))
    assert started.reason == "threshold"
    assert started.target == 3_200 - 700
    assert len(note.seen) == 2


@pytest.mark.parametrize(("threshold", "passes"), [(60, 1), (70, 0)])
async def test_the_threshold_is_the_one_of_the_settings(threshold: float, passes: int) -> None:
    """CTX-31, ENG-14: in per cent of the window; 5,002 of 8,000 tokens are 62.5."""
    settings = {"compact_threshold": threshold}
    agent = session(ScriptedClient("done"), history=history(5), settings=settings)
    events, error = await read(agent, "go")
    assert error is None
    assert names(events).count("CompactionStarted") == passes


async def test_without_auto_compaction_only_the_emergency_line_counts() -> None:
    """CTX-31: L is E."""
    client = ScriptedClient("first", "second")
    agent = session(client, history=history(7), settings={"auto_compact": False})
    assert names((await read(agent, "one"))[0]) == ["TurnStarted", "RunEnded"]
    events, error = await read(agent, "two".ljust(700))
    assert error is None
    assert names(events)[0] == "CompactionStarted"
    started = next(event for event in events if isinstance(event, CompactionStarted))
    assert started.reason == "emergency"


class Returns:
    """A compactor that does what it is told, and counts."""

    def __init__(self, what: Any) -> None:
        self.what = what
        self.asked: list[tuple[int, CompactionContext]] = []

    async def compact(
        self, messages: Sequence[Message], target: int, ctx: CompactionContext
    ) -> Sequence[Message]:
        self.asked.append((target, ctx))
        made: Sequence[Message] = await self.what(messages)
        return made


async def as_it_is(messages: Sequence[Message]) -> Sequence[Message]:
    return messages


async def more(messages: Sequence[Message]) -> Sequence[Message]:
    return [*messages, Message.user("and more".ljust(900))]


async def hangs(messages: Sequence[Message]) -> Sequence[Message]:
    await anyio.sleep_forever()
    return messages


async def raises(messages: Sequence[Message]) -> Sequence[Message]:
    raise OSError("no more room")


async def rubbish(messages: Sequence[Message]) -> Any:
    return ["text"]


async def loses_the_goal(messages: Sequence[Message]) -> Sequence[Message]:
    return [Message.user("something else"), *messages[-1:]]


async def loses_a_result(messages: Sequence[Message]) -> Sequence[Message]:
    return [message for message in messages if not message.results][:1]


@pytest.mark.parametrize(
    ("what", "ending"),
    [
        (as_it_is, CompactionSkipped),
        (more, CompactionSkipped),
        (loses_the_goal, CompactionSkipped),
        (rubbish, CompactionSkipped),
        (hangs, CompactionFailed),
        (raises, CompactionFailed),
    ],
)
async def test_no_pass_repeats_without_end(what: Any, ending: type[Event]) -> None:
    """CTX-32, CMP-4, A2: 20 turns over the threshold cost one pass; each start has one end."""
    compactor = Returns(what)

    @tool
    async def work() -> str:
        """Work."""
        return "d"

    client = ScriptedClient(*[call("work")] * 20, "done")
    agent = session(
        client,
        work,
        history=history(6, 1_100),
        compactor=compactor,
        settings={"compaction_timeout": 0.01},
    )
    before = agent.history
    events, error = await read(agent, "go")
    assert error is None
    assert len(compactor.asked) == 1
    assert names(events).count("CompactionStarted") == 1
    assert sum(isinstance(event, ending) for event in events) == 1
    ends = (CompactionFinished, CompactionSkipped, CompactionFailed)
    assert sum(isinstance(event, ends) for event in events) == 1
    assert agent.history[: len(before)] == before
    failed = ending is CompactionFailed
    assert len(agent.runs[0].warnings) == failed


async def test_at_the_emergency_line_every_boundary_has_its_pass_and_then_the_run_ends() -> None:
    """CTX-31, step 2: `ContextExceeded` with the figures and the unfinished input (CTX-33)."""
    compactor = Returns(as_it_is)
    agent = session(ScriptedClient(), history=history(8), compactor=compactor)
    events, error = await read(agent, "go on")
    assert isinstance(error, ContextExceeded)
    assert (error.used, error.limit) == (8_005, 8_000)
    assert [message.text for message in error.unfinished_input] == ["go on"]
    assert len(compactor.asked) == 1
    assert names(events) == ["CompactionStarted", "CompactionSkipped", "RunEnded"]
    assert len(agent.history) == 16


async def test_growing_by_a_twentieth_of_the_window_clears_the_latch() -> None:
    """CTX-32: then a pass is tried again."""
    compactor = Returns(as_it_is)
    client = ScriptedClient("a", "b", "c")
    agent = session(client, history=history(6, 1_100), compactor=compactor)
    await agent.run("1")
    await agent.run("2".ljust(300))
    assert len(compactor.asked) == 1
    await agent.run("3".ljust(200))
    assert len(compactor.asked) == 2


# -- what a pass is given and what it may do ------------------------------------------------------


async def test_a_pass_knows_its_reason_its_sizes_and_what_is_pinned() -> None:
    """CMP-2, CMP-3, CMP-9: the goal, the run's input and its steering."""
    compactor = Returns(as_it_is)
    agent: BareLoop

    @tool
    async def work() -> str:
        """Work."""
        agent.steer("look left")
        return "r" * 1_500

    client = ScriptedClient(call("work"), "done")
    agent = session(client, work, history=history(5), compactor=compactor)
    await agent.run("go")
    ((target, ctx),) = compactor.asked
    assert (ctx.reason.value, ctx.turn, ctx.window, ctx.reserve) == ("threshold", 1, 8_000, 0)
    assert ctx.size == 5_000 + 2 + len("work{}") + 1_500 + len("look left")
    assert target < 3_200
    assert [m.text[:10] for m in ctx.pinned] == ["question 0", "go", "look left"]


class Advising:
    def __init__(self, *advice: Any) -> None:
        self.advice = list(advice)
        self.asked: list[CompactionContext] = []

    @hookimpl
    async def before_compaction(self, ctx: CompactionContext) -> CompactionAdvice | None:
        self.asked.append(ctx)
        await anyio.lowlevel.checkpoint()
        advice = self.advice.pop(0)
        if isinstance(advice, Exception):
            raise advice
        return advice  # type: ignore[no-any-return]


async def test_hooks_advise_a_pass_the_last_instructions_win_and_context_adds_up() -> None:
    """CMP-5: a failing one costs its own advice."""
    compactor = Returns(as_it_is)
    agent = session(
        ScriptedClient("done"),
        history=history(7),
        compactor=compactor,
        plugins=[
            Advising(CompactionAdvice(instructions="keep names", context="a")),
            Advising(ValueError("broken")),
            Advising(None),
            Advising(CompactionAdvice(instructions="keep dates", context="b")),
        ],
    )
    await agent.run("go")
    ((_, ctx),) = compactor.asked
    assert (ctx.instructions, ctx.added) == ("keep dates", ("a", "b"))


async def test_advice_that_does_not_come_in_time_is_done_without() -> None:
    """CMP-5: bounded by `contributor_timeout`."""

    class Slow:
        @hookimpl
        async def before_compaction(self, ctx: CompactionContext) -> CompactionAdvice:
            await anyio.sleep_forever()
            return CompactionAdvice(veto="too late")

    agent = session(
        ScriptedClient(),
        history=history(6),
        plugins=[Slow()],
        settings={"contributor_timeout": 0.01},
    )
    assert (await agent.compact()).changed


async def test_a_veto_is_a_pass_that_changes_nothing() -> None:
    """CMP-4, CMP-5: told as skipped, and the latch is set."""
    compactor = Returns(as_it_is)
    vetoing = Advising(CompactionAdvice(veto="an audit is going on"))
    agent = session(
        ScriptedClient("done", "more"), history=history(7), compactor=compactor, plugins=[vetoing]
    )
    events, error = await read(agent, "go")
    assert error is None
    skipped = next(event for event in events if isinstance(event, CompactionSkipped))
    assert "an audit is going on" in skipped.why
    assert compactor.asked == []
    await agent.run("on")
    assert len(vetoing.asked) == 1


async def test_a_run_that_fails_after_a_pass_is_taken_back_and_the_pass_stays() -> None:
    """CMP-8, ENG-18: nothing of the run is left, the history is the shorter one."""
    agent = session(ScriptedClient(ServerError("broken")), history=history(7))
    with pytest.raises(ServerError):
        await agent.run("go")
    assert 0 < len(agent.history) < 14
    assert agent.history[0].text.startswith("question 0")
    assert all(message.text != "go" for message in agent.history)
    assert not agent.unfinished
    assert_valid_conversation(agent.history)


async def test_a_pass_in_the_middle_of_a_run_keeps_its_input_pending() -> None:
    """CMP-8, CMP-9, A4: a later failure commits the input and the turns that are whole."""

    @tool
    async def work() -> str:
        """Work."""
        return "r" * 2_000

    client = ScriptedClient(call("work"), call("work"), ServerError("broken"))
    agent = session(client, work, history=history(5))
    with pytest.raises(ServerError) as caught:
        await agent.run("the input")
    run = caught.value.run
    assert run is not None
    assert run.messages[0].text == "the input"
    assert agent.unfinished
    assert_valid_conversation(agent.history)


@pytest.mark.parametrize("steered", [False, True])
async def test_a_continued_run_keeps_the_input_that_it_continues(steered: bool) -> None:
    """CMP-9: the input of an unfinished run is pinned when `run(None)` goes on with it."""

    @tool
    async def work() -> str:
        """Work."""
        return "r" * 1_800

    client = ScriptedClient(call("work"), ServerError("broken"), call("work"), "done")
    agent = session(client, work, history=history(4))
    with pytest.raises(ServerError):
        await agent.run("the input")
    if steered:
        agent.steer("look left")
    run = await agent.run(None)
    assert run.output == "done"
    for request in client.requests:
        assert "the input" in [message.text for message in request.messages]
    assert len(client.requests[-1].messages) < 12


async def test_steering_that_comes_during_a_pass_waits_for_the_next_boundary() -> None:
    """CTX-23, CTX-31: it cannot fill the window of the turn that the pass made room for."""
    agent: BareLoop

    said = "look left ".ljust(7_000, "!")

    async def steered(messages: Sequence[Message]) -> Sequence[Message]:
        if not agent._session.machine.turn:
            assert agent.steer(said) is True
        return [messages[0], *messages[-1 if len(messages) > 6 else 1 :]]

    client = ScriptedClient("an answer", "another")
    agent = session(client, history=history(7), compactor=Returns(steered))
    events, error = await read(agent, "go")
    assert error is None
    assert names(events) == [
        "CompactionStarted",
        "CompactionFinished",
        "TurnStarted",
        "SteeringDelivered",
        "CompactionStarted",
        "CompactionFinished",
        "TurnStarted",
        "RunEnded",
    ]
    assert len(client.requests) == 2
    assert client.requests[0].messages[-1].text == "go"
    assert client.requests[1].messages[-1].text.startswith("look left !!!")


async def test_a_pass_is_interrupted_by_cancel_and_the_old_history_stays() -> None:
    """CMP-6, ENG-19: and its start has its end."""
    reached = anyio.Event()

    async def waits(messages: Sequence[Message]) -> Sequence[Message]:
        reached.set()
        await anyio.sleep_forever()
        return messages

    heard: list[Event] = []

    class Listener:
        @hookimpl
        def on_event(self, event: Event) -> None:
            heard.append(event)

    agent = session(
        ScriptedClient(), history=history(7), compactor=Returns(waits), plugins=[Listener()]
    )
    before = agent.history
    async with anyio.create_task_group() as group:

        async def run() -> None:
            with pytest.raises(RunCancelled):
                await agent.run("go")

        group.start_soon(run)
        await reached.wait()
        assert agent.cancel()
    assert agent.history[:14] == before
    assert names(heard) == ["CompactionStarted", "CompactionFailed", "RunEnded"]


async def test_a_pass_runs_beside_no_model_call_and_no_tool() -> None:
    """CMP-6: with calls that run together, some of them longer than others, and a salvage."""
    at_work: list[str] = []
    beside: list[list[str]] = []

    @contextlib.asynccontextmanager
    async def working(what: str) -> AsyncIterator[None]:
        at_work.append(what)
        for _ in range(5 + len(at_work)):
            await anyio.lowlevel.checkpoint()
        yield
        at_work.remove(what)

    @tool(concurrency_safe=True)
    async def work() -> str:
        """Work."""
        async with working("tool"):
            return "r" * 600

    def answering(answer: Any) -> Any:
        async def reply(request: ModelRequest) -> Any:
            async with working("model"):
                return answer

        return reply

    async def pinned_and_last(messages: Sequence[Message]) -> Sequence[Message]:
        for _ in range(20):
            beside.append(list(at_work))
            await anyio.lowlevel.checkpoint()
        return [m for m in messages if m.text.startswith(("question 0", "go"))]

    calls = [call("work", id=str(n)) for n in range(4)]
    client = ScriptedClient(*map(answering, [calls, overflow(), calls, calls, "done"]))
    agent = session(client, work, history=history(5), compactor=Returns(pinned_and_last))
    assert (await agent.run("go")).output == "done"
    assert len(beside) >= 40
    assert not any(beside)


async def test_a_compactor_that_swallows_a_cancellation_does_not_stop_it() -> None:
    """ENG-19: the driver checks before it goes on."""
    agent: BareLoop

    async def swallows(messages: Sequence[Message]) -> Sequence[Message]:
        assert agent.cancel()
        with contextlib.suppress(BaseException):
            await anyio.sleep_forever()
        return [messages[0], messages[-1]]

    agent = session(ScriptedClient(), history=history(7), compactor=Returns(swallows))
    before = agent.history
    with pytest.raises(RunCancelled):
        await agent.run("go")
    assert agent.history[:14] == before


async def test_a_run_cancelled_when_its_pass_is_told_keeps_the_old_history() -> None:
    """CMP-6, ENG-19: nothing of the pass is taken over after a cancel."""

    class Cancelling:
        @hookimpl
        def on_event(self, event: Event) -> None:
            if isinstance(event, CompactionFinished):
                assert agent.cancel()

    agent = session(ScriptedClient(), history=history(7), plugins=[Cancelling()])
    before = agent.history
    with pytest.raises(RunCancelled):
        await agent.run("go")
    assert agent.history[:14] == before


# -- salvage --------------------------------------------------------------------------------------


def overflow(used: int | None = None, limit: int | None = None) -> ContextOverflowError:
    return ContextOverflowError("prompt is too long", used=used, limit=limit)


async def test_a_refused_prompt_buys_one_pass_and_one_retry_of_the_same_turn() -> None:
    """CTX-33, A1: aimed at half of the refused estimate, transients assembled anew."""
    client = ScriptedClient(overflow(), "done")
    agent = session(client, history=history(5))
    note = Telling(200)
    agent.add_contributor(note)
    events, error = await read(agent, "go")
    assert error is None
    assert names(events) == [
        "TurnStarted",
        "CompactionStarted",
        "CompactionFinished",
        "TurnStarted",
        "RunEnded",
    ]
    started = next(event for event in events if isinstance(event, CompactionStarted))
    assert (started.reason, started.target) == ("salvage", 5_202 // 2 - 200)
    assert "note 2 of" in client.requests[1].messages[0].text
    assert "note 1 of" not in str(client.requests[1])
    turns = [event.turn for event in events if isinstance(event, TurnStarted)]
    assert turns == [0, 0]
    assert any("refused a prompt of about 5202 tokens" in w for w in agent.runs[0].warnings)


async def test_a_refusal_lowers_the_window_of_the_session() -> None:
    """CTX-33: W becomes 95 % of what was refused, so that the lines come earlier."""
    client = ScriptedClient(overflow(), "done", "more")
    agent = session(client, history=history(5))
    await agent.run("go")
    compactor = Returns(as_it_is)
    agent._session.compactor = compactor
    await agent.run("go on ".ljust(4_000))
    assert compactor.asked[0][1].window == 5_002 * 95 // 100


@pytest.mark.parametrize("frees", [True, False])
async def test_a_refusal_that_no_pass_can_mend_ends_the_run(frees: bool) -> None:
    """CTX-33, A5: `ContextExceeded` with the provider's words behind it and the input in it."""
    client = ScriptedClient(overflow(), overflow(9_000, 8_000))
    compactor = None if frees else Returns(as_it_is)
    agent = session(client, history=history(5), compactor=compactor)
    with pytest.raises(ContextExceeded) as caught:
        await agent.run("go")
    error = caught.value
    assert isinstance(error.__cause__, ContextOverflowError)
    assert [message.text for message in error.unfinished_input] == ["go"]
    assert len(client.requests) == (2 if frees else 1)
    if frees:
        assert (error.used, error.limit) == (9_000, 8_000)
    else:
        assert (error.used, error.limit) == (5_002, 5_002 * 95 // 100)
    assert all(message.text != "go" for message in agent.history)
    assert_valid_conversation(agent.history)


async def test_a_refusal_that_was_mended_is_not_blamed_later() -> None:
    """CTX-33: the figures and the cause are those of what ended the run."""

    @tool
    async def work() -> str:
        """Work."""
        return "r" * 9_000

    async def once(messages: Sequence[Message]) -> Sequence[Message]:
        return messages if len(messages) < 10 else [messages[0], messages[-1]]

    client = ScriptedClient(overflow(70_000, 60_000), call("work"))
    agent = session(client, work, history=history(5), compactor=Returns(once))
    with pytest.raises(ContextExceeded) as caught:
        await agent.run("go")
    assert caught.value.used is not None
    assert 9_000 < caught.value.used < 10_000
    assert caught.value.limit is not None
    assert caught.value.limit < 5_002
    assert caught.value.__cause__ is None


async def test_a_salvage_ignores_the_latch_and_comes_after_a_deferral_too() -> None:
    """CTX-33: the pass of the deferral was a no-op and set the latch."""
    calls = 0

    async def second_time(messages: Sequence[Message]) -> Sequence[Message]:
        nonlocal calls
        calls += 1
        return messages if calls == 1 else [messages[0], messages[-1]]

    client = ScriptedClient(overflow(), "done")
    agent = session(client, history=history(6), compactor=Returns(second_time))
    agent.add_contributor(lambda ctx: "n" * 1_000)
    events, error = await read(agent, "go")
    assert error is None
    assert names(events) == [
        "TurnDeferred",
        "CompactionStarted",
        "CompactionSkipped",
        "TurnStarted",
        "CompactionStarted",
        "CompactionFinished",
        "TurnStarted",
        "RunEnded",
    ]


async def test_a_run_has_three_salvages() -> None:
    """CTX-33: once for each turn, three times for each run."""

    @tool
    async def work(size: int) -> str:
        """Work."""
        return "r" * size

    class Pinned:
        async def compact(
            self, messages: Sequence[Message], target: int, ctx: CompactionContext
        ) -> Sequence[Message]:
            return ctx.pinned

    # each prompt is smaller than the window that the refusal before it left
    sizes = (3_000, 1_600, 900)
    turns: list[Any] = [step for n in sizes for step in (overflow(), call("work", size=n))]
    client = ScriptedClient(*turns, overflow())
    agent = session(client, work, history=history(5), compactor=Pinned())
    events, error = await read(agent, "go")
    assert isinstance(error, ContextExceeded)
    assert client.remaining == 0
    reasons = [event.reason for event in events if isinstance(event, CompactionStarted)]
    assert reasons == ["salvage"] * 3
    assert names(events)[-2:] == ["TurnStarted", "RunEnded"]


async def test_a_salvage_works_with_the_window_policy_off() -> None:
    """CTX-30, CMP-3: half of the present size."""
    client = ScriptedClient(overflow(), "done")
    agent = session(client, history=history(6), window=0)
    events, error = await read(agent, "go")
    assert error is None
    started = next(event for event in events if isinstance(event, CompactionStarted))
    assert (started.reason, started.tokens, started.target) == ("salvage", 6_002, 3_001)


@pytest.mark.parametrize("permissive", [True, False])
async def test_an_attachment_that_no_provider_would_take(permissive: bool) -> None:
    """CTX-31, A6: a permissive provider serves it; a rejecting one ends the run."""
    huge = MemoryAttachment("huge", "m" * 9_000)
    answers: list[Answer | Exception] = ["done"] if permissive else [overflow(), overflow()]
    client = ScriptedClient(*answers)
    agent = session(client, history=history(5), attachments=[huge])
    if permissive:
        assert (await agent.run("go")).output == "done"
        assert len(agent.history) == 12
    else:
        with pytest.raises(ContextExceeded):
            await agent.run("go")
    for request in client.requests:
        assert request.messages[0].text == huge.render()
    assert agent.attachment_ids() == ("memory:huge",)


# -- the window and the estimate ------------------------------------------------------------------


async def test_the_window_is_the_clients_unless_the_settings_say_otherwise() -> None:
    """CTX-30: less the output reservation."""
    client = ScriptedClient("a", context_window=8_000)
    agent = BareLoop(client, counter=CHARS, history=history(7))
    reserved = RunConfig(options=RequestOptions(max_output_tokens=1_000))
    events, error = await read(agent, "go", reserved)
    assert error is None
    started = next(event for event in events if isinstance(event, CompactionStarted))
    assert started.reason == "emergency"


async def test_an_unknown_window_is_assumed_with_one_warning() -> None:
    """CTX-30: 128,000 tokens, said once for each session."""
    agent = BareLoop(ScriptedClient("a", "b", context_window=None))
    first, second = await agent.run("go"), await agent.run("on")
    assert len(first.warnings) == 1
    assert "128000" in first.warnings[0]
    assert "SessionConfig.context_window" in first.warnings[0]
    assert second.warnings == ()


async def test_a_reservation_that_leaves_no_window_is_refused() -> None:
    """CTX-30, ENG-14: before anything is sent, naming both."""
    agent = session(ScriptedClient(), window=1_000)
    with pytest.raises(ConfigError, match="max_output_tokens=1000"):
        await agent.run("go", RunConfig(options=RequestOptions(max_output_tokens=1_000)))
    assert agent.history == ()
    assert agent.cancel() is False


async def test_real_usage_teaches_the_estimate() -> None:
    """CTX-28: reported ÷ our raw figure, the first adopted, later ones half-way."""

    def reporting(tokens: int) -> ModelResponse:
        usage = Usage(input_tokens=tokens, output_tokens=1)
        return ModelResponse(message=Message.assistant("a"), usage=usage)

    client = ScriptedClient(reporting(2_000), reporting(2_002), "c")
    agent = session(client)
    await agent.run("x".ljust(1_000))
    assert agent._session.estimate.calibration == 2.0
    await agent.run("y".ljust(1_000))
    assert agent._session.estimate.calibration == pytest.approx(1.5, abs=0.01)


# -- by hand --------------------------------------------------------------------------------------


async def test_a_manual_pass_between_runs() -> None:
    """CMP-7: the report says what came of it; the latch is cleared; runs go on."""
    client = ScriptedClient("done")
    agent = session(client, history=history(6))
    report = await agent.compact()
    assert report.changed
    assert report.before == 6_000
    assert report.after == sum(CHARS.count(message) for message in agent.history)
    assert (await agent.run("go")).output == "done"


async def test_a_manual_pass_is_told_to_plugins_and_can_be_vetoed() -> None:
    """CMP-4, CMP-5, CMP-7."""
    heard: list[Event] = []

    class Listener(Advising):
        @hookimpl
        def on_event(self, event: Event) -> None:
            heard.append(event)

    agent = session(
        ScriptedClient(),
        history=history(6),
        plugins=[Listener(CompactionAdvice(veto="not now"), None)],
    )
    report = await agent.compact("keep names")
    assert not report.changed
    assert report.why.startswith("vetoed by ")
    assert report.why.endswith("Listener: not now")
    assert (await agent.compact()).changed
    assert names(heard) == [
        "CompactionStarted",
        "CompactionSkipped",
        "CompactionStarted",
        "CompactionFinished",
    ]


async def test_instructions_by_hand_reach_the_compactor_unless_a_hook_has_others() -> None:
    """CMP-2, CMP-5, CMP-7: the last one wins."""
    compactor = Returns(as_it_is)
    advising = Advising(None, CompactionAdvice(instructions="keep dates"))
    agent = session(ScriptedClient(), history=history(2), compactor=compactor, plugins=[advising])
    await agent.compact("keep names")
    await agent.compact("keep names")
    assert [ctx.instructions for _, ctx in compactor.asked] == ["keep names", "keep dates"]
    assert [ctx.instructions for ctx in advising.asked] == ["keep names", "keep names"]
    assert [ctx.reason.value for _, ctx in compactor.asked] == ["manual", "manual"]


async def test_nothing_is_edited_while_a_run_is_in_flight_and_no_run_begins_in_a_pass() -> None:
    """CMP-7, ENG-13."""
    agent: BareLoop
    refused: list[str] = []

    async def runs(messages: Sequence[Message]) -> Sequence[Message]:
        with pytest.raises(LoopBusyError) as caught:
            await agent.run("go")
        refused.append(str(caught.value))
        return messages

    async def edits(ctx: Any) -> None:
        for edit in (agent.clear, lambda: agent.replace_history([])):
            with pytest.raises(LoopBusyError) as caught:
                edit()
            refused.append(str(caught.value))
        with pytest.raises(LoopBusyError):
            await agent.compact()

    agent = session(ScriptedClient("done"), history=history(2), compactor=Returns(runs))
    await agent.compact()
    agent.add_contributor(edits)
    assert (await agent.run("go")).output == "done"
    assert "a pass is going on" in refused[0]
    assert "cannot edit the history: a run is in flight" in refused[1]


async def test_a_manual_pass_that_is_cancelled_leaves_the_session_as_it_was() -> None:
    """CMP-6, CMP-7: the old history, and the next run may begin."""
    agent = session(ScriptedClient("done"), history=history(6), compactor=Returns(hangs))
    before = agent.history
    with anyio.move_on_after(0.01) as scope:
        await agent.compact()
    assert scope.cancelled_caught
    assert agent.history == before
    assert (await agent.run("go")).output == "done"


async def test_a_manual_pass_makes_no_finished_run_unfinished() -> None:
    """CMP-7: also where a silent answer left the user's message last."""
    agent = session(ScriptedClient(""), history=history(6))
    await agent.run("go")
    assert agent.history[-1].text == "go"
    assert (await agent.compact()).changed
    assert not agent.unfinished


async def test_a_manual_pass_keeps_what_an_unfinished_run_asked() -> None:
    """CMP-7, CMP-9: `run(None)` goes on afterwards."""

    @tool
    async def work() -> str:
        """Work."""
        return "r" * 1_000

    client = ScriptedClient(*[call("work")] * 3, ServerError("broken"), "done")
    agent = session(client, work, history=history(2))
    with pytest.raises(ServerError):
        await agent.run("the input")
    assert (await agent.compact()).changed
    assert "the input" in [message.text for message in agent.history]
    assert agent.unfinished
    assert (await agent.run(None)).output == "done"
    assert not agent.unfinished


async def test_the_history_is_edited_by_hand_between_runs() -> None:
    """CMP-7: validated, and what is pinned stays."""
    agent = session(
        ScriptedClient("done", "again"), attachments=[TodoAttachment([TodoItem("sweep")])]
    )
    await agent.run("go")
    agent.clear()
    assert agent.history == ()
    assert agent.attachment_ids() == ("todo:session",)
    with pytest.raises(ConfigError, match="never answered"):
        agent.replace_history([Message.user("a"), Message.assistant(call("work"))])
    agent.replace_history(history(1))
    assert len(agent.history) == 2
    assert (await agent.run("on")).output == "again"


# -- the long run ---------------------------------------------------------------------------------


@pytest.mark.timeout(120)
async def test_three_hundred_turns_with_passes_keep_what_is_pinned_in_every_request() -> None:
    """CTX-17, CMP-9, CMP-10: the attachment verbatim, the goal and the input, always."""
    number = 0

    @tool
    async def work() -> str:
        """Work."""
        nonlocal number
        number += 1
        return f"result {number} ".ljust(300 + 37 * (number % 5), "r")

    pinned: list[Attachment] = [
        MemoryAttachment("fact", "the sky is blue"),
        FileAttachment.inline("a.txt", "contents of the file"),
        TodoAttachment([TodoItem("sweep the floor")]),
    ]
    client = ScriptedClient(*[call("work")] * 299, "done")
    agent = session(
        client,
        work,
        history=[Message.user("the goal of it all"), Message.assistant("I see.")],
        attachments=pinned,
        compactor=TruncatingCompactor(),
    )
    agent.add_contributor(lambda ctx: Contribution(Message.user(f"turn {ctx.turn}"), "tail"))
    passes = 0

    class Counting:
        @hookimpl
        def on_event(self, event: Event) -> None:
            nonlocal passes
            passes += isinstance(event, CompactionFinished)

    agent.add_plugin(Counting())
    gc.disable()
    try:
        run = await agent.run("the input of this run", RunConfig(max_turns=300))
    finally:
        gc.enable()
    assert run.output == "done"
    assert passes >= 10
    wanted = "".join(str(attachment.render()) for attachment in pinned)
    for turn, request in enumerate(client.requests):
        texts = [message.text for message in request.messages]
        assert texts[0] == wanted, turn
        assert texts[1] == "the goal of it all", turn
        assert "the input of this run" in texts, turn
        assert texts[-1] == f"turn {turn}", turn
        assert size_of(request) <= 6_400, turn
        assert_valid_conversation(request.messages[1:-1])
    assert len(run.turns) == 300
    results = [record.result for turn in run.turns for record in turn.calls]
    assert all(isinstance(result, ToolResultPart) for result in results)
    assert len(results) == 299
