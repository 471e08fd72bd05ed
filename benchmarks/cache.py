"""What a transient costs at the head and at the tail: the share of prompt tokens served from cache.

    uv run python benchmarks/cache.py [--turns 12]

One session for each row, against the local model's server, which reports the tokens that it found
in its prompt cache. The contributor's message stays the same, or changes with every turn.
"""

from __future__ import annotations

import argparse
from itertools import count

import anyio

from loopctl import (
    BareLoop,
    Contribution,
    ContributorContext,
    MemoryAttachment,
    Message,
    RequestOptions,
    RunConfig,
    connect,
)
from loopctl.config import Placement
from loopctl.models.client import ModelClient

FACT = MemoryAttachment("house", "The house is blue, has nine rooms and stands on a hill. " * 4)
SHORT = RunConfig(options=RequestOptions(max_output_tokens=12))


class Note:
    """A contributor of about fifty tokens, steady or changing, at the head or the tail."""

    def __init__(self, placement: Placement, *, changing: bool) -> None:
        self._placement: Placement = placement
        self._changing = changing
        self._asked = count()

    def contribute(self, ctx: ContributorContext) -> Contribution:
        number = next(self._asked) if self._changing else 0
        text = f"Note {number}. " + "Answer in one short sentence and stay friendly. " * 4
        return Contribution(Message.user(text), self._placement)


async def cached_share(client: ModelClient, note: Note, turns: int) -> float:
    """Per cent of the prompt tokens of turns 2 … that came from the cache."""
    agent = BareLoop(client, system="You are helpful.", attachments=[FACT])
    agent.add_contributor(note)
    await agent.run("Hello.", SHORT)
    cached = total = 0
    for number in range(turns - 1):
        run = await agent.run(f"Tell me about room {number} of the house, please.", SHORT)
        cached += run.usage.cached_tokens or 0
        total += run.usage.input_tokens or 0
    return 100 * cached / total


async def main(turns: int) -> None:
    print(f"{turns} turns            steady   changing")
    for placement in ("head", "tail"):
        row: list[float] = []
        for changing in (False, True):
            client = connect("local", parallel=1)
            try:
                row.append(await cached_share(client, Note(placement, changing=changing), turns))
            finally:
                await client.aclose()
        print(f"at the {placement}       {row[0]:10.0f} % {row[1]:8.0f} %")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--turns", type=int, default=12)
    anyio.run(main, parser.parse_args().turns)
