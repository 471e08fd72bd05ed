"""What may replace a conversation, and what is a pass that changed nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from loopctl.compaction import SUMMARY_LABEL, judge
from loopctl.compaction.judge import broken_rule
from loopctl.messages import Message, TextPart, ThinkingPart, ToolCallPart
from tests.compaction.bench import COUNTER, IMAGE, asks, result, turns

GOAL = Message.user("the goal")
INPUT = Message.user("the input")
MIXED = Message.user(result("m"), "and be quick", IMAGE)
BEFORE = (
    GOAL,
    *turns(3),
    asks("m"),
    MIXED,
    Message.assistant(ThinkingPart("hm", signature="s"), "so far"),
    INPUT,
    *turns(2, first=3),
)
SUMMARY = Message.user(f"{SUMMARY_LABEL}\nThey spoke of boats.")
PINNED = (GOAL, INPUT)
SAID = Message.user("and be quick", IMAGE)
LAST = BEFORE[-4:]
"""The last two turns."""


def verdict(after: Any, before: Sequence[Message] = BEFORE) -> str | None:
    return judge(before, after, pinned=PINNED, counter=COUNTER)


GOOD: dict[str, Sequence[Message]] = {
    "the tail stays": (GOAL, SAID, INPUT, *LAST),
    "only what is pinned stays": (GOAL, SAID, INPUT),
    "the mixed message stays with its call": (GOAL, *BEFORE[7:9], INPUT),
    "what was said is joined to another message": (
        GOAL,
        Message.user("Earlier: boats.", "and be quick", IMAGE),
        INPUT,
    ),
    "a summary enters": [GOAL, SUMMARY, SAID, INPUT, *LAST],
    "results are shorter": (
        GOAL,
        SAID,
        INPUT,
        LAST[0],
        Message.user(result("c", "…")),
        LAST[2],
        Message.user(result("c", "…")),
    ),
    "results are spread": (
        GOAL,
        SAID,
        INPUT,
        asks("a", "b"),
        Message.user(result("b")),
        Message.user(result("a"), "and text"),
    ),
    "an equal copy": [
        Message.from_json(message.to_json()) for message in (GOAL, SAID, INPUT, *LAST)
    ],
}


@pytest.mark.parametrize("name", GOOD)
def test_an_output_that_keeps_the_rules_and_frees_enough_is_good(name: str) -> None:
    """CMP-4: nothing is asked of a compactor beyond the rules."""
    assert verdict(GOOD[name]) is None


BAD: dict[str, tuple[Any, str]] = {
    "CMP-2: nothing": (None, "returned NoneType"),
    "CMP-2: text": ("a summary", "returned str"),
    "CMP-2: an iterator": (iter(BEFORE), "not messages"),
    "CMP-2: texts": ([GOAL, "a summary"], "a str among"),
    "CMP-10: empty": ([], "it is empty"),
    "CMP-10: only a system message": ([Message.system("hi")], "it is empty"),
    "CMP-10: a message without parts": ([GOAL, SAID, INPUT, Message.user()], "message 3 is empty"),
    "CMP-10, A9: the assistant first": ([*turns(1), GOAL, SAID, INPUT], "start with a user"),
    "CMP-10, A1: a result without its call": ([GOAL, SAID, INPUT, *LAST[1:]], "no open call"),
    "CMP-10, A2: a call without its result": ([GOAL, SAID, INPUT, *LAST[:3]], "never answered"),
    "CMP-10, A3: a dead result beside text": ([GOAL, MIXED, INPUT, *LAST], "no open call"),
    "CMP-10: half of the results": (
        [GOAL, SAID, INPUT, asks("a", "b"), Message.user(result("a"))],
        "'b' is never answered",
    ),
    "CMP-10: something between call and result": (
        [GOAL, SAID, INPUT, LAST[0], Message.user("hm"), LAST[1]],
        "before 'c' is answered",
    ),
    "CMP-10: two results for one call": ([GOAL, SAID, INPUT, *LAST[:2], LAST[1]], "no open call"),
    "CMP-11: two answers": (
        [GOAL, BEFORE[9], Message.assistant("again"), SAID, INPUT],
        "both the assistant's",
    ),
    "CMP-11: an answer and a turn": ([GOAL, BEFORE[9], *LAST, SAID, INPUT], "both the assistant's"),
    "CMP-9: the goal is gone": ([SAID, INPUT, *LAST], "'the goal'"),
    "CMP-9: the goal was edited": ([Message.user("a goal"), SAID, INPUT], "'the goal'"),
    "CMP-9: the goal is not the first": ([SAID, GOAL, INPUT, *LAST], "no longer the first"),
    "CMP-9: the input is gone": ([GOAL, SAID, *LAST], "'the input'"),
    "CMP-9: the input is in another message": (
        [GOAL, SAID, Message.user("the input", "…"), *LAST],
        "'the input'",
    ),
    "CMP-9: input before goal": ([INPUT, GOAL, SAID], "pinned message is gone"),
    "CMP-12, A13: thinking was edited": (
        [
            GOAL,
            SAID,
            INPUT,
            Message.assistant(ThinkingPart("t", signature="sig t3"), ToolCallPart("c", "look")),
            LAST[1],
        ],
        "changed, moved or made up",
    ),
    "CMP-12, A13: the signature is gone": (
        [GOAL, SAID, INPUT, Message.assistant(ThinkingPart("t4"), *LAST[2].calls), LAST[3]],
        "changed, moved or made up",
    ),
    "CMP-12: thinking without its call": (
        [GOAL, SAID, INPUT, Message.assistant(ThinkingPart("t4", signature="sig t4"), "hm")],
        "changed, moved or made up",
    ),
    "CMP-12: the call without its thinking": (
        [GOAL, SAID, INPUT, Message.assistant(*LAST[2].calls), LAST[3]],
        "parted from its thinking",
    ),
    "CMP-12: the call beside words instead of thinking": (
        [GOAL, SAID, INPUT, Message.assistant("I look.", *LAST[2].calls), LAST[3]],
        "parted from its thinking",
    ),
    "CMP-12: the answer without its thinking": (
        [GOAL, SAID, INPUT, Message.assistant("so far")],
        "parted from its thinking",
    ),
    "CMP-12: turns in another order": (
        [GOAL, SAID, INPUT, *LAST[2:], *BEFORE[1:3]],
        "changed, moved or made up",
    ),
    "CMP-12: a turn twice": (
        [GOAL, SAID, INPUT, *BEFORE[3:5], *BEFORE[3:5]],
        "changed, moved or made up",
    ),
    "CMP-13, A3: the text beside a result is gone": ([GOAL, INPUT, *LAST], "beside a result"),
    "CMP-13: a part of it is gone": (
        [GOAL, Message.user("and be quick"), INPUT, *LAST],
        "beside a result",
    ),
    "CMP-13: the assistant says it": (
        [GOAL, INPUT, Message.assistant("and be quick", IMAGE)],
        "beside a result",
    ),
    "CMP-10: it ends with the assistant's words at a boundary": (
        [GOAL, SAID, INPUT, Message.assistant("so far so good")],
        "is gone from its end",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_an_output_that_breaks_a_rule_is_no_pass(name: str) -> None:
    """CMP-4, CMP-9 … CMP-13, A1, A2, A3, A9, A13: the case's name says which."""
    after, why = BAD[name]
    found = verdict(after)
    assert found is not None
    assert why in found


