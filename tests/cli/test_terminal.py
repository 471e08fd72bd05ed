"""What a person, a pipe and a program see of a run."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence

import pytest

from loopctl.cli.screen import Line, Place
from loopctl.cli.terminal import JsonLines, Terminal, last_words
from loopctl.events import (
    AttemptReset,
    Event,
    ReplyReceived,
    RunEnded,
    RunStarted,
    TextDelta,
    ToolCallRequested,
    TurnStarted,
    from_json,
)
from loopctl.messages import Message, ToolCallPart
from loopctl.replies import StopReason
from loopctl.usage import Usage


class Seen(io.StringIO):
    """A stream that a person looks at."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def show(screen: Terminal | JsonLines, events: Sequence[Event]) -> None:
    place = Place()
    for event in events:
        place = place.after(event)
        screen.show(event, place)
    screen.close()


def delta(text: str, attempt: int = 0) -> TextDelta:
    return TextDelta(run_id="r", turn=0, text=text, attempt=attempt)


def reply(text: str) -> ReplyReceived:
    return ReplyReceived(
        run_id="r",
        turn=0,
        message=Message.assistant(text),
        stop_reason=StopReason.END,
        usage=None,
        model=None,
    )


def ended(output: str | None) -> RunEnded:
    return RunEnded(run_id="r", turn=0, ending="completed", output=output, usage=Usage(), turns=1)


STARTED: tuple[Event, ...] = (
    RunStarted(run_id="r", turn=0, input=None),
    TurnStarted(run_id="r", turn=0),
)
BROKEN: tuple[Event, ...] = (
    *STARTED,
    delta("It is thr"),
    AttemptReset(run_id="r", turn=0, attempt=1, reason="connection lost"),
    delta("It is 4.", attempt=1),
    reply("It is 4."),
    ended("It is 4."),
)


def test_a_person_sees_text_as_it_comes() -> None:
    out = Seen()
    screen = Terminal(out, io.StringIO())
    place = Place()
    for text in ("Hel", "lo"):
        screen.show(delta(text), place)
    assert out.getvalue() == "Hello"
    show(screen, [reply("Hello"), ended("Hello")])
    assert out.getvalue() == "Hello\n"


def test_a_pipe_gets_the_answer_and_nothing_else() -> None:
    out, err = io.StringIO(), io.StringIO()
    call = ToolCallRequested(run_id="r", turn=0, call=ToolCallPart("c", "look"))
    events = [*STARTED, delta("Let me look."), reply("Let me look."), call, ended("42")]
    show(Terminal(out, err), events)
    assert out.getvalue() == "42\n"
    assert err.getvalue() == "-> look()\n"


def test_a_run_without_an_answer_puts_nothing_into_a_pipe() -> None:
    out = io.StringIO()
    show(Terminal(out, io.StringIO()), [*STARTED, delta("Let me"), ended(None)])
    assert out.getvalue() == ""


def test_a_person_is_told_that_a_broken_reply_is_void() -> None:
    """ENG-25: what was shown of the failed attempt is void."""
    out, err = Seen(), io.StringIO()
    show(Terminal(out, err), BROKEN)
    assert out.getvalue() == "It is thr\nIt is 4.\n"
    assert err.getvalue() == "attempt 1 failed, what it said is void: connection lost\n"


def test_a_pipe_holds_nothing_of_a_broken_reply() -> None:
    """E3: exactly one copy of the text."""
    out = io.StringIO()
    show(Terminal(out, io.StringIO()), BROKEN)
    assert out.getvalue() == "It is 4.\n"


@pytest.mark.parametrize("pieces", [["a\r\nb"], ["a\r", "\nb"], ["a", "\r", "\n", "b"]])
def test_line_ends_are_whole_however_they_are_cut(pieces: list[str]) -> None:
    out = Seen()
    show(Terminal(out, io.StringIO()), [*map(delta, pieces), reply("a\r\nb")])
    assert out.getvalue() == "a\nb\n"


def test_a_spinner_turns_only_where_a_person_sees_it() -> None:
    for err, turns in ((Seen(), True), (io.StringIO(), False)):
        show(Terminal(io.StringIO(), err), [*STARTED, ended("42")])
        assert ("waiting for the model" in err.getvalue()) is turns
        assert ("\x1b" in err.getvalue()) is turns
    seen = Seen()
    show(Terminal(Seen(), seen), [*STARTED, ended("42")])
    assert seen.getvalue().count("\x1b[?25l") == seen.getvalue().count("\x1b[?25h") == 1


def test_no_text_of_a_model_reaches_the_terminal_raw() -> None:
    out, err = Seen(), io.StringIO()
    evil = "\x1b]0;owned\x07\x9b2J [red]markup[/red] :smile:"
    call = ToolCallRequested(run_id="r", turn=0, call=ToolCallPart("c", "look", {"a": evil}))
    show(Terminal(out, err), [delta(evil), reply(evil), call, ended(evil)])
    for text in (out.getvalue(), err.getvalue()):
        assert not {"\x1b", "\x07", "\x9b"} & set(text)
        assert "[red]markup[/red] :smile:" in text


def test_json_lines_are_events_and_hold_no_control_character() -> None:
    out, err = io.StringIO(), io.StringIO()
    events = [*STARTED, delta("\x1b[2J\x9b2J\x7f ü \ud800"), ended(None)]
    screen = JsonLines(out, err)
    show(screen, events)
    screen.say(Line("stopping"))
    lines = out.getvalue().splitlines()
    assert [from_json(line) for line in lines] == events
    assert all(line.isprintable() and json.loads(line) for line in lines)
    assert err.getvalue() == "stopping\n"


def test_the_last_words_put_a_terminal_in_order_and_leave_a_file_alone() -> None:
    assert last_words(Seen()).endswith(b"\x1b[?25hstopped at once\n")
    assert last_words(io.StringIO()) == b"stopped at once\n"
