"""CTX-28, CTX-29: what a request is taken to cost, at a cost of its own that does not grow."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest

from loopctl import BareLoop, LoopMachine, Message, RatioTokenCounter, SessionConfig, tool
from loopctl.context.estimate import Estimate
from loopctl.models.client import ToolSchema
from loopctl.testing import ScriptedClient, call


class Counting:
    """A counter of one token for each character that remembers how often it was asked."""

    def __init__(self) -> None:
        self.messages = 0
        self.texts = 0

    def count(self, message: Message) -> float:
        self.messages += 1
        return len(message.text)

    def count_text(self, text: str) -> float:
        self.texts += 1
        return len(text)


class EqualToAll(Counting):
    """A counter that says it is equal to every other, and cannot be hashed."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True


class Growing:
    """A conversation that counts the messages that it hands out."""

    def __init__(self, messages: list[Message]) -> None:
        self.messages = messages
        self.edition = 0
        self.given = 0

    @property
    def count(self) -> int:
        return len(self.messages)

    def tail(self, start: int) -> Sequence[Message]:
        self.given += len(self.messages) - start
        return self.messages[start:]


def machine(size: int) -> LoopMachine:
    past = [Message.user(f"{n}") if n % 2 == 0 else Message.assistant(f"{n}") for n in range(size)]
    return LoopMachine(past)


def test_a_conversation_that_grew_is_counted_from_where_it_was() -> None:
    """CTX-29: 1,000 old messages are neither counted nor looked at when two new ones come."""
    counter = Counting()
    past = [Message.user("a") if n % 2 == 0 else Message.assistant("b") for n in range(1_000)]
    estimate, grown = Estimate(counter), Growing(past)
    assert estimate.conversation(grown) == 1_000
    assert (counter.messages, grown.given) == (1_000, 1_000)
    for turn in range(1, 50):
        grown.messages += [Message.user("four"), Message.assistant("four")]
        assert estimate.conversation(grown) == 1_000 + 8 * turn
        assert (counter.messages, grown.given) == (1_000 + 2 * turn, 1_000 + 2 * turn)


def test_the_machine_is_a_conversation_that_grows() -> None:
    """CTX-29: as above, with the machine itself."""
    counter = Counting()
    estimate, grown = Estimate(counter), machine(1_000)
    before = estimate.conversation(grown)
    grown.begin(Message.user("four"))
    assert estimate.conversation(grown) == before + 4
    assert counter.messages == 1_001


def test_a_conversation_that_was_rewritten_is_counted_anew_but_no_message_twice() -> None:
    """CTX-29: memos by identity."""
    counter = Counting()
    estimate, edited = Estimate(counter), machine(100)
    estimate.conversation(edited)
    kept = edited.history[:10]
    edited.replace([*kept, Message.user("new ones")])
    assert estimate.conversation(edited) == sum(len(m.text) for m in edited.history)
    assert counter.messages == 101


def test_rewriting_to_the_same_length_is_noticed() -> None:
    """CTX-29: a pass may shorten a message in the middle and leave the last one."""
    estimate = Estimate(RatioTokenCounter(1, per_message=0))
    past = [Message.user("a" * 100), Message.assistant("b" * 100), Message.user("c")]
    edited = LoopMachine(past)
    assert estimate.conversation(edited) == 201
    edited.replace([past[0], Message.assistant("b"), past[2]])
    assert estimate.conversation(edited) == 102


def test_equal_messages_and_equal_counters_share_nothing() -> None:
    """CTX-29: never by equality; one counter's figures are not another's."""
    first, second = EqualToAll(), EqualToAll()
    message, twin = Message.user("hello"), Message.user("hello")
    for counter in (first, second):
        estimate = Estimate(counter)
        assert estimate.messages([message, twin, message]) == 15
        assert counter.messages == 2
    again = Estimate(first)
    again.messages([message])
    assert first.messages == 2, "one counter counts a message once, in whichever session"


def test_the_system_prompt_and_the_schemas_are_counted_once() -> None:
    """CTX-29, J2: until they change."""
    counter = Counting()
    estimate = Estimate(counter)
    tools = (ToolSchema(name="look", description="Look.", input_schema={"type": "object"}),)
    size = estimate.fixed("be brief", tools)
    assert size == len("be brief") + len("look") + len("Look.") + len('{"type":"object"}')
    asked = counter.texts
    assert estimate.fixed("be brief", tools) == size
    assert counter.texts == asked
    assert estimate.fixed("be very brief", tools) == size + len("very ")
    assert estimate.fixed("be very brief", ()) == len("be very brief")
    assert estimate.fixed(None, ()) == 0


@pytest.mark.parametrize(
    ("reports", "calibration"),
    [
        ([], 1.0),
        ([(150, 100.0)], 1.5),
        ([(100, 100.0), (200, 100.0)], 1.5),
        ([(200, 100.0), (100, 100.0), (100, 100.0)], 1.25),
        ([(1, 100.0)], 0.25),
        ([(10_000, 100.0)], 4.0),
        ([(0, 100.0), (None, 100.0), (10, 0.0)], 1.0),
    ],
)
def test_real_usage_teaches_within_bounds(
    reports: list[tuple[int | None, float]], calibration: float
) -> None:
    """CTX-28: the first report adopted, later ones half-way; no report teaches nothing."""
    estimate = Estimate(Counting())
    for reported, raw in reports:
        estimate.learn(reported, raw)
    assert estimate.calibration == pytest.approx(calibration)


def test_every_figure_is_calibrated_with_what_was_learnt() -> None:
    """CTX-28, CMP-1: one counter and one calibration, for the driver and for compactors."""
    estimate = Estimate(Counting())
    counter = estimate.counter
    message = Message.user("hello")
    estimate.learn(200, 100.0)
    assert estimate.messages([message]) == 10
    assert counter.count(message) == 10
    assert counter.count_text("hi") == 4
    assert estimate.fixed("abc", ()) == 6
    assert estimate.raw_messages([message]) == 5


@pytest.mark.anyio
async def test_a_turn_asks_the_counter_for_what_is_new_alone() -> None:
    """CTX-29: over 60 turns the counter is asked about each message once."""

    @tool
    async def work() -> str:
        """Work."""
        return "done"

    counter = Counting()
    client = ScriptedClient(*[call("work")] * 59, "finished")
    agent = BareLoop(client, [work], SessionConfig(context_window=10**6), counter=counter)
    asked: list[int] = []
    agent.add_contributor(lambda ctx: asked.append(counter.messages))
    await agent.run("go")
    assert len(asked) == 60
    steps = {after - before for before, after in pairwise(asked[1:])}
    assert steps == {2}
