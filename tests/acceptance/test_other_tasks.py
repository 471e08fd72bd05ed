"""ENG-11, ENG-13, ENG-19, D1, D9: a session used by several tasks, and by its own parts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import pytest

from loopctl import BareLoop, MemoryAttachment, ToolContext, hookimpl, tool
from loopctl.context.attachments import AttachmentKind
from loopctl.errors import ConnectError, RunCancelled
from loopctl.events import (
    AttachmentsChanged,
    Event,
    RunEnded,
    RunStarted,
    TextDelta,
    ToolFinished,
    TurnEnded,
    TurnStarted,
)
from loopctl.models.client import ModelRequest
from loopctl.replies import ModelResponse
from loopctl.testing import ScriptedClient, assert_valid_conversation, assert_valid_request, call
from loopctl.tools.decisions import Allow, ApprovalRequest, Ask, ToolCallContext

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_left")]

TURNS = 40


@tool
async def work() -> str:
    """Take some turns of the event loop."""
    for _ in range(5):
        await anyio.lowlevel.checkpoint()
    return "worked"


async def still_works(agent: BareLoop) -> None:
    """The session's client is replaced; its next run completes."""
    assert agent.cancel() is False
    assert_valid_conversation(agent.history)
    assert agent.conversation == agent.history
    agent._session.serving = ScriptedClient("still here")
    assert (await agent.run("are you?")).output == "still here"


# -- from other tasks ---------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["run", "stream"])
async def test_attachments_and_readers_may_be_used_by_many_tasks_while_a_run_works(
    shape: str,
) -> None:
    """ENG-13, CTX-14: every request holds whole attachments; every reader sees a whole state."""
    client = ScriptedClient(*[call("work")] * TURNS, "done")
    agent: BareLoop = BareLoop(client, [work])
    over = False

    async def pin(name: str, often: int) -> None:
        number = 0
        while not over:
            number += 1
            await agent.set_attachment(MemoryAttachment(name, f"{name} {number}"))
            await anyio.lowlevel.checkpoint()
            if number % often == 0:
                assert await agent.detach_attachment(f"memory:{name}") is True
            await anyio.lowlevel.checkpoint()

    async def read() -> None:
        while not over:
            assert len(set(agent.attachment_ids())) == len(agent.attachment_ids())
            assert agent.conversation[: len(agent.history)] == agent.history
            assert_valid_conversation(agent.history)
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        for name, often in (("a", 2), ("b", 3), ("c", 7)):
            group.start_soon(pin, name, often)
        group.start_soon(read)
        if shape == "run":
            await agent.run("go")
        else:
            async with agent.stream("go") as stream:
                async for _ in stream:
                    pass
        over = True
    assert len(client.requests) == TURNS + 1
    for request in client.requests:
        assert_valid_request(request)
    assert len({request.messages[0].text for request in client.requests if request.head}) > 10
    await still_works(agent)


@pytest.mark.parametrize("cancelled_after", range(0, 60, 3))
async def test_many_tasks_that_cancel_at_once_cancel_once(cancelled_after: int) -> None:
    """ENG-19: who comes first is told True, or the others are told so as well; one run ends."""
    agent: BareLoop = BareLoop(ScriptedClient(*[call("work")] * TURNS, "done"), [work])
    told: list[bool] = []

    async def cancel() -> None:
        for _ in range(cancelled_after):
            await anyio.lowlevel.checkpoint()
        told.append(agent.cancel())

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(cancel)
        with pytest.raises(RunCancelled):
            await agent.run("go")
    assert any(told)
    assert [run.ending for run in agent.runs] == ["cancelled"]
    await still_works(agent)


