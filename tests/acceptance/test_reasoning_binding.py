"""MOD-26: reasoning that is bound to its prefix, in whole runs against servers of each vendor.

Every test says which thoughts each request sends: those that came in the replies before, by their
number, to the byte. Beside that every request must be one that the vendor takes, and the history
keeps all thoughts whatever was sent.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel

from loopctl import (
    BareLoop,
    CompactionContext,
    Contribution,
    ContributorContext,
    FallbackChain,
    FileAttachment,
    MemoryEntry,
    Message,
    RequestOptions,
    RetryPolicy,
    RunConfig,
    SessionConfig,
    ToolContext,
    tool,
)
from loopctl.events import AttemptReset, CompactionFinished
from loopctl.memory.types import ConsolidationStats
from loopctl.messages import ThinkingPart, ToolResultPart
from loopctl.models.client import ModelClient
from loopctl.testing import ByteServer, Close, Playable, call
from tests.acceptance.bound_vendors import VENDORS, Vendor

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.name),
]

ONCE = RetryPolicy(retries=0, rate_limit_retries=0)
AT_ONCE = RetryPolicy(base_delay=0)
FAT = "word " * 2_000


@tool
async def look() -> str:
    """Look around."""
    return "a door"


@tool
async def read() -> str:
    """Read everything."""
    return FAT


class Bench:
    """A server that has its script, a client of it, and what came."""

    def __init__(self, vendor: Vendor, server: ByteServer, client: ModelClient) -> None:
        self.vendor = vendor
        self.server = server
        self.client = client

    def another(self, model: str) -> ModelClient:
        """A client for another model of the same server."""
        return self.vendor.connect(self.server.url, model)

    def sent(self) -> list[list[int]]:
        """Which thoughts each request sent so far. Nothing in it is what the vendor refuses."""
        requests = self.server.requests
        assert [self.vendor.refusals(request) for request in requests] == [[] for _ in requests]
        return [self.vendor.sent(request) for request in requests]


@asynccontextmanager
async def played(vendor: Vendor, *scripts: Playable) -> AsyncGenerator[Bench]:
    async with ByteServer(*scripts) as server:
        client = vendor.connect(server.url, vendor.model)
        yield Bench(vendor, server, client)
        await client.aclose()


def thoughts(messages: Sequence[Message]) -> list[str | None]:
    """The signatures of all thinking of a conversation."""
    return [
        part.signature
        for message in messages
        for part in message.parts
        if isinstance(part, ThinkingPart)
    ]


def two_runs(vendor: Vendor, *, called: str = "look") -> list[Playable]:
    """A run of three turns, and one of two."""
    return [
        vendor.says(0, "Let me see.", call(called, id="c0")),
        vendor.says(1, call(called, id="c1"), call("look", id="c2")),
        vendor.says(2, "There is a door."),
        vendor.says(3, call(called, id="c3")),
        vendor.says(4, "Still there."),
    ]


ALL = [[], [0], [0, 1], [0, 1, 2], [0, 1, 2, 3]]
"""What the requests of `two_runs` send when nothing in front of a thought changes."""
NONE: list[list[int]] = [[], [], [], [], []]
"""What they send when it changes with every turn."""


async def run_twice(bench: Bench, agent: BareLoop) -> None:
    """Both runs of `two_runs`; history has every thought in the end."""
    await agent.run("What do you see?")
    await agent.run("And now?")
    assert thoughts(agent.history) == [bench.vendor.thought(n).signature for n in range(5)]


class Remembered:
    """A store that gives `entries` in their order, the last of them for ever."""

    def __init__(self, *entries: str) -> None:
        self.entries = [MemoryEntry(id=f"m{n}", text=text) for n, text in enumerate(entries)]

    async def store(self, entry: MemoryEntry) -> None:
        raise NotImplementedError

    async def retrieve(self, query: str, limit: int) -> Sequence[MemoryEntry]:
        return [self.entries.pop(0) if len(self.entries) > 1 else self.entries[0]]

    async def consolidate(self) -> ConsolidationStats:
        raise NotImplementedError


def note(text: str) -> FileAttachment:
    return FileAttachment.inline("note.txt", text)


Contributor = Callable[[ContributorContext], Any]


def steady_system(ctx: ContributorContext) -> str:
    return "Speak plainly."


def steady_user(ctx: ContributorContext) -> Message:
    return Message.user("Speak plainly.")


def quiet(ctx: ContributorContext) -> None:
    return None


def changing_system(ctx: ContributorContext) -> str:
    return f"Turn {ctx.turn}, {len(ctx.conversation)} messages."


def changing_user(ctx: ContributorContext) -> Message:
    return Message.user(f"Turn {ctx.turn}, {len(ctx.conversation)} messages.")


def steady_tail(ctx: ContributorContext) -> Contribution:
    return Contribution(Message.user("Speak plainly."), placement="tail")


def system_tail(ctx: ContributorContext) -> Contribution:
    return Contribution(Message.system("Speak plainly."), placement="tail")


TAIL = SessionConfig(attachment_placement="tail", memory_placement="tail")

STEADY: dict[str, tuple[tuple[Contributor, ...], Callable[[], dict[str, Any]]]] = {
    "nothing": ((), dict),
    "a system message of a contributor": ((steady_system,), dict),
    "a user message of a contributor": ((steady_user,), dict),
    "several contributors": ((steady_user, quiet, steady_system), dict),
    "an attachment": ((), lambda: {"attachments": [note("one")]}),
    "memory": ((), lambda: {"memory": Remembered("one")}),
    "all of them": (
        (steady_system, steady_user),
        lambda: {"attachments": [note("one")], "memory": Remembered("one"), "system": "Be brief."},
    ),
}


@pytest.mark.parametrize("rides", STEADY)
async def test_reasoning_lives_behind_a_steady_head(vendor: Vendor, rides: str) -> None:
    """MOD-26, CTX-7: over several turns and runs, whatever rides in front of the conversation."""
    contributors, given = STEADY[rides]
    async with played(vendor, *two_runs(vendor)) as bench:
        agent = BareLoop(bench.client, [look], **given())
        for contributor in contributors:
            agent.add_contributor(contributor)
        await run_twice(bench, agent)
        assert bench.sent() == ALL


CHANGING: dict[str, tuple[tuple[Contributor, ...], Callable[[], dict[str, Any]]]] = {
    "another system message at the head": ((changing_system,), dict),
    "another user message at the head": ((changing_user,), dict),
    "a contributor at the tail": ((steady_tail,), dict),
    "a contributor's system text at the tail": ((system_tail,), dict),
    "an attachment at the tail": ((), lambda: {"attachments": [note("one")], "config": TAIL}),
    "memory at the tail": ((), lambda: {"memory": Remembered("one"), "config": TAIL}),
    "other memory at the head": (
        (),
        lambda: {"memory": Remembered("one", "two", "three", "four", "five")},
    ),
}


@pytest.mark.parametrize("rides", CHANGING)
async def test_a_changing_head_and_any_tail_end_reasoning_with_its_turn(
    vendor: Vendor, rides: str
) -> None:
    """MOD-26, CTX-7: a tail is gone from where it stood, however steady it is."""
    contributors, given = CHANGING[rides]
    async with played(vendor, *two_runs(vendor)) as bench:
        agent = BareLoop(bench.client, [look], **given())
        for contributor in contributors:
            agent.add_contributor(contributor)
        await run_twice(bench, agent)
        assert bench.sent() == NONE


async def test_what_changes_between_runs_ends_what_came_before_alone(vendor: Vendor) -> None:
    """MOD-26: reasoning that came behind the new head lives on behind it."""
    said = ["one"]

    def contribute(ctx: ContributorContext) -> str:
        return said[-1]

    async with played(vendor, *two_runs(vendor), vendor.says(5, "Yes."), vendor.says(6)) as bench:
        agent = BareLoop(bench.client, [look])
        agent.add_contributor(contribute)
        await agent.run("What do you see?")
        said.append("two")
        await agent.run("And now?")
        await agent.run("Sure?")
        assert bench.sent() == [[], [0], [0, 1], [], [3], [3, 4]]


async def test_a_contributor_that_speaks_up_later_changes_the_head(vendor: Vendor) -> None:
    """MOD-26: its word ends what came without it, and its silence what came with it."""

    def sometimes(ctx: ContributorContext) -> str | None:
        return "Speak plainly." if ctx.turn == 1 else None

    async with played(vendor, *two_runs(vendor)) as bench:
        agent = BareLoop(bench.client, [look])
        agent.add_contributor(sometimes)
        await run_twice(bench, agent)
        # In the last request the head is what it was in the second, and so is what follows it up
        # to thought 1; the thoughts of quiet turns are out.
        assert bench.sent() == [[], [], [0], [0, 2], [1]]


async def test_an_attachment_counts_by_what_it_says(vendor: Vendor) -> None:
    """MOD-26, CTX-14: pinned again as it was it changes nothing, with other words everything."""
    texts = iter(["one", "two", "two"])

    @tool
    async def look(ctx: ToolContext) -> str:
        """Look around."""
        await ctx.set_attachment(note(next(texts)))
        return "a door"

    scripts = [
        vendor.says(0, call("look", id="c0")),  # one, as before
        vendor.says(1, call("look", id="c1")),  # two
        vendor.says(2, call("look", id="c2")),  # two, as before
        vendor.says(3, "A door."),
        vendor.says(4, "Yes."),
    ]
    async with played(vendor, *scripts) as bench:
        agent = BareLoop(bench.client, [look], attachments=[note("one")])
        await agent.run("What do you see?")
        await agent.detach_attachment("file:note.txt")
        await agent.run("And now?")
        assert bench.sent() == [[], [0], [], [2], []]


async def test_another_list_of_tools_ends_reasoning(vendor: Vendor) -> None:
    """MOD-26: between runs and in the middle of one; what came behind the new list lives."""

    @tool
    async def learn(ctx: ToolContext) -> str:
        """Learn to read."""
        agent.tools.register(read)
        return "done"

    scripts = [
        vendor.says(0, call("look", id="c0")),
        vendor.says(1, call("learn", id="c1")),
        vendor.says(2, call("look", id="c2")),
        vendor.says(3, "A door."),
        vendor.says(4, "Still."),
        vendor.says(5, "Still."),
    ]
    async with played(vendor, *scripts) as bench:
        agent = BareLoop(bench.client, [look, learn])
        await agent.run("What do you see?")
        await agent.run("And now?")
        agent.tools.unregister("read")
        await agent.run("And now?")
        assert bench.sent() == [[], [0], [], [2], [2, 3], [0, 1]]


async def test_another_system_text_ends_reasoning(vendor: Vendor) -> None:
    """MOD-26: a session that goes on from the history of another one with its own prompt."""
    async with played(vendor, *two_runs(vendor), vendor.says(5, "Yes.")) as bench:
        first = BareLoop(bench.client, [look], system="Be brief.")
        await first.run("What do you see?")
        same = BareLoop(bench.client, [look], system="Be brief.", history=first.history)
        await same.run("And now?")
        other = BareLoop(bench.client, [look], system="Be kind.", history=first.history)
        await other.run("And now?")
        assert bench.sent() == [*ALL, []]


async def test_a_conversation_that_was_stored_stays_bound(vendor: Vendor) -> None:
    """MOD-26, MOD-2: to JSON and back, into a new session with a client of its own."""
    async with played(vendor, *two_runs(vendor)) as bench:
        first = BareLoop(bench.client, [look], attachments=[note("one")])
        await first.run("What do you see?")
        stored = [message.to_json() for message in first.history]
        loaded = [Message.from_json(document) for document in stored]
        assert loaded == [*first.history]
        client = bench.another(vendor.model)
        second = BareLoop(client, [look], attachments=[note("one")], history=loaded)
        await second.run("And now?")
        assert thoughts(second.history) == [vendor.thought(n).signature for n in range(5)]
        assert bench.sent() == ALL
        await client.aclose()


async def test_the_thoughts_of_one_reply_stay_or_go_together(vendor: Vendor) -> None:
    """MOD-26, MOD-20: no vendor takes a part of them."""
    thought = vendor.thought
    parts = (thought(0), "Let me see.", thought(1), call("look", id="c0"), thought(2))
    scripts = [
        vendor.answers(*parts, call("look", id="c1")),
        vendor.says(3, "A door."),
        vendor.says(4, call("look", id="c2")),
        vendor.says(5, "Yes."),
    ]
    async with played(vendor, *scripts) as bench:
        agent = BareLoop(bench.client, [look])
        await agent.run("What do you see?")
        await agent.set_attachment(note("one"))
        await agent.run("And now?")
        assert bench.sent() == [[], [0, 1, 2], [], [4]]


# -- the conversation itself ------------------------------------------------------------------


class Shorten:
    """A compactor that cuts the result of the call `id`, and does nothing else."""

    def __init__(self, id: str) -> None:
        self.id = id

    async def compact(
        self, messages: Sequence[Message], target: int, ctx: CompactionContext
    ) -> Sequence[Message]:
        return [
            Message(m.role, [self._cut(part) for part in m.parts]) if self._has(m) else m
            for m in messages
        ]

    def _has(self, message: Message) -> bool:
        return any(result.call_id == self.id for result in message.results)

    def _cut(self, part: Any) -> Any:
        if isinstance(part, ToolResultPart) and part.call_id == self.id:
            return replace(part, content="(cut)")
        return part


async def test_a_pass_ends_the_reasoning_behind_what_it_cut(vendor: Vendor) -> None:
    """MOD-26, CMP-7: by hand, between two runs; what stands in front of the cut lives."""
    async with played(vendor, *two_runs(vendor, called="read")) as bench:
        agent = BareLoop(bench.client, [read, look], compactor=Shorten("c1"))
        await agent.run("What do you see?")
        assert (await agent.compact()).after is not None
        await agent.run("And now?")
        assert thoughts(agent.history) == [vendor.thought(n).signature for n in range(5)]
        assert bench.sent() == [[], [0], [0, 1], [0, 1], [0, 1, 3]]


async def test_a_pass_in_the_middle_of_a_run_ends_reasoning_too(vendor: Vendor) -> None:
    """MOD-26, CTX-31: at the window's line, with the compactor that comes with it."""
    # the server reports one token for anything, so a quarter of the estimate counts
    config = SessionConfig(context_window=1_500)
    scripts = [*two_runs(vendor, called="read")[:3], vendor.says(3, "Yes.")]
    async with played(vendor, *scripts) as bench:
        agent = BareLoop(bench.client, [read, look], config)
        passes: list[CompactionFinished] = []
        async with agent.stream("What do you see?") as stream:
            async for event in stream:
                if isinstance(event, CompactionFinished):
                    passes.append(event)
        await agent.run("Sure?")
        assert [event.turn for event in passes] == [2]
        assert bench.sent() == [[], [0], [0], [0, 2]]
        assert thoughts(agent.history) == [vendor.thought(n).signature for n in range(4)]


