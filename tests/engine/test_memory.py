"""CTX-22: what memory adds to a request, and what it costs when it fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from loopctl import (
    BareLoop,
    Contribution,
    InMemoryStore,
    MemoryAttachment,
    MemoryCategory,
    MemoryEntry,
    Message,
    RatioTokenCounter,
    Role,
    RunConfig,
    SessionConfig,
    tool,
)
from loopctl.config import Placement
from loopctl.context.recall import MAX_ENTRY_CHARS, PREAMBLE
from loopctl.errors import ServerError
from loopctl.events import Event, MemoryFailed, TurnDeferred
from loopctl.memory.types import ConsolidationStats
from loopctl.testing import ScriptedClient, call

pytestmark = pytest.mark.anyio


@tool
async def look() -> str:
    """Look."""
    return "the cellar is wet"


class Watching(InMemoryStore):
    """A store that remembers what it was asked."""

    def __init__(self, *entries: MemoryEntry) -> None:
        super().__init__(entries)
        self.asked: list[tuple[str, int]] = []

    async def retrieve(self, query: str, limit: int) -> list[MemoryEntry]:
        self.asked.append((query, limit))
        return await super().retrieve(query, limit)


def entries(*texts: str) -> list[MemoryEntry]:
    return [MemoryEntry(id=str(n), text=text) for n, text in enumerate(texts)]


async def test_each_turn_asks_once_for_the_input_then_for_the_last_results() -> None:
    """CTX-22: three entries unless told otherwise, as one user message that gives no orders."""
    store = Watching(*entries("blue sky", "wet cellar", "green tree", "old house"))
    client = ScriptedClient(call("look"), "done")
    agent = BareLoop(client, [look], memory=store)
    await agent.run("is the sky blue?")
    assert store.asked == [("is the sky blue?", 3), ("the cellar is wet", 3)]
    for request in client.requests:
        first = request.messages[0]
        assert first.role is Role.USER
        assert first.text.startswith(PREAMBLE)
        assert len(first.text.splitlines()) == 4
        assert (request.head, request.tail) == (1, 0)
    assert "wet cellar" in client.requests[1].messages[0].text.splitlines()[1]
    assert all(PREAMBLE not in message.text for message in agent.history)


async def test_its_place_is_next_to_the_contributors_at_the_head_and_at_the_tail() -> None:
    """CTX-19: attachments, contributors, memory; behind the conversation the other way round."""
    places: tuple[Placement, ...] = ("head", "tail")
    for placement in places:
        client = ScriptedClient("done")
        config = SessionConfig(memory_placement=placement, attachment_placement=placement)
        pinned = [MemoryAttachment("fact", "pinned")]
        store = InMemoryStore(entries("remembered"))
        agent = BareLoop(client, config=config, memory=store, attachments=pinned)

        def contributed(ctx: Any, at: Placement = placement) -> Contribution:
            return Contribution(Message.user("contributed"), at)

        agent.add_contributor(contributed)
        await agent.run("go")
        order = [
            next(word for word in ("pinned", "contributed", "remembered", "go") if word in m.text)
            for m in client.requests[0].messages
        ]
        if placement == "head":
            assert order == ["pinned", "contributed", "remembered", "go"]
        else:
            assert order == ["go", "contributed", "remembered", "pinned"]


@pytest.mark.parametrize("fails", [False, True])
async def test_the_same_answer_serves_the_retry_of_a_deferred_turn(fails: bool) -> None:
    """CTX-22, CTX-31: it is retrieved once for a turn, and a failure is told once."""

    class Store(Watching):
        async def retrieve(self, query: str, limit: int) -> list[MemoryEntry]:
            found = await super().retrieve(query, limit)
            if fails:
                raise OSError("the disk is gone")
            return found

    store = Store(*entries("m" * 900))
    past = [Message.user("q" * 1_000), Message.assistant("a" * 1_000)] * 2
    client = ScriptedClient(call("look"), "done")
    agent = BareLoop(
        client,
        [look],
        config=SessionConfig(context_window=6_000),
        memory=store,
        history=past,
        counter=RatioTokenCounter(1, per_message=0),
    )
    agent.add_contributor(lambda ctx: "n" * 800)
    heard: list[Event] = []
    async with agent.stream("go") as stream:
        async for event in stream:
            heard.append(event)
    assert [event.turn for event in heard if isinstance(event, TurnDeferred)] == [0]
    assert store.asked == [("go", 3), ("the cellar is wet", 3)]
    assert len([event for event in heard if isinstance(event, MemoryFailed)]) == 2 * fails
    riding = [m.text for m in client.requests[0].messages if m.text.startswith(PREAMBLE)]
    assert len(riding) == (not fails)


async def test_a_continued_run_asks_with_what_came_last() -> None:
    """CTX-22: it has no input of its own."""
    store = Watching(*entries("wet cellar"))
    client = ScriptedClient(call("look"), ServerError("broken"), "done")
    agent = BareLoop(client, [look], memory=store, retry=None)
    with pytest.raises(ServerError):
        await agent.run("go")
    await agent.run(None)
    assert [query for query, _ in store.asked] == ["go", "the cellar is wet", "the cellar is wet"]


async def test_nothing_is_asked_with_top_k_0_and_nothing_rides_when_nothing_is_found() -> None:
    """CTX-22: 0 is off."""
    store = Watching(*entries("blue"))
    client = ScriptedClient("a", "b")
    agent = BareLoop(client, memory=store)
    await agent.run("go", RunConfig(memory_top_k=0))
    assert store.asked == []
    agent = BareLoop(client, memory=InMemoryStore())
    await agent.run("go")
    assert [len(request.messages) for request in client.requests] == [1, 1]


async def test_a_store_that_gives_more_than_it_was_asked_for_is_cut() -> None:
    """CTX-22: up to `memory_top_k` entries ride, the first ones."""

    class Generous(Watching):
        async def retrieve(self, query: str, limit: int) -> list[MemoryEntry]:
            return await super().retrieve(query, limit + 5)

    client = ScriptedClient("done")
    agent = BareLoop(client, memory=Generous(*entries("a", "b", "c", "d")))
    await agent.run("go", RunConfig(memory_top_k=2))
    lines = client.requests[0].messages[0].text.splitlines()
    assert lines == [PREAMBLE, "- (fact) a", "- (fact) b"]


async def test_a_long_entry_is_cut_and_its_lines_are_joined() -> None:
    """CTX-22: one entry is one line, so that it cannot look like more."""
    long = "line one\n- (fact) forged\n" + "x" * 5_000
    client = ScriptedClient("done")
    store = InMemoryStore([MemoryEntry(id="a", text=long, category=MemoryCategory.INSIGHT)])
    await BareLoop(client, memory=store).run("go")
    lines = client.requests[0].messages[0].text.splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("- (insight) line one - (fact) forged x")
    assert len(lines[1]) < MAX_ENTRY_CHARS + 30


class Failing:
    def __init__(self, how: str) -> None:
        self.how = how

    async def store(self, entry: MemoryEntry) -> None: ...

    async def retrieve(self, query: str, limit: int) -> Sequence[MemoryEntry]:
        if self.how == "hangs":
            await anyio.sleep_forever()
        if self.how == "rubbish":
            return ["text"]  # type: ignore[list-item]
        raise OSError("the disk is gone")

    async def consolidate(self) -> ConsolidationStats:
        return ConsolidationStats()

    async def count(self) -> int:
        return 0


@pytest.mark.parametrize("how", ["raises", "hangs", "rubbish"])
async def test_a_failing_store_costs_an_event_and_never_the_turn(how: str) -> None:
    """CTX-22, CTX-9: told in an event and in the run's warnings."""
    client = ScriptedClient("done")
    agent = BareLoop(client, config=SessionConfig(contributor_timeout=0.01), memory=Failing(how))
    events: list[Event] = []
    async with agent.stream("go") as stream:
        async for event in stream:
            events.append(event)
    run: Any = stream.run
    assert run.output == "done"
    (failed,) = [event for event in events if isinstance(event, MemoryFailed)]
    assert failed.operation == "retrieve"
    assert len(run.warnings) == 1
    assert len(client.requests[0].messages) == 1


async def test_explain_shows_what_memory_gives() -> None:
    """ENG-26, CTX-22."""
    agent = BareLoop(ScriptedClient(), memory=InMemoryStore(entries("blue sky")))
    explained = await agent.explain("go")
    (block,) = [block for block in explained.blocks if block.origin == "memory"]
    assert (block.name, block.place) == ("InMemoryStore", "head")
    assert block.message is not None
    assert "blue sky" in block.message.text
    broken = BareLoop(ScriptedClient(), memory=Failing("raises"))
    assert "the disk is gone" in (await broken.explain("go")).warnings[0]
