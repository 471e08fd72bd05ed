"""How an explanation looks (ENG-26)."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from loopctl.cli.explained import explained
from loopctl.cli.terminal import console_for
from loopctl.context.contributors import ContributorFailure
from loopctl.context.explanation import Block, Decision, Explanation
from loopctl.messages import Message
from loopctl.models.client import ModelRequest

MINE = Message.user("hi")


def block(origin: str, name: str, tokens: int, **more: object) -> Block:
    place = "conversation" if origin in ("conversation", "input") else "head"
    return Block(origin=origin, name=name, tokens=tokens, **{"place": place, **more})  # type: ignore[arg-type]


PLAIN = Explanation(
    request=ModelRequest(messages=(MINE,)),
    blocks=(
        block("system", "system", 100, place="beside"),
        block("tool", "search", 1400, place="beside", source="loopctl-search"),
        block("attachment", "todo:session", 40),
        block("contributor", "clock", 60, source="loopctl-clock", milliseconds=1.25),
        *[block("conversation", "user", 200), block("conversation", "assistant", 300)] * 4,
        block("input", "user", 500, message=MINE),
        block("memory", "InMemoryStore", 400, place="tail", milliseconds=12.0),
    ),
    quiet=(block("contributor", "GoalReminder", 0, milliseconds=0.04),),
    failures=(
        ContributorFailure("git", "loopctl-git", "TimeoutError: no\nanswer", TimeoutError()),
    ),
    warnings=("memory failed to retrieve: no store",),
    fixed=1500,
    conversation=2500,
    transients=500,
    window=10_000,
    threshold=8_000,
    emergency=9_500,
    decision="call",
    calibration=1.0,
)


def shown(
    explanation: Explanation, *, width: int = 80, encoding: str = "utf-8", assumed: bool = False
) -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="\n")
    console: Console = console_for(file, width=width)
    console.print(explained(explanation, console, assumed=assumed))
    file.seek(0)
    return file.read()


def cells(text: str) -> list[list[str]]:
    """The table, a row each, without the spaces between."""
    table = text.partition("\n\n")[0]
    return [re.split(r" {2,}", line.strip()) for line in table.splitlines()]


def bar(text: str) -> str:
    (line,) = (line for line in text.splitlines() if line.startswith("["))
    return line


def test_each_block_has_a_row_and_a_long_conversation_shares_one() -> None:
    """ENG-26: origin, name, source, place, tokens, milliseconds."""
    assert cells(shown(PLAIN)) == [
        ["place", "origin", "name", "source", "tokens", "ms"],
        ["beside", "system", "system", "100"],
        ["beside", "tool", "search", "loopctl-search", "1,400"],
        ["head", "attachment", "todo:session", "40"],
        ["head", "contributor", "clock", "loopctl-clock", "60", "1.2"],
        ["conversation", "conversation", "4 user, 4 assistant", "2,000"],
        ["conversation", "input", "user", "500"],
        ["tail", "memory", "InMemoryStore", "400", "12.0"],
    ]


def test_a_short_conversation_shows_each_message() -> None:
    few = replace(PLAIN, blocks=(block("conversation", "user", 7), block("input", "user", 3)))
    assert cells(shown(few)) == [
        ["place", "origin", "name", "tokens"],
        ["conversation", "conversation", "user", "7"],
        ["conversation", "input", "user", "3"],
    ]


@pytest.mark.parametrize(("encoding", "marks"), [("utf-8", "█▓▒·"), ("ascii", "#=+.")])
def test_the_bar_shows_the_shares_and_the_lines(encoding: str, marks: str) -> None:
    """ENG-26: the lines of the window; a terminal's encoding is kept to."""
    text = shown(PLAIN, encoding=encoding)
    inside = bar(text)[1:-1]
    fixed, conversation, transients, free = list(marks)
    counted = [inside.count(mark) for mark in (fixed, conversation, transients)]
    assert counted == [11, 19, 3]  # of 74 columns that stand for 10,000 tokens
    assert inside.startswith(fixed * 11 + conversation * 19 + transients * 3 + free)
    assert (inside.index("T"), inside.index("E")) == (59, 70)
    assert f"{fixed} fixed 1,500" in text
    assert "4,500 tokens, 45% of the window" in text
    assert "T threshold 8,000 (80%)  E emergency line 9,500  window 10,000" in text
    assert "next: the model is called\n" in text