async def test_a_salvage_ends_reasoning_too(vendor: Vendor) -> None:
    """MOD-26, CTX-33: the turn that the provider refused is sent again without it."""
    scripts = [*two_runs(vendor, called="read")[:2], vendor.too_long, vendor.says(3, "A door.")]
    async with played(vendor, *scripts) as bench:
        agent = BareLoop(bench.client, [read, look], compactor=Shorten("c0"))
        await agent.run("What do you see?")
        assert bench.sent() == [[], [0], [0, 1], [0]]


async def test_a_history_that_was_edited_ends_the_reasoning_behind_the_edit(
    vendor: Vendor,
) -> None:
    """MOD-26: by hand; what stands in front of it lives."""
    async with played(vendor, *two_runs(vendor)) as bench:
        agent = BareLoop(bench.client, [look])
        await agent.run("What do you see?")
        messages = [*agent.history]
        messages[4] = with_other_results(messages[4])
        agent.replace_history(messages)
        await agent.run("And now?")
        assert bench.sent() == [[], [0], [0, 1], [0, 1], [0, 1, 3]]


def with_other_results(message: Message) -> Message:
    """The same results with other words."""
    return Message(message.role, [replace(result, content="a wall") for result in message.results])


async def test_steering_ends_nothing(vendor: Vendor) -> None:
    """MOD-26, CTX-23: a word of the user's stands behind what came before, and stays."""

    @tool
    async def look() -> str:
        """Look around."""
        agent.steer("Look again.")
        return "a door"

    async with played(vendor, *two_runs(vendor)) as bench:
        agent = BareLoop(bench.client, [look])
        await run_twice(bench, agent)
        assert b"Look again." in bench.server.requests[1].body
        assert bench.sent() == ALL


