"""The lines of the window, the latch, the salvage, as pure decisions (CTX-31 … CTX-33)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest

from loopctl.machine import (
    CallModel,
    Compact,
    CompactReason,
    Done,
    LoopMachine,
    Outcome,
    Policy,
    Step,
)
from loopctl.messages import Message, ToolCallPart, ToolResultPart
from loopctl.replies import ModelResponse

OFFERED = {"look": ""}
POLICY = Policy(window=8_000)
"""T is 6,400 tokens, E is 7,600."""


@dataclass(frozen=True, kw_only=True)
class Situation:
    """Figures at the boundary of turn 1, in tokens, and what is decided."""

    says: str
    expected: Step
    fixed: int = 500
    conversation: int
    transients: int | None = None
    attachments: int = 0
    window: int = 8_000
    threshold: float = 80
    auto_compact: bool = True
    before: int = 0
    """X of the turn before."""
    latch: tuple[int, int, int] | None = None
    """F, C and attachments when a pass of turn 0 did not help."""
    passed: bool = False
    """A pass that freed too little has run at this boundary."""
    refused: int = 0
    """What the provider found too long after this boundary was served, by our estimate."""
    salvages: int = 0
    """Salvages of earlier turns of the run."""
    salvaged: Literal["", "helped", "freed nothing"] = ""
    """What came of a salvage at this boundary, before `refused` came again or not."""


def call(over_line: int = 0) -> CallModel:
    return CallModel(1, over_line)


def threshold(reserve: int = 0) -> Compact:
    return Compact(CompactReason.THRESHOLD, reserve)


def emergency(reserve: int = 0) -> Compact:
    return Compact(CompactReason.EMERGENCY, reserve)


def deferral(reserve: int) -> Compact:
    return Compact(CompactReason.DEFERRAL, reserve)


def salvage(refused: int, reserve: int = 0) -> Compact:
    return Compact(CompactReason.SALVAGE, reserve, refused)


def exceeded(used: int, limit: int = 8_000) -> Done:
    return Done(Outcome(ending="context_exceeded", used=used, limit=limit))


SITUATIONS = [
    Situation(says="far below every line", conversation=100, transients=10, expected=call()),
    Situation(says="nothing at all", fixed=0, conversation=0, transients=0, expected=call()),
    # step 4: the turn defers
    Situation(
        says="C 6,000 and X 1,000 cross the threshold together",
        fixed=0,
        conversation=6_000,
        transients=1_000,
        expected=deferral(1_000),
    ),
    Situation(
        says="P exactly at the threshold",
        conversation=5_000,
        transients=900,
        expected=call(),
    ),
    Situation(
        says="P one token over the threshold",
        conversation=5_000,
        transients=901,
        expected=deferral(901),
    ),
    Situation(
        says="P over the emergency line, B under the threshold",
        conversation=5_000,
        transients=3_000,
        expected=deferral(3_000),
    ),
    Situation(
        says="X not weighed yet",
        conversation=5_900,
        expected=call(),
    ),
    Situation(
        says="X 9,000 alone is over the line: no pass can help",
        conversation=500,
        transients=9_000,
        expected=call(3_600),
    ),
    Situation(
        says="F and X exactly at the line: no pass can help",
        conversation=1,
        transients=5_900,
        expected=call(1),
    ),
    Situation(
        says="F and X one token under the line",
        conversation=2,
        transients=5_899,
        expected=deferral(5_899),
    ),
    Situation(
        says="F and X over the line without a conversation to shrink",
        fixed=6_300,
        conversation=50,
        transients=200,
        expected=call(150),
    ),
    # step 3: the threshold
    Situation(
        says="6,500 and X 0",
        fixed=0,
        conversation=6_500,
        expected=threshold(),
    ),
    Situation(
        says="the reserve is X of the turn before",
        fixed=0,
        conversation=6_500,
        before=700,
        expected=threshold(700),
    ),
    Situation(says="B exactly at the threshold", conversation=5_900, expected=call()),
    Situation(
        says="B exactly at the threshold and X 0",
        conversation=5_900,
        transients=0,
        expected=call(),
    ),
    Situation(says="B one token over the threshold", conversation=5_901, expected=threshold()),
    Situation(
        says="B one token under the emergency line",
        conversation=7_099,
        expected=threshold(),
    ),
    Situation(
        says="a threshold of 50 % of a small window",
        fixed=0,
        window=1_000,
        threshold=50,
        conversation=501,
        expected=threshold(),
    ),
    # step 2: the emergency line
    Situation(
        says="B exactly at the emergency line",
        conversation=7_100,
        before=300,
        expected=emergency(300),
    ),
    Situation(says="B over the whole window", conversation=9_000, expected=emergency()),
    Situation(
        says="a threshold above the emergency line does not move that",
        threshold=97,
        conversation=7_200,
        expected=emergency(),
    ),
    Situation(
        says="still at the emergency line after the pass",
        conversation=7_100,
        passed=True,
        expected=exceeded(7_600),
    ),
    Situation(
        says="under the emergency line after the pass",
        conversation=7_099,
        transients=0,
        passed=True,
        expected=call(1_199),
    ),
    # one pass for each boundary
    Situation(
        says="B over the threshold, a pass has run here",
        conversation=6_000,
        passed=True,
        expected=call(),
    ),
    Situation(
        says="P over the threshold, a pass has run here",
        conversation=5_000,
        transients=1_500,
        passed=True,
        expected=call(600),
    ),
    Situation(
        says="P over the emergency line, a pass has run here",
        conversation=5_000,
        transients=3_000,
        passed=True,
        expected=call(2_100),
    ),
    Situation(
        says="a part of a token over the line counts as one",
        fixed=0,
        window=1_001,
        threshold=33.3,
        conversation=334,
        transients=0,
        passed=True,
        expected=call(1),
    ),
    # the latch
    Situation(
        says="latched, B over the threshold",
        conversation=6_000,
        latch=(500, 6_000, 0),
        expected=call(),
    ),
    Situation(
        says="latched, served over the line",
        conversation=6_000,
        transients=200,
        latch=(500, 6_000, 0),
        expected=call(300),
    ),
    Situation(
        says="latched, P over the threshold",
        conversation=5_000,
        transients=1_500,
        latch=(500, 5_000, 0),
        expected=call(600),
    ),
    Situation(
        says="latched, then at the emergency line",
        conversation=7_100,
        latch=(500, 7_000, 0),
        expected=emergency(),
    ),
    Situation(
        says="C has grown by 5 % of W less one token",
        conversation=6_399,
        latch=(500, 6_000, 0),
        expected=call(),
    ),
    Situation(
        says="C has grown by 5 % of W",
        conversation=6_400,
        latch=(500, 6_000, 0),
        expected=threshold(),
    ),
    Situation(
        says="F has shrunk",
        fixed=499,
        conversation=6_000,
        latch=(500, 6_000, 0),
        expected=threshold(),
    ),
    Situation(
        says="F has grown",
        fixed=600,
        conversation=6_000,
        latch=(500, 6_000, 0),
        expected=call(),
    ),
    Situation(
        says="the attachments have shrunk",
        conversation=5_000,
        transients=1_500,
        attachments=799,
        latch=(500, 5_000, 800),
        expected=deferral(1_500),
    ),
    Situation(
        says="the attachments have grown",
        conversation=5_000,
        transients=1_500,
        attachments=900,
        latch=(500, 5_000, 800),
        expected=call(600),
    ),
    Situation(
        says="X has shrunk, the attachments have not",
        conversation=5_000,
        transients=1_500,
        attachments=800,
        before=1_800,
        latch=(500, 5_000, 800),
        expected=call(600),
    ),
    # policy switched off, in part or wholly
    Situation(
        says="window 0",
        window=0,
        conversation=10**9,
        transients=10**9,
        expected=call(),
    ),
    Situation(
        says="window 0 after a pass",
        window=0,
        conversation=10**9,
        transients=10**9,
        passed=True,
        expected=call(),
    ),
    Situation(
        says="no auto-compaction, B over the threshold",
        auto_compact=False,
        conversation=6_500,
        expected=call(),
    ),
    Situation(
        says="no auto-compaction, P one token under the emergency line",
        auto_compact=False,
        conversation=6_500,
        transients=599,
        expected=call(),
    ),
    Situation(
        says="no auto-compaction, P exactly at the emergency line",
        auto_compact=False,
        conversation=6_500,
        transients=600,
        expected=deferral(600),
    ),
    Situation(
        says="no auto-compaction, B exactly at the emergency line",
        auto_compact=False,
        conversation=7_100,
        expected=emergency(),
    ),
    Situation(
        says="no auto-compaction, F and X exactly at the emergency line",
        auto_compact=False,
        conversation=40,
        transients=7_100,
        expected=call(40),
    ),
    Situation(
        says="no auto-compaction, at the line by nothing: no token is over it",
        auto_compact=False,
        conversation=7_000,
        transients=100,
        passed=True,
        expected=call(0),
    ),
    Situation(
        says="no auto-compaction, still at the emergency line after the pass",
        auto_compact=False,
        conversation=7_200,
        passed=True,
        expected=exceeded(7_700),
    ),
    # the provider refuses what the lines let through
    Situation(
        says="refused far below the lines",
        conversation=3_000,
        transients=200,
        refused=3_700,
        expected=salvage(3_700, 200),
    ),
    Situation(
        says="refused after a deferral at this boundary",
        conversation=5_000,
        transients=2_000,
        passed=True,
        refused=7_500,
        expected=salvage(7_500, 2_000),
    ),
    Situation(
        says="refused while latched",
        conversation=6_000,
        transients=200,
        latch=(500, 6_000, 0),
        refused=6_700,
        expected=salvage(6_700, 200),
    ),
    Situation(
        says="refused with the window policy off",
        window=0,
        conversation=10**6,
        transients=10,
        refused=1_000_510,
        expected=salvage(1_000_510, 10),
    ),
    Situation(
        says="refused without auto-compaction",
        auto_compact=False,
        conversation=5_000,
        transients=0,
        refused=5_500,
        expected=salvage(5_500),
    ),
    Situation(
        says="an attachment that no provider would take, before the first refusal",
        conversation=500,
        transients=9_000,
        attachments=9_000,
        expected=call(3_600),
    ),
    Situation(
        says="an attachment that no provider would take, refused",
        conversation=500,
        transients=9_000,
        attachments=9_000,
        refused=10_000,
        expected=salvage(10_000, 9_000),
    ),
    Situation(
        says="an attachment that no provider would take, refused, nothing to shrink",
        conversation=500,
        transients=9_000,
        attachments=9_000,
        refused=10_000,
        salvaged="freed nothing",
        expected=exceeded(10_000),
    ),
    Situation(
        says="a salvage that helped is followed by the retry",
        conversation=3_000,
        transients=200,
        refused=3_700,
        salvaged="helped",
        expected=call(),
    ),
    Situation(
        says="three salvages of earlier turns are all that a run has",
        conversation=3_000,
        transients=200,
        refused=3_700,
        salvages=3,
        expected=exceeded(3_700),
    ),
    Situation(
        says="the third salvage of a run",
        conversation=3_000,
        transients=200,
        refused=3_700,
        salvages=2,
        expected=salvage(3_700, 200),
    ),
    Situation(
        says="refused for good with the window policy off: no limit is known",
        window=0,
        conversation=900,
        transients=10,
        refused=1_410,
        salvaged="freed nothing",
        expected=Done(Outcome(ending="context_exceeded", used=1_410, limit=None)),
    ),
]


def at_the_boundary(situation: Situation, policy: Policy) -> LoopMachine:
    """A machine that has done turn 0 and knows the figures of turn 1."""
    machine = LoopMachine()
    machine.begin(Message.user("look"))
    fixed, conversation, attachments = situation.latch or (0, 0, 0)
    machine.measure(fixed=fixed, conversation=conversation)
    machine.weigh(situation.before, attachments=attachments)
    if situation.latch:
        machine.start_pass()
        machine.no_pass()
    for _ in range(situation.salvages):
        machine.overflow(9_000)
        machine.start_pass()
        shrunk(machine, situation, policy)
        take_a_turn(machine)
    while machine.turn < 1:
        take_a_turn(machine)
    machine.measure(fixed=situation.fixed, conversation=situation.conversation)
    if situation.passed:
        machine.start_pass()
        shrunk(machine, situation, policy)
    if situation.transients is not None:
        machine.weigh(situation.transients, attachments=situation.attachments)
    if situation.refused:
        machine.overflow(situation.refused)
    if situation.salvaged:
        machine.start_pass()
        if situation.salvaged == "helped":
            shrunk(machine, situation, policy)
        else:
            machine.no_pass()
    return machine


def shrunk(machine: LoopMachine, situation: Situation, policy: Policy) -> None:
    machine.compacted(
        machine.history,
        machine.pending,
        policy=policy,
        fixed=situation.fixed,
        conversation=situation.conversation,
    )


def take_a_turn(machine: LoopMachine) -> None:
    asks = Message.assistant(ToolCallPart("c1", "look"))
    machine.reply(ModelResponse(message=asks), OFFERED)
    machine.results([ToolResultPart("c1", "look", "nothing")])


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda situation: situation.says)
def test_figures_in_decision_out(situation: Situation) -> None:
    """CTX-31, CTX-32, CTX-33: each line, each side of it; the latch, a pass, a refusal."""
    policy = Policy(
        window=situation.window,
        threshold=situation.threshold,
        auto_compact=situation.auto_compact,
    )
    machine = at_the_boundary(situation, policy)
    before = machine.dump()
    assert machine.next_step(policy) == situation.expected
    assert machine.next_step(policy) == situation.expected
    assert machine.dump() == before
    assert LoopMachine.load(before).next_step(policy) == situation.expected


def begun(*, fixed: int = 0, conversation: int) -> LoopMachine:
    machine = LoopMachine()
    machine.begin(Message.user("look"))
    machine.measure(fixed=fixed, conversation=conversation)
    return machine


def shrink(machine: LoopMachine, conversation: int, *, fixed: int = 0, reserve: int = 0) -> None:
    """A pass of any kind that succeeds."""
    machine.start_pass()
    machine.compacted(
        machine.history,
        machine.pending,
        policy=POLICY,
        fixed=fixed,
        conversation=conversation,
        reserve=reserve,
    )


def test_a_contributor_that_grew_at_the_retry_is_served_over_the_line() -> None:
    """CTX-31: one pass for a boundary; then the provider's answer decides."""
    machine = begun(conversation=6_000)
    machine.weigh(1_000)
    assert machine.next_step(POLICY) == deferral(1_000)
    shrink(machine, 3_000, reserve=1_000)
    assert machine.next_step(POLICY) == CallModel(0)
    machine.weigh(4_000)
    assert machine.next_step(POLICY) == CallModel(0, over_line=600)


