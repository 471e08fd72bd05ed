"""The compactor that shortens results and drops the middle."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopctl.compaction import SUMMARY_LABEL, CompactReason, TruncatingCompactor, judge
from loopctl.errors import ConfigError
from loopctl.messages import ImagePart, Message, TextPart
from loopctl.testing import assert_valid_conversation, conversations
from tests.compaction.bench import COUNTER, IMAGE, PerChar, asks, compact, result, size, turns

GOAL = Message.user("the goal")
FORCED = [CompactReason.EMERGENCY, CompactReason.SALVAGE]
UNFORCED = [reason for reason in CompactReason if reason not in FORCED]
SUMMARY = Message.user(f"{SUMMARY_LABEL}\nThey spoke of boats.")


def is_tail_of(messages: list[Message], after: list[Message]) -> bool:
    return after == messages[len(messages) - len(after) :]


def test_what_fits_is_returned_as_it_is() -> None:
    """CMP-15: there is nothing to do below the target."""
    messages = [GOAL, *turns(5, 3_000)]
    after = compact(TruncatingCompactor(), messages, 20_000)
    assert all(a is b for a, b in zip(after, messages, strict=True))


def test_fat_results_are_shortened_first_the_largest_first() -> None:
    """CMP-15: as many as the target asks for; no turn is dropped for what a cut can free."""
    messages = [GOAL, *turns(1, 3_000), *turns(1, 9_000), *turns(1, 5_000), *turns(1, 2_000)]
    after = compact(TruncatingCompactor(), messages, 12_500)
    assert len(after) == len(messages)
    assert [len(m.results[0].text) for m in after if m.results] == [3_000, 800, 5_000, 2_000]
    after = compact(TruncatingCompactor(), messages, 8_000)
    assert [len(m.results[0].text) for m in after if m.results] == [3_000, 800, 800, 2_000]


def test_a_shortened_result_is_otherwise_what_it_was() -> None:
    """CMP-15: head, marker, tail; id, name, outcome and the rest stay, and so does its message."""
    text = "HEAD" + "x" * 9_000 + "TAIL"
    fields: dict[str, Any] = {"is_error": True, "outcome": "interrupted", "retention": "requery"}
    messages = [
        GOAL,
        asks("a", "b"),
        Message.user(result("a", text, **fields), result("b", "ok"), "and be quick"),
        *turns(1),
    ]
    after = compact(TruncatingCompactor(), messages, 2_000)
    short, other = after[2].results
    assert short.text.startswith("HEAD")
    assert short.text.endswith("TAIL")
    assert "characters left out" in short.text
    assert len(short.text) <= 800
    assert short == result("a", short.text, **fields)
    assert other is messages[2].results[1]
    assert after[2].text == "and be quick"
    assert after[:2] + after[3:] == messages[:2] + messages[3:]


def test_images_of_a_shortened_result_become_a_marker() -> None:
    """CMP-15: an image is large, and has no head and tail."""
    content = (TextPart("before"), IMAGE, TextPart("after"))
    messages = [GOAL, asks("a"), Message.user(result("a", content)), *turns(1)]
    after = compact(TruncatingCompactor(), messages, 500)
    made = after[2].results[0].content
    assert not any(isinstance(part, ImagePart) for part in made)
    assert after[2].results[0].text == "before\n[… an image left out …]\nafter"


def test_a_result_that_would_not_get_smaller_stays() -> None:
    """CMP-4: a marker may be larger than what a counter says of an image."""

    messages = [GOAL, asks("a"), Message.user(result("a", (IMAGE,))), *turns(1)]
    after = compact(TruncatingCompactor(), messages, 50, counter=PerChar(image=1))
    assert after[2] is messages[2]


@pytest.mark.parametrize("reason", UNFORCED)
def test_the_last_turns_results_are_spared(reason: CompactReason) -> None:
    """CMP-15: the model has not answered them yet."""
    messages = [GOAL, *turns(1, 9_000)]
    assert compact(TruncatingCompactor(), messages, 500, reason=reason) == messages


@pytest.mark.parametrize("reason", FORCED)
def test_with_the_window_full_the_last_turns_results_are_shortened_too(
    reason: CompactReason,
) -> None:
    """CMP-15: as a last resort, also in conversations that are only shortened."""
    messages = [GOAL, *turns(1, 9_000)]
    after = compact(TruncatingCompactor(), messages, 1_500, reason=reason)
    assert size(after) <= 1_500
    assert after[2].results[0].text.endswith("0")


@pytest.mark.parametrize("reason", FORCED)
def test_the_last_turns_results_come_after_everything_else(reason: CompactReason) -> None:
    """CMP-15: a last resort, not a first."""
    messages = [GOAL, *turns(8, 9_000)]
    after = compact(TruncatingCompactor(preserve_recent=2), messages, 10_000, reason=reason)
    assert after[-1] is messages[-1]
    after = compact(TruncatingCompactor(preserve_recent=2), messages, 8_000, reason=reason)
    assert len(after[-1].results[0].text) == 800
    assert after == [GOAL, messages[-2], after[-1]]


def test_the_middle_is_dropped_when_shortening_is_not_enough() -> None:
    """CMP-15: the goal and the tail stay; the tail grows while it fits."""
    messages = [GOAL, *turns(20)]
    after = compact(TruncatingCompactor(), messages, 900)
    assert after[0] is GOAL
    assert is_tail_of(messages, after[1:])
    assert len(after) == 17
    assert size(after) <= 900 < size([GOAL, *messages[-18:]])


@pytest.mark.parametrize(("recent", "kept"), [(1, 2), (2, 2), (3, 4), (4, 4), (5, 6), (99, 40)])
def test_preserve_recent_is_a_floor_in_messages(recent: int, kept: int) -> None:
    """A1, CMP-15: it is met by whole turns, also where the target is far below."""
    messages = [GOAL, *turns(20)]
    after = compact(TruncatingCompactor(preserve_recent=recent), messages, 1)
    assert after == [GOAL, *messages[-kept:]]


def test_a_cut_that_would_fall_on_results_moves_back_to_their_call() -> None:
    """A1, CMP-10: ten calls, ten result messages, a tail of six messages."""
    ids = [f"c{number}" for number in range(10)]
    wave = [asks(*ids), *(Message.user(result(id)) for id in ids)]
    messages = [GOAL, *turns(3), *wave]
    after = compact(TruncatingCompactor(preserve_recent=6), messages, 1)
    assert after == [GOAL, *wave]


@pytest.mark.parametrize(("least", "dropped"), [(7, False), (6, False), (5, True)])
def test_short_conversations_are_only_shortened(least: int, dropped: bool) -> None:
    """CMP-15: under `min_messages` no turn goes."""
    messages = [GOAL, *turns(2, 5_000)]
    compactor = TruncatingCompactor(preserve_recent=2, min_messages=least)
    after = compact(compactor, messages, 100)
    assert (len(after) < len(messages)) is dropped
    assert dropped or len(after[2].results[0].text) == 800


def test_what_is_pinned_and_earlier_summaries_stay() -> None:
    """A10, CMP-9: wherever they stand, in order, and as they are."""
    steering = Message.user("steering")
    messages = [GOAL, SUMMARY, *turns(5), Message.user("old"), *turns(5), steering, *turns(5)]
    after = compact(TruncatingCompactor(preserve_recent=1), messages, 1, pinned=[GOAL, steering])
    assert after == [GOAL, SUMMARY, steering, *messages[-2:]]


def test_the_first_user_message_stays_whatever_is_pinned() -> None:
    """CMP-10: an output starts with the user."""
    messages = [GOAL, *turns(10)]
    after = compact(TruncatingCompactor(preserve_recent=2), messages, 1, pinned=[])
    assert after == [GOAL, *messages[-2:]]


def test_the_goal_survives_ten_passes() -> None:
    """A10, CMP-9: thirty turns, a pass, thirty more, a pass, …"""
    fact = Message.user("The goal: the door's code is 4711.")
    messages = [fact]
    for _ in range(10):
        messages = compact(TruncatingCompactor(), [*messages, *turns(30)], 1_000)
        assert messages[0] is fact
        assert size(messages) <= 1_000
        assert_valid_conversation(messages)


def test_a_pinned_answer_keeps_what_separates_it_from_the_next() -> None:
    """CMP-11: no two messages of the assistant in a row."""
    answer = Message.assistant("A fact to keep.")
    messages = [GOAL, answer, Message.user("old"), *turns(10)]
    after = compact(TruncatingCompactor(preserve_recent=1), messages, 1, pinned=[GOAL, answer])
    assert after == [*messages[:3], *messages[-2:]]


def test_text_beside_a_dropped_result_stays() -> None:
    """A3, CMP-13: the call is gone, and its result; what the user said is a message now."""
    mixed = Message.user(result("c"), "and be quick", IMAGE, " ")
    messages = [GOAL, asks("c"), mixed, *turns(10)]
    after = compact(TruncatingCompactor(preserve_recent=2), messages, 1_100)
    assert after == [GOAL, Message.user("and be quick", IMAGE), *messages[-2:]]


def test_durable_results_are_not_shortened_and_kept_while_they_fit() -> None:
    """CMP-15: a tool said that its result must last; never more than the target takes, though."""
    durable = [asks("d"), Message.user(result("d", "d" * 2_000, retention="durable"))]
    messages = [GOAL, *turns(3), *durable, *turns(20)]
    after = compact(TruncatingCompactor(preserve_recent=2), messages, 2_500)
    assert after[:3] == [GOAL, *durable]
    assert after[-2:] == messages[-2:]
    assert size(after) <= 2_500
    after = compact(TruncatingCompactor(preserve_recent=2), messages, 1_500)
    assert durable[0] not in after
    assert size(after) <= 1_500


def test_system_messages_in_a_conversation_stay() -> None:
    """A9: whoever put one there meant it to stay."""
    rule = Message.system("Never say never.")
    messages = [rule, GOAL, *turns(10)]
    after = compact(TruncatingCompactor(preserve_recent=2), messages, 1, pinned=[GOAL])
    assert after == [rule, GOAL, *messages[-2:]]


def test_a_pass_that_cannot_shrink_is_seen_as_one() -> None:
    """A6, CMP-4: the judge says so, and the same comes out again and again."""
    messages = [GOAL, *turns(3, 1_500)]
    compactor = TruncatingCompactor(preserve_recent=6)
    after = compact(compactor, messages, 100)
    why = judge(messages, after, pinned=(GOAL,), counter=COUNTER)
    assert why is not None
    assert "frees 0 of" in why
    assert compact(compactor, after, 100) == after


@given(
    messages=conversations(),
    percent=st.sampled_from([5, 30, 60, 90]),
    recent=st.integers(1, 8),
    reason=st.sampled_from(CompactReason),
)
def test_the_tenth_pass_leaves_what_the_first_made(
    messages: list[Message], percent: int, recent: int, reason: CompactReason
) -> None:
    """CMP-9, CMP-14: passes settle at once, but for text that a dropped result left behind."""
    target = int(size(messages) * percent / 100)
    compactor = TruncatingCompactor(preserve_recent=recent)
    first = compact(compactor, messages, target, reason=reason)
    second = compact(compactor, first, target, reason=reason)
    assert_valid_conversation(second)
    assert size(second) <= size(first) <= size(messages)
    for _ in range(8):
        again = compact(compactor, second, target, reason=reason)
        assert again == second
        second = again


@pytest.mark.parametrize("name", ["preserve_recent", "min_messages"])
@pytest.mark.parametrize("value", [0, -1, 2.0, "4", True, None])
def test_settings_that_cannot_work_are_refused(name: str, value: Any) -> None:
    """CMP-15: with the field, the value and the range."""
    with pytest.raises(ConfigError, match=f"{name}={value!r}: must be a whole number ≥ 1"):
        TruncatingCompactor(**{name: value})
