"""MOD-26: reasoning is sent back only behind what it answered."""

from __future__ import annotations

import pickle

from loopctl.messages import Message, ThinkingPart
from loopctl.models.binding import RunningDigest
from loopctl.replies import StopReason
from loopctl.wire.accumulator import Accumulator
from loopctl.wire.stream_events import MessageStart, MessageStop, PartDelta, Stop

QUESTION, OTHER = Message.user("q"), Message.user("other")


def sealed(digest: RunningDigest, model: str = "m") -> ThinkingPart:
    """Reasoning that came for what `digest` has seen so far."""
    return ThinkingPart("hm", signature="s", provider="p", model=model, prefix=digest.value)


def after(*messages: Message, fixed: tuple[bytes, ...] = (b"system", b"tools")) -> RunningDigest:
    digest = RunningDigest(fixed)
    for message in messages:
        digest.add(message, message.text.encode())
    return digest


def test_reasoning_is_held_behind_the_same_bytes_only() -> None:
    """MOD-26: system, tools, every message, and their order count."""
    part = sealed(after(QUESTION, OTHER))
    assert after(QUESTION, OTHER).holds(part, "m")
    assert after(Message.user("q"), Message.user("other")).holds(part, "m")
    for changed in (
        after(OTHER, QUESTION),
        after(QUESTION),
        after(QUESTION, OTHER, OTHER),
        after(QUESTION, OTHER, fixed=(b"system",)),
        after(QUESTION, OTHER, fixed=(b"systemtools", b"")),
        after(Message.user("qother")),
    ):
        assert not changed.holds(part, "m")


def test_reasoning_of_another_model_is_not_held() -> None:
    """MOD-26: it is bound to the model that was asked."""
    assert not after(QUESTION).holds(sealed(after(QUESTION)), "another")


def test_unbound_reasoning_is_always_held() -> None:
    """MOD-26: what has no digest is bound to nothing."""
    assert after(OTHER).holds(ThinkingPart("hm", provider="p", model="x"), "m")


def test_what_was_bound_to_reasoning_that_is_left_out_goes_with_it() -> None:
    """MOD-26: all later bound parts too; what came after the cut stays."""
    first = after(QUESTION)
    one = Message.assistant(sealed(first), "a")
    first.add(one, b"with reasoning")
    later = sealed(first)
    cut = after(OTHER)
    assert not cut.holds(sealed(after(QUESTION)), "m")
    cut.add(one, b"without")
    assert not cut.holds(later, "m")
    new = sealed(cut)
    again = after(OTHER)
    again.add(one, b"without")
    assert again.holds(new, "m")


def test_what_belongs_to_no_message_counts_too() -> None:
    """MOD-26: a dialect's own words between messages are part of what was sent."""
    digest = after(QUESTION)
    digest.add_bytes(b"go on")
    assert digest.value != after(QUESTION).value


def test_a_message_is_read_once_for_the_same_bytes() -> None:
    """MOD-23, MOD-26: the digest of a long conversation is a chain of links that are kept."""
    fragment = b"x" * 1000
    first = RunningDigest([b"a"])
    first.add(QUESTION, fragment)
    link = next(value for value in QUESTION.memo.values() if value[0] is fragment)
    again = RunningDigest([b"a"])
    again.add(QUESTION, fragment)
    assert next(value for value in QUESTION.memo.values() if value[0] is fragment) is link
    elsewhere = RunningDigest([b"b"])
    elsewhere.add(QUESTION, fragment)
    assert elsewhere.value != first.value == again.value
    assert RunningDigest([b"b"]).value != elsewhere.value
    assert pickle.loads(pickle.dumps(QUESTION)).memo == {}


def test_thinking_of_a_reply_carries_digest_and_model() -> None:
    """MOD-26: the model by the name that it was asked by, not a snapshot's."""
    accumulator = Accumulator()
    for event in (
        MessageStart("m-2026-01-01", "id", "p", None, "digest", "m"),
        PartDelta("thinking", 0, "hm", signature="s"),
        Stop(StopReason.END),
        MessageStop(),
    ):
        accumulator.feed(event)
    response = accumulator.response()
    assert response.model == "m-2026-01-01"
    (part,) = response.message.parts
    assert part == ThinkingPart("hm", "s", provider="p", model="m", prefix="digest")