def test_the_smallest_share_shows_in_the_bar() -> None:
    tiny = replace(PLAIN, fixed=1, conversation=1, transients=1)
    assert bar(shown(tiny)).startswith("[█▓▒·")


def test_a_payload_beyond_the_window_shows_where_the_window_ends() -> None:
    text = shown(replace(PLAIN, conversation=18_000, decision="context_exceeded"))
    inside = bar(text)[1:-1]
    assert inside.index("T") < inside.index("E") < inside.index("W") < 74
    assert "·" not in inside
    assert "W window 10,000" in text
    assert "next: the run ends" in text


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        ("threshold", "a pass compacts the conversation first: it is over the threshold"),
        ("emergency", "a pass compacts the conversation first: it is at the emergency line"),
        ("deferral", "the turn waits for a pass first"),
        ("max_turns", "the run ends: it has no turn left"),
    ],
)
def test_what_would_be_done_is_said_in_words(decision: Decision, words: str) -> None:
    """CTX-31: a pass, a deferral, an end."""
    assert f"next: {words}" in shown(replace(PLAIN, decision=decision))


def test_a_turn_that_is_served_over_its_line_says_that_no_pass_would_help() -> None:
    """CTX-31, 5: what compaction cannot free is served all the same."""
    text = shown(replace(PLAIN, transients=5_000))
    assert "called, 1,000 tokens over the threshold: no pass would help" in text


def test_without_lines_there_is_no_bar() -> None:
    """CTX-30: a window of 0."""
    text = shown(replace(PLAIN, window=0, threshold=0, emergency=0))
    assert "[" not in text
    assert "the window is off" in text
    assert "4,500 tokens\n" in text


def test_a_window_that_is_a_guess_says_so() -> None:
    assert "assumed; --window N sets it" in shown(PLAIN, assumed=True)
    assert "assumed" not in shown(PLAIN)


def test_who_was_quiet_and_who_failed_stands_below() -> None:
    text = shown(PLAIN)
    assert "quiet, they gave nothing for this turn:\n  GoalReminder (0.0 ms)\n" in text
    failed = text.partition("failed, their messages are missing:\n")[2]
    assert failed.splitlines() == [
        "  git of loopctl-git: TimeoutError: no answer",
        "  memory failed to retrieve: no store",
    ]
    calm = shown(replace(PLAIN, quiet=(), failures=(), warnings=()))
    assert "quiet" not in calm
    assert "failed" not in calm


@pytest.mark.parametrize("width", [30, 40, 60, 80, 200])
def test_it_fits_its_width_and_still_names_everything(width: int) -> None:
    text = shown(PLAIN, width=width)
    assert max(map(len, text.splitlines())) <= width
    for word in ("tokens", "1,400", "8,000", "GoalReminder", "loopctl-git"):
        assert word in text
    for word in ("place", "search", "todo:session", "clock", "InMemoryStore"):
        assert width < 80 or word in text
    assert len(bar(text)) == min(width, 76)


def test_a_name_cannot_steer_the_terminal() -> None:
    evil = "\x1b[2J\n\x9b2J[red]"
    text = shown(
        replace(PLAIN, blocks=(block("tool", evil, 1, source=evil),), warnings=(evil,)),
        width=120,
    )
    assert not {"\x1b", "\x9b"} & set(text)
    assert text.count("\\x1b[2J \\x9b2J[red]") == 3
