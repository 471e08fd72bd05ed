"""LoopMachine under random feeds, legal and illegal (ENG-1 … ENG-8, ENG-18).

A twin, loaded from a dump at random points, is fed the same: whatever the machine holds that its
document does not carry shows as a difference.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from loopctl.errors import InvalidResponseError, MachineError
from loopctl.machine import (
    TRANSITIONS,
    CallModel,
    CallTools,
    Compact,
    CompactReason,
    Done,
    LoopMachine,
    Outcome,
    Policy,
    State,
)
from loopctl.messages import (
    ImagePart,
    Message,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from loopctl.replies import ModelResponse, StopReason
from loopctl.runs import Ending
from loopctl.testing import conversation_problems

OFFERED = {"add": "a, b", "unknown": ""}
POLICIES = (
    Policy(window=1_000, max_turns=4),
    Policy(window=1_000, max_turns=100, auto_compact=False),
    Policy(window=0, max_turns=2),
)
ENDINGS: tuple[Ending, ...] = (
    "completed",
    "max_turns",
    "cancelled",
    "context_exceeded",
    "budget_exceeded",
    "refused",
    "failed",
)
MAY_REWRITE = {"replace", "compacted"}
"""The feeds that may change what is committed."""

texts = st.sampled_from(["", " \n", "hello", "lone \ud83d", "\u2028"])
calls = st.builds(
    ToolCallPart,
    id=st.sampled_from(["", " ", "a", "b", "call-0-0", "call-0-1"]),
    name=st.sampled_from(["add", " add\n", "functions.add", "nope", "", "un known", "ad d"]),
    arguments=st.sampled_from(["", "{}", '{"a":1}', "no json", "[1]", '{"a":']),
    truncated=st.sampled_from([False, False, False, True]),
)
reply_parts: st.SearchStrategy[list[Part]] = st.lists(
    st.one_of(
        st.builds(TextPart, texts),
        st.builds(ThinkingPart, texts, signature=st.sampled_from([None, "S1"])),
        calls,
        calls,
    ),
    max_size=5,
)
inputs = st.one_of(
    st.builds(Message.user, texts),
    st.builds(Message.user, texts, st.just(ImagePart("image/png", b"\x89"))),
    st.sampled_from(
        [
            Message.user(),
            Message.system("no"),
            Message.assistant("no"),
            Message.user(ToolResultPart("a", "add", "1")),
        ]
    ),
)
histories = st.sampled_from(
    [
        (),
        (Message.user("hi"),),
        (Message.user("hi"), Message.assistant("hello")),
        (
            Message.user("hi"),
            Message.assistant(ToolCallPart("a", "add")),
            Message.user(ToolResultPart("a", "add", "1")),
            Message.assistant("hello"),
        ),
    ]
)
tokens = st.one_of(st.integers(0, 400), st.sampled_from([790, 800, 801, 949, 950, 2_000]))


def units(messages: Sequence[Message]) -> list[list[Message]]:
    """The messages cut at the borders between turns: calls and their results are one unit."""
    cut: list[list[Message]] = []
    for message in messages:
        if message.results and cut:
            cut[-1].append(message)
        else:
            cut.append([message])
    return cut


class AnyFeeds(RuleBasedStateMachine):
    """The machine, its twin, and what must be true of both after every feed."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = LoopMachine()
        self.twin = LoopMachine()
        self.outcome: Outcome | None = None

    @initialize(history=histories)
    def make(self, history: tuple[Message, ...]) -> None:
        self.machine, self.twin = LoopMachine(history), LoopMachine(history)

    # -- feeding ------------------------------------------------------------------------------

    def feed(self, name: str, feed: Callable[[LoopMachine], object]) -> bool:
        """Feed both. Whether it was taken; when it was not, nothing may have changed."""
        before, state, history = self.machine.dump(), self.machine.state, self.machine.history
        try:
            feed(self.machine)
        except (MachineError, InvalidResponseError) as error:
            assert self.machine.dump() == before, f"{name} was refused and changed something"
            with pytest.raises(type(error)):
                feed(self.twin)
            return False
        feed(self.twin)
        assert name in TRANSITIONS[state], f"{name} was taken in {state}"
        assert self.machine.state in TRANSITIONS[state][name]
        if name not in MAY_REWRITE:
            kept = self.machine.history[: len(history)]
            assert len(kept) == len(history), f"{name} lost committed messages"
            assert all(new is old for new, old in zip(kept, history, strict=True))
        self.outcome = self.machine.outcome
        return True

    @rule(given=inputs)
    def begin(self, given: Message) -> None:
        self.feed("begin", lambda m: m.begin(given))

    @rule()
    def go_on(self) -> None:
        unfinished = self.machine.unfinished
        assert self.feed("begin", lambda m: m.begin(None)) == unfinished

    @rule(history=histories)
    def replace(self, history: tuple[Message, ...]) -> None:
        self.feed("replace", lambda m: m.replace(history))

    @rule(fixed=tokens, conversation=tokens)
    def measure(self, fixed: int, conversation: int) -> None:
        self.feed("measure", lambda m: m.measure(fixed=fixed, conversation=conversation))

    @rule(transients=tokens, pinned=tokens)
    def weigh(self, transients: int, pinned: int) -> None:
        self.feed("weigh", lambda m: m.weigh(transients, attachments=min(pinned, transients)))

    @rule(said=inputs)
    def steer(self, said: Message) -> None:
        self.feed("steer", lambda machine: machine.steer(said))

    @rule()
    def deliver(self) -> None:
        self.feed("deliver", lambda machine: machine.deliver())

    @rule(estimate=tokens)
    def overflow(self, estimate: int) -> None:
        self.feed("overflow", lambda machine: machine.overflow(estimate))

    @rule()
    def start_pass(self) -> None:
        self.feed("start_pass", lambda m: m.start_pass())

    @rule()
    def no_pass(self) -> None:
        self.feed("no_pass", lambda m: m.no_pass())

    @rule(data=st.data(), policy=st.sampled_from(POLICIES), conversation=tokens, reserve=tokens)
    def compacted(
        self, data: st.DataObject, policy: Policy, conversation: int, reserve: int
    ) -> None:
        """A pass that keeps a tail of the history and drops middle turns of the run."""
        history, pending = units(self.machine.history), units(self.machine.pending)
        tail = history[data.draw(st.integers(0, max(0, len(history) - 1))) :]
        head = [message for unit in tail for message in unit]
        if head and head[0].role is not Role.USER:
            head.insert(0, Message.user("in short"))
        first = 0 if not pending or pending[0][0].role is Role.ASSISTANT else 1
        dropped = data.draw(st.integers(0, max(0, len(pending) - first)))
        rest = pending[:first] + pending[first + dropped :]
        self.feed(
            "compacted",
            lambda m: m.compacted(
                head,
                [message for unit in rest for message in unit],
                policy=policy,
                fixed=10,
                conversation=conversation,
                reserve=reserve,
            ),
        )

    @rule(
        parts=reply_parts,
        stop=st.sampled_from(StopReason),
        objection=st.sampled_from([None, None, Message.user("that is no JSON")]),
    )
    def reply(self, parts: list[Part], stop: StopReason, objection: Message | None) -> None:
        response = ModelResponse(message=Message(Role.ASSISTANT, parts), stop_reason=stop)
        self.feed("reply", lambda m: m.reply(response, OFFERED, objection))

    @precondition(lambda self: self.machine.state is State.AWAITING_MODEL)
    @rule(call=calls)
    def reply_with_a_call(self, call: ToolCallPart) -> None:
        response = ModelResponse(message=Message.assistant("Let me see.", call))
        last = self.machine.last_message
        answered = last is not None and last.role is Role.ASSISTANT  # steering waits behind it
        assert self.feed("reply", lambda m: m.reply(response, OFFERED)) is not answered

    @rule()
    def reply_of_the_wrong_role(self) -> None:
        response = ModelResponse(message=Message.user("me"))
        assert not self.feed("reply", lambda m: m.reply(response, OFFERED))

    @rule(data=st.data())
    def right_results(self, data: st.DataObject) -> None:
        given = data.draw(st.permutations(self._results()))
        waiting = self.machine.state is State.AWAITING_TOOLS
        assert self.feed("results", lambda m: m.results(given)) == waiting

    @rule(data=st.data())
    def wrong_results(self, data: st.DataObject) -> None:
        results = self._results()
        wrong = [[*results, ToolResultPart("nobody's", "add", "1")]]
        if results:
            wrong += [results[1:], [*results, results[0]], [*results[1:], *results[1:]]]
        given = data.draw(st.sampled_from(wrong))
        assert not self.feed("results", lambda m: m.results(given))

    def _results(self) -> list[ToolResultPart]:
        return [ToolResultPart(call.id, call.name, "result") for call in self.machine.waiting]

    @rule()
    def cancel(self) -> None:
        self.feed("cancel", lambda m: m.cancel())

    @rule(data=st.data(), ending=st.sampled_from(ENDINGS))
    def end(self, data: st.DataObject, ending: Ending) -> None:
        results = [*self._results(), ToolResultPart("nobody's", "add", "1")]
        done = data.draw(st.lists(st.sampled_from(results), max_size=4))
        committed = self.machine.history
        pending, turns = self.machine.pending, self.machine.turn
        if not self.feed("end", lambda m: m.end(Outcome(ending=ending), done)):
            return
        added = self.machine.history[len(committed) :]
        if ending == "context_exceeded":
            assert added == ()
        elif ending in ("completed", "cancelled") or turns > 0:
            assert added[: len(pending)] == pending

    @rule()
    def load_a_twin(self) -> None:
        """ENG-7: from here on a machine that went through text is fed beside the first."""
        self.twin = LoopMachine.load(json.loads(json.dumps(self.machine.dump())))

    @rule(policy=st.sampled_from(POLICIES), tokens=tokens)
    def obey(self, policy: Policy, tokens: int) -> None:
        """What a driver does: the step that the machine asks for."""
        if self.machine.state in (State.START, State.AWAITING_COMPACTION):
            return
        step = self.machine.next_step(policy)
        match step:
            case Compact():
                assert self.feed("start_pass", lambda m: m.start_pass())
            case CallTools(calls=waiting):
                results = [ToolResultPart(call.id, call.name, "done") for call in waiting]
                assert self.feed("results", lambda m: m.results(results))
            case Done(outcome):
                terminal = self.machine.state is State.TERMINAL
                assert self.feed("end", lambda m: m.end(outcome)) is not terminal
            case CallModel(turn):
                assert turn == self.machine.turn < policy.max_turns
                fed = self.machine.figures is not None
                self.feed("weigh", lambda m: m.weigh(tokens))
                if fed:
                    again = self.machine.next_step(policy)
                    assert isinstance(again, (CallModel, Compact))

    # -- what is always true ------------------------------------------------------------------

    @invariant()
    def asking_is_pure(self) -> None:
        """ENG-3, ENG-4, CTX-32, CTX-33."""
        before = self.machine.dump()
        for policy in POLICIES:
            if self.machine.state is State.START:
                with pytest.raises(MachineError):
                    self.machine.next_step(policy)
                continue
            if self.machine.state is State.AWAITING_COMPACTION and not before["cancelled"]:
                continue
            step = self.machine.next_step(policy)
            assert self.machine.next_step(policy) == step == self.twin.next_step(policy)
            if before["passes_here"] and isinstance(step, Compact):
                assert step.reason is CompactReason.SALVAGE
                assert not before["salvaged_here"]
                assert before["salvages"] < 3
        assert self.machine.dump() == before

    @invariant()
    def the_twin_is_no_different(self) -> None:
        """ENG-7: a restored machine makes identical decisions."""
        mine, its = self.machine, self.twin
        assert mine.dump() == its.dump()
        assert (mine.conversation, mine.waiting) == (its.conversation, its.waiting)
        assert [mine.latched(policy) for policy in POLICIES] == [
            its.latched(policy) for policy in POLICIES
        ]

    @invariant()
    def the_conversation_is_acceptable(self) -> None:
        """ENG-18: at any point, not only after an ending."""
        machine = self.machine
        assert machine.history + machine.pending == machine.conversation
        assert machine.last_message == (machine.conversation or (None,))[-1]
        conversation = machine.conversation
        if machine.state is State.AWAITING_TOOLS:
            calls = conversation[-1].calls
            results = [ToolResultPart(call.id, call.name, "to come") for call in calls]
            conversation += (Message.user(*results),)
        assert conversation_problems(conversation) == []
        assert conversation_problems(machine.history) == []

    @invariant()
    def only_offered_calls_wait(self) -> None:
        """ENG-5: whatever the model wrote."""
        for call in self.machine.waiting:
            assert call.name in OFFERED
            assert call.unusable is None
            assert not call.truncated

    @invariant()
    def terminal_repeats_its_outcome(self) -> None:
        """ENG-8: and settles everything."""
        machine = self.machine
        assert (machine.state is State.TERMINAL) == (machine.outcome is not None)
        if machine.outcome is not None:
            assert machine.next_step(POLICIES[0]) == Done(machine.outcome)
            assert machine.outcome == self.outcome
            assert (machine.pending, machine.waiting) == ((), ())

    @invariant()
    def an_unfinished_run_ends_with_the_user(self) -> None:
        """ENG-10: `begin(None)` must never send an assistant's words as the last."""
        if self.machine.unfinished:
            last: Any = self.machine.last_message
            assert last.role is Role.USER


AnyFeeds.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)

TestAnyFeeds = AnyFeeds.TestCase
