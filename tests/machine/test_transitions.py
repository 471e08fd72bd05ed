"""The transition table is the whole law of the machine (ENG-1, ENG-2)."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from pathlib import Path

import pytest

import loopctl._calls
import loopctl._steps
import loopctl.machine
from loopctl.errors import MachineError
from loopctl.machine import TRANSITIONS, LoopMachine, Outcome, Policy, State
from loopctl.messages import Message, ToolCallPart, ToolResultPart
from loopctl.replies import ModelResponse, StopReason

CALL = ToolCallPart("c1", "add", {"a": 1})
RESULT = ToolResultPart("c1", "add", "1")
OFFERED = {"add": "a, b"}
ANSWER = ModelResponse(message=Message.assistant("done"))
WITH_CALL = ModelResponse(message=Message.assistant(CALL), stop_reason=StopReason.TOOL_CALLS)

Feed = Callable[[LoopMachine], None]


def _ignore(value: object) -> None:
    """What a feed gives back is of no interest here."""


def _answer_to_steering(machine: LoopMachine) -> None:
    if machine.state is State.AWAITING_MODEL:
        machine.steer(Message.user("wait"))
    machine.reply(ANSWER, OFFERED)


FEEDS: dict[str, list[Feed]] = {
    "begin": [lambda m: m.begin(Message.user("hello"))],
    "replace": [lambda m: m.replace([Message.user("hi"), Message.assistant("hello")])],
    "measure": [lambda m: m.measure(fixed=1, conversation=2)],
    "weigh": [lambda m: m.weigh(3)],
    "overflow": [lambda m: m.overflow(9_000)],
    "start_pass": [lambda m: m.start_pass()],
    "compacted": [
        lambda m: m.compacted(
            [], [Message.user("short")], policy=Policy(), fixed=1, conversation=1
        ),
    ],
    "no_pass": [lambda m: m.no_pass()],
    "steer": [lambda m: m.steer(Message.user("and be quick"))],
    "deliver": [lambda m: _ignore(m.deliver())],
    "reply": [
        lambda m: m.reply(ANSWER, OFFERED),
        lambda m: m.reply(WITH_CALL, OFFERED),
        lambda m: m.reply(ANSWER, OFFERED, Message.user("that is no JSON")),
        _answer_to_steering,
    ],
    "results": [lambda m: m.results([RESULT])],
    "cancel": [lambda m: m.cancel()],
    "end": [lambda m: m.end(Outcome(ending="failed"))],
}
"""Each feed in every shape that may lead elsewhere."""


def machine_in(state: State) -> LoopMachine:
    machine = LoopMachine()
    if state is State.START:
        return machine
    machine.begin(Message.user("add one"))
    machine.measure(fixed=1, conversation=2)
    if state is State.AWAITING_TOOLS:
        machine.reply(WITH_CALL, OFFERED)
    elif state is State.AWAITING_COMPACTION:
        machine.start_pass()
    elif state is State.TERMINAL:
        machine.reply(ANSWER, OFFERED)
    return machine


def test_every_state_has_a_row_and_can_be_reached() -> None:
    """ENG-2: the table speaks of every state, and each is one that a machine can stand in."""
    assert set(TRANSITIONS) == set(State)
    assert [machine_in(state).state for state in State] == list(State)


def test_every_feed_of_the_machine_is_in_the_table_and_nothing_else_is() -> None:
    """ENG-2: whatever changes a machine is a feed, and the table lists it."""
    readers = {"between", "dump", "load", "next_step", "latched", "tail", "run_start"}
    methods = {
        name
        for name, value in inspect.getmembers(LoopMachine, inspect.isroutine)
        if not name.startswith("_")
    }
    named = {feed for row in TRANSITIONS.values() for feed in row}
    assert methods - readers == named == set(FEEDS)


@pytest.mark.parametrize("feed", FEEDS)
@pytest.mark.parametrize("state", State)
def test_a_feed_leads_where_the_table_says_or_raises_naming_both(state: State, feed: str) -> None:
    """ENG-2: state × feed → state; a feed that the state does not allow changes nothing."""
    reached: set[State] = set()
    for shape in FEEDS[feed]:
        machine = machine_in(state)
        before = machine.dump()
        if feed in TRANSITIONS[state]:
            shape(machine)
            reached.add(machine.state)
            continue
        with pytest.raises(MachineError) as caught:
            shape(machine)
        assert (caught.value.feed, caught.value.state) == (feed, state.value)
        assert repr(feed) in str(caught.value)
        assert repr(state.value) in str(caught.value)
        assert machine.dump() == before
    assert reached == set(TRANSITIONS[state].get(feed, ()))


@pytest.mark.parametrize("state", [State.START, State.AWAITING_COMPACTION])
def test_a_machine_with_nothing_to_decide_says_so(state: State) -> None:
    """ENG-3: before a run, and while a pass works, there is no next step."""
    machine = machine_in(state)
    with pytest.raises(MachineError) as caught:
        machine.next_step(Policy())
    assert (caught.value.feed, caught.value.state) == ("next_step", state.value)


def test_the_machine_awaits_nothing_and_imports_nothing_that_could() -> None:
    """ENG-1: no IO, no await, no clock, no random number."""
    pure = {"__future__", "collections.abc", "dataclasses", "enum", "math", "re", "typing"}
    ours = {"_calls", "_steps", "errors", "messages", "replies", "runs"}
    for module in (loopctl.machine, loopctl._calls, loopctl._steps):
        tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            assert not isinstance(node, (ast.Await, ast.AsyncFunctionDef, ast.AsyncFor))
            if isinstance(node, ast.ImportFrom):
                assert node.module in pure | {f"loopctl.{name}" for name in ours}
            if isinstance(node, ast.Import):
                assert {alias.name for alias in node.names} <= pure


def test_the_same_feeds_give_the_same_machine() -> None:
    """ENG-1: what the machine holds follows from what it was fed alone."""
    for state in State:
        assert machine_in(state).dump() == machine_in(state).dump()
