"""ENG-9 … ENG-18, ENG-20: runs, their endings, what is kept."""

from __future__ import annotations

import datetime
from typing import Any

import anyio
import pytest

from loopctl import (
    Allow,
    Ask,
    BareLoop,
    Message,
    RunConfig,
    SessionConfig,
    StopReason,
    ToolContext,
    ToolResultPart,
    hookimpl,
    tool,
)
from loopctl.errors import (
    ConfigError,
    ContextExceeded,
    ContextOverflowError,
    LoopBusyError,
    MaxTurnsExceeded,
    ModelError,
    Refused,
    RunCancelled,
    ServerError,
    ToolRecoveryExhausted,
)
from loopctl.events import Event, ToolStarted
from loopctl.models.client import ModelRequest
from loopctl.replies import ModelResponse
from loopctl.testing import FixedClock, ScriptedClient, assert_valid_conversation, call
from loopctl.usage import Usage

pytestmark = pytest.mark.anyio


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def sum_up(request: ModelRequest) -> str:
    """An answer made of the results that the request ends with."""
    return f"it is {request.messages[-1].results[0].text}"


async def test_a_run_calls_the_model_then_its_tools_then_the_model() -> None:
    """ENG-10, ENG-15: turns until a reply asks for no tool; the run says what it took."""
    client = ScriptedClient(call("add", a=2, b=3), sum_up)
    agent = BareLoop(client, [add], system="be exact", clock=FixedClock())
    run = await agent.run("what is 2 + 3?")
    assert run.output == "it is 5"
    assert run.ending == "completed"
    assert [message.role.value for message in run.messages] == [
        "user",
        "assistant",
        "user",
        "assistant",
    ]
    assert run.messages == agent.history == agent.conversation
    first, second = run.turns
    assert (first.number, second.number) == (0, 1)
    assert first.calls[0].call.parse() == {"a": 2, "b": 3}
    assert first.calls[0].result.text == "5"
    assert second.text == "it is 5"
    assert client.requests[0].system == "be exact"
    assert client.requests[0].messages == (Message.user("what is 2 + 3?"),)
    assert [schema.name for schema in client.requests[0].tools] == ["add"]
    assert not agent.unfinished


async def test_a_second_run_goes_on_from_the_first() -> None:
    """ENG-18: a completed run's messages are committed."""
    client = ScriptedClient("one", "two")
    agent = BareLoop(client)
    await agent.run("first")
    run = await agent.run(Message.user("second"))
    assert run.messages == (Message.user("second"), Message.assistant("two"))
    assert client.requests[1].messages == (
        Message.user("first"),
        Message.assistant("one"),
        Message.user("second"),
    )
    assert [run.output for run in agent.runs] == ["one", "two"]


def test_constructing_opens_and_starts_nothing_and_checks_what_it_is_given() -> None:
    """ENG-9: outside an event loop; a bad client is a ConfigError."""
    BareLoop(ScriptedClient("hi"))
    with pytest.raises(ConfigError, match="give a ModelClient or a string"):
        BareLoop(7)  # type: ignore[arg-type]


def test_run_sync_is_for_scripts() -> None:
    """ENG-10: it starts an event loop of its own, as often as it is called (D8)."""
    agent = BareLoop(ScriptedClient("one", "two"))
    assert agent.run_sync("a").output == "one"
    assert agent.run_sync("b").output == "two"


@pytest.mark.parametrize("useless", ["", " \n", Message.assistant("x"), Message.user(), 7])
async def test_an_input_that_says_nothing_is_refused_before_anything_happens(useless: Any) -> None:
    """ENG-10: a typed error, nothing touched."""
    client = ScriptedClient("fine")
    agent = BareLoop(client)
    with pytest.raises(ConfigError):
        await agent.run(useless)
    assert client.requests == []
    assert (await agent.run("x")).output == "fine"


async def test_none_continues_only_what_is_unfinished() -> None:
    """ENG-10: run(None) without an unfinished run is an error that says so."""
    agent = BareLoop(ScriptedClient())
    with pytest.raises(ConfigError, match="no unfinished run"):
        await agent.run(None)