@pytest.mark.parametrize("ahead", [0, 1, 16])
async def test_a_reader_that_is_behind_may_change_attachments(
    ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ENG-13, ENG-22: it never waits for itself, and is told of each change."""
    monkeypatch.setattr("loopctl.engine.stream.BUFFERED_EVENTS", ahead)
    agent: BareLoop = BareLoop(ScriptedClient("word " * 40, delta_chars=5))
    events: list[Event] = []
    with anyio.fail_after(10):
        async with agent.stream("go") as stream:
            async for event in stream:
                events.append(event)
                if isinstance(event, TextDelta):
                    for _ in range(3):
                        await anyio.lowlevel.checkpoint()
                    await agent.set_attachment(MemoryAttachment("note", str(len(events))))
    assert sum(isinstance(event, TextDelta) for event in events) == 40
    changes = [event for event in events if isinstance(event, AttachmentsChanged)]
    assert 20 <= len(changes) <= 40  # the last ones may come when the run has ended
    assert isinstance(events[-1], RunEnded)


async def test_a_stuck_reader_does_not_keep_the_session_from_being_cancelled() -> None:
    """ENG-19, ENG-22: the answer is there, nobody reads on; cancel frees the session."""
    agent: BareLoop = BareLoop(ScriptedClient("x" * 100, delta_chars=1))
    async with agent.stream("go") as stream:
        for _ in range(87):  # of 105 events, so that the run waits with its last ones
            await anext(stream)
        await anyio.wait_all_tasks_blocked()
        assert stream.run is None
        assert agent.cancel() is True
        await anyio.wait_all_tasks_blocked()
        assert stream.run is not None
        assert stream.run.ending == "completed"
        await still_works(agent)


async def test_from_another_thread_cancel_goes_through_the_event_loop() -> None:
    """ENG-13: anyio.from_thread, as documented."""

    @tool
    def impatient() -> str:
        """Cancel the run from a thread."""
        anyio.from_thread.run_sync(agent.cancel, token=token)
        return "cancelled"

    token = anyio.lowlevel.current_token()
    agent: BareLoop = BareLoop(ScriptedClient(call("impatient"), "no"), [impatient])
    with pytest.raises(RunCancelled):
        await agent.run("go")
    await still_works(agent)


# -- entered here, left there -------------------------------------------------------------------


@asynccontextmanager
async def session(client: ScriptedClient) -> AsyncIterator[BareLoop]:
    async with BareLoop(client, [work]) as agent:
        yield agent


async def test_a_fixture_may_enter_and_leave_a_session_in_two_tasks() -> None:
    """ENG-11, D1: as pytest-asyncio and many frameworks do; a stream reads in a third."""
    fixture = session(ScriptedClient(call("work"), "done", "more"))
    made: list[BareLoop] = []
    ended: list[str] = []

    async def enter() -> None:
        made.append(await fixture.__aenter__())

    async def use() -> None:
        async with made[0].stream("go") as stream:
            async for event in stream:
                if isinstance(event, RunEnded):
                    ended.append(event.ending)

    async def leave() -> None:
        await fixture.__aexit__(None, None, None)

    for step in (enter, use, leave):
        async with anyio.create_task_group() as group:
            group.start_soon(step)
    assert ended == ["completed"]


async def test_a_fixture_may_hold_a_stream_with_a_group_of_the_app() -> None:
    """ENG-21, D1: entered in one task, read in another, left in a third."""
    agent: BareLoop = BareLoop(ScriptedClient(call("work"), "done"), [work])
    read: list[str] = []
    async with anyio.create_task_group() as app:
        stream = agent.stream("go", task_group=app)

        async def use() -> None:
            read.extend([type(event).__name__ async for event in stream])

        async def leave() -> None:
            await stream.__aexit__(None, None, None)

        for step in (stream.__aenter__, use, leave):
            async with anyio.create_task_group() as group:
                group.start_soon(step)
    assert read[-1] == "RunEnded"
    assert stream.run is not None
    assert stream.run.output == "done"


async def test_a_group_that_takes_no_tasks_leaves_the_session_free() -> None:
    """ENG-16, ENG-21: the group is closed already; the error is the group's own."""
    agent: BareLoop = BareLoop(ScriptedClient())
    async with anyio.create_task_group() as group:
        pass
    with pytest.raises(RuntimeError):
        async with agent.stream("go", task_group=group):
            pytest.fail("not reached")
    assert [run.ending for run in agent.runs] == ["cancelled"]
    await still_works(agent)


# -- from the session's own parts ---------------------------------------------------------------


@pytest.mark.parametrize("shape", ["run", "stream"])
@pytest.mark.parametrize("at", [RunStarted, TurnStarted, TextDelta, ToolFinished, TurnEnded])
async def test_a_listener_may_cancel_at_any_event(at: type[Event], shape: str) -> None:
    """ENG-19: also the very first event of a run, and the last of a turn."""
    if shape == "run" and at is TextDelta:
        return  # a run that nobody reads along has no deltas

    class Canceller:
        @hookimpl
        def on_event(self, event: Event) -> None:
            if isinstance(event, at):
                agent.cancel()

    agent: BareLoop = BareLoop(
        ScriptedClient(["I work.", call("work")], "not reached"), [work], plugins=[Canceller()]
    )
    with pytest.raises(RunCancelled):
        if shape == "run":
            await agent.run("go")
        else:
            async with agent.stream("go") as stream:
                async for _ in stream:
                    pass
    assert [run.ending for run in agent.runs] == ["cancelled"]
    assert_valid_conversation(agent.history)
    assert agent.cancel() is False


async def swallow(then: Callable[[], Any] = lambda: None) -> Any:
    """Wait for a cancellation and take no notice of it."""
    try:
        await anyio.sleep_forever()
    except BaseException:
        return then()


@pytest.mark.parametrize("scoped", [False, True], ids=["cancel", "scope"])
@pytest.mark.parametrize("part", ["contributor", "render", "hook", "approver", "tool", "client"])
async def test_a_part_that_cancels_its_run_and_swallows_it_does_not_stop_it(
    part: str, scoped: bool
) -> None:
    """ENG-19, D4: no further step is taken, whatever the part makes of its cancellation."""
    scope = anyio.CancelScope()

    def stop(here: str) -> bool:
        if here == part:
            scope.cancel() if scoped else agent.cancel()
        return here == part

    class Parts:
        id, kind = "memory:parts", AttachmentKind.MEMORY

        def render(self) -> str:
            if armed:
                stop("render")
            return "text"

        @hookimpl
        async def contribute(self, ctx: Any) -> str:
            if stop("contributor"):
                await swallow()
            return "context"

        @hookimpl
        async def before_tool_call(self, ctx: ToolCallContext[Any]) -> Ask:
            if stop("hook"):
                await swallow()
            return Ask("may it?")

    async def approve(request: ApprovalRequest) -> Allow:
        if stop("approver"):
            await swallow()
        return Allow()

    ran: list[str] = []

    @tool
    async def act() -> str:
        """Do something."""
        ran.append("act")
        if stop("tool"):
            await swallow()
        return "done"

    def reply(request: ModelRequest) -> Any:
        return swallow(lambda: call("act")) if stop("client") else call("act")

    armed = False
    parts = Parts()
    client = ScriptedClient(reply, "not reached")
    agent: BareLoop = BareLoop(
        client,
        [act],
        plugins=[parts],
        attachments=[parts],
        approver=approve,
    )
    armed = True
    with scope:
        if scoped:
            await agent.run("go")
            pytest.fail("the cancellation was lost")
        with pytest.raises(RunCancelled):
            await agent.run("go")
    assert scope.cancelled_caught is scoped
    assert [run.ending for run in agent.runs] == ["cancelled"]
    assert client.remaining >= 1
    assert ran == (["act"] if part == "tool" else [])
    part = ""
    await still_works(agent)


@pytest.mark.parametrize("shape", ["run", "stream"])
async def test_a_client_that_makes_an_error_of_a_cancellation_is_still_cancelled(
    shape: str,
) -> None:
    """ENG-19: cancel() said True, so the run ends as cancelled; the error is its cause."""

    async def hang(request: ModelRequest) -> str:
        agent.cancel()

        def fail() -> str:
            raise ConnectError("the connection was closed")

        return str(await swallow(fail))

    agent: BareLoop = BareLoop(ScriptedClient(hang, "not reached"), retry=None)
    with pytest.raises(RunCancelled):
        if shape == "run":
            await agent.run("go")
        else:
            async with agent.stream("go") as stream:
                async for _ in stream:
                    pass
    assert [run.ending for run in agent.runs] == ["cancelled"]
    await still_works(agent)


async def test_a_run_inside_a_tool_of_the_same_session_is_a_soft_error() -> None:
    """ENG-13, TOL-9: LoopBusyError, read by the model; the outer run is not disturbed."""

    @tool
    async def recurse() -> str:
        """Ask the same session."""
        return str((await agent.run("inner")).output)

    agent: BareLoop = BareLoop(ScriptedClient(call("recurse"), "outer"), [recurse])
    run = await agent.run("go")
    assert run.output == "outer"
    assert run.turns[0].calls[0].result.is_error
    assert "LoopBusyError" in run.turns[0].calls[0].result.text
    await still_works(agent)


async def test_a_plugin_added_during_a_run_is_asked_from_the_next_turn_on() -> None:
    """ENG-13, CTX-4: as contributor and as hook; the turn in flight is not disturbed."""
    asked: list[str] = []

    class Late:
        @hookimpl
        def contribute(self, ctx: Any) -> str:
            asked.append(f"turn {ctx.turn}")
            return "late"

        @hookimpl
        def before_tool_call(self, ctx: ToolCallContext[Any]) -> None:
            asked.append(ctx.name)

    @tool
    async def learn() -> str:
        """Add a plugin."""
        agent.add_plugin(Late())
        return "learnt"

    agent: BareLoop = BareLoop(ScriptedClient(call("learn"), call("work"), "done"), [learn, work])
    assert (await agent.run("go")).output == "done"
    assert asked == ["turn 1", "work", "turn 2"]


class Closing:
    def __init__(self) -> None:
        self.order: list[str] = []

    @hookimpl
    def on_event(self, event: Event) -> None:
        if isinstance(event, RunEnded):
            self.order.append(event.ending)

    async def aclose(self) -> None:
        self.order.append("closed")


@pytest.mark.parametrize("shape", ["run", "stream"])
async def test_closing_from_another_task_ends_the_run_before_the_plugins(shape: str) -> None:
    """ENG-11, CTX-27: what a run still uses is not closed below it."""
    plugin = Closing()
    folders: list[Any] = []

    @tool
    async def hang(ctx: ToolContext) -> str:
        """Use the folder until the very end."""
        folders.append(ctx.temporary_folder)
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
            assert folders[0].is_dir()
            plugin.order.append("tool over")
        return "never"

    agent: BareLoop = BareLoop(ScriptedClient(call("hang")), [hang], plugins=[plugin])

    async def run() -> None:
        with pytest.raises(RunCancelled):
            if shape == "run":
                await agent.run("go")
            else:
                async with agent.stream("go") as stream:
                    async for _ in stream:
                        pass

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await anyio.wait_all_tasks_blocked()
        await agent.aclose()
    assert plugin.order == ["tool over", "cancelled", "closed"]
    assert not folders[0].exists()
    assert_valid_conversation(agent.history)


@pytest.mark.parametrize("shape", ["run", "stream"])
async def test_closing_inside_a_tool_ends_the_run_and_waits_for_nobody(shape: str) -> None:
    """ENG-11, ENG-19: it is the run's own part, so it does not wait for the run."""
    plugin = Closing()

    @tool
    async def close() -> str:
        """Close the session."""
        await agent.aclose()
        return "closed"

    agent: BareLoop = BareLoop(ScriptedClient(call("close"), "no"), [close], plugins=[plugin])
    with anyio.fail_after(10), pytest.raises(RunCancelled):
        if shape == "run":
            await agent.run("go")
        else:
            async with agent.stream("go") as stream:
                async for _ in stream:
                    pass
    assert "closed" in plugin.order
    assert [run.ending for run in agent.runs] == ["cancelled"]
    assert_valid_conversation(agent.history)


class Odd(ScriptedClient):
    async def complete(self, request: ModelRequest) -> ModelResponse:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.lowlevel.checkpoint)
            return await super().complete(request)
        raise AssertionError


async def test_a_client_with_a_task_group_raises_its_error_bare() -> None:
    """ENG-16: anyio wraps it in a group of one, and maybe twice."""

    def fail(request: ModelRequest) -> str:
        raise ZeroDivisionError("odd")

    agent: BareLoop = BareLoop(Odd(fail))
    with pytest.raises(ZeroDivisionError):
        await agent.run("go")
    await still_works(agent)
