"""Runs and the audit trail as values: ENG-10, ENG-20."""

from __future__ import annotations

import dataclasses
import datetime
import json

import pytest

from loopctl import _json
from loopctl.errors import MaxTurnsExceeded
from loopctl.messages import Message, ToolCallPart, ToolResultPart
from loopctl.replies import ModelResponse, StopReason
from loopctl.runs import CallRecord, Run, TurnRecord
from loopctl.usage import Usage

NOON = datetime.datetime(2026, 1, 2, 12, tzinfo=datetime.UTC)
CALL = ToolCallPart("1", "look", {"at": "\ud83d"})
RECORD = CallRecord(call=CALL, result=ToolResultPart("1", "look", "a cat"), seconds=0.5)
TURN = TurnRecord(
    number=0,
    text="let me look",
    calls=(RECORD,),
    usage=Usage(input_tokens=3),
    stop_reason=StopReason.TOOL_CALLS,
    model="m1",
    started=NOON,
    seconds=1.5,
)
RUN: Run[str] = Run(
    id="run-1",
    input=Message.user("what is it?"),
    output="a cat",
    messages=(Message.user("what is it?"), Message.assistant("a cat")),
    turns=(TURN,),
    usage=Usage(input_tokens=3),
    warnings=("slow",),
    ending="completed",
    started=NOON,
    ended=NOON + datetime.timedelta(seconds=2),
)


def test_a_run_is_plain_json_that_a_file_can_hold() -> None:
    """ENG-20, MOD-2: input, output, turns with calls, results, usage, model and times, ending."""
    document = RUN.to_json()
    assert json.loads(_json.dumps(document).encode()) == document
    assert (document["id"], document["ending"], document["output"]) == (
        "run-1",
        "completed",
        "a cat",
    )
    assert [Message.from_json(item) for item in document["messages"]] == list(RUN.messages)
    (turn,) = document["turns"]
    assert (turn["number"], turn["text"], turn["model"]) == (0, "let me look", "m1")
    assert (turn["stop_reason"], turn["started"], turn["seconds"]) == (
        "tool_calls",
        "2026-01-02T12:00:00+00:00",
        1.5,
    )
    (call,) = turn["calls"]
    assert (call["name"], call["arguments"], call["seconds"]) == ("look", CALL.arguments, 0.5)
    assert call["result"]["content"] == "a cat"


def test_a_run_that_failed_says_by_what() -> None:
    """ENG-20: the ending in a word, the error in words."""
    failed = dataclasses.replace(
        RUN, input=None, output=None, ending="max_turns", error=MaxTurnsExceeded(3), turns=()
    )
    document = failed.to_json()
    assert (document["input"], document["output"], document["turns"]) == (None, None, [])
    assert document["error"].startswith("MaxTurnsExceeded: no answer after 3 turns")


def test_a_turn_without_usage_keeps_none() -> None:
    """MOD-10: what was not reported is not zero, in the trail too."""
    run = dataclasses.replace(RUN, turns=(dataclasses.replace(TURN, usage=None),))
    assert run.to_json()["turns"][0]["usage"] is None


def test_an_output_of_any_type_can_be_written() -> None:
    """ENG-20: the trail of a run with a typed output is JSON too."""
    whole: Run[object] = RUN
    document = dataclasses.replace(whole, output=NOON.date()).to_json()
    assert json.loads(json.dumps(document))["output"] == "2026-01-02"


@pytest.mark.parametrize(
    "value", [RUN, TURN, RECORD, ModelResponse(message=Message.assistant("a"))]
)
def test_records_are_frozen(value: object) -> None:
    """ENG-20: nothing rewrites the trail."""
    for field in dataclasses.fields(value):  # type: ignore[arg-type]
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, field.name, None)


def test_the_error_is_no_part_of_a_runs_value() -> None:
    """ENG-10: runs compare by what happened; exceptions never compare equal."""
    assert dataclasses.replace(RUN, error=MaxTurnsExceeded(3)) == RUN


def test_a_run_may_be_made_with_its_type_spelled_out() -> None:
    """ENG-10: `Run[T]` is generic at run time too, on every Python."""
    made = Run[str](
        id="r",
        input=None,
        output="x",
        messages=(),
        turns=(),
        usage=RUN.usage,
        warnings=(),
        ending="completed",
        started=RUN.started,
        ended=RUN.ended,
    )
    assert made.output == "x"
