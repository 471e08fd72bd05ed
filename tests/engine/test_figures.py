"""What the driver measures for the machine, and what comes of it (CTX-28, CTX-32, CTX-33, CMP-1).

One character is one token here, and messages cost nothing beside their text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from loopctl import (
    BareLoop,
    CompactionContext,
    Contribution,
    InMemoryStore,
    MemoryAttachment,
    MemoryEntry,
    Message,
    RatioTokenCounter,
    SessionConfig,
    hookimpl,
    tool,
)
from loopctl.context.recall import PREAMBLE
from loopctl.errors import ContextOverflowError
from loopctl.events import CompactionFinished, CompactionStarted, Event, TurnDeferred, TurnStarted
from loopctl.messages import ToolCallPart
from loopctl.models.client import ModelRequest
from loopctl.replies import ModelResponse
from loopctl.testing import ScriptedClient, call
from loopctl.usage import Usage

pytestmark = pytest.mark.anyio

CHARS = RatioTokenCounter(1, per_message=0)


class Keeps:
    """A compactor that keeps the first message and the last few; 0 is all. It counts passes."""

    def __init__(self, *last: int) -> None:
        self.last = list(last)
        self.asked: list[CompactionContext] = []
        self.seen: list[Sequence[Message]] = []

    async def compact(
        self, messages: Sequence[Message], target: int, ctx: CompactionContext
    ) -> Sequence[Message]:
        self.asked.append(ctx)
        self.seen.append(messages)
        last = self.last.pop(0) if self.last else 0
        return [messages[0], *messages[-last:]] if last else messages


class Listening:
    def __init__(self) -> None:
        self.heard: list[Event] = []

    @hookimpl
    def on_event(self, event: Event) -> None:
        self.heard.append(event)

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.heard if isinstance(event, kind)]


def history(runs: int) -> list[Message]:
    """Runs of 1,000 characters each."""
    pairs = [(Message.user("q" * 500), Message.assistant("a" * 500)) for _ in range(runs)]
    return [message for pair in pairs for message in pair]


def session(client: ScriptedClient, compactor: Keeps, **given: Any) -> tuple[BareLoop, Listening]:
    listening = Listening()
    config = SessionConfig(context_window=8_000)
    options: dict[str, Any] = {"counter": CHARS, "retry": None, "plugins": [listening]} | given
    return BareLoop(client, config=config, compactor=compactor, **options), listening


async def test_detaching_an_attachment_lets_the_next_turn_try_a_pass_again() -> None:
    """CTX-32: the latch clears when the attachments shrink, not when they stay as they are."""
    compactor = Keeps()
    pinned = [MemoryAttachment("a", "a" * 900), MemoryAttachment("b", "b" * 200)]
    agent, _ = session(
        ScriptedClient("1", "2", "3", "4"), compactor, history=history(6), attachments=pinned
    )
    await agent.run("go")
    await agent.run("on")
    assert len(compactor.asked) == 1
    await agent.detach_attachment("memory:b")
    await agent.run("on")
    assert len(compactor.asked) == 2
    await agent.run("on")
    assert len(compactor.asked) == 2


async def test_a_pass_that_leaves_no_room_for_what_rides_sets_the_latch() -> None:
    """CTX-32: the payload must come under L, not the conversation alone."""
    compactor = Keeps(7)
    agent, listening = session(ScriptedClient("1", "2"), compactor, history=history(6))
    agent.add_contributor(lambda ctx: "n" * 3_000)
    await agent.run("go")
    await agent.run("on")
    assert len(compactor.asked) == 1
    assert [event.over_line > 0 for event in listening.of(TurnStarted)] == [True, True]


async def test_a_larger_refusal_does_not_widen_the_window_again() -> None:
    """CTX-33: W becomes the smaller of what it was and 95 % of the refused estimate."""
    refused = ContextOverflowError("prompt is too long")
    compactor = Keeps(1, 1)
    agent, _ = session(
        ScriptedClient(refused, "1", refused, "2"), compactor, history=history(5), plugins=[]
    )
    await agent.run("go")
    agent.add_contributor(lambda ctx: "n" * 9_000)
    agent.replace_history(history(2))
    await agent.run("on")
    assert [ctx.window for ctx in compactor.asked] == [5_002 * 95 // 100] * 2


async def test_a_window_that_the_client_learns_in_the_run_counts_from_the_next_turn() -> None:
    """CTX-30: what the client knows of its model now."""

    @tool
    async def work() -> str:
        """Work."""
        return "done"

    def learns(request: ModelRequest) -> ToolCallPart:
        client.context_window = 4_000
        return call("work")

    client = ScriptedClient(learns, "done", context_window=8_000)
    compactor = Keeps()
    agent = BareLoop(
        client, [work], counter=CHARS, retry=None, history=history(3), compactor=compactor
    )
    await agent.run("i" * 600)
    assert [(ctx.window, ctx.turn) for ctx in compactor.asked] == [(4_000, 1)]


async def test_one_counter_and_one_calibration_serve_the_driver_and_the_compactor() -> None:
    """CMP-1, CTX-28: sizes before and after are the driver's own, by the compactor's counter."""
    usage = Usage(input_tokens=1_501, output_tokens=1)
    first = ModelResponse(message=Message.assistant("a"), usage=usage)
    compactor = Keeps(1)
    agent, listening = session(ScriptedClient(first, "b"), compactor, history=history(1))
    await agent.run("x")  # 1,001 characters: a token is two thirds of one from now on
    calibration = 1_501 / 1_001
    await agent.run("y" * 4_400)
    ((ctx,), (given,)) = compactor.asked, compactor.seen
    assert ctx.counter.count(Message.user("z" * 1_000)) == pytest.approx(1_000 * calibration)
    size = math.ceil(5_402 * calibration)
    (started,), (finished,) = listening.of(CompactionStarted), listening.of(CompactionFinished)
    assert ctx.size == started.tokens == finished.before == size
    kept = [given[0], given[-1]]
    assert finished.after == math.ceil(sum(map(ctx.counter.count, kept)))


async def test_what_a_reply_adds_is_no_part_of_what_calibrates() -> None:
    """CTX-28: reported input ÷ our figure for that request: prompt, tools, conversation, extras."""
    usage = Usage(input_tokens=2 * (100 + 300 + 50 + 40), output_tokens=1)
    reply = ModelResponse(message=Message.assistant("a" * 5_000), usage=usage)
    agent, _ = session(
        ScriptedClient(reply),
        Keeps(),
        system="s" * 100,
        attachments=[MemoryAttachment("n", "m" * (50 - len("[memory: n]\n")))],
    )
    agent.add_contributor(lambda ctx: "c" * 40)
    await agent.run("i" * 300)
    assert (await agent.explain("more")).calibration == pytest.approx(2.0)


async def test_the_calibration_is_in_every_part_of_the_payload() -> None:
    """CTX-28, CTX-29: F, C and X alike; what rides at the tail and from memory counts too."""
    reply = ModelResponse(message=Message.assistant("a" * 100), usage=Usage(input_tokens=3_000))
    client = ScriptedClient(reply, "b")
    store = InMemoryStore([MemoryEntry(id="m", text="m" * 100)])
    agent, listening = session(client, Keeps(), system="s" * 1_000, memory=store)
    agent.add_contributor(lambda ctx: Contribution(Message.user("c" * 3_000), "tail"))
    remembered = len(PREAMBLE) + len("\n- (fact) ") + 100
    await agent.run("i" * 200)  # the first report is 3,000 for all of this
    calibration = 3_000 / (1_000 + 200 + 3_000 + remembered)
    payload = math.ceil(1_000 * calibration) + math.ceil(6_400 * calibration)
    payload += math.ceil((3_000 + remembered) * calibration)
    await agent.run("i" * 6_100)
    (deferred,) = listening.of(TurnDeferred)
    assert deferred.tokens == payload