@pytest.mark.parametrize("helped", [True, False])
def test_a_deferred_turn_has_its_transients_weighed_again(helped: bool) -> None:
    """CTX-31: the first answers are gone, whatever came of the pass."""
    machine = begun(conversation=6_000)
    machine.weigh(1_000, attachments=200)
    if helped:
        shrink(machine, 3_000, reserve=1_000)
    else:
        machine.start_pass()
        machine.no_pass()
    assert machine.figures is not None
    assert machine.figures.transients is None
    assert machine.figures.attachments == 200


def test_what_steering_adds_has_to_be_measured() -> None:
    """CTX-31: steering is committed first; figures from before it are no figures any more."""
    machine = begun(conversation=6_500)
    machine.steer(Message.user("look left"))
    machine.deliver()
    assert machine.figures is None
    assert machine.next_step(POLICY) == CallModel(0)


def test_a_pass_that_helped_leaves_no_latch() -> None:
    """CTX-32: the next boundary may have its pass."""
    machine = begun(conversation=6_500)
    shrink(machine, 3_000)
    assert not machine.latched(POLICY)
    take_a_turn(machine)
    machine.measure(fixed=0, conversation=6_500)
    assert machine.next_step(POLICY) == threshold()


def test_a_pass_that_helped_clears_the_latch_of_one_that_did_not() -> None:
    """CTX-32: also where the conversation is then far smaller than it was at that one."""
    machine = begun(conversation=6_500)
    machine.start_pass()
    machine.no_pass()
    take_a_turn(machine)
    machine.measure(fixed=0, conversation=6_900)
    assert machine.next_step(POLICY) == threshold()
    shrink(machine, 3_000)
    take_a_turn(machine)
    machine.measure(fixed=0, conversation=6_450)
    assert machine.next_step(POLICY) == threshold()


