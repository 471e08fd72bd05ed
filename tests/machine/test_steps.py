"""What the machine asks for next, and in which order it decides (ENG-3, ENG-4, ENG-6, ENG-8)."""

from __future__ import annotations

import pytest

from loopctl.errors import MachineError
from loopctl.machine import (
    CallModel,
    CallTools,
    Compact,
    CompactReason,
    Done,
    LoopMachine,
    Outcome,
    Policy,
    State,
    Step,
)
from loopctl.messages import ImagePart, Message, ToolCallPart, ToolResultPart
from loopctl.replies import ModelResponse, StopReason

POLICY = Policy(max_turns=3, window=8_000)
OFFERED = {"add": "a, b"}


def answer(text: str = "done") -> ModelResponse:
    return ModelResponse(message=Message.assistant(text))


def calling(*ids: str) -> ModelResponse:
    calls = [ToolCallPart(id, "add", {"a": 1}) for id in ids]
    return ModelResponse(message=Message.assistant(*calls), stop_reason=StopReason.TOOL_CALLS)


def result(id: str) -> ToolResultPart:
    return ToolResultPart(id, "add", f"result of {id}")


def started(turns: int = 0) -> LoopMachine:
    machine = LoopMachine()
    machine.begin(Message.user("add one"))
    for turn in range(turns):
        machine.reply(calling(f"c{turn}"), OFFERED)
        machine.results([result(f"c{turn}")])
    return machine


def asked(machine: LoopMachine, policy: Policy = POLICY) -> Step:
    """The next step, asked twice: the answer and the machine must stay the same."""
    before = machine.dump()
    step = machine.next_step(policy)
    assert machine.next_step(policy) == step
    assert machine.dump() == before
    return step


def test_asking_twice_gives_the_same_answer_and_changes_nothing() -> None:
    """ENG-3: `next_step` is pure, at every point of a run."""
    machine = started()
    assert asked(machine) == CallModel(0)
    machine.measure(fixed=500, conversation=6_500)
    assert asked(machine) == Compact(CompactReason.THRESHOLD, 0)
    machine.start_pass()
    machine.no_pass()
    assert asked(machine) == CallModel(0)
    machine.weigh(100)
    assert asked(machine) == CallModel(0, over_line=700)
    machine.reply(calling("c1", "c2"), OFFERED)
    calls = (ToolCallPart("c1", "add", {"a": 1}), ToolCallPart("c2", "add", {"a": 1}))
    assert asked(machine) == CallTools(0, calls)
    machine.results([result("c2"), result("c1")])
    assert asked(machine) == CallModel(1)
    machine.cancel()
    assert asked(machine) == Done(Outcome(ending="cancelled"))
    machine.end(Outcome(ending="cancelled"))
    assert asked(machine) == Done(Outcome(ending="cancelled"))


def test_a_run_without_calls_is_one_turn() -> None:
    """ENG-3: call the model, then done."""
    machine = started()
    assert asked(machine) == CallModel(0)
    machine.reply(answer("42"), OFFERED)
    assert asked(machine) == Done(Outcome(ending="completed"))
    assert [message.text for message in machine.history] == ["add one", "42"]
    assert machine.pending == ()


def test_what_is_terminal_comes_before_a_cancellation() -> None:
    """ENG-3: terminal is the first thing that is looked at."""
    machine = started()
    machine.cancel()
    machine.reply(answer(), OFFERED)
    assert asked(machine) == Done(Outcome(ending="completed"))


def test_a_cancellation_comes_before_tools_that_wait() -> None:
    """ENG-3: a cancelled run starts no tool."""
    machine = started()
    machine.reply(calling("c1"), OFFERED)
    machine.cancel()
    assert asked(machine) == Done(Outcome(ending="cancelled"))


def test_a_cancellation_ends_a_pass() -> None:
    """ENG-3: the only decision that is taken while a pass works."""
    machine = started()
    machine.start_pass()
    machine.cancel()
    assert asked(machine) == Done(Outcome(ending="cancelled"))


