"""ENG-16, ENG-19, ENG-21, ENG-22, ENG-24, ENG-25: a run that is read along."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from loopctl import BareLoop, EventStream, Message, RetryPolicy, SessionConfig, hookimpl, tool
from loopctl._deadline import Deadline
from loopctl.errors import LoopError, RunCancelled, ServerError
from loopctl.events import (
    AttemptReset,
    Event,
    ReplyReceived,
    RunEnded,
    RunStarted,
    TextDelta,
    ToolCallRequested,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from loopctl.models.client import ModelRequest
from loopctl.testing import FixedClock, ScriptedClient, call
from loopctl.wire.stream_events import MessageStart, PartDelta, StreamEvent

pytestmark = pytest.mark.anyio


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def read(stream: EventStream) -> list[Event]:
    return [event async for event in stream]


async def test_events_come_in_their_documented_order() -> None:
    """ENG-24: the order of a run with one tool turn; every event names its run and turn."""
    client = ScriptedClient(call("add", a=1, b=2), "it is three", delta_chars=5)
    agent = BareLoop(client, [add], clock=FixedClock())
    async with agent.stream("1 + 2?") as stream:
        assert stream.run is None
        events = await read(stream)
    assert [type(event) for event in events] == [
        RunStarted,
        TurnStarted,
        ReplyReceived,
        ToolCallRequested,
        ToolStarted,
        ToolFinished,
        TurnEnded,
        TurnStarted,
        TextDelta,
        TextDelta,
        TextDelta,
        ReplyReceived,
        TurnEnded,
        RunEnded,
    ]
    assert {event.run_id for event in events} == {"run-1"}
    assert [event.turn for event in events] == [0] * 7 + [1] * 7
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "it is three"
    assert stream.run is agent.runs[-1]
    ended = events[-1]
    assert isinstance(ended, RunEnded)
    assert (ended.ending, ended.output, ended.turns) == ("completed", "it is three", 2)


async def test_run_and_stream_leave_the_same_conversation() -> None:
    """MOD-4, ENG-10: both give equal messages for equal replies."""
    plain = BareLoop(ScriptedClient(call("add", a=1, b=2), "three"), [add])
    read_along = BareLoop(ScriptedClient(call("add", a=1, b=2), "three"), [add])
    await plain.run("x")
    async with read_along.stream("x") as stream:
        await read(stream)
    assert plain.history == read_along.history


async def test_a_run_that_fails_tells_run_ended_and_then_raises_what_run_would() -> None:
    """ENG-21: RunEnded last, then the error, bare."""
    agent = BareLoop(ScriptedClient(ServerError("down")), retry=None)
    events: list[Event] = []
    with pytest.raises(ServerError, match="down"):
        async with agent.stream("x") as stream:
            async for event in stream:
                events.append(event)
    assert isinstance(events[-1], RunEnded)
    assert events[-1].ending == "failed"
    assert sum(isinstance(event, RunEnded) for event in events) == 1
    assert stream.run is not None
    assert stream.run.ending == "failed"


async def test_an_unread_failure_raises_nothing_when_the_block_is_left() -> None:
    """ENG-21: leaving early raises nothing, whatever the run did."""
    agent = BareLoop(ScriptedClient(ServerError("down"), "up"), retry=None)
    async with agent.stream("x") as stream:
        await anyio.wait_all_tasks_blocked()
    assert stream.run is not None
    assert stream.run.ending == "failed"
    assert (await agent.run("x")).output == "up"


@pytest.mark.parametrize("events_read", range(12))
async def test_leaving_early_cancels_the_run_and_raises_nothing(events_read: int) -> None:
    """ENG-21, D2: a break at any event; the session is usable at once."""
    client = ScriptedClient(call("add", a=1, b=2), "it is three", delta_chars=4)
    agent = BareLoop(client, [add])
    async with agent.stream("x") as stream:
        for _ in range(events_read):
            await anext(stream)
    assert stream.run is not None
    assert stream.run.ending in ("cancelled", "completed")
    again = ScriptedClient("fresh")
    client.complete = again.complete  # type: ignore[method-assign]
    assert (await agent.run("y")).output == "fresh"


async def test_the_body_keeps_its_own_exception_bare() -> None:
    """ENG-16: no group around it, the run is cancelled."""
    agent = BareLoop(ScriptedClient("hi"))
    with pytest.raises(ZeroDivisionError):
        async with agent.stream("x") as stream:
            raise ZeroDivisionError
    assert stream.run is not None


async def test_a_cancelled_body_ends_the_run_and_the_cancellation_goes_on() -> None:
    """ENG-19, ENG-21: the scope around the block does its work."""

    async def never(request: ModelRequest) -> str:
        await anyio.sleep_forever()
        return "never"

    agent = BareLoop(ScriptedClient(never))
    with anyio.CancelScope() as scope:
        async with agent.stream("x") as stream:
            await anext(stream)
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert stream.run is not None
    assert stream.run.ending == "cancelled"


async def test_cancel_on_the_stream_also_covers_a_run_that_has_not_started() -> None:
    """ENG-19: cancelled before entering: no model call is made."""
    client = ScriptedClient("hi")
    agent = BareLoop(client)
    stream = agent.stream("x")
    assert stream.cancel() is True
    assert stream.cancel() is False
    with pytest.raises(RunCancelled):
        async with stream:
            await read(stream)
    assert client.requests == []
    assert stream.run is not None
    assert stream.run.ending == "cancelled"


async def test_cancel_ends_the_iteration_with_run_ended_and_run_cancelled() -> None:
    """ENG-19, ENG-22: after a cancel nothing waits for the reader."""
    agent = BareLoop(ScriptedClient("a" * 400, delta_chars=1))
    async with agent.stream("x") as stream:
        await anext(stream)
        await anyio.wait_all_tasks_blocked()
        assert agent.cancel() is True
        await anyio.wait_all_tasks_blocked()
        assert stream.run is not None
        events: list[Event] = []
        with pytest.raises(RunCancelled):
            async for event in stream:
                events.append(event)
    assert isinstance(events[-1], RunEnded)
    assert events[-1].ending == "cancelled"


async def test_a_slow_reader_loses_nothing_and_uses_up_no_deadline() -> None:
    """ENG-22: the tool's deadline stands still while the reader is waited for."""
    from loopctl import ToolContext

    deadlines: list[Deadline] = []

    @tool(timeout=30)
    async def chatty(ctx: ToolContext) -> str:
        """Report a lot."""
        assert ctx._deadline is not None
        deadlines.append(ctx._deadline)
        for number in range(100):
            await ctx.progress(f"step {number}")
        assert deadlines[0].when < math.inf
        return "done"

    agent = BareLoop(ScriptedClient(call("chatty"), "ok"), [chatty])
    async with agent.stream("x") as stream:
        await anyio.wait_all_tasks_blocked()
        assert deadlines[0].when == math.inf  # the run is blocked on its reader
        events = await read(stream)
    finished = [event for event in events if isinstance(event, ToolFinished)]
    assert finished[0].result.text == "done"
    assert sum(type(event).__name__ == "ToolProgress" for event in events) == 100


