"""How events look, and where a run is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopctl.cli.screen import MAX_LINE, Line, Place, lines, one_line, visible
from loopctl.events import (
    AttemptReset,
    CompactionFailed,
    CompactionFinished,
    CompactionSkipped,
    CompactionStarted,
    ContributorFailed,
    Event,
    MemoryFailed,
    ReplyReceived,
    RunEnded,
    RunStarted,
    SteeringDelivered,
    TextDelta,
    ThinkingDelta,
    ToolCallRequested,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnDeferred,
    TurnEnded,
    TurnStarted,
)
from loopctl.messages import Message, ToolCallPart, ToolResultPart
from loopctl.replies import StopReason
from loopctl.usage import Usage

CALL = ToolCallPart("c1", "look", {"path": "notes.txt", "lines": 3})
OTHER = ToolCallPart("c2", "wait")


def finished(call: ToolCallPart, text: str, *, is_error: bool = False) -> ToolFinished:
    result = ToolResultPart(call.id, call.name, text, is_error)
    return ToolFinished(run_id="r", turn=0, result=result, seconds=0.25)


def reply(stop_reason: StopReason) -> ReplyReceived:
    message = Message.assistant("hi")
    return ReplyReceived(
        run_id="r", turn=0, message=message, stop_reason=stop_reason, usage=None, model=None
    )


def ended(output: str) -> RunEnded:
    return RunEnded(run_id="r", turn=0, ending="completed", output=output, usage=Usage(), turns=1)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (
            ToolCallRequested(run_id="r", turn=0, call=CALL),
            Line("-> look(path='notes.txt', lines=3)"),
        ),
        (
            ToolCallRequested(run_id="r", turn=0, call=ToolCallPart("c", "look", "what?")),
            Line("-> look(what?)"),
        ),
        (finished(CALL, "one\ntwo"), Line("<- look: one two (0.2 s)")),
        (finished(CALL, "gone", is_error=True), Line("<- look failed: gone", "yellow")),
        (
            ToolProgress(run_id="r", turn=0, call_id="c1", name="look", text="half", fraction=0.5),
            Line("   look 50%: half"),
        ),
        (
            ToolProgress(run_id="r", turn=0, call_id="c1", name="look", text="on it"),
            Line("   look: on it"),
        ),
        (
            AttemptReset(run_id="r", turn=0, attempt=1, reason="connection lost"),
            Line("attempt 1 failed, what it said is void: connection lost", "yellow"),
        ),
        (ended(" "), Line("the model's answer is empty", "yellow")),
        (reply(StopReason.LENGTH), Line("the output limit cut the reply", "yellow")),
        (
            ContributorFailed(
                run_id="r", turn=0, contributor="clock", distribution=None, reason="no time"
            ),
            Line("contributor clock failed: no time", "yellow"),
        ),
        (
            TurnDeferred(run_id="r", turn=0, tokens=9000, line=6400),
            Line("the turn waits: 9,000 tokens are over the line of 6,400"),
        ),
        (
            CompactionFinished(run_id="r", turn=0, reason="deferral", before=9000, after=2500),
            Line("compacted the conversation: 9,000 -> 2,500 tokens"),
        ),
        (
            CompactionSkipped(run_id="r", turn=0, reason="threshold", why="no\ngain"),
            Line("compaction changed nothing: no gain"),
        ),
        (
            CompactionFailed(run_id="r", turn=0, reason="threshold", error="ValueError: oh"),
            Line("compaction failed: ValueError: oh", "yellow"),
        ),
        (
            TurnStarted(run_id="r", turn=0, over_line=1200),
            Line("the request is 1,200 tokens over its line", "yellow"),
        ),
        (
            MemoryFailed(run_id="r", turn=0, operation="retrieve", reason="no store"),
            Line("memory failed to retrieve: no store", "yellow"),
        ),
        (
            SteeringDelivered(run_id="r", turn=1, messages=(Message.user("also the date"),)),
            Line(">> also the date"),
        ),
    ],
)
def test_what_happens_is_told_in_one_line(event: Event, expected: Line) -> None:
    """ENG-25: a failed attempt is told as void."""
    assert lines(event) == (expected,)


@pytest.mark.parametrize(
    "event",
    [
        RunStarted(run_id="r", turn=0, input=None),
        TurnStarted(run_id="r", turn=0),
        CompactionStarted(run_id="r", turn=0, reason="deferral", tokens=9000, target=3000),
        TextDelta(run_id="r", turn=0, text="hi"),
        ToolStarted(run_id="r", turn=0, call=CALL),
        TurnEnded(run_id="r", turn=0, usage=None),
        reply(StopReason.END),
        ended("42"),
    ],
)
def test_what_shows_by_itself_has_no_line(event: Event) -> None:
    assert lines(event) == ()


def test_long_results_are_cut() -> None:
    (line,) = lines(finished(CALL, "word " * 100_000))
    assert len(line.text) < MAX_LINE + 40
    assert "..." in line.text
    assert one_line(" " * 10_000 + "x").endswith("...")


def test_control_characters_are_written_out() -> None:
    assert visible("a\x1b[31mb\x07\x9b2J\x7f") == "a\\x1b[31mb\\x07\\x9b2J\\x7f"
    assert visible("one\r\ntwo\tthree\rfour") == "one\ntwo\tthree\\x0dfour"
    assert one_line("a\x1b[2Jb\u202ec\ud800") == "a\\x1b[2Jb\\u202ec\\ud800"


@given(st.text())
def test_no_text_can_steer_a_terminal(text: str) -> None:
    steering = {*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0))}
    assert not (steering - {"\n", "\t"}) & set(visible(text))
    assert one_line(text).isprintable()


def after(*events: Event) -> Place:
    place = Place()
    for event in events:
        place = place.after(event)
    return place


def test_a_place_says_the_turn_and_what_goes_on() -> None:
    turn = TurnStarted(run_id="r", turn=2)
    thought = ThinkingDelta(run_id="r", turn=2, text="hm")
    text = TextDelta(run_id="r", turn=2, text="hi")
    reset = AttemptReset(run_id="r", turn=2, attempt=1, reason="lost")
    done = reply(StopReason.TOOL_CALLS)
    one = ToolStarted(run_id="r", turn=2, call=CALL)
    two = ToolStarted(run_id="r", turn=2, call=OTHER)
    assert after(RunStarted(run_id="r", turn=0, input=None)).words == "before its first turn"
    assert after(turn).words == "in turn 2, while waiting for the model"
    passing = CompactionStarted(run_id="r", turn=2, reason="manual", tokens=9, target=3)
    assert after(passing).words == "in turn 2, while compacting the conversation"
    assert after(turn, thought).words == "in turn 2, while the model thinks"
    assert after(turn, text).words == "in turn 2, while the model answers"
    assert after(turn, text, reset).words == "in turn 2, while waiting for the model"
    assert after(turn, done).words == "in turn 2, while preparing the next step"
    assert after(turn, done, one, two).words == "in turn 2, while running look, wait"
    assert after(turn, done, one, two, finished(CALL, "")).words == "in turn 2, while running wait"
    ended = TurnEnded(run_id="r", turn=2, usage=None)
    assert after(turn, done, one, ended).words == "in turn 2, while preparing the next step"