def test_a_cancellation_comes_before_the_turn_limit() -> None:
    """ENG-3: cancelled, then the limits."""
    machine = started(turns=3)
    machine.cancel()
    assert asked(machine) == Done(Outcome(ending="cancelled"))


def test_the_tools_of_the_last_allowed_turn_still_run() -> None:
    """ENG-3: tools that wait come before the turn limit."""
    machine = started(turns=2)
    machine.reply(calling("c1"), OFFERED)
    assert isinstance(asked(machine), CallTools)
    machine.results([result("c1")])
    assert asked(machine) == Done(Outcome(ending="max_turns", limit=3))


def test_the_turn_limit_comes_before_the_lines() -> None:
    """ENG-3: no pass is made for a turn that will not run."""
    machine = started(turns=3)
    machine.measure(fixed=0, conversation=7_900)
    assert asked(machine) == Done(Outcome(ending="max_turns", limit=3))


def test_the_lines_come_before_the_model() -> None:
    """ENG-3: a boundary over a line is not served."""
    machine = started()
    machine.measure(fixed=0, conversation=7_900)
    assert asked(machine) == Compact(CompactReason.EMERGENCY, 0)


def test_the_policy_is_asked_for_at_every_step_and_never_kept() -> None:
    """ENG-4: another policy gives another answer from the same machine."""
    machine = started(turns=1)
    machine.measure(fixed=0, conversation=6_500)
    assert asked(machine, Policy(max_turns=1)) == Done(Outcome(ending="max_turns", limit=1))
    assert asked(machine, Policy(window=8_000)) == Compact(CompactReason.THRESHOLD, 0)
    assert asked(machine, Policy(window=8_000, threshold=90)) == CallModel(1)
    assert asked(machine, Policy(window=8_000, auto_compact=False)) == CallModel(1)
    assert asked(machine, Policy(window=0)) == CallModel(1)


def test_a_pass_is_fed_back_as_a_result() -> None:
    """ENG-6: the messages are those of the pass, the figures those measured after it."""
    machine = LoopMachine([Message.user("old"), Message.assistant("reply")])
    machine.begin(Message.user("new"))
    machine.measure(fixed=100, conversation=7_000)
    machine.start_pass()
    short, new = Message.user("in short"), machine.pending[0]
    machine.compacted([short], [new], policy=POLICY, fixed=100, conversation=300)
    assert (machine.history, machine.pending) == ((short,), (new,))
    assert machine.figures is not None
    assert (machine.figures.conversation, machine.figures.transients) == (300, None)
    assert asked(machine) == CallModel(0)


def test_a_pass_is_fed_back_as_a_no_op() -> None:
    """ENG-6: a no-op leaves everything untouched."""
    machine = LoopMachine([Message.user("old"), Message.assistant("reply")])
    machine.begin(Message.user("new"))
    before = (machine.history, machine.pending, machine.turn)
    machine.measure(fixed=100, conversation=7_000)
    machine.start_pass()
    machine.no_pass()
    assert (machine.history, machine.pending, machine.turn) == before


def test_a_terminal_machine_repeats_its_outcome_until_the_next_input() -> None:
    """ENG-8: terminal stays terminal."""
    machine = started()
    outcome = Outcome(ending="failed", detail="the server is gone")
    machine.end(outcome)
    for _ in range(3):
        assert asked(machine) == Done(outcome)
        assert machine.outcome == outcome
    machine.replace([Message.user("hi"), Message.assistant("hello")])
    assert asked(machine) == Done(outcome)
    machine.begin(Message.user("again"))
    assert machine.outcome is None
    assert asked(machine) == CallModel(0)


def test_turns_are_numbered_from_zero_in_each_run() -> None:
    """ENG-1: the machine counts the turns of the run in flight."""
    machine = started(turns=2)
    assert machine.turn == 2
    machine.reply(answer(), OFFERED)
    machine.begin(Message.user("next"))
    assert machine.turn == 0


