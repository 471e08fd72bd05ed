"""LoopMachine: what a run does next. Decisions only (ENG-1 … ENG-8).

The machine does no IO, awaits nothing, reads no clock and draws no random number. The driver asks
`next_step`, does that one thing, and feeds back what came of it. `TRANSITIONS` is the whole law:
a state lists the feeds that it takes and the states that each may lead to; anything else raises.

The conversation is one list with a split: history (committed) in front of it, pending (the
messages of the run in flight) behind it. To settle a run is to move the split, or to drop what
stands behind it; nothing is ever copied from one place to another and lost on the way (ENG-18).

The lines of the window (CTX-31), with F the system prompt and the tool schemas, C the
conversation, X the transients, W the window: B = F + C, P = B + X; the threshold T is crossed
when strictly exceeded, the emergency line E (95 % of W) when reached; L is T with auto-compaction
and E without it. The machine is fed F, C and X in tokens and measures nothing itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import Any

from loopctl._calls import interrupted, says_something, sort_calls, without_blanks
from loopctl._steps import (
    LATCH_GROWTH_PERCENT,
    MAX_SALVAGES,
    CallModel,
    CallTools,
    Compact,
    CompactReason,
    Done,
    Figures,
    Outcome,
    Policy,
    Step,
)
from loopctl.errors import InvalidResponseError, MachineError
from loopctl.messages import Message, Role, ToolCallPart, ToolResultPart
from loopctl.replies import ModelResponse, StopReason

__all__ = [
    "TRANSITIONS",
    "VERSION",
    "CallModel",
    "CallTools",
    "Compact",
    "CompactReason",
    "Done",
    "Figures",
    "LoopMachine",
    "Outcome",
    "Policy",
    "State",
    "Step",
]

VERSION = (1, 1)
"""Version of the document that `dump` writes: (major, minor). Additive fields keep the major."""


class State(StrEnum):
    """Where a machine stands."""

    START = "start"
    AWAITING_MODEL = "awaiting_model"
    AWAITING_TOOLS = "awaiting_tools"
    AWAITING_COMPACTION = "awaiting_compaction"
    TERMINAL = "terminal"


TRANSITIONS: dict[State, dict[str, tuple[State, ...]]] = {
    State.START: {
        "steer": (State.START,),
        "begin": (State.AWAITING_MODEL,),
        "replace": (State.START,),
    },
    State.AWAITING_MODEL: {
        "measure": (State.AWAITING_MODEL,),
        "weigh": (State.AWAITING_MODEL,),
        "overflow": (State.AWAITING_MODEL,),
        "start_pass": (State.AWAITING_COMPACTION,),
        "steer": (State.AWAITING_MODEL,),
        "deliver": (State.AWAITING_MODEL,),
        "reply": (State.AWAITING_TOOLS, State.AWAITING_MODEL, State.TERMINAL),
        "cancel": (State.AWAITING_MODEL,),
        "end": (State.TERMINAL,),
    },
    State.AWAITING_TOOLS: {
        "results": (State.AWAITING_MODEL,),
        "steer": (State.AWAITING_TOOLS,),
        "cancel": (State.AWAITING_TOOLS,),
        "end": (State.TERMINAL,),
    },
    State.AWAITING_COMPACTION: {
        "compacted": (State.AWAITING_MODEL,),
        "no_pass": (State.AWAITING_MODEL,),
        "steer": (State.AWAITING_COMPACTION,),
        "cancel": (State.AWAITING_COMPACTION,),
        "end": (State.TERMINAL,),
    },
    State.TERMINAL: {
        "steer": (State.TERMINAL,),
        "begin": (State.AWAITING_MODEL,),
        "replace": (State.TERMINAL,),
    },
}
"""State × feed → the states that it may lead to."""


class LoopMachine:
    """The state of one session's conversation, and what its run in flight does next."""

    __slots__ = (
        "_answered",
        "_began",
        "_cancelled",
        "_completed_turns",
        "_continued",
        "_conversation",
        "_delivered",
        "_edition",
        "_figures",
        "_last_attachments",
        "_last_transients",
        "_latch",
        "_messages",
        "_outcome",
        "_passes_here",
        "_refused",
        "_salvaged_here",
        "_salvages",
        "_split",
        "_state",
        "_steering",
        "_unfinished",
        "_waiting",
    )

    def __init__(self, history: Iterable[Message] = ()) -> None:
        self._messages: list[Message] = list(history)
        self._split = self._began = len(self._messages)
        self._state = State.START
        self._unfinished = bool(self._messages) and self._messages[-1].role is Role.USER
        self._outcome: Outcome | None = None
        self._conversation: tuple[Message, ...] | None = None
        self._edition = 0
        self._latch: Figures | None = None
        self._last_transients = 0
        self._last_attachments = 0
        self._steering: tuple[Message, ...] = ()
        self._continued = False
        self._reset_run()

    def _reset_run(self) -> None:
        self._completed_turns = 0
        self._waiting: tuple[ToolCallPart, ...] = ()
        self._answered: tuple[ToolResultPart, ...] = ()
        self._cancelled = False
        self._delivered: tuple[Message, ...] = ()
        self._figures: Figures | None = None
        self._passes_here = 0
        self._refused = 0
        self._salvages = 0
        self._salvaged_here = False

    # -- reading ------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """Where the machine stands."""
        return self._state

    @property
    def turn(self) -> int:
        """The turn in flight, or about to run; from 0 in each run."""
        return self._completed_turns

    @property
    def history(self) -> tuple[Message, ...]:
        """The committed messages."""
        return tuple(self._messages[: self._split])

    @property
    def pending(self) -> tuple[Message, ...]:
        """The messages of the run in flight."""
        return tuple(self._messages[self._split :])

    @property
    def run_messages(self) -> tuple[Message, ...]:
        """What the present or last run holds in the conversation, its input first."""
        return tuple(self._messages[self._began :])

    @property
    def conversation(self) -> tuple[Message, ...]:
        """History followed by pending: what the model will see. The same tuple until it changes."""
        if self._conversation is None:
            self._conversation = tuple(self._messages)
        return self._conversation

    def between(self, head: Sequence[Message], tail: Sequence[Message]) -> tuple[Message, ...]:
        """The conversation with messages in front of it and behind it, copied once."""
        return (*head, *self._messages, *tail) if head or tail else self.conversation

    @property
    def count(self) -> int:
        """How many messages the conversation has."""
        return len(self._messages)

    @property
    def split(self) -> int:
        """How many messages of the conversation are history."""
        return self._split

    @property
    def run_start(self) -> int:
        """Where the messages of the present or last run begin.

        A run that continues an earlier one has its input there: the user's last words before it.
        """
        said = (i for i in range(self._began - 1, -1, -1) if _is_said(self._messages[i]))
        return next(said, self._began) if self._continued else self._began

    @property
    def edition(self) -> int:
        """Changes whenever the conversation changes other than by new messages at its end."""
        return self._edition

    def tail(self, start: int) -> Sequence[Message]:
        """The conversation from one place on."""
        return self._messages[start:]

    @property
    def last_message(self) -> Message | None:
        """The newest message of the conversation, `None` when there is none."""
        return self._messages[-1] if self._messages else None

    @property
    def waiting(self) -> tuple[ToolCallPart, ...]:
        """The calls that are to run before the next model call."""
        return self._waiting

    @property
    def steering(self) -> tuple[Message, ...]:
        """What users have said and no boundary has delivered yet (CTX-23)."""
        return self._steering

    @property
    def delivered(self) -> tuple[Message, ...]:
        """The steering that the present or last run has taken into its conversation."""
        return self._delivered

    @property
    def figures(self) -> Figures | None:
        """The sizes fed at this boundary, `None` before that."""
        return self._figures

    @property
    def passed_here(self) -> bool:
        """Whether a pass has run at this boundary."""
        return self._passes_here > 0

    @property
    def outcome(self) -> Outcome | None:
        """How the last run ended, `None` while one is in flight or none has been."""
        return self._outcome

    @property
    def unfinished(self) -> bool:
        """Whether `begin(None)` has something to continue."""
        return self._unfinished and "begin" in TRANSITIONS[self._state]

    def latched(self, policy: Policy) -> bool:
        """Whether a pass is held back because the last one did not help (CTX-32)."""
        latch, now = self._latch, self._figures
        if latch is None or now is None:
            return latch is not None
        grown = now.conversation - latch.conversation
        return grown < policy.window * LATCH_GROWTH_PERCENT / 100

    def next_step(self, policy: Policy) -> Step:
        """What to do now. Changes nothing: asked twice, it answers the same (ENG-3)."""
        if self._state is State.TERMINAL:
            assert self._outcome is not None
            return Done(self._outcome)
        if self._state is State.START:
            raise MachineError("next_step", self._state.value)
        if self._cancelled:
            return Done(Outcome(ending="cancelled"))
        if self._state is State.AWAITING_TOOLS:
            return CallTools(self._completed_turns, self._waiting, self._answered)
        if self._state is State.AWAITING_COMPACTION:
            raise MachineError("next_step", self._state.value, "a pass is running; feed its result")
        if self._completed_turns >= policy.max_turns:
            return Done(Outcome(ending="max_turns", limit=policy.max_turns))
        if self._refused:
            return self._refused_by_the_provider(policy)
        if policy.window and self._figures is not None:
            return self._at_the_lines(policy, self._figures)
        return CallModel(self._completed_turns)

    def _refused_by_the_provider(self, policy: Policy) -> Step:
        """CTX-33: one forced pass for a turn, whatever the latch says, three for a run."""
        if not self._salvaged_here and self._salvages < MAX_SALVAGES:
            return Compact(CompactReason.SALVAGE, self._last_transients, self._refused)
        limit = policy.window or None
        return Done(Outcome(ending="context_exceeded", used=self._refused, limit=limit))

    def _at_the_lines(self, policy: Policy, now: Figures) -> Step:
        """Steps 2 to 5 of CTX-31."""
        bare = now.fixed + now.conversation
        if bare + (now.transients or 0) < policy.lowest:
            return CallModel(self._completed_turns)  # as a rule, and on every turn's path
        may_pass = self._passes_here == 0
        if bare >= policy.emergency_line:
            if may_pass:
                return Compact(CompactReason.EMERGENCY, self._last_transients)
            exceeded = Outcome(ending="context_exceeded", used=bare, limit=policy.window)
            return Done(exceeded)
        may_pass = may_pass and not self.latched(policy)
        if policy.auto_compact and bare > policy.soft_line and may_pass:
            return Compact(CompactReason.THRESHOLD, self._last_transients)
        if now.transients is None:
            return CallModel(self._completed_turns)
        payload = bare + now.transients
        if not policy.crosses(payload):
            return CallModel(self._completed_turns)
        if may_pass and now.fixed + now.transients < policy.line:
            return Compact(CompactReason.DEFERRAL, now.transients)
        return CallModel(self._completed_turns, max(0, math.ceil(payload - policy.line)))

    # -- feeding ------------------------------------------------------------------------------

    def begin(self, input: Message | None) -> None:
        """Start a run with a user message, or continue an unfinished one with `None`."""
        self._check("begin")
        if input is None:
            if not self._unfinished:
                raise MachineError("begin", self._state.value, "there is no unfinished run")
        elif input.role is not Role.USER or input.results or not says_something(input.parts):
            reason = "a run's input is a user message with text or images"
            raise MachineError("begin", self._state.value, reason)
        self._reset_run()
        self._outcome = None
        self._began = self._split
        self._continued = input is None
        if input is not None:
            self._delivered, self._steering = self._steering, ()
            said = [part for message in self._delivered for part in message.parts]
            whole = Message(Role.USER, [*said, *input.parts]) if said else input
            self._append(without_blanks(whole))
        self._state = State.AWAITING_MODEL

    def steer(self, message: Message) -> None:
        """Keep what a user says until the next boundary, or for the next input (CTX-23)."""
        self._check("steer")
        if message.role is not Role.USER or message.results or not says_something(message.parts):
            reason = "steering is a user message with text or images"
            raise MachineError("steer", self._state.value, reason)
        self._steering = (*self._steering, without_blanks(message))

    def deliver(self) -> tuple[Message, ...]:
        """Commit the steering that waits to pending: behind all results, before the model call."""
        self._check("deliver")
        delivered, self._steering = self._steering, ()
        for message in delivered:
            self._append(message)
        if delivered:
            self._delivered = (*self._delivered, *delivered)
            self._figures = None
        return delivered

    def replace(self, history: Iterable[Message], *, unfinished: bool | None = None) -> None:
        """Set the history by hand, or after a manual pass, between runs.

        `unfinished` says whether it holds a run to continue; by default its last message tells.
        """
        self._check("replace")
        self._rewrite(history)
        self._split = self._began = len(self._messages)
        open_ended = bool(self._messages) and self._messages[-1].role is Role.USER
        self._unfinished = open_ended if unfinished is None else unfinished and open_ended
        self._latch = None

    def measure(self, *, fixed: int, conversation: int) -> None:
        """Feed F and C of this boundary, in tokens."""
        self._check("measure")
        self._figures = self._measured(fixed, conversation)
        if self._latch is not None and fixed < self._latch.fixed:
            self._latch = None

    def weigh(self, transients: int, *, attachments: int = 0) -> None:
        """Feed X of this boundary, in tokens, after `measure`."""
        self._check("weigh")
        if self._figures is None:
            raise MachineError("weigh", self._state.value, "measure before you weigh")
        self._figures = Figures(
            self._figures.fixed, self._figures.conversation, transients, attachments
        )
        self._last_transients, self._last_attachments = transients, attachments
        if self._latch is not None and attachments < self._latch.attachments:
            self._latch = None

    def overflow(self, estimate: int) -> None:
        """The provider refused the prompt as too long; `estimate` is its size by our figures.

        The transients of the refused request must have been weighed: they are the reserve.
        """
        self._check("overflow")
        self._refused = max(1, estimate)

    def start_pass(self) -> None:
        """A pass begins; feed `compacted` or `no_pass` next."""
        self._check("start_pass")
        self._passes_here += 1
        if self._refused:
            self._salvaged_here = True
            self._salvages += 1
        self._state = State.AWAITING_COMPACTION

    def compacted(
        self,
        history: Iterable[Message],
        pending: Iterable[Message],
        *,
        policy: Policy,
        fixed: int,
        conversation: int,
        reserve: int = 0,
    ) -> None:
        """A pass shrank the messages to these; figures are those measured afterwards (CMP-8)."""
        self._check("compacted")
        head = list(history)
        self._rewrite([*head, *pending])
        self._split = self._began = len(head)
        self._figures = self._measured(fixed, conversation)
        failed = policy.crosses(fixed + conversation + reserve)
        self._latch = self._figures if failed else None
        self._refused = 0
        self._state = State.AWAITING_MODEL

    def no_pass(self) -> None:
        """A pass changed nothing or failed: the messages stay, and no pass is tried soon.

        After a salvage that is the end of the run: the provider would refuse the same prompt.
        The transients are to be weighed again: a deferred turn drops its first answers (CTX-31).
        """
        self._check("no_pass")
        if (now := self._figures) is not None:
            self._figures = self._latch = self._measured(now.fixed, now.conversation)
        self._state = State.AWAITING_MODEL

    def reply(
        self,
        response: ModelResponse,
        offered: Mapping[str, str],
        objection: Message | None = None,
    ) -> None:
        """Feed the model's reply; `offered` maps each offered tool to its expected fields.

        A reply with calls waits for tools; one without completes the run, or only its turn when
        steering waits, or when there is an `objection`, which is said to the model then; one that
        a refusal or a filter stopped ends it as refused. Calls to unknown names, with unusable
        arguments, or cut off by the output limit are answered here and never dispatched
        (ENG-5, MOD-13).
        A reply that announces calls and holds none raises `InvalidResponseError`.
        """
        self._check("reply")
        if response.message.role is not Role.ASSISTANT:
            raise MachineError("reply", self._state.value, "a reply is an assistant message")
        if self._messages and self._messages[-1].role is Role.ASSISTANT:
            reason = "steering waits behind an answer; deliver it before the next call"
            raise MachineError("reply", self._state.value, reason)
        if response.stop_reason in (StopReason.REFUSAL, StopReason.FILTER):
            said = response.refusal or response.message.text
            self._finish(Outcome(ending="refused", detail=said), self._completed_turns)
            return
        if response.stop_reason is StopReason.TOOL_CALLS and not response.message.calls:
            raise InvalidResponseError("the reply announces tool calls and holds none")
        message, waiting, answered = sort_calls(
            response.message,
            offered,
            self._completed_turns,
            cut=response.stop_reason is StopReason.LENGTH,
        )
        if message.calls:
            self._append(message)
            self._waiting, self._answered = waiting, answered
            self._state = State.AWAITING_TOOLS
            return
        if says_something(message.parts):
            self._append(message)
        if objection is not None:
            self._append(objection)
        if self._steering or objection is not None:
            self._next_turn()
            return
        self._finish(Outcome(ending="completed"), self._completed_turns)

    def results(self, results: Sequence[ToolResultPart]) -> None:
        """Feed the results of all waiting calls, in any order; they are stored in call order."""
        self._check("results")
        by_id = {result.call_id: result for result in results}
        wanted = [call.id for call in self._waiting]
        if len(results) != len(wanted) or any(name not in by_id for name in wanted):
            reason = f"results for {sorted(by_id)} do not answer the calls {sorted(wanted)}"
            raise MachineError("results", self._state.value, reason)
        self._close_turn(by_id)
        self._state = State.AWAITING_MODEL

    def cancel(self) -> None:
        """From now on the next step is to end as cancelled."""
        self._check("cancel")
        self._cancelled = True

    def end(self, outcome: Outcome, results: Iterable[ToolResultPart] = ()) -> None:
        """End the run and settle its messages (ENG-18).

        `results` are those of calls that had finished; the others are answered as interrupted.
        A turn counts as completed when all of its calls had finished.
        """
        self._check("end")
        completed = self._completed_turns
        if self._state is State.AWAITING_TOOLS:
            wanted = {call.id for call in self._waiting}
            done = {result.call_id: result for result in results if result.call_id in wanted}
            completed += done.keys() == wanted
            for call in self._waiting:
                done.setdefault(call.id, interrupted(call))
            self._close_turn(done)
        self._finish(outcome, completed)

    # -- inside -------------------------------------------------------------------------------

    def _check(self, feed: str) -> None:
        if feed not in TRANSITIONS[self._state]:
            raise MachineError(feed, self._state.value)

    def _measured(self, fixed: int, conversation: int) -> Figures:
        """Figures of which X is not known yet; the attachments count as they last weighed."""
        return Figures(fixed, conversation, None, self._last_attachments)

    def _append(self, message: Message) -> None:
        self._messages.append(message)
        self._conversation = None

    def _rewrite(self, messages: Iterable[Message]) -> None:
        self._messages = list(messages)
        self._conversation = None
        self._edition += 1

    def _close_turn(self, by_id: dict[str, ToolResultPart]) -> None:
        for result in self._answered:
            by_id[result.call_id] = result
        calls = self._messages[-1].calls
        self._append(Message(Role.USER, [by_id[call.id] for call in calls]))
        self._waiting, self._answered = (), ()
        self._next_turn()

    def _next_turn(self) -> None:
        self._completed_turns += 1
        self._figures = None
        self._passes_here = self._refused = 0
        self._salvaged_here = False

    def _finish(self, outcome: Outcome, turns: int) -> None:
        """Commit what is pending, or take it back. `turns` is how many completed by themselves.

        Nothing half-written is ever here: replies are fed whole, and open calls were answered by
        `end`. A run that is taken back leaves an earlier unfinished one as it was, and what was
        said to it waits again; after `context_exceeded` the driver hands it back with the input.
        """
        ending = outcome.ending
        if ending in ("completed", "cancelled") or (turns > 0 and ending != "context_exceeded"):
            keep = len(self._messages)
        else:
            keep = self._split
        if keep < len(self._messages):
            self._rewrite(self._messages[:keep])
            if ending != "context_exceeded":
                self._steering = (*self._delivered, *self._steering)
                self._delivered = ()
        open_ended = keep > 0 and self._messages[-1].role is Role.USER
        self._unfinished = (
            outcome.ending != "completed"
            and open_ended
            and (keep > self._split or self._unfinished)
        )
        self._split = keep
        self._waiting, self._answered = (), ()
        self._outcome = outcome
        self._state = State.TERMINAL

    # -- documents ----------------------------------------------------------------------------

    def dump(self) -> dict[str, Any]:
        """The machine as plain JSON types; `load` gives one that decides identically (ENG-7)."""
        return {
            "version": list(VERSION),
            "state": self._state.value,
            "messages": [message.to_json() for message in self._messages],
            "split": self._split,
            "began": self._began,
            "completed_turns": self._completed_turns,
            "waiting": [call.id for call in self._waiting],
            "answered": [Message.user(item).to_json()["parts"][0] for item in self._answered],
            "continued": self._continued,
            "cancelled": self._cancelled,
            "figures": None if self._figures is None else self._figures._asdict(),
            "last_transients": self._last_transients,
            "last_attachments": self._last_attachments,
            "passes_here": self._passes_here,
            "refused": self._refused,
            "salvages": self._salvages,
            "salvaged_here": self._salvaged_here,
            "latch": None if self._latch is None else self._latch._asdict(),
            "outcome": None if self._outcome is None else asdict(self._outcome),
            "unfinished": self._unfinished,
            "steering": [message.to_json() for message in self._steering],
            "delivered": [message.to_json() for message in self._delivered],
        }

    @classmethod
    def load(cls, document: Mapping[str, Any]) -> LoopMachine:
        """Restore what `dump` wrote. Unknown fields are ignored, missing ones take their default.

        Raises `ValueError` for a document of a newer major version, or for none of ours.
        """
        match document.get("version"):
            case [int(major), *_] if major > VERSION[0]:
                raise ValueError(
                    f"this document is of version {major}; this loopctl reads up to {VERSION[0]}:"
                    " install a newer loopctl"
                )
            case [int(), *_]:
                pass
            case _:
                raise ValueError("not a machine: the document has no version")
        try:
            return cls._restore(document)
        except (AttributeError, IndexError, KeyError, TypeError) as error:
            raise ValueError(f"not a machine: {type(error).__name__} {error}") from error

    @classmethod
    def _restore(cls, document: Mapping[str, Any]) -> LoopMachine:
        machine = cls(Message.from_json(item) for item in document["messages"])
        machine._state = State(document["state"])
        machine._split = int(document["split"])
        machine._began = int(document.get("began", machine._split))
        machine._completed_turns = int(document.get("completed_turns", 0))
        wanted = set(document.get("waiting", ()))
        calls = machine._messages[-1].calls if wanted else ()
        machine._waiting = tuple(call for call in calls if call.id in wanted)
        answered = Message.from_json({"role": "user", "parts": document.get("answered", ())})
        machine._answered = answered.results
        machine._steering = tuple(Message.from_json(m) for m in document.get("steering", ()))
        machine._delivered = tuple(Message.from_json(m) for m in document.get("delivered", ()))
        machine._continued = bool(document.get("continued", False))
        machine._cancelled = bool(document.get("cancelled", False))
        machine._figures = _figures(document.get("figures"))
        machine._last_transients = int(document.get("last_transients", 0))
        machine._last_attachments = int(document.get("last_attachments", 0))
        machine._passes_here = int(document.get("passes_here", 0))
        machine._refused = int(document.get("refused", 0))
        machine._salvages = int(document.get("salvages", 0))
        machine._salvaged_here = bool(document.get("salvaged_here", False))
        machine._latch = _figures(document.get("latch"))
        outcome = document.get("outcome")
        known = Outcome.__dataclass_fields__
        if outcome is not None:
            machine._outcome = Outcome(**{k: v for k, v in outcome.items() if k in known})
        machine._unfinished = bool(document.get("unfinished", machine._unfinished))
        machine._check_whole(wanted)
        return machine

    def _check_whole(self, wanted: set[str]) -> None:
        """Raise `ValueError` for fields that contradict each other."""
        tools = self._state is State.AWAITING_TOOLS
        calls = self._messages[-1].calls if tools and self._messages else ()
        handled = [call.id for call in self._waiting] + [r.call_id for r in self._answered]
        whole = (
            0 <= self._began <= self._split <= len(self._messages)
            and (self._state is State.TERMINAL) == (self._outcome is not None)
            and wanted == {call.id for call in self._waiting}
            and sorted(handled) == sorted([call.id for call in calls])
            and tools == bool(handled)
        )
        if not whole:
            raise ValueError("not a machine: the fields of the document contradict each other")


def _is_said(message: Message) -> bool:
    """Whether a message is what a user said, and no tool's result."""
    return message.role is Role.USER and not message.results and says_something(message.parts)


def _figures(document: Mapping[str, Any] | None) -> Figures | None:
    if document is None:
        return None
    return Figures(**{k: v for k, v in document.items() if k in Figures._fields})
