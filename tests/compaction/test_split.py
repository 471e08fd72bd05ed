"""Where the run in flight begins after a pass."""

from __future__ import annotations

from loopctl.compaction import SUMMARY_LABEL, split
from loopctl.messages import Message
from tests.compaction.bench import asks, result, turns

GOAL = Message.user("the goal")
DONE = Message.assistant("done")
INPUT = Message.user("the input")
SUMMARY = Message.user(f"{SUMMARY_LABEL}\nBoats.")


def copies(*messages: Message) -> list[Message]:
    return [Message.from_json(message.to_json()) for message in messages]


def test_the_runs_input_and_what_follows_stay_pending() -> None:
    """CMP-8: so that a run that fails can still be taken back."""
    before = [GOAL, *turns(3), DONE, INPUT, *turns(3)]
    after = [GOAL, SUMMARY, INPUT, *before[-2:]]
    assert split(8, before, after) == 2


def test_a_first_run_has_no_history_after_a_pass_either() -> None:
    """CMP-8: goal and input are one message there."""
    before = [GOAL, *turns(5)]
    assert split(0, before, [GOAL, SUMMARY, *before[-2:]]) == 0


def test_messages_that_were_written_anew_are_found_by_what_they_say() -> None:
    """CMP-8: equality, where identity is gone."""
    before = [GOAL, *turns(3), DONE, INPUT, *turns(3)]
    assert split(8, before, copies(GOAL, SUMMARY, INPUT, *before[-2:])) == 2


def test_the_same_words_in_the_history_are_history() -> None:
    """CMP-8: survivors are found from the right."""
    go = "go on"
    before = [Message.user(go), DONE, Message.user(go), DONE, Message.user(go), *turns(2)]
    assert split(4, before, copies(before[0], before[2], before[4], *before[-2:])) == 2
    assert split(4, before, [before[0], before[2], before[4], *before[-2:]]) == 2


def test_one_object_in_history_and_in_the_run_is_told_apart_by_its_place() -> None:
    """CMP-8: a user may send the very same message twice."""
    go = Message.user("go on")
    before = [go, DONE, go, *turns(2)]
    assert split(2, before, [go, go, *before[-2:]]) == 1


def test_steering_that_repeats_the_input_does_not_hide_it() -> None:
    """CMP-8: an input and steering of the same words are both pending."""
    before = [GOAL, DONE, Message.user("faster"), *turns(2), Message.user("faster"), *turns(1)]
    after = [GOAL, before[2], before[7], *before[-2:]]
    assert split(2, before, after) == 1
    assert split(2, before, copies(*after)) == 1


def test_a_continued_run_is_what_survives_of_it() -> None:
    """CMP-8: it has no input of its own; shortened results are new messages."""
    before = [GOAL, asks("c"), Message.user(result("c", "x")), *turns(3)]
    short = Message.user(result("c", "…"))
    assert split(3, before, [GOAL, before[5], short, *before[-2:]]) == 1


def test_the_history_never_counts_as_pending() -> None:
    """CMP-8: an equal turn of the history is not taken for one that is gone."""
    before = [GOAL, *turns(1), *turns(2)]
    assert split(3, before, [GOAL, before[1], before[2], before[5], before[6]]) == 3


def test_nothing_left_of_the_run_is_all_history() -> None:
    """CMP-8: between runs, and when a continued run vanished whole."""
    before = [GOAL, *turns(3), DONE]
    assert split(8, before, [GOAL, *before[-3:]]) == 4
    assert split(1, before, [GOAL, SUMMARY]) == 2