def test_a_new_run_forgets_a_cancellation_and_the_passes_of_the_last() -> None:
    """ENG-8: the next input starts afresh; only the latch and the last weights stay."""
    machine = started()
    machine.measure(fixed=0, conversation=7_900)
    machine.start_pass()
    machine.cancel()
    machine.end(Outcome(ending="cancelled"))
    machine.begin(Message.user("again"))
    assert asked(machine) == CallModel(0)
    machine.measure(fixed=0, conversation=7_900)
    assert asked(machine) == Compact(CompactReason.EMERGENCY, 0)


@pytest.mark.parametrize(
    "given",
    [
        Message.assistant("not a user"),
        Message.system("not a user"),
        Message.user(),
        Message.user(" \n"),
        Message.user(result("c1"), "with a result"),
    ],
)
def test_an_input_must_be_something_that_a_user_says(given: Message) -> None:
    """ENG-18: what could not stand in a request starts no run."""
    machine = LoopMachine()
    before = machine.dump()
    with pytest.raises(MachineError, match="a run's input is a user message with text or images"):
        machine.begin(given)
    assert machine.dump() == before


def test_an_image_alone_is_an_input() -> None:
    """ENG-18: text or images."""
    machine = LoopMachine()
    machine.begin(Message.user(ImagePart("image/png", b"\x89PNG")))
    assert asked(machine) == CallModel(0)


def test_blank_text_beside_an_image_is_dropped_from_an_input() -> None:
    """C2, ENG-18: a blank text is refused by every later request."""
    image = ImagePart("image/png", b"\x89PNG")
    machine = LoopMachine()
    machine.begin(Message.user(" ", image, "\n"))
    assert machine.pending == (Message.user(image),)
    other, whole = LoopMachine(), Message.user(image, "what is it?")
    other.begin(whole)
    assert other.last_message is whole


def test_results_that_do_not_answer_the_waiting_calls_are_refused() -> None:
    """ENG-2: too few, too many, twice, or somebody else's: nothing changes."""
    machine = started()
    machine.reply(calling("c1", "c2"), OFFERED)
    before = machine.dump()
    one, two, other = result("c1"), result("c2"), result("c3")
    for wrong in ([], [one], [one, two, other], [one, one, two], [one, other]):
        with pytest.raises(MachineError, match="do not answer the calls"):
            machine.results(wrong)
        assert machine.dump() == before


def test_results_are_stored_in_call_order_whatever_finished_first() -> None:
    """TOL-8: one user message, in the order of the calls."""
    machine = started()
    machine.reply(calling("c1", "c2", "c3"), OFFERED)
    machine.results([result("c3"), result("c1"), result("c2")])
    assert machine.last_message == Message.user(result("c1"), result("c2"), result("c3"))


def test_the_transients_are_weighed_after_the_measure() -> None:
    """ENG-3: X without F and C means nothing."""
    machine = started()
    with pytest.raises(MachineError, match="measure before you weigh"):
        machine.weigh(10)
    assert machine.figures is None


def test_a_reply_is_an_assistant_message() -> None:
    """ENG-2: anything else is a mistake of the driver's."""
    machine = started()
    before = machine.dump()
    with pytest.raises(MachineError, match="a reply is an assistant message"):
        machine.reply(ModelResponse(message=Message.user("me")), OFFERED)
    assert machine.dump() == before


def test_the_conversation_is_the_same_tuple_until_it_changes() -> None:
    """CTX-29: what is counted by identity must keep it."""
    machine = started()
    first = machine.conversation
    machine.measure(fixed=0, conversation=10)
    assert machine.conversation is first
    machine.reply(calling("c1"), OFFERED)
    assert machine.conversation[: len(first)] == first
    assert machine.conversation[0] is first[0]
    assert machine.state is State.AWAITING_TOOLS