async def test_a_second_run_at_once_is_refused_before_it_touches_anything() -> None:
    """ENG-13, D9: LoopBusyError; the first is not disturbed."""
    agent: BareLoop = BareLoop(ScriptedClient(lambda request: intrude(), "second"))

    async def intrude() -> str:
        with pytest.raises(LoopBusyError, match="cannot run"):
            await agent.run("intruder")
        with pytest.raises(LoopBusyError):
            async with agent.stream("intruder"):
                pytest.fail("not reached")
        return "first"

    assert (await agent.run("x")).output == "first"
    assert agent.history == (Message.user("x"), Message.assistant("first"))


async def test_two_sessions_share_a_client_and_nothing_else() -> None:
    """ENG-13: state belongs to the session."""
    client = ScriptedClient(*["hi"] * 20)
    agents = [BareLoop(client) for _ in range(10)]
    async with anyio.create_task_group() as group:
        for number, agent in enumerate(agents):
            group.start_soon(agent.run, f"input {number}")
    for number, agent in enumerate(agents):
        assert agent.history == (Message.user(f"input {number}"), Message.assistant("hi"))


async def test_the_tools_of_the_last_allowed_turn_still_run() -> None:
    """ENG-3, ENG-16: then MaxTurnsExceeded, with the run; run(None) goes on."""
    agent = BareLoop(
        ScriptedClient(call("add", a=1, b=1), call("add", a=2, b=2), sum_up),
        [add],
        SessionConfig(run=RunConfig(max_turns=2)),
    )
    with pytest.raises(MaxTurnsExceeded) as caught:
        await agent.run("x")
    assert caught.value.limit == 2
    assert caught.value.run is agent.runs[-1]
    assert agent.runs[-1].ending == "max_turns"
    assert agent.history[-1].results[0].text == "4"
    assert agent.unfinished
    run = await agent.run(None)
    assert run.output == "it is 4"
    assert run.input is None


async def test_a_failure_before_any_turn_commits_nothing() -> None:
    """ENG-18: so that the same call is the natural retry."""
    agent = BareLoop(ScriptedClient(ServerError("down"), "up again"), retry=None)
    with pytest.raises(ServerError) as caught:
        await agent.run("x")
    assert agent.history == ()
    assert caught.value.run is not None
    assert caught.value.run.ending == "failed"
    assert caught.value.run.messages == ()
    assert (await agent.run("x")).output == "up again"


async def test_a_failure_after_a_turn_keeps_the_complete_turns() -> None:
    """ENG-18: the coherent prefix stays and run(None) continues."""
    agent = BareLoop(
        ScriptedClient(call("add", a=1, b=2), ServerError("down"), sum_up), [add], retry=None
    )
    with pytest.raises(ServerError) as caught:
        await agent.run("x")
    assert_valid_conversation(agent.history)
    assert len(agent.history) == 3
    assert caught.value.run is not None
    assert caught.value.run.messages == agent.history
    assert len(caught.value.run.turns) == 1
    assert (await agent.run(None)).output == "it is 3"


async def test_an_overflow_discards_the_run_and_hands_its_input_back() -> None:
    """ENG-16, ENG-18, MOD-12: ContextExceeded carries the figures and the input."""
    overflow = ContextOverflowError("too long")
    overflow.used, overflow.limit = 9000, 8000
    agent = BareLoop(ScriptedClient(call("add", a=1, b=2), overflow, "short enough"), [add])
    with pytest.raises(ContextExceeded) as caught:
        await agent.run("a long story")
    assert (caught.value.used, caught.value.limit) == (9000, 8000)
    assert caught.value.unfinished_input == (Message.user("a long story"),)
    assert caught.value.__cause__ is overflow
    assert agent.history == ()
    assert not agent.unfinished
    assert (await agent.run("short")).output == "short enough"


