"""What every pass leaves alone, and how the longest of it is bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopctl.compaction import SUMMARY_LABEL, is_summary, pinned_in, shortened
from loopctl.messages import Message
from tests.compaction.bench import COUNTER, IMAGE, asks, result, size, turns

SUMMARY = Message.user(f"{SUMMARY_LABEL}\nThey spoke of boats.")


def test_the_goal_the_input_and_the_steering_of_the_run_in_flight_are_pinned() -> None:
    """CMP-9, A10: and nothing else that was said."""
    messages = [
        Message.user("the goal"),
        Message.assistant("done"),
        Message.user("an earlier input"),
        *turns(1),
        Message.assistant("done"),
        Message.user("the input"),
        *turns(1),
        Message.user("steering"),
        *turns(1),
        Message.user(IMAGE),
    ]
    assert pinned_in(messages, 6) == (0, 6, 9, 12)


def test_between_runs_only_the_goal_is_pinned() -> None:
    """CMP-9: no run, no input."""
    messages = [Message.user("the goal"), *turns(2), Message.assistant("done")]
    assert pinned_in(messages, len(messages)) == (0,)


def test_results_are_not_what_a_user_said() -> None:
    """CMP-9: neither alone nor beside text are they pinned."""
    messages = [Message.user("the goal"), asks("c"), Message.user(result("c"), "look!")]
    assert pinned_in(messages, 0) == (0,)


def test_a_summary_is_not_pinned() -> None:
    """CMP-9: a later pass may fold it."""
    messages = [Message.user("the goal"), SUMMARY, *turns(1)]
    assert pinned_in(messages, 0) == (0,)


def test_nothing_is_pinned_in_nothing() -> None:
    assert pinned_in([], 0) == ()


def test_a_summary_is_known_by_its_label() -> None:
    """A11: it says that it is background and not a new task."""
    assert is_summary(SUMMARY)
    assert "background, not a new task" in SUMMARY.text
    assert not is_summary(Message.user("They spoke of boats."))
    assert not is_summary(Message.assistant(SUMMARY_LABEL))
    assert not is_summary(Message.user(IMAGE, SUMMARY_LABEL))
    assert not is_summary(Message.user())


def test_what_fits_a_quarter_of_the_target_is_the_very_object() -> None:
    """CMP-9: byte for byte."""
    messages = [Message.user("g" * 1_499), *turns(2), Message.user("i" * 999)]
    made, pinned = shortened(messages, (0, 5), 10_000, COUNTER)
    assert all(a is b for a, b in zip(made, messages, strict=True))
    assert pinned[0] is messages[0]
    assert pinned[1] is messages[5]


def test_what_is_longer_keeps_head_and_tail_around_a_marker() -> None:
    """CMP-9: only the longest are cut, to what the others leave of the quarter."""
    long = Message.user("HEAD " + "x" * 50_000 + " TAIL")
    messages = [Message.user("the goal " + "g" * 600), *turns(2), long]
    made, pinned = shortened(messages, (0, 5), 10_000, COUNTER)
    assert made[:5] == messages[:5]
    assert pinned == (messages[0], made[5])
    assert made[5] is pinned[1]
    assert made[5].text.startswith("HEAD xxx")
    assert made[5].text.endswith("xxx TAIL")
    assert "characters left out" in made[5].text
    assert 2_400 < size(pinned) <= 2_500


def test_several_long_ones_share_the_room() -> None:
    """CMP-9: together they take a quarter of the target."""
    messages = [Message.user(letter * 30_000) for letter in "abcd"]
    made, pinned = shortened(messages, range(4), 10_000, COUNTER)
    assert size(pinned) <= 2_500
    assert all(500 < COUNTER.count(message) <= 625 for message in made)


def test_there_is_a_least_that_stays_of_each() -> None:
    """CMP-9: head and tail stay readable, even if they do not fit."""
    messages = [Message.user(str(number).zfill(5_000)) for number in range(50)]
    made, _ = shortened(messages, range(50), 1_000, COUNTER)
    assert {len(message.text) for message in made} == {400}
    assert [message.text[-2:] for message in made[:12]] == [str(n).zfill(2) for n in range(12)]


def test_images_of_a_pinned_message_stay() -> None:
    """CMP-9: a picture has no head and tail."""
    message = Message.user("see ", IMAGE, "x" * 9_000, IMAGE)
    made, _ = shortened([message], (0,), 12_000, COUNTER)
    assert [part for part in made[0].parts if part == IMAGE] == [IMAGE, IMAGE]
    assert size(made) <= 3_000
    only = Message.user(*[IMAGE] * 30)
    assert shortened([only], (0,), 1_000, COUNTER)[0][0] is only


@given(
    lengths=st.lists(st.integers(1, 6_000), min_size=1, max_size=8),
    target=st.integers(100, 40_000),
    word=st.sampled_from(["x", "word ", "👩‍👩‍👧", "é"]),
)
@pytest.mark.parametrize("more", [0, 1])
def test_what_was_shortened_is_left_alone_by_the_next_pass(
    lengths: list[int], target: int, word: str, more: int
) -> None:
    """CMP-9: the second and the tenth pass find what the first left."""
    messages = [Message.user(word * length) for length in lengths]
    places = range(len(messages))
    made, pinned = shortened(messages, places, target, COUNTER)
    again, same = shortened(made, places, target + more, COUNTER)
    assert same == pinned
    assert again == made