def test_a_pass_that_left_the_payload_over_the_line_sets_the_latch() -> None:
    """CTX-32: smaller is not enough; with the reserve it must be under L."""
    machine = begun(conversation=6_500)
    shrink(machine, 6_401)
    assert machine.latched(POLICY)
    other = begun(conversation=6_500)
    shrink(other, 6_000, reserve=401)
    assert other.latched(POLICY)
    third = begun(conversation=6_500)
    shrink(third, 6_000, reserve=400)
    assert not third.latched(POLICY)


def test_a_pass_outside_the_window_policy_sets_no_latch() -> None:
    """CTX-30: 0 switches the lines off, the latch with them."""
    machine = begun(conversation=6_500)
    machine.start_pass()
    machine.compacted([], machine.pending, policy=Policy(window=0), fixed=0, conversation=6_000)
    assert not machine.latched(POLICY)


def test_the_latch_outlives_the_turn_and_the_run() -> None:
    """CTX-32: a pass that did not help is not tried again because an input came."""
    machine = begun(conversation=6_500)
    machine.start_pass()
    machine.no_pass()
    machine.reply(ModelResponse(message=Message.assistant("done")), OFFERED)
    machine.begin(Message.user("more"))
    assert machine.latched(POLICY)
    machine.measure(fixed=0, conversation=6_600)
    assert machine.next_step(POLICY) == CallModel(0)


