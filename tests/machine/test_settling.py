"""What stays of a run when it ends (ENG-18, faults A1, A2 and D3)."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from loopctl.errors import MachineError
from loopctl.machine import LoopMachine, Outcome, Policy, State
from loopctl.messages import Message, ToolCallPart, ToolResultPart
from loopctl.replies import ModelResponse, StopReason
from loopctl.runs import Ending
from loopctl.testing import conversation_problems

OFFERED = {"look": "at"}
HISTORY = (Message.user("hello"), Message.assistant("hi"))
INPUT = Message.user("look twice")
ANSWER = Message.assistant("done")
REFUSAL = Message.assistant("no")


def asks(*ids: str) -> Message:
    return Message.assistant(*(ToolCallPart(id, "look", {"at": id}) for id in ids))


def result(id: str) -> ToolResultPart:
    return ToolResultPart(id, "look", f"saw {id}")


def answers(*ids: str) -> Message:
    return Message.user(*(result(id) for id in ids))


def interrupted(id: str) -> ToolResultPart:
    text = "Interrupted before it finished. Its effects are unknown; check before you repeat it."
    return ToolResultPart(id, "look", text, is_error=True, outcome="interrupted")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A run of `turns` completed turns, perhaps open calls, and an ending."""

    says: str
    ending: Ending
    kept: tuple[Message, ...] | None
    """What of the run is in history afterwards, `None` for nothing at all."""
    unfinished: bool
    turns: int = 0
    open_calls: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    """Which of the open calls had finished."""
    reply: Message | None = None
    """The reply that ends the run by itself."""


TURNS = (asks("a"), answers("a"), asks("b"), answers("b"))

CASES = [
    Case(
        says="completed at once",
        ending="completed",
        reply=ANSWER,
        kept=(INPUT, ANSWER),
        unfinished=False,
    ),
    Case(
        says="completed after two turns",
        ending="completed",
        turns=2,
        reply=ANSWER,
        kept=(INPUT, *TURNS, ANSWER),
        unfinished=False,
    ),
    Case(
        says="cancelled before any turn",
        ending="cancelled",
        kept=(INPUT,),
        unfinished=True,
    ),
    Case(
        says="cancelled with 0 of 2 results",
        ending="cancelled",
        open_calls=("x", "y"),
        kept=(INPUT, asks("x", "y"), Message.user(interrupted("x"), interrupted("y"))),
        unfinished=True,
    ),
    Case(
        says="cancelled with 1 of 2 results",
        ending="cancelled",
        open_calls=("x", "y"),
        done=("y",),
        kept=(INPUT, asks("x", "y"), Message.user(interrupted("x"), result("y"))),
        unfinished=True,
    ),
    Case(
        says="cancelled with 2 of 2 results",
        ending="cancelled",
        open_calls=("x", "y"),
        done=("y", "x"),
        kept=(INPUT, asks("x", "y"), answers("x", "y")),
        unfinished=True,
    ),
    Case(
        says="cancelled while the model writes the third turn",
        ending="cancelled",
        turns=2,
        kept=(INPUT, *TURNS),
        unfinished=True,
    ),
    Case(says="failed at turn 0", ending="failed", kept=None, unfinished=False),
    Case(
        says="failed at turn 2",
        ending="failed",
        turns=2,
        kept=(INPUT, *TURNS),
        unfinished=True,
    ),
    Case(
        says="failed in the tools of turn 0",
        ending="failed",
        open_calls=("x", "y"),
        done=("x",),
        kept=None,
        unfinished=False,
    ),
    Case(
        says="failed when all tools of turn 0 had finished",
        ending="failed",
        open_calls=("x", "y"),
        done=("x", "y"),
        kept=(INPUT, asks("x", "y"), answers("x", "y")),
        unfinished=True,
    ),
    Case(
        says="failed in the tools of turn 2",
        ending="failed",
        turns=2,
        open_calls=("x", "y"),
        done=("x",),
        kept=(INPUT, *TURNS, asks("x", "y"), Message.user(result("x"), interrupted("y"))),
        unfinished=True,
    ),
    Case(
        says="as many turns as allowed",
        ending="max_turns",
        turns=2,
        kept=(INPUT, *TURNS),
        unfinished=True,
    ),
    Case(says="budget spent at turn 0", ending="budget_exceeded", kept=None, unfinished=False),
    Case(
        says="budget spent at turn 2",
        ending="budget_exceeded",
        turns=2,
        kept=(INPUT, *TURNS),
        unfinished=True,
    ),
    Case(says="refused at turn 0", ending="refused", reply=REFUSAL, kept=None, unfinished=False),
    Case(
        says="refused at turn 2",
        ending="refused",
        turns=2,
        reply=REFUSAL,
        kept=(INPUT, *TURNS),
        unfinished=True,
    ),
    Case(
        says="context exceeded at turn 0",
        ending="context_exceeded",
        kept=None,
        unfinished=False,
    ),
    Case(
        says="context exceeded at turn 2",
        ending="context_exceeded",
        turns=2,
        kept=None,
        unfinished=False,
    ),
]


