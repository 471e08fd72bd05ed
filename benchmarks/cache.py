"""What a transient costs at the head and at the tail: the share of prompt tokens served from cache.

    uv run python benchmarks/cache.py [--turns 20]

One session and one fresh server for each figure, against the local model, which reports the tokens
that it found in its prompt cache. A session has one transient of about fifty tokens: an
attachment, a contributor's message or an entry of memory, at the head or at the tail, the same in
each turn or another one. Steady: an attachment left alone, the same message, the same entry.
Changing: the attachment pinned again with new contents, another message, another entry.

The local model's window is small, so the texts are short, replies are cut after six tokens, and
the window's lines are off: no pass disturbs the conversation. Each turn is a run of its own. The
first does not count; there is no cache before it. Takes about five minutes on two cores.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import anyio

from loopctl import (
    BareLoop,
    Contribution,
    ContributorContext,
    InMemoryStore,
    MemoryAttachment,
    MemoryEntry,
    Message,
    RequestOptions,
    RunConfig,
    SessionConfig,
    connect,
)
from loopctl.config import Placement
from loopctl.models.client import ModelClient

SHORT = RunConfig(memory_top_k=1, options=RequestOptions(max_output_tokens=6))
PLACES: tuple[Placement, Placement] = ("head", "tail")


def note(number: int) -> str:
    return f"Room {number}. " + "Answer in one short sentence and stay friendly. " * 4


class Plain:
    """A session without any transient, and what a turn changes in it: nothing."""

    def __init__(self, client: ModelClient, placement: Placement, *, changing: bool) -> None:
        self.client, self.changing = client, changing
        self.placement: Placement = placement
        self.turn = 0
        self.agent = self.session()

    @property
    def number(self) -> int:
        return self.turn if self.changing else 0

    def session(self) -> BareLoop:
        config = SessionConfig(
            context_window=0,
            attachment_placement=self.placement,
            memory_placement=self.placement,
            run=SHORT,
        )
        return BareLoop(self.client, config=config, system="Be helpful.", memory=self.memory())

    def memory(self) -> InMemoryStore | None:
        return None

    async def before_turn(self) -> None:
        pass


class Attached(Plain):
    async def before_turn(self) -> None:
        await self.agent.set_attachment(MemoryAttachment("note", note(self.number)))


class Contributed(Plain):
    def session(self) -> BareLoop:
        agent = super().session()
        agent.add_contributor(self.contribute)
        return agent

    def contribute(self, ctx: ContributorContext) -> Contribution:
        return Contribution(Message.user(note(self.number)), self.placement)


class Remembered(Plain):
    """The input of a changing one names a room, and there is an entry for each room."""

    def memory(self) -> InMemoryStore:
        rooms = range(100 if self.changing else 1)
        return InMemoryStore(MemoryEntry(id=f"{room:02}", text=note(room)) for room in rooms)


async def cached_share(session: Plain, turns: int) -> float:
    """Per cent of the prompt tokens of turns 2 … that came from the cache."""
    cached = total = 0
    for turn in range(turns):
        session.turn = turn
        await session.before_turn()
        run = await session.agent.run(f"Tell me about room {turn}, please.")
        if turn:
            cached += run.usage.cached_tokens or 0
            total += run.usage.input_tokens or 0
    return 100 * cached / total


async def measured(kind: Callable[..., Plain], place: Placement, changing: bool, turns: int) -> str:
    client = connect("local", parallel=1)
    try:
        return f"{await cached_share(kind(client, place, changing=changing), turns):.0f} %"
    finally:
        await client.aclose()


async def main(turns: int) -> None:
    print(f"{turns} turns: prompt tokens from the cache\n")
    print(
        "| what rides | where | the same in each turn | another in each turn |\n|---|---|---|---|"
    )
    print(f"| nothing | | {await measured(Plain, 'head', False, turns)} | |", flush=True)
    kinds = {"an attachment": Attached, "a contributor": Contributed, "memory": Remembered}
    for place in PLACES:
        for name, kind in kinds.items():
            steady = await measured(kind, place, False, turns)
            changing = await measured(kind, place, True, turns)
            print(f"| {name} | {place} | {steady} | {changing} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--turns", type=int, default=20)
    anyio.run(main, parser.parse_args().turns)
