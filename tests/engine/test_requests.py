"""CTX-3, CTX-6, CTX-7, CTX-15 … CTX-21: what a request holds, and what nothing else holds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import anyio
import pytest

from loopctl import (
    BareLoop,
    Contribution,
    ContributorContext,
    MemoryAttachment,
    Message,
    SessionConfig,
    TodoAttachment,
    TodoItem,
    ToolContext,
    tool,
)
from loopctl.errors import AttachmentError, ContributorError
from loopctl.testing import ScriptedClient, call

pytestmark = pytest.mark.anyio


def texts(messages: tuple[Message, ...]) -> list[str]:
    return [message.text for message in messages]


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_the_order_of_a_request() -> None:
    """CTX-19: head attachments, contributors; conversation; tail contributors, attachments."""
    client = ScriptedClient("one", "two")
    for placement in ("head", "tail"):
        agent = BareLoop(
            client,
            attachments=[MemoryAttachment("m", "pinned")],
            config=SessionConfig(attachment_placement=placement),
        )
        agent.add_contributor(lambda ctx: "contributed")
        agent.add_contributor(lambda ctx: Contribution(Message.system("behind"), "tail"))
        await agent.run("input")
    head, tail = client.requests
    assert texts(head.messages) == ["[memory: m]\npinned", "contributed", "input", "behind"]
    assert (head.head, head.tail) == (2, 1)
    assert texts(tail.messages) == ["contributed", "input", "behind", "[memory: m]\npinned"]
    assert (tail.head, tail.tail) == (1, 2)


async def test_contributors_are_consulted_before_every_turn_with_what_the_model_will_see() -> None:
    """CTX-2, CTX-3: turn numbers from 0, the conversation grows, one message per turn."""
    seen: list[tuple[int, int]] = []

    def count(ctx: ContributorContext[Any]) -> str:
        seen.append((ctx.turn, len(ctx.conversation)))
        return f"turn {ctx.turn}"

    client = ScriptedClient(call("add", a=1, b=2), call("add", a=3, b=4), "done", "again")
    agent = BareLoop(client, [add])
    agent.add_contributor(count)
    await agent.run("x")
    await agent.run("y")
    assert seen == [(0, 1), (1, 3), (2, 5), (0, 7)]
    assert [request.messages[0].text for request in client.requests] == [
        "turn 0",
        "turn 1",
        "turn 2",
        "turn 0",
    ]


async def test_nothing_transient_is_kept_anywhere() -> None:
    """CTX-6, CTX-17, G10: not in history, the audit trail, documents, the next request."""
    client = ScriptedClient(call("add", a=1, b=2), "done", "again")
    agent = BareLoop(client, [add], attachments=[MemoryAttachment("m", "SECRET-ATTACHED")])
    agent.add_contributor(
        lambda ctx: "SECRET-CONTRIBUTED" if ctx.turn == 0 and len(ctx.conversation) == 1 else None
    )
    await agent.run("x")
    run = await agent.run("y")
    kept = json.dumps([message.to_json() for message in agent.history])
    kept += json.dumps([run.to_json() for run in agent.runs])
    kept += json.dumps(agent._session.machine.dump())
    assert "SECRET" not in kept
    assert run.output == "again"
    for request in client.requests:
        assert sum("SECRET-ATTACHED" in m.text for m in request.messages) == 1
    assert [
        sum("SECRET-CONTRIBUTED" in m.text for m in request.messages) for request in client.requests
    ] == [1, 0, 0]


async def test_a_session_without_attachments_sends_what_one_without_a_store_would() -> None:
    """CTX-16: an empty store adds nothing; so does one that was emptied."""
    client = ScriptedClient("a", "b")
    await BareLoop(client).run("x")
    agent = BareLoop(client, attachments=[MemoryAttachment("m", "x")])
    await agent.detach_attachment("memory:m")
    await agent.run("x")
    first, second = client.requests
    assert first == second


async def test_a_tool_that_checks_off_a_todo_shows_it_in_the_next_request() -> None:
    """CTX-15: the store is reachable from ToolContext in the middle of a run."""

    @tool
    async def check_off(ctx: ToolContext) -> str:
        """Check off the todo."""
        await ctx.set_attachment(TodoAttachment([TodoItem("ship it", completed=True)]))
        return f"now pinned: {ctx.attachment_ids()}"

    client = ScriptedClient(call("check_off"), "done")
    agent = BareLoop(client, [check_off], attachments=[TodoAttachment([TodoItem("ship it")])])
    await agent.run("x")
    assert client.requests[0].messages[0].text == "[todo: session]\n- [ ] ship it"
    assert client.requests[1].messages[0].text == "[todo: session]\n- [x] ship it"


async def test_a_pin_that_races_a_request_is_in_it_or_in_the_next() -> None:
    """CTX-14: pinned from another task while a contributor holds up the request."""
    waiting, go = anyio.Event(), anyio.Event()

    async def slow(ctx: ContributorContext[Any]) -> None:
        if ctx.turn == 0:
            waiting.set()
            await go.wait()

    client = ScriptedClient(call("add", a=1, b=2), "done")
    agent = BareLoop(client, [add])
    agent.add_contributor(slow)
    async with anyio.create_task_group() as group:
        group.start_soon(agent.run, "x")
        await waiting.wait()
        await agent.set_attachment(MemoryAttachment("a", "one"))
        await agent.set_attachment(MemoryAttachment("b", "two"))
        assert agent.attachment_ids() == ("memory:a", "memory:b")
        go.set()
    for request in client.requests:
        assert request.messages[0] == Message.user("[memory: a]\none", "[memory: b]\ntwo")


async def test_an_attachment_that_fails_to_render_ends_the_run() -> None:
    """CTX-18: AttachmentError naming the id; nothing is sent."""

    class Flaky:
        id = "memory:flaky"
        kind = "memory"
        broken = False

        def render(self) -> str:
            if self.broken:
                raise OSError("gone")
            return "fine"

    flaky, client = Flaky(), ScriptedClient("never")
    agent = BareLoop(client, attachments=[flaky])  # type: ignore[list-item]
    flaky.broken = True
    with pytest.raises(AttachmentError, match="memory:flaky"):
        await agent.run("x")
    assert client.requests == []
    assert agent.runs[-1].ending == "failed"


async def test_a_failed_contributor_is_named_in_the_runs_warnings_and_strict_ends_it() -> None:
    """CTX-9: Run.warnings and ContributorFailed; ContributorError with strict_plugins."""

    def broken(ctx: Any) -> str:
        raise ZeroDivisionError("oops")

    agent = BareLoop(ScriptedClient("fine"))
    agent.add_contributor(broken)
    run = await agent.run("x")
    assert "broken failed: ZeroDivisionError: oops" in run.warnings[0]
    strict = BareLoop(ScriptedClient("never"), config=SessionConfig(strict_plugins=True))
    strict.add_contributor(broken)
    with pytest.raises(ContributorError, match="ZeroDivisionError"):
        await strict.run("x")
    assert strict.history == ()


async def test_tools_travel_in_registration_order_and_an_empty_list_is_none() -> None:
    """CTX-20, I1: the order of registration, whatever the names."""

    @tool
    def zebra() -> str:
        """Z."""
        return "z"

    client = ScriptedClient("a", "b")
    await BareLoop(client, [zebra, add]).run("x")
    await BareLoop(client).run("x")
    assert [schema.name for schema in client.requests[0].tools] == ["zebra", "add"]
    assert client.requests[1].tools == ()


PROGRAM = """
import anyio, sys
from loopctl import BareLoop, MemoryAttachment, TodoAttachment, TodoItem, tool, connect
from loopctl.testing import ScriptedClient, FixedClock, call

@tool
async def look(paths: set[str], depth: int = 1, *, kind: str = "file") -> dict[str, int]:
    "Look at paths."
    return {name: len(name) for name in sorted(paths)}

client = ScriptedClient(call("look", paths=["b", "a"]), "done")
agent = BareLoop(client, [look], clock=FixedClock(), system="be exact",
    attachments=[TodoAttachment([TodoItem("x")]), MemoryAttachment("m", "fact")])
agent.add_contributor(lambda ctx: f"{ctx.run_id} {ctx.now}")
anyio.run(agent.run, "go")
encoder = connect("openai-chat:gpt-5.4", api_key="k")
for request in client.requests:
    sys.stdout.buffer.write(encoder.encode(request).body + b"\\n")
"""


def test_the_same_state_gives_the_same_bytes_in_any_process() -> None:
    """CTX-20, ENG-29, I2: two processes with different hash seeds send identical requests."""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(outputs) == 1
    (body,) = outputs
    assert b"[todo: session]" in body
    assert b"run-1 2026-01-01" in body