async def test_leaving_in_another_task_is_an_error_that_names_task_group() -> None:
    """ENG-21, D1: a block that owns its group is left where it was entered."""
    agent = BareLoop(ScriptedClient("hi", "again"))
    stream = agent.stream("x")
    await stream.__aenter__()

    async def leave() -> None:
        with pytest.raises(LoopError, match="task_group"):
            await stream.__aexit__(None, None, None)
        assert stream.run is not None
        assert (await agent.run("y")).ending == "completed"

    async with anyio.create_task_group() as group:
        group.start_soon(leave)
    await stream.__aexit__(None, None, None)


async def test_with_a_task_group_the_block_may_be_left_in_any_task() -> None:
    """ENG-21, D1: it holds only the stream."""
    agent = BareLoop(ScriptedClient("hi", "again"))
    async with anyio.create_task_group() as group:
        stream = agent.stream("x", task_group=group)
        async with anyio.create_task_group() as entering:
            entering.start_soon(stream.__aenter__)
        await anext(stream)
        async with anyio.create_task_group() as leaving:
            leaving.start_soon(stream.__aexit__, None, None, None)
        assert stream.run is not None
        assert (await agent.run("y")).ending == "completed"


async def test_with_a_task_group_the_run_lives_there_and_its_errors_do_not_reach_it() -> None:
    """ENG-21: the group goes on; the reader gets the error."""
    agent = BareLoop(ScriptedClient(ServerError("down"), "up"), retry=None)
    async with anyio.create_task_group() as group:
        with pytest.raises(ServerError):
            async with agent.stream("x", task_group=group) as stream:
                await read(stream)
        async with agent.stream("x", task_group=group) as stream:
            events = await read(stream)
    assert isinstance(events[-1], RunEnded)
    assert stream.run is not None
    assert stream.run.output == "up"