def test_a_latch_that_a_smaller_prompt_cleared_stays_clear() -> None:
    """CTX-32: clearing is for good, also when F grows back."""
    machine = begun(fixed=500, conversation=6_500)
    machine.start_pass()
    machine.no_pass()
    machine.measure(fixed=400, conversation=6_500)
    assert not machine.latched(POLICY)
    machine.measure(fixed=500, conversation=6_500)
    assert not machine.latched(POLICY)


def test_editing_the_history_by_hand_clears_the_latch() -> None:
    """CTX-32: so does a manual pass, which comes in by `replace`."""
    machine = begun(conversation=6_500)
    machine.start_pass()
    machine.no_pass()
    machine.end(Outcome(ending="failed"))
    assert machine.latched(POLICY)
    machine.replace([])
    assert not machine.latched(POLICY)


def test_the_reserve_of_a_run_s_first_pass_is_what_rode_the_session_s_last_turn() -> None:
    """CTX-31: the previous turn's X, in whichever run that was."""
    machine = begun(conversation=1_000)
    machine.weigh(300)
    machine.reply(ModelResponse(message=Message.assistant("done")), OFFERED)
    machine.begin(Message.user("more"))
    machine.measure(fixed=0, conversation=6_500)
    assert machine.next_step(POLICY) == threshold(300)


