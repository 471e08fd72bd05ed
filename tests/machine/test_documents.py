"""The machine as a document: everything in it, and nothing that is taken on trust (ENG-7)."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from loopctl.machine import VERSION, CallModel, CallTools, Done, LoopMachine, Outcome, Policy, State
from loopctl.messages import ImagePart, Message, ThinkingPart, ToolCallPart, ToolResultPart
from loopctl.replies import ModelResponse, StopReason

OFFERED = {"look": "at"}
POLICY = Policy(window=8_000, max_turns=5)
CALLS = (ToolCallPart("x", "look"), ToolCallPart("n", "nope"), ToolCallPart("y", "look"))


def begun() -> LoopMachine:
    machine = LoopMachine([Message.user("hi"), Message.assistant(ThinkingPart("", "S1"), "yes?")])
    machine.begin(Message.user("look", ImagePart("image/png", b"\x89PNG\x00\xff")))
    return machine


def weighed() -> LoopMachine:
    machine = begun()
    machine.measure(fixed=500, conversation=6_000)
    machine.weigh(700, attachments=300)
    return machine


def latched() -> LoopMachine:
    machine = weighed()
    machine.start_pass()
    machine.no_pass()
    return machine


def with_tools() -> LoopMachine:
    machine = latched()
    machine.reply(ModelResponse(message=Message.assistant(*CALLS)), OFFERED)
    return machine


def next_turn() -> LoopMachine:
    machine = with_tools()
    machine.results([ToolResultPart("y", "look", "2"), ToolResultPart("x", "look", "1")])
    return machine


def passing() -> LoopMachine:
    machine = next_turn()
    machine.start_pass()
    return machine


def cancelled() -> LoopMachine:
    machine = with_tools()
    machine.cancel()
    return machine


def ended() -> LoopMachine:
    machine = next_turn()
    machine.end(Outcome(ending="context_exceeded", used=9, limit=8, detail="too much"))
    return machine


POINTS: list[Callable[[], LoopMachine]] = [
    LoopMachine,
    begun,
    weighed,
    latched,
    with_tools,
    next_turn,
    passing,
    cancelled,
    ended,
]


def through_text(document: dict[str, Any]) -> dict[str, Any]:
    restored: dict[str, Any] = json.loads(json.dumps(document))
    return restored


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.__name__)
def test_a_machine_comes_back_from_text_as_it_was(point: Callable[[], LoopMachine]) -> None:
    """ENG-7: at any point, to plain JSON and back."""
    machine = point()
    document = through_text(machine.dump())
    restored = LoopMachine.load(document)
    assert restored.dump() == machine.dump() == document
    assert restored.conversation == machine.conversation
    assert restored.history == machine.history
    assert restored.waiting == machine.waiting
    assert restored.run_messages == machine.run_messages
    assert restored.unfinished == machine.unfinished
    assert restored.latched(POLICY) == machine.latched(POLICY)


@pytest.mark.parametrize("point", [begun, weighed, latched, with_tools, next_turn, ended])
def test_a_restored_machine_decides_identically(point: Callable[[], LoopMachine]) -> None:
    """ENG-7: identical decisions, under any policy."""
    machine = point()
    restored = LoopMachine.load(through_text(machine.dump()))
    for window in (0, 4_000, 7_000, 8_000):
        for auto_compact in (True, False):
            policy = Policy(window=window, max_turns=2, auto_compact=auto_compact)
            assert restored.next_step(policy) == machine.next_step(policy)


def test_a_machine_restored_among_its_tools_takes_their_results() -> None:
    """ENG-7, H6: the calls wait still, the answered ones keep their answers."""
    restored = LoopMachine.load(through_text(with_tools().dump()))
    step = restored.next_step(POLICY)
    assert isinstance(step, CallTools)
    assert step.calls == (CALLS[0], CALLS[2])
    assert [answer.call_id for answer in step.answered] == ["n"]
    restored.results([ToolResultPart("x", "look", "1"), ToolResultPart("y", "look", "2")])
    assert restored.dump() == next_turn().dump()


def test_a_machine_restored_during_a_pass_takes_its_end() -> None:
    """ENG-7: the driver that goes on tells it what became of the pass."""
    restored = LoopMachine.load(through_text(passing().dump()))
    restored.no_pass()
    assert restored.next_step(POLICY) == CallModel(1)


def test_the_last_weight_of_the_attachments_comes_back() -> None:
    """ENG-7, CTX-32: a pass before the next weighing still latches on it."""
    restored = LoopMachine.load(through_text(next_turn().dump()))
    restored.measure(fixed=500, conversation=6_000)
    assert restored.figures is not None
    assert restored.figures.attachments == 300


def test_a_run_that_completed_without_words_is_not_unfinished_after_loading() -> None:
    """ENG-7: the last message alone does not tell."""
    machine = begun()
    machine.reply(ModelResponse(message=Message.assistant()), OFFERED)
    assert not machine.unfinished
    assert not LoopMachine.load(through_text(machine.dump())).unfinished


def test_a_document_is_plain_json_and_shares_nothing_with_the_machine() -> None:
    """ENG-7: what happens to the document later does not reach the machine."""
    machine = with_tools()
    document = machine.dump()
    expected = copy.deepcopy(document)
    restored = LoopMachine.load(document)
    document["messages"].clear()
    document["waiting"].clear()
    document["figures"]["fixed"] = 10**6
    assert machine.dump() == expected == restored.dump()


def test_lone_surrogates_survive() -> None:
    """MOD-2, H4: text that UTF-8 cannot encode crashes no document and comes back equal."""
    machine = LoopMachine()
    machine.begin(Message.user("broken \ud83d text, \u2028 and ⚙"))
    machine.reply(
        ModelResponse(
            message=Message.assistant(ToolCallPart("x\ud800", "look", '{"at":"\ud800"}'))
        ),
        OFFERED,
    )
    text = json.dumps(machine.dump())
    text.encode()
    restored = LoopMachine.load(json.loads(text))
    assert restored.conversation == machine.conversation
    assert restored.waiting == machine.waiting


@pytest.mark.parametrize("version", [[VERSION[0] + 1, 0], [99], [2, 7, "beta"]])
def test_a_newer_major_version_is_refused_with_a_clear_error(version: list[object]) -> None:
    """ENG-7: the error says what the document is, what is read here, and what to do."""
    document = begun().dump() | {"version": version}
    with pytest.raises(ValueError, match="install a newer loopctl") as caught:
        LoopMachine.load(document)
    assert f"version {version[0]}" in str(caught.value)
    assert f"up to {VERSION[0]}" in str(caught.value)


@pytest.mark.parametrize("version", [[VERSION[0], 99], [VERSION[0]], [0, 9], [1, 0, 3]])
def test_other_versions_of_the_same_or_an_older_major_load(version: list[int]) -> None:
    """ENG-7: additive fields keep the major; older documents load."""
    document = begun().dump()
    assert LoopMachine.load(document | {"version": version}).dump() == document


def test_unknown_fields_are_tolerated_wherever_they_stand() -> None:
    """ENG-7, MOD-2: a newer minor may have added them."""
    machine = latched()
    machine.end(Outcome(ending="cancelled"))
    expected = machine.dump()
    document: dict[str, Any] = {**through_text(expected), "mood": "good"}
    for place in ("outcome", "figures", "latch"):
        document[place]["mood"] = "good"
    for message in document["messages"]:
        message["mood"] = "good"
        for part in message["parts"]:
            part["mood"] = "good"
    assert LoopMachine.load(document).dump() == expected


def test_missing_optional_fields_take_their_defaults() -> None:
    """ENG-7: what an older version did not write."""
    document = {
        "version": [1, 0],
        "state": "awaiting_model",
        "messages": [Message.user("look").to_json()],
        "split": 0,
    }
    machine = LoopMachine.load(document)
    fresh = LoopMachine()
    fresh.begin(Message.user("look"))
    assert machine.next_step(POLICY) == fresh.next_step(POLICY) == CallModel(0)
    assert machine.history == ()
    assert (machine.figures, machine.outcome, machine.turn) == (None, None, 0)
    assert not machine.latched(POLICY)
    machine.cancel()
    machine.end(Outcome(ending="cancelled"))
    assert machine.unfinished


def without(field: str) -> dict[str, Any]:
    document = with_tools().dump()
    del document[field]
    return document


@pytest.mark.parametrize(
    "document",
    [
        pytest.param({}, id="nothing in it"),
        pytest.param({"version": "1.0"}, id="a version that is text"),
        pytest.param({"version": []}, id="a version without numbers"),
        pytest.param({"version": [1, 0]}, id="nothing but a version"),
        pytest.param(without("version"), id="no version"),
        pytest.param(without("messages"), id="no messages"),
        pytest.param(without("state"), id="no state"),
        pytest.param(without("split"), id="no split"),
        pytest.param(without("waiting"), id="tools wait, but which"),
        pytest.param(without("answered"), id="a call without its answer"),
        pytest.param(with_tools().dump() | {"state": "asleep"}, id="an unknown state"),
        pytest.param(with_tools().dump() | {"state": "terminal"}, id="ended without an outcome"),
        pytest.param(with_tools().dump() | {"state": "awaiting_model"}, id="calls left open"),
        pytest.param(begun().dump() | {"state": "awaiting_tools"}, id="no calls to wait for"),
        pytest.param(with_tools().dump() | {"split": 99}, id="a split behind the end"),
        pytest.param(with_tools().dump() | {"split": -1}, id="a split before the start"),
        pytest.param(with_tools().dump() | {"waiting": ["x", "z"]}, id="nobody's call waits"),
        pytest.param(with_tools().dump() | {"messages": []}, id="the messages are gone"),
        pytest.param(with_tools().dump() | {"messages": [7]}, id="a message that is none"),
        pytest.param(with_tools().dump() | {"messages": None}, id="messages that are none"),
        pytest.param(
            with_tools().dump() | {"figures": {"fixed": 1, "x": 2}, "latch": 3},
            id="a latch that is a number",
        ),
        pytest.param(ended().dump() | {"outcome": {}}, id="an outcome without an ending"),
        pytest.param(ended().dump() | {"outcome": "bad"}, id="an outcome that is text"),
    ],
)
def test_what_is_no_machine_is_a_value_error(document: dict[str, Any]) -> None:
    """ENG-7: a broken document is told apart at once, not in the middle of a run."""
    with pytest.raises(ValueError, match=r"not a machine|not a message|is not a valid State"):
        LoopMachine.load(document)


def test_the_version_is_written_as_major_and_minor() -> None:
    """ENG-7: the document carries a version."""
    document = LoopMachine().dump()
    assert document["version"] == list(VERSION)
    assert document["state"] == State.START.value


def test_a_terminal_machine_repeats_its_outcome_after_loading() -> None:
    """ENG-8: with its figures and its words."""
    machine = ended()
    restored = LoopMachine.load(through_text(machine.dump()))
    assert restored.next_step(POLICY) == Done(
        Outcome(ending="context_exceeded", used=9, limit=8, detail="too much")
    )
    restored.begin(Message.user("again"))
    restored.reply(
        ModelResponse(message=Message.assistant("yes"), stop_reason=StopReason.END), OFFERED
    )
    assert restored.outcome == Outcome(ending="completed")