def in_flight(turns: int = 0, history: tuple[Message, ...] = HISTORY) -> LoopMachine:
    machine = LoopMachine(history)
    machine.begin(INPUT)
    take_turns(machine, turns)
    return machine


def take_turns(machine: LoopMachine, turns: int) -> None:
    for id in ("a", "b")[:turns]:
        machine.reply(ModelResponse(message=asks(id)), OFFERED)
        machine.results([result(id)])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.says)
def test_what_stays_of_a_run(case: Case) -> None:
    """ENG-18, D3: the coherent prefix or nothing, and a result for every call."""
    machine = in_flight(case.turns)
    if case.reply is not None:
        stop = StopReason.REFUSAL if case.ending == "refused" else StopReason.END
        machine.reply(ModelResponse(message=case.reply, stop_reason=stop), OFFERED)
    else:
        if case.open_calls:
            machine.reply(ModelResponse(message=asks(*case.open_calls)), OFFERED)
        machine.end(Outcome(ending=case.ending), [result(id) for id in case.done])
    assert machine.state is State.TERMINAL
    assert machine.history == (*HISTORY, *(case.kept or ()))
    assert machine.run_messages == (case.kept or ())
    assert conversation_problems(machine.history) == []
    assert machine.pending == ()
    assert machine.waiting == ()
    assert machine.unfinished is case.unfinished


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.unfinished], ids=lambda case: case.says
)
def test_an_unfinished_run_can_be_continued(case: Case) -> None:
    """ENG-18, ENG-10: `run(None)` goes on from the coherent prefix."""
    machine = in_flight(case.turns)
    if case.open_calls:
        machine.reply(ModelResponse(message=asks(*case.open_calls)), OFFERED)
    machine.end(Outcome(ending=case.ending), [result(id) for id in case.done])
    kept = machine.history
    machine.begin(None)
    assert (machine.history, machine.pending, machine.turn) == (kept, (), 0)
    machine.reply(ModelResponse(message=ANSWER), OFFERED)
    assert machine.history == (*kept, ANSWER)
    assert machine.run_messages == (ANSWER,)
    assert not machine.unfinished


def test_nothing_to_continue_is_refused() -> None:
    """ENG-10: `run(None)` needs an unfinished run."""
    machine = LoopMachine(HISTORY)
    with pytest.raises(MachineError, match="there is no unfinished run"):
        machine.begin(None)
    machine.begin(INPUT)
    machine.end(Outcome(ending="failed"))
    with pytest.raises(MachineError, match="there is no unfinished run"):
        machine.begin(None)


def test_a_history_that_ends_with_the_user_is_an_unfinished_run() -> None:
    """ENG-27: so a restored conversation can be gone on with."""
    assert LoopMachine([INPUT]).unfinished
    assert not LoopMachine(HISTORY).unfinished
    assert not LoopMachine().unfinished


def test_a_continued_run_that_fails_at_once_can_be_continued_again() -> None:
    """ENG-18: the natural retry of `run(None)` is `run(None)`."""
    machine = in_flight()
    machine.end(Outcome(ending="cancelled"))
    for _ in range(2):
        machine.begin(None)
        machine.end(Outcome(ending="failed"))
        assert machine.history == (*HISTORY, INPUT)
        assert machine.unfinished