class Seen(BaseModel):
    thing: str


async def test_a_typed_answer_and_its_repair_end_nothing(vendor: Vendor) -> None:
    """MOD-26, ENG-10: the schema of a reply is an option, and options bind nothing."""
    scripts = [
        vendor.says(0, call("look", id="c0")),
        vendor.says(1, '{"thing": 1}'),
        vendor.says(2, '{"thing": "a door"}'),
        vendor.says(3, "Yes."),
    ]
    async with played(vendor, *scripts) as bench:
        agent = BareLoop(bench.client, [look])
        run = await agent.run("What do you see?", output=Seen)
        assert run.output == Seen(thing="a door")
        await agent.run("Sure?")
        assert bench.sent() == ALL[:4]


async def test_a_type_that_must_be_asked_for_in_words_has_a_prompt_of_its_own(
    vendor: Vendor,
) -> None:
    """MOD-26, ENG-10: reasoning lives inside such a run, and comes back when it is over."""
    scripts = [
        vendor.says(0, "A door."),
        vendor.says(1, call("look", id="c1")),
        vendor.says(2, '{"door": {"open": true}}'),
        vendor.says(3, "Yes."),
    ]
    async with played(vendor, *scripts) as bench:
        agent = BareLoop(bench.client, [look])
        await agent.run("What do you see?")
        run = await agent.run("What else?", output=dict[str, Any])
        assert run.output == {"door": {"open": True}}
        await agent.run("Sure?")
        assert bench.sent() == (ALL[:4] if vendor.any_schema else [[], [], [1], [0]])