def test_compaction_never_repeats_without_end() -> None:
    """CTX-32: with a compactor that frees nothing, 50 turns over the line cost one pass."""
    machine = LoopMachine()
    machine.begin(Message.user("look"))
    passes = 0
    for _ in range(50):
        machine.measure(fixed=500, conversation=6_200)
        while isinstance(machine.next_step(POLICY), Compact):
            passes += 1
            machine.start_pass()
            machine.no_pass()
        machine.weigh(100)
        assert machine.next_step(POLICY) == CallModel(machine.turn, over_line=400)
        take_a_turn(machine)
    assert passes == 1


def test_a_refused_retry_ends_the_run() -> None:
    """CTX-33: one salvage for a turn, then the provider's word is final."""
    machine = begun(conversation=3_000)
    machine.weigh(100)
    machine.overflow(3_100)
    assert machine.next_step(POLICY) == salvage(3_100, 100)
    shrink(machine, 1_000)
    machine.weigh(100)
    assert machine.next_step(POLICY) == CallModel(0)
    machine.overflow(1_100)
    assert machine.next_step(POLICY) == exceeded(1_100)


def test_the_next_turn_may_be_salvaged_again() -> None:
    """CTX-33: once for each turn, three times for each run, and a new run counts anew."""
    machine = begun(conversation=3_000)
    for turn in range(3):
        machine.overflow(3_000)
        assert machine.next_step(POLICY) == salvage(3_000)
        shrink(machine, 2_900)
        take_a_turn(machine)
        assert machine.turn == turn + 1
    machine.overflow(3_000)
    assert machine.next_step(POLICY) == exceeded(3_000)
    machine.end(Outcome(ending="context_exceeded", used=3_000, limit=8_000))
    machine.begin(Message.user("again"))
    machine.overflow(3_000)
    assert machine.next_step(POLICY) == salvage(3_000)


def test_a_salvage_counts_as_the_pass_of_its_boundary() -> None:
    """CTX-32: at most one pass for each boundary besides it, and none after it."""
    machine = begun(conversation=3_000)
    machine.weigh(100)
    machine.overflow(3_100)
    shrink(machine, 7_000)
    assert machine.next_step(POLICY) == CallModel(0)
    machine.weigh(500)
    assert machine.next_step(POLICY) == CallModel(0, over_line=1_100)


@pytest.mark.parametrize("helped", [True, False])
def test_a_salvage_survives_a_dump(helped: bool) -> None:
    """ENG-7: a machine that was restored in the middle of a salvage decides the same."""
    machine = begun(conversation=3_000)
    machine.weigh(100)
    machine.overflow(3_100)
    machine.start_pass()
    restored = LoopMachine.load(machine.dump())
    for each in (machine, restored):
        if helped:
            each.compacted([], each.pending, policy=POLICY, fixed=0, conversation=900)
        else:
            each.no_pass()
    assert restored.next_step(POLICY) == machine.next_step(POLICY)
    assert restored.dump() == machine.dump()