async def test_a_refusal_is_never_an_ordinary_answer() -> None:
    """MOD-13, ENG-15: Refused, with what the provider said."""
    said = ModelResponse(
        message=Message.assistant("I cannot"),
        stop_reason=StopReason.REFUSAL,
        refusal="against the rules",
    )
    agent = BareLoop(ScriptedClient(said, "fine"))
    with pytest.raises(Refused, match="against the rules") as caught:
        await agent.run("x")
    assert caught.value.explanation == "against the rules"
    assert agent.history == ()
    assert (await agent.run("y")).output == "fine"


async def test_a_cut_answer_and_an_unknown_stop_reason_are_not_silent() -> None:
    """ENG-15, MOD-13: the answer stands, with a warning that says what happened."""

    def stopped(reason: StopReason, raw: str) -> ModelResponse:
        message = Message.assistant("half an ans")
        return ModelResponse(message=message, stop_reason=reason, raw_stop_reason=raw)

    agent = BareLoop(
        ScriptedClient(
            stopped(StopReason.LENGTH, "length"),
            stopped(StopReason.UNKNOWN, "eh"),
            stopped(StopReason.PAUSE, "pause_turn"),
        )
    )
    run = await agent.run("x")
    assert run.output == "half an ans"
    assert "output limit" in run.warnings[0]
    assert run.turns[0].stop_reason is StopReason.LENGTH
    assert "'eh'" in (await agent.run("y")).warnings[0]
    assert "paused" in (await agent.run("z")).warnings[0]


async def test_complete_calls_before_a_cut_one_run_and_the_cut_one_is_answered() -> None:
    """MOD-13, B16: the call that the output limit cut never runs."""
    ran: list[int] = []

    @tool
    def note(number: int) -> str:
        """Note a number."""
        ran.append(number)
        return "noted"

    from loopctl import ToolCallPart

    reply = ModelResponse(
        message=Message.assistant(
            ToolCallPart("a", "note", {"number": 1}),
            ToolCallPart("b", "note", '{"number": 2', truncated=True),
        ),
        stop_reason=StopReason.LENGTH,
    )
    agent = BareLoop(ScriptedClient(reply, "done"), [note])
    run = await agent.run("x")
    assert ran == [1]
    first, second = run.turns[0].calls
    assert (first.result.text, first.result.is_error) == ("noted", False)
    assert second.result.is_error
    assert "truncated by the output limit" in second.result.text
    assert_valid_conversation(agent.history)


async def test_unknown_tools_and_unusable_arguments_are_answered_and_the_run_goes_on() -> None:
    """ENG-5, B19, B20: a soft error that lists what there is, or quotes what was wrong."""
    from loopctl import ToolCallPart

    agent = BareLoop(
        ScriptedClient(
            [ToolCallPart("a", "nope"), ToolCallPart("b", "add", "not json at all")], "sorry"
        ),
        [add],
    )
    run = await agent.run("x")
    unknown, unusable = run.turns[0].calls
    assert unknown.result.text == "There is no tool named 'nope'. Available tools: add."
    assert "not a JSON object: 'not json at all'" in unusable.result.text
    assert "Expected fields: a (integer, required), b (integer, required)." in unusable.result.text
    assert run.output == "sorry"


async def test_what_a_strange_client_raises_comes_out_as_it_is() -> None:
    """ENG-16: no exception group for one error, and nothing is committed."""
    inner = ZeroDivisionError("odd")
    agent = BareLoop(ScriptedClient(ExceptionGroup("g", [ExceptionGroup("h", [inner])])))
    with pytest.raises(ZeroDivisionError) as caught:
        await agent.run("x")
    assert caught.value is inner
    assert agent.runs[-1].error is inner
    assert agent.history == ()


async def test_the_audit_trail_keeps_the_last_runs_with_times_usage_and_model() -> None:
    """ENG-20, ENG-14: keep_runs bounds it; a run that failed is there too."""
    usage = Usage(input_tokens=10, output_tokens=2)

    def answer(text: str) -> ModelResponse:
        return ModelResponse(message=Message.assistant(text), usage=usage, model="served-by")

    agent = BareLoop(
        ScriptedClient(answer("a"), answer("b"), ServerError("c")),
        config=SessionConfig(keep_runs=2),
        retry=None,
        clock=FixedClock(),
    )
    await agent.run("1")
    await agent.run("2")
    with pytest.raises(ModelError):
        await agent.run("3")
    second, third = agent.runs
    assert (second.output, third.ending) == ("b", "failed")
    assert second.turns[0].usage == second.usage == usage
    assert second.turns[0].model == "served-by"
    assert isinstance(second.started, datetime.datetime)
    assert second.ended >= second.started
    assert second.turns[0].seconds >= 0
    assert second.to_json()["turns"][0]["text"] == "b"