def test_a_run_taken_back_leaves_what_was_unfinished_before_it() -> None:
    """ENG-18: nothing of it is committed, so nothing has changed."""
    machine = in_flight()
    machine.end(Outcome(ending="cancelled"))
    machine.begin(Message.user("never mind, do this"))
    machine.end(Outcome(ending="failed"))
    assert machine.history == (*HISTORY, INPUT)
    assert machine.unfinished


def test_a_run_taken_back_makes_no_finished_one_unfinished() -> None:
    """ENG-18: an answer without content completed the run before."""
    machine = in_flight()
    machine.reply(ModelResponse(message=Message.assistant()), OFFERED)
    assert not machine.unfinished
    machine.begin(Message.user("again"))
    machine.end(Outcome(ending="failed"))
    assert not machine.unfinished


def test_nothing_is_unfinished_when_nothing_is_left() -> None:
    """ENG-18: a pass may make an earlier input pending, and a failure then takes it back."""
    machine = LoopMachine([INPUT])
    machine.begin(None)
    machine.start_pass()
    machine.compacted([], [INPUT], policy=Policy(), fixed=0, conversation=20)
    machine.end(Outcome(ending="failed"))
    assert machine.conversation == ()
    assert not machine.unfinished


@pytest.mark.parametrize(
    ("ending", "turns", "kept"),
    [
        ("failed", 0, ()),
        ("failed", 1, (INPUT, asks("a"), answers("a"))),
        ("cancelled", 0, (INPUT,)),
        ("context_exceeded", 1, ()),
        ("refused", 0, ()),
    ],
)
def test_a_pass_stays_whatever_happens_later(
    ending: Ending, turns: int, kept: tuple[Message, ...]
) -> None:
    """ENG-18, CMP-8: the run can still be taken back to the input; the pass cannot."""
    machine = in_flight()
    machine.measure(fixed=0, conversation=9_000)
    machine.start_pass()
    short = (Message.user("in short"),)
    machine.compacted(short, [INPUT], policy=Policy(window=8_000), fixed=0, conversation=20)
    take_turns(machine, turns)
    machine.end(Outcome(ending=ending))
    assert machine.history == (*short, *kept)
    assert machine.run_messages == kept


@pytest.mark.parametrize("ending", ["cancelled", "failed"])
def test_a_pass_that_was_cut_short_changes_nothing(ending: Ending) -> None:
    """CMP-6: the history is the old one."""
    machine = in_flight(turns=2)
    before = machine.conversation
    machine.start_pass()
    machine.end(Outcome(ending=ending))
    assert machine.history == before


def test_results_of_nobody_s_calls_are_not_stored() -> None:
    """A2: each result has a call, also in what a cancelled batch leaves behind."""
    machine = in_flight()
    machine.reply(ModelResponse(message=asks("x")), OFFERED)
    machine.end(Outcome(ending="cancelled"), [result("z"), result("x")])
    assert machine.history[-1] == answers("x")


def test_calls_that_could_not_run_keep_their_own_answers_when_cancelled() -> None:
    """D3, ENG-5: they were never started, so nothing about them is unknown."""
    machine = in_flight()
    unknown = ToolCallPart("n", "nope")
    both = Message.assistant(unknown, *asks("x").calls)
    machine.reply(ModelResponse(message=both), OFFERED)
    machine.end(Outcome(ending="cancelled"))
    first, second = machine.history[-1].results
    assert (first.call_id, first.outcome) == ("n", "not_run")
    assert second == interrupted("x")


def test_ten_results_stay_with_the_message_of_their_ten_calls() -> None:
    """A1: one batch is one message of calls and one of results, with nothing between."""
    ids = [f"c{number}" for number in range(10)]
    machine = in_flight()
    machine.reply(ModelResponse(message=asks(*ids)), OFFERED)
    machine.results([result(id) for id in reversed(ids)])
    assert machine.pending == (INPUT, asks(*ids), answers(*ids))