async def test_a_stream_is_entered_once_and_read_only_when_entered() -> None:
    """ENG-21: misuse is told in words."""
    stream = BareLoop(ScriptedClient("hi")).stream("x")
    with pytest.raises(LoopError, match="enter the stream first"):
        await anext(stream)
    async with stream:
        await read(stream)
    with pytest.raises(LoopError, match="entered once"):
        await stream.__aenter__()
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_listeners_hear_every_event_of_run_and_a_failing_one_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """CTX-24, ENG-24: on_event is told synchronously; its failure is logged once for each run."""
    heard: list[str] = []

    class Listener:
        @hookimpl
        def on_event(self, event: Event) -> None:
            heard.append(type(event).__name__)
            raise OSError("deaf")

    agent = BareLoop(ScriptedClient(call("add", a=1, b=1), "two"), [add], plugins=[Listener()])
    await agent.run("x")
    assert heard == [
        "RunStarted",
        "TurnStarted",
        "ReplyReceived",
        "ToolCallRequested",
        "ToolStarted",
        "ToolFinished",
        "TurnEnded",
        "TurnStarted",
        "ReplyReceived",
        "TurnEnded",
        "RunEnded",
    ]
    assert caplog.text.count("on_event of plugin") == 1


class Breaking(ScriptedClient):
    """A stream that breaks after two visible pieces, the first time."""

    broken = False

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:  # type: ignore[override]
        async with super().stream(request) as events:
            yield events if self.broken else self._break()

    async def _break(self) -> AsyncIterator[StreamEvent]:
        self.broken = True
        yield MessageStart("scripted")
        yield PartDelta("text", 0, "half ")
        yield PartDelta("text", 0, "an ")
        raise ServerError("cut")


async def test_a_retried_attempt_announces_the_reset_and_only_the_last_one_is_kept() -> None:
    """ENG-25, MOD-15, E3: AttemptReset before its first event; one copy of the text in history."""
    agent = BareLoop(Breaking("whole answer"), retry=RetryPolicy(base_delay=0))
    async with agent.stream("x") as stream:
        events = await read(stream)
    told = [
        (type(event).__name__, getattr(event, "attempt", None))
        for event in events
        if isinstance(event, (TextDelta, AttemptReset))
    ]
    assert told == [
        ("TextDelta", 0),
        ("TextDelta", 0),
        ("AttemptReset", 1),
        ("TextDelta", 1),
    ]
    assert agent.history[-1] == Message.assistant("whole answer")


async def test_attachments_changed_is_told_between_runs_and_in_them() -> None:
    """CTX-15, ENG-24: user interfaces hear of every change."""
    from loopctl import MemoryAttachment
    from loopctl.events import AttachmentsChanged

    heard: list[AttachmentsChanged] = []

    class Listener:
        @hookimpl
        def on_event(self, event: Event) -> None:
            if isinstance(event, AttachmentsChanged):
                heard.append(event)

    agent = BareLoop(ScriptedClient(), plugins=[Listener()], config=SessionConfig())
    await agent.set_attachment(MemoryAttachment("a", "A"))
    assert await agent.detach_attachment("memory:a") is True
    assert await agent.detach_attachment("memory:a") is False
    assert [(event.attachment_id, event.ids) for event in heard] == [
        ("memory:a", ("memory:a",)),
        ("memory:a", ()),
    ]
    assert heard[0].run_id == ""