@pytest.mark.parametrize(
    ("change", "good"),
    [
        (lambda chars: chars, False),
        (lambda chars: chars + 1, False),
        (lambda chars: chars - 99, False),
        (lambda chars: chars - 100, True),
        (lambda chars: chars - 101, True),
    ],
)
def test_a_pass_must_free_five_per_cent(change: Callable[[int], int], good: bool) -> None:
    """CMP-4, A6: measured before and after with one counter."""
    before = [GOAL, Message.assistant("x" * 1_980), INPUT]  # 2,000 tokens with the other two
    after = [GOAL, Message.assistant("x" * change(1_980)), INPUT]
    assert (verdict(after, before) is None) is good


def test_the_very_input_frees_nothing() -> None:
    """CMP-4, A6: a compactor that returns what it was given did nothing."""
    why = verdict(BEFORE)
    assert why is not None
    assert "frees 0 of" in why
    assert broken_rule(BEFORE, BEFORE, pinned=PINNED) is None


@pytest.mark.parametrize(
    ("summaries", "good"),
    [
        ([SUMMARY], True),
        ([Message.user(f"{SUMMARY_LABEL}\nBoats, and ships.")], True),
        ([SUMMARY, Message.user(f"{SUMMARY_LABEL}\nShips.")], True),
        ([], False),
        ([Message.user("Boats.")], False),
    ],
)
def test_an_earlier_summary_is_carried_or_folded(summaries: list[Message], good: bool) -> None:
    """CMP-9, A10: at the second pass what the first one summed up is still there."""
    before = [GOAL, SUMMARY, *turns(5), INPUT]
    why = verdict([GOAL, *summaries, INPUT], before)
    assert (why is None) is good
    assert why in (None, "an earlier summary is gone")


def test_one_of_two_summaries_must_not_vanish() -> None:
    """CMP-9: carried or folded, never dropped."""
    other = Message.user(f"{SUMMARY_LABEL}\nShips.")
    before = [GOAL, SUMMARY, other, *turns(5), INPUT]
    assert verdict([GOAL, other, INPUT], before) == "an earlier summary is gone"


def test_a_turn_without_thinking_may_be_written_anew() -> None:
    """CMP-12: only what holds thinking is untouchable."""
    before = [GOAL, asks("c"), Message.user(result("c", "x" * 500)), INPUT]
    after = [
        GOAL,
        Message.assistant(TextPart("I looked."), ToolCallPart("c", "look", '{"n": 1}')),
        Message.user(result("c", "x")),
        INPUT,
    ]
    assert verdict(after, before) is None


def test_an_equal_call_of_a_turn_without_thinking_is_its_own() -> None:
    """CMP-12: ids come again, so a call may look like that of another turn."""
    plain = [Message.assistant("Long words. " * 50, *asks("c").calls), Message.user(result("c"))]
    before = [GOAL, *turns(1), *plain, INPUT]
    after = [GOAL, *turns(1), Message.assistant("Words.", *asks("c").calls), plain[1], INPUT]
    assert verdict(after, before) is None


def test_the_same_words_beside_two_results_stay_twice() -> None:
    """CMP-13: what was said twice was meant twice."""
    mixed = Message.user(result("m"), "faster")
    before = [GOAL, asks("m"), mixed, *turns(3), asks("m"), mixed, INPUT]
    faster = Message.user("faster")
    assert verdict([GOAL, faster, faster, INPUT], before) is None
    why = verdict([GOAL, faster, INPUT], before)
    assert why is not None
    assert "beside a result" in why


def test_what_a_long_refusal_quotes_is_short() -> None:
    long = Message.user("g" * 5_000)
    why = judge([long, *turns(2)], [INPUT], pinned=(long,), counter=COUNTER)
    assert why is not None
    assert len(why) < 200