async def test_options_end_nothing(vendor: Vendor) -> None:
    """MOD-26: effort, output cap and choice of tools are not part of the prefix."""
    config = RunConfig(
        options=RequestOptions(thinking_effort="high", max_output_tokens=1_000, tool_choice="auto")
    )
    async with played(vendor, *two_runs(vendor)) as bench:
        agent = BareLoop(bench.client, [look])
        await agent.run("What do you see?")
        await agent.run("And now?", config)
        assert bench.sent() == ALL


async def test_strict_tools_are_another_list_of_tools(vendor: Vendor) -> None:
    """MOD-26: what is sent counts."""
    strict = RunConfig(options=RequestOptions(strict_tools=True))
    async with played(vendor, *two_runs(vendor)) as bench:
        agent = BareLoop(bench.client, [look])
        await agent.run("What do you see?")
        await agent.run("And now?", strict)
        assert bench.sent() == [[], [0], [0, 1], [], [3]]


async def test_an_attempt_that_broke_off_leaves_no_thought(vendor: Vendor) -> None:
    """MOD-26, MOD-15: the same request is made again, and only the last attempt counts."""
    broken = vendor.reply(
        Message.assistant(vendor.thought(9), "half of a long text"), broken_by=Close()
    )
    first, second, *rest = two_runs(vendor)
    async with played(vendor, first, broken, second, *rest) as bench:
        agent = BareLoop(bench.client, [look], retry=AT_ONCE)
        resets = 0
        async with agent.stream("What do you see?") as stream:
            async for event in stream:
                resets += isinstance(event, AttemptReset)
        await agent.run("And now?")
        assert resets == 1
        assert bench.sent() == [[], [0], *ALL[1:]]
        assert bench.server.requests[1].body == bench.server.requests[2].body