async def test_cancel_from_a_tool_ends_the_run_and_run_none_continues() -> None:
    """ENG-18, ENG-19, D3: done calls keep their results, the others are interrupted."""

    @tool(concurrency_safe=True)
    async def quick() -> str:
        """Answer at once."""
        return "quick result"

    @tool(concurrency_safe=True)
    async def slow(ctx: ToolContext) -> str:
        """Cancel the run and wait for ever."""
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        assert agent.cancel() is True
        await anyio.sleep_forever()
        return "never"

    agent: BareLoop = BareLoop(
        ScriptedClient([call("quick"), call("slow")], "after all"), [quick, slow]
    )
    assert agent.cancel() is False
    with pytest.raises(RunCancelled) as caught:
        await agent.run("x")
    assert caught.value.run is not None
    assert caught.value.run.ending == "cancelled"
    done, interrupted = agent.history[-1].results
    assert done.text == "quick result"
    assert interrupted.outcome == "interrupted"
    assert "effects are unknown" in interrupted.text
    assert [record.result for record in caught.value.run.turns[0].calls] == [done, interrupted]
    assert_valid_conversation(agent.history)
    assert agent.unfinished
    assert agent.cancel() is False
    assert (await agent.run(None)).output == "after all"


async def test_a_tool_that_swallows_its_cancellation_does_not_stop_it() -> None:
    """ENG-19, D4: the driver checks again before the next step."""

    @tool
    async def stubborn() -> str:
        """Swallow a cancellation."""
        agent.cancel()
        try:
            await anyio.sleep_forever()
        except BaseException:
            return "I go on"
        return "never"

    client = ScriptedClient(call("stubborn"), "not reached")
    agent: BareLoop = BareLoop(client, [stubborn])
    with pytest.raises(RunCancelled):
        await agent.run("x")
    assert client.remaining == 1
    assert_valid_conversation(agent.history)


async def test_cancellation_from_outside_does_the_same_bookkeeping_and_propagates() -> None:
    """ENG-19: a scope around the run ends it; the conversation is kept coherent."""

    @tool
    async def wait() -> str:
        """Wait for ever."""
        scope.cancel()
        await anyio.sleep_forever()
        return "never"

    agent: BareLoop = BareLoop(ScriptedClient(call("wait"), "after all"), [wait])
    with anyio.CancelScope() as scope:
        await agent.run("x")
        pytest.fail("the cancellation was swallowed")
    assert scope.cancelled_caught
    assert agent.runs[-1].ending == "cancelled"
    assert agent.history[-1].results[0].outcome == "interrupted"
    assert (await agent.run(None)).output == "after all"


async def test_entering_and_leaving_in_different_tasks_is_fine() -> None:
    """ENG-11, D1: the session holds no scope; it closes what it made, not what it was given."""
    closed: list[str] = []

    class Client(ScriptedClient):
        async def aclose(self) -> None:
            closed.append("client")

    class Plugin:
        def __init__(self) -> None:
            self.name = "plugin"

        from loopctl import hookimpl

        @hookimpl
        def on_event(self, event: Any) -> None: ...

        async def aclose(self) -> None:
            closed.append(self.name)

    folders: list[Any] = []

    @tool
    def touch(ctx: ToolContext) -> str:
        """Use the temporary folder."""
        folders.append(ctx.temporary_folder)
        (ctx.temporary_folder / "file").write_text("x")
        return "ok"

    agent = BareLoop(Client(call("touch"), "done"), [touch], plugins=[Plugin()])
    async with anyio.create_task_group() as group:
        group.start_soon(agent.__aenter__)
    await agent.run("x")
    assert folders[0].is_dir()
    async with anyio.create_task_group() as group:
        group.start_soon(agent.aclose)
    assert closed == ["plugin"]
    assert not folders[0].exists()


