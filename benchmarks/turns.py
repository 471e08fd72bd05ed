"""The marginal time of a turn, next to a hand-written loop in the same run.

    uv run python benchmarks/turns.py [--runs 12] [--backend asyncio]

Both sides play 1,000 turns of the same scripted client with one async tool. The session has one
attachment and one installed plugin that contributes, and measures each request against the lines
of its window; the hand-written loop makes one pluggy call, takes one
lock, opens one deadline and validates one pydantic argument for each turn and, for `stream()`,
sends the same number of events through a memory stream. There it is measured twice: asking the
client for the whole reply, and reading the reply as it comes, as `stream()` does. The sides take
turns, the time of a turn is measured from tool call to tool call, and medians over all runs are
compared. Only the ratios mean anything.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import anyio
import pluggy
from pydantic import BaseModel

from loopctl import (
    BareLoop,
    MemoryAttachment,
    Message,
    RunConfig,
    SessionConfig,
    ToolCallPart,
    ToolResultPart,
    hookimpl,
    tool,
)
from loopctl.models.client import ModelRequest
from loopctl.plugins import InstalledPlugin
from loopctl.testing import ScriptedClient
from loopctl.wire.stream_events import PartDelta, PartStart

TURNS = 1000
WINDOWS = ((5, 10), (190, 200), (990, 1000))

spec, impl = pluggy.HookspecMarker("floor"), pluggy.HookimplMarker("floor")
stamps: list[float] = []


class Specs:
    @spec
    def contribute(self, ctx: Any) -> Any: ...


class Reminder:
    @impl
    def contribute(self, ctx: Any) -> str:
        return "stay on the task"


class Contributing:
    @hookimpl
    def contribute(self, ctx: Any) -> str:
        return "stay on the task"


class Arguments(BaseModel):
    number: int


@tool
async def work(number: int) -> str:
    """Do a piece of work."""
    stamps.append(time.perf_counter())
    return "done"


async def floor_work(arguments: Arguments) -> str:
    stamps.append(time.perf_counter())
    return "done"


def script() -> ScriptedClient:
    call = ToolCallPart("c1", "work", {"number": 7})
    return ScriptedClient(*[call] * TURNS, "finished")


def session() -> BareLoop:
    plugin = InstalledPlugin(plugin=Contributing(), name="b", distribution="b", version="1")
    return BareLoop(
        script(),
        [work],
        SessionConfig(context_window=1_000_000),
        system="be brief",
        plugins=[plugin],
        attachments=[MemoryAttachment("fact", "the sky is blue")],
    )


CONFIG = RunConfig(max_turns=TURNS + 1)


async def loopctl_run() -> None:
    await session().run("go", CONFIG)


async def loopctl_stream() -> None:
    async with session().stream("go", CONFIG) as stream:
        async for _ in stream:
            pass


async def events_per_turn() -> float:
    """How many events a turn of the session sends."""
    seen = 0
    agent = session()
    async with agent.stream("go", CONFIG) as stream:
        async for _ in stream:
            seen += 1
    return seen / TURNS


async def read_along(client: ScriptedClient, request: ModelRequest) -> Message:
    """The reply, put together by hand from its stream."""
    name, pieces = "", list[str]()
    async with client.stream(request) as events:
        async for event in events:
            if isinstance(event, PartStart):
                name = event.name or ""
            elif isinstance(event, PartDelta):
                pieces.append(event.text)
    text = "".join(pieces)
    return Message.assistant(ToolCallPart("c1", name, text) if name else text)


async def floor(
    tell: Callable[[object], Awaitable[None]] | None, events: int, *, reads: bool = False
) -> None:
    hooks = pluggy.PluginManager("floor")
    hooks.add_hookspecs(Specs)
    hooks.register(Reminder())
    client, lock, pinned = script(), anyio.Lock(), {"fact": "the sky is blue"}
    messages = [Message.user("go")]
    while True:
        (reminder,) = hooks.hook.contribute(ctx=messages)
        async with lock:
            attachment = list(pinned.values())
        extras = (Message.user(*attachment), Message.system(reminder))
        request = ModelRequest(messages=(*extras, *messages))
        if reads:
            reply = await read_along(client, request)
        else:
            reply = (await client.complete(request)).message
        messages.append(reply)
        for _ in range(events):
            if tell is not None:
                await tell(object())
        calls = reply.calls
        if not calls:
            return
        with anyio.fail_after(120):
            output = await floor_work(Arguments.model_validate_json(calls[0].arguments))
        messages.append(Message.user(ToolResultPart(calls[0].id, "work", output)))


async def floor_run() -> None:
    await floor(None, 0)


def floor_stream(events: int, *, reads: bool) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        send, receive = anyio.create_memory_object_stream[object](16)

        async def produce() -> None:
            async with send:
                await floor(send.send, events, reads=reads)

        async with anyio.create_task_group() as group:
            group.start_soon(produce)
            async for _ in receive:
                pass

    return run


def measured(once: Callable[[], Awaitable[None]], backend: str) -> list[float]:
    """Seconds from each tool call to the next, of one run of all turns."""
    stamps.clear()
    gc.collect()
    anyio.run(once, backend=backend)
    return [after - before for before, after in pairwise(stamps)]


def medians(samples: list[list[float]]) -> list[float]:
    return [
        statistics.median(t for sample in samples for t in sample[low:high])
        for low, high in WINDOWS
    ]


def report(name: str, ours: list[float], base: list[float]) -> None:
    print(f"\n{name:>14}   loopctl µs   floor µs   ratio")
    for (low, high), mine, theirs in zip(WINDOWS, ours, base, strict=True):
        print(
            f"turns {low:>3}–{high:<4}   {mine * 1e6:10.1f} {theirs * 1e6:10.1f}"
            f"   {mine / theirs:5.2f}"
        )
    print(
        f"last turns next to the first: {ours[-1] / ours[0]:.2f} (floor {base[-1] / base[0]:.2f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--backend", default="asyncio", choices=["asyncio", "trio"])
    options = parser.parse_args()
    events = round(anyio.run(events_per_turn, backend=options.backend))
    print(f"{options.backend}, {options.runs} runs of {TURNS} turns, {events} events a turn")
    pairs = (
        ("run()", loopctl_run, floor_run),
        ("stream()", loopctl_stream, floor_stream(events, reads=False)),
        ("both reading", loopctl_stream, floor_stream(events, reads=True)),
    )
    for name, ours, base in pairs:
        mine: list[list[float]] = []
        theirs: list[list[float]] = []
        for number in range(options.runs + 1):
            pair = (measured(ours, options.backend), measured(base, options.backend))
            if number:  # the first pair warms up
                mine.append(pair[0])
                theirs.append(pair[1])
        report(name, medians(mine), medians(theirs))


if __name__ == "__main__":
    main()