# -- models -----------------------------------------------------------------------------------


async def test_another_model_gets_no_reasoning_of_the_first(vendor: Vendor) -> None:
    """MOD-26: by `options.model`; each finds its own again, as far as its prefix is what it was."""
    other = RunConfig(options=RequestOptions(model=vendor.other))
    scripts = [*two_runs(vendor), vendor.says(5, "Yes."), vendor.says(6, "Yes.")]
    async with played(vendor, *scripts) as bench:
        agent = BareLoop(bench.client, [look])
        await agent.run("What do you see?")
        await agent.run("And now?", other)
        await agent.run("Sure?")
        await agent.run("Sure?", other)
        assert bench.sent() == [[], [0], [0, 1], [], [3], [0, 1, 2], [3, 4]]


async def test_a_backup_gets_no_reasoning_of_the_primary(vendor: Vendor) -> None:
    """MOD-26, MOD-18: in the middle of a run; the primary gets its own again, not the backup's."""
    scripts = [
        vendor.says(0, call("look", id="c0")),
        vendor.overloaded,
        vendor.says(2, call("look", id="c1")),  # the backup
        vendor.says(3, call("look", id="c2")),  # the primary
        vendor.says(4, "A door."),
        vendor.says(5, "Yes."),
    ]
    async with played(vendor, *scripts) as bench:
        backup = bench.another(vendor.other)
        chain = FallbackChain(bench.client, [backup], retry=ONCE)
        agent = BareLoop(chain, [look])
        await agent.run("What do you see?")
        await agent.run("Sure?")
        assert bench.sent() == [[], [0], [], [0], [0, 3], [0, 3, 4]]
        assert thoughts(agent.history) == [vendor.thought(n).signature for n in (0, 2, 3, 4, 5)]
        await backup.aclose()
