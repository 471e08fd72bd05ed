"""ENG-26: what the next request would hold, block by block, and the very bytes of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loopctl import (
    BareLoop,
    Contribution,
    InMemoryStore,
    MemoryAttachment,
    MemoryEntry,
    Message,
    RatioTokenCounter,
    RunConfig,
    SessionConfig,
    TodoAttachment,
    TodoItem,
    tool,
)
from loopctl.config import Placement
from loopctl.errors import AttachmentError, ConfigError, LoopBusyError
from loopctl.models.openai_chat import OpenAIChatClient
from loopctl.testing import FixedClock, ScriptedClient

pytestmark = pytest.mark.anyio

CHARS = RatioTokenCounter(1, per_message=0)
CHAT = OpenAIChatClient("any", base_url="http://127.0.0.1:1")


@tool
async def look(where: str) -> str:
    """Look somewhere."""
    return where


class Asking:
    def contribute(self, ctx: Any) -> str:
        return f"turn {ctx.turn} of {len(ctx.conversation)}, asked {ctx.run_input.text[:9]}"


def session(client: ScriptedClient, **given: Any) -> BareLoop:
    settings: dict[str, Any] = {"config": SessionConfig(context_window=2_000)} | given
    agent = BareLoop(
        client,
        [look],
        system="be brief",
        attachments=[MemoryAttachment("fact", "blue"), TodoAttachment([TodoItem("sweep")])],
        history=[Message.user("before"), Message.assistant("yes")],
        counter=CHARS,
        clock=FixedClock(),
        **settings,
    )
    agent.add_contributor(Asking())
    agent.add_contributor(lambda ctx: None)
    agent.add_contributor(lambda ctx: Contribution(Message.user("at the tail"), "tail"))
    return agent


async def test_it_is_the_request_that_the_run_then_sends_to_the_byte() -> None:
    """ENG-26, CTX-20: and asking changes nothing."""
    client = ScriptedClient("done")
    agent = session(client)
    explained = await agent.explain("now?")
    assert client.requests == []
    assert len(agent.history) == 2
    assert agent.runs == ()
    await agent.run("now?")
    assert CHAT.encode(explained.request).body == CHAT.encode(client.requests[0]).body
    assert (explained.request.head, explained.request.tail) == (2, 1)


async def test_each_block_has_its_origin_its_place_and_its_tokens_in_the_request_s_order() -> None:
    """ENG-26, CTX-19."""
    agent = session(ScriptedClient())
    explained = await agent.explain("now?")
    assert [(block.origin, block.name, block.place) for block in explained.blocks] == [
        ("system", "system", "beside"),
        ("tool", "look", "beside"),
        ("attachment", "memory:fact", "head"),
        ("attachment", "todo:session", "head"),
        ("contributor", "Asking", "head"),
        ("conversation", "user", "conversation"),
        ("conversation", "assistant", "conversation"),
        ("input", "user", "conversation"),
        ("contributor", "session.<locals>.<lambda>", "tail"),
    ]
    assert sum(block.tokens for block in explained.blocks) == explained.tokens
    assert explained.tokens == explained.fixed + explained.conversation + explained.transients
    assert explained.conversation == len("before") + len("yes") + len("now?")
    asked = [block for block in explained.blocks if block.origin == "contributor"]
    assert all(block.milliseconds is not None and block.milliseconds >= 0 for block in asked)
    assert [block.name for block in explained.quiet] == ["session.<locals>.<lambda>"]
    json.dumps(explained.to_json())


async def test_a_contributor_of_a_plugin_is_told_with_its_distribution() -> None:
    """ENG-26: and a tool with who registered it."""
    agent = session(ScriptedClient())
    agent._session.plugins.add_contributor(Asking(), distribution="some-plugin")
    agent.tools.register(tool(name="borrowed")(lambda: "x"), origin="some-plugin")
    explained = await agent.explain("now?")
    sources = {(b.origin, b.name): b.source for b in explained.blocks if b.source is not None}
    assert sources == {
        ("contributor", "Asking"): "some-plugin",
        ("tool", "borrowed"): "some-plugin",
    }


async def test_failed_contributors_are_told() -> None:
    """CTX-9, ENG-26."""
    agent = session(ScriptedClient())

    def broken(ctx: Any) -> str:
        raise OSError("no network")

    agent.add_contributor(broken)
    explained = await agent.explain("now?")
    (failure,) = explained.failures
    assert "no network" in failure.reason
    assert len(explained.quiet) == 1


@pytest.mark.parametrize(
    ("pinned", "asked", "auto_compact", "decision"),
    [
        (0, "now?", True, "call"),
        (0, "n" * 1_700, True, "threshold"),
        (0, "n" * 1_500, False, "call"),
        (0, "n" * 1_900, True, "emergency"),
        (600, "n" * 1_000, True, "deferral"),
        (1_800, "n" * 10, True, "call"),
    ],
)
async def test_it_says_what_would_be_done_at_these_figures(
    pinned: int, asked: str, auto_compact: bool, decision: str
) -> None:
    """CTX-31, ENG-26: with the lines of the window."""
    settings = SessionConfig(context_window=2_000, auto_compact=auto_compact)
    agent = session(ScriptedClient(), config=settings)
    if pinned:
        agent.add_contributor(lambda ctx: "p" * pinned)
    explained = await agent.explain(asked)
    assert explained.decision == decision
    assert (explained.window, explained.threshold, explained.emergency) == (2_000, 1_600, 1_900)


async def test_the_system_prompt_and_the_tools_count_for_the_lines() -> None:
    """CTX-29, CTX-31, ENG-26: B is F and C together."""
    agent = BareLoop(
        ScriptedClient(),
        [look],
        SessionConfig(context_window=2_000),
        system="s" * 1_500,
        history=[Message.user("before"), Message.assistant("yes")],
        counter=CHARS,
    )
    explained = await agent.explain("n" * 50)
    assert explained.fixed > 1_550
    assert explained.conversation < 100
    assert explained.decision == "threshold"


@pytest.mark.parametrize("place", ["head", "tail"])
async def test_the_blocks_stand_as_the_request_s_messages_do(place: Placement) -> None:
    """ENG-26, CTX-7, CTX-19: whichever place attachments and memory have."""
    config = SessionConfig(attachment_placement=place, memory_placement=place)
    store = InMemoryStore([MemoryEntry(id="m", text="remembered")])
    agent = session(ScriptedClient(), config=config, memory=store)
    explained = await agent.explain("now?")
    texts = [block.message.text for block in explained.blocks if block.message is not None]
    assert "".join(texts) == "".join(message.text for message in explained.request.messages)
    places = {block.name: block.place for block in explained.blocks}
    assert {places[name] for name in ("memory:fact", "todo:session", "InMemoryStore")} == {place}


async def test_memory_that_is_off_is_not_asked() -> None:
    """CTX-22, ENG-26."""

    class Unplugged(InMemoryStore):
        async def retrieve(self, query: str, limit: int) -> list[MemoryEntry]:
            raise OSError("no route to host")

    agent = session(ScriptedClient(), memory=Unplugged())
    explained = await agent.explain("now?", RunConfig(memory_top_k=0))
    assert explained.warnings == ()
    (warning,) = (await agent.explain("now?")).warnings
    assert "no route to host" in warning


async def test_waiting_steering_is_part_of_the_next_input() -> None:
    """CTX-23, ENG-26."""
    agent = session(ScriptedClient())
    assert agent.steer("and in French") is False
    explained = await agent.explain("now?")
    assert explained.blocks[-2].message == Message.user("and in French", "now?")


async def test_it_refuses_what_a_run_would_refuse() -> None:
    """ENG-26: a blank input, nothing to continue, an attachment that fails, a run in flight."""
    agent = session(ScriptedClient("done"))
    for bad in (None, " "):
        with pytest.raises(ConfigError):
            await agent.explain(bad)

    class Broken:
        id = "memory:broken"
        kind = MemoryAttachment("x", "y").kind
        renders = 0

        def render(self) -> str:
            self.renders += 1
            if self.renders > 1:
                raise OSError("gone")
            return "here"

    refused: list[str] = []

    async def nested(ctx: Any) -> None:
        with pytest.raises(LoopBusyError, match="cannot explain") as caught:
            await agent.explain("me")
        refused.append(str(caught.value))

    agent.add_contributor(nested)
    assert (await agent.run("go")).warnings == ()
    assert (await agent.explain("and now?")).failures == ()
    assert "a run is in flight" in refused[0]
    assert "an explanation is going on" in refused[1]
    await agent.set_attachment(Broken())
    with pytest.raises(AttachmentError, match="broken"):
        await agent.explain("now?")