async def test_a_turn_that_was_taken_back_shows_no_results_of_an_older_one() -> None:
    """ENG-20, B18: call ids may be used again; a record never borrows an older result."""

    @tool
    async def work() -> str:
        """Work."""
        return "older result"

    def fail(ctx: Any, next: Any) -> Any:
        raise ToolRecoveryExhausted("work", 1)

    client = ScriptedClient(call("work"), "done", call("work"))
    agent = BareLoop(client, [work])
    await agent.run("x")
    failing = BareLoop(client, [work], history=agent.history[:3], layers=[fail])
    with pytest.raises(ToolRecoveryExhausted) as caught:
        await failing.run("y")
    assert failing.history == agent.history[:3]
    assert caught.value.run is not None
    assert caught.value.run.turns[0].calls == ()


@pytest.mark.parametrize("place", ["tool", "hook", "approver", "listener"])
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_cancel_from_inside_the_run_lets_no_further_tool_start(
    place: str, streamed: bool
) -> None:
    """ENG-19, TOL-13: also where the run's own task cancels and never waits."""
    ran: list[str] = []

    @tool
    async def stop() -> str:
        """Stop."""
        ran.append("stop")
        if place == "tool":
            agent.cancel()
        return "stopped"

    @tool
    async def pay() -> str:
        """Pay."""
        ran.append("pay")
        return "paid"

    class Guard:
        @hookimpl
        def before_tool_call(self, ctx: Any) -> Any:
            if ctx.name == "pay" and place == "hook":
                agent.cancel()
            return Ask("?") if place == "approver" and ctx.name == "pay" else None

        @hookimpl
        def on_event(self, event: Event) -> None:
            if place == "listener" and isinstance(event, ToolStarted) and event.call.name == "pay":
                agent.cancel()

    async def approve(request: Any) -> Allow:
        agent.cancel()
        return Allow()

    agent: BareLoop = BareLoop(
        ScriptedClient([call("stop"), call("pay")]),
        [stop, pay],
        plugins=[Guard()],
        approver=approve,
    )
    with pytest.raises(RunCancelled):
        if streamed:
            async with agent.stream("go") as stream:
                async for _ in stream:
                    pass
        else:
            await agent.run("go")
    assert ran == ["stop"]
    assert_valid_conversation(agent.history)


CALL = Message.assistant(call("add", id="c1", a=1, b=2))
RESULT = Message.user(ToolResultPart("c1", "add", "3"))


@pytest.mark.parametrize(
    ("history", "says"),
    [
        ([Message.user("x"), CALL], "'c1' is never answered"),
        ([Message.user("x"), CALL, Message.user("y")], "comes before 'c1' is answered"),
        ([Message.user("x"), RESULT], "answers 'c1', which is no open call"),
        ([Message.user("x"), CALL, RESULT, RESULT], "answers 'c1', which is no open call"),
        ([Message.user("x"), CALL, CALL], "comes before 'c1' is answered"),
    ],
)
def test_a_history_that_providers_refuse_is_refused(history: list[Message], says: str) -> None:
    """ENG-9, A2, MOD-20: each call has exactly one result behind it, each result a call."""
    with pytest.raises(ConfigError, match=says):
        BareLoop(ScriptedClient(), history=history)
    BareLoop(ScriptedClient(), history=[Message.user("x"), CALL, RESULT, CALL, RESULT])


async def test_what_a_request_did_not_offer_does_not_run() -> None:
    """ENG-5: a tool that is registered while the model answers is offered from the next turn on."""

    def sneak(request: ModelRequest) -> Any:
        agent.tools.register(add)
        return call("add", a=1, b=2)

    agent: BareLoop = BareLoop(ScriptedClient(sneak, "ok"))
    run = await agent.run("x")
    assert "no tool named" in run.turns[0].calls[0].result.text
