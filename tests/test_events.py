"""Events as values and as JSON lines: ENG-24."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopctl import _json, events
from loopctl.events import KINDS, Event, TextDelta, from_json, to_json
from loopctl.messages import (
    ImagePart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from loopctl.replies import StopReason
from loopctl.runs import Ending
from loopctl.usage import Usage

NAMES = """
RunStarted TurnStarted TextDelta ThinkingDelta AttemptReset ReplyReceived ToolCallRequested
ApprovalRequested ApprovalSettled ToolStarted ToolProgress ToolFinished TurnEnded TurnDeferred
CompactionStarted CompactionFinished CompactionSkipped CompactionFailed ContributorFailed
MemoryFailed AttachmentsChanged SteeringDelivered ModelSwitched LoopSuspected BudgetWarning RunEnded
""".split()

TEXT = st.text(st.characters(exclude_categories=()), max_size=8).map(_json.joined)
CALLS = st.builds(ToolCallPart, TEXT, TEXT, st.dictionaries(TEXT, TEXT, max_size=2) | TEXT)
RESULTS = st.builds(ToolResultPart, TEXT, TEXT, TEXT, st.booleans())
MESSAGES = st.builds(Message.user, TEXT | st.builds(ImagePart, st.just("image/png"), st.binary()))
REPLIES = st.builds(Message.assistant, TEXT, st.builds(ThinkingPart, TEXT, TEXT), CALLS)
COUNTS = st.none() | st.integers(0, 10**6)
USAGES = st.builds(Usage, input_tokens=COUNTS, output_tokens=COUNTS)
OF_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    str | None: st.none() | TEXT,
    int: st.integers(0, 10**6),
    bool: st.booleans(),
    float: st.floats(0, 10**6),
    float | None: st.none() | st.floats(0, 1),
    Message: REPLIES,
    Message | None: st.none() | MESSAGES,
    tuple[Message, ...]: st.lists(MESSAGES, max_size=2).map(tuple),
    tuple[str, ...]: st.lists(TEXT, max_size=3).map(tuple),
    ToolCallPart: CALLS,
    ToolResultPart: RESULTS,
    Usage: USAGES,
    Usage | None: st.none() | USAGES,
    StopReason: st.sampled_from(StopReason),
    Ending: st.sampled_from(get_args(Ending)),
}


def events_of(kind: type[Event]) -> st.SearchStrategy[Event]:
    hints = get_type_hints(kind)
    return st.builds(kind, **{f.name: OF_TYPE[hints[f.name]] for f in dataclasses.fields(kind)})


def test_the_kinds_are_those_of_the_contract() -> None:
    """ENG-24: each by its name."""
    assert sorted(KINDS) == sorted(NAMES)
    assert all(KINDS[name].__name__ == name for name in KINDS)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@given(data=st.data())
def test_every_kind_loads_back_equal_from_one_line(kind: type[Event], data: st.DataObject) -> None:
    """ENG-24, MOD-2: `to_json` and back, whatever text the fields hold."""
    event = data.draw(events_of(kind))
    line = to_json(event)
    assert from_json(line) == event
    assert "\n" not in line
    line.encode()


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_kind_is_a_frozen_value_with_run_id_and_turn(kind: type[Event]) -> None:
    """ENG-24: frozen dataclasses, keyword-only, each with run id and turn, each described."""
    fields = dataclasses.fields(kind)
    assert [field.name for field in fields][:2] == ["run_id", "turn"]
    assert all(field.kw_only for field in fields)
    assert kind.__dataclass_params__.frozen  # type: ignore[attr-defined] # no public way to ask
    assert inspect.getdoc(kind) != inspect.getdoc(Event)


def test_unknown_fields_of_newer_versions_are_ignored() -> None:
    """ENG-24: a log of a newer version can be read."""
    line = '{"type":"TextDelta","run_id":"r","turn":0,"text":"a","mood":"fine"}'
    assert from_json(line) == TextDelta(run_id="r", turn=0, text="a")


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[]",
        "nonsense",
        "{}",
        '{"type":"Event","run_id":"r","turn":0}',
        '{"type":"Unheard","run_id":"r","turn":0}',
        '{"type":["TextDelta"]}',
        '{"type":"TextDelta","run_id":"r","turn":0}',
        '{"type":"ReplyReceived","run_id":"r","turn":0,"message":3}',
        '{"type":"ToolStarted","run_id":"r","turn":0,"call":{"type":"tool_result"}}',
        '{"type":"ToolStarted","run_id":"r","turn":0,"call":{"type":"text","text":"x"}}',
        '{"type":"TurnEnded","run_id":"r","turn":0,"usage":3}',
    ],
)
def test_a_line_that_is_no_event_is_a_value_error(line: str) -> None:
    """ENG-24: one error for every way to be wrong."""
    with pytest.raises(ValueError):
        from_json(line)


def test_the_documented_order_names_every_kind_but_the_later_ones() -> None:
    """ENG-24: the order in the docstring and the kinds do not drift apart."""
    words = set(re.findall(r"\b[A-Z][a-z]+[A-Z]\w+", events.__doc__ or ""))
    assert set(KINDS) - words == {"LoopSuspected", "BudgetWarning"}
    assert words <= set(KINDS)


def test_events_of_one_moment_compare_equal() -> None:
    """ENG-24: values."""
    part = ToolResultPart("1", "f", (TextPart("x"),))
    left = events.ToolFinished(run_id="r", turn=1, result=part, seconds=0.5)
    assert left == dataclasses.replace(left)
    with pytest.raises(dataclasses.FrozenInstanceError):
        left.turn = 2  # type: ignore[misc] # the point of the test
