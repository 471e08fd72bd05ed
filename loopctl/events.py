"""Events: facts that the engine tells (ENG-24).

Their order in a run, with `*` for any number of times and `?` for at most once:

    RunStarted
      ( boundary
        TurnStarted
          told*
          (boundary TurnStarted told*)*         the same turn starts again, see below
          ReplyReceived
          ToolCallRequested*                    all calls of the reply, in its order
          (ApprovalRequested | ApprovalSettled | ToolStarted | ToolProgress | ToolFinished)*
        TurnEnded )*
    RunEnded

    boundary = SteeringDelivered? pass? failed* (TurnDeferred pass failed*)?
    pass = CompactionStarted (CompactionFinished | CompactionSkipped | CompactionFailed)
    failed = ContributorFailed | MemoryFailed
    told = TextDelta | ThinkingDelta | AttemptReset | ModelSwitched

A turn starts again when its prompt was refused as too long, after the pass of a salvage; and when
the client takes no schema for a typed answer, which is then asked for in words. At most one pass
comes before the first `TurnStarted` of a turn: one at a line comes first of all, one of a deferral
behind what failed, and then everything that rides is asked for again.

For one call the events come in the order of that line; calls of one reply may interleave. A run
that fails or is cancelled breaks off anywhere, but a pass that started is told to have failed;
`RunEnded` comes in any case, once. `AttachmentsChanged` may come anywhere, also between runs; so
may a pass by hand. Deltas come only where somebody reads them: through `stream()`. An
`AttemptReset` voids every delta of its turn, and so does a new start.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, cast

from loopctl import _json
from loopctl._deadline import Deadline
from loopctl.messages import Message, ToolCallPart, ToolResultPart
from loopctl.replies import StopReason
from loopctl.runs import Ending
from loopctl.usage import Usage


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """What every event carries: its run (empty between runs) and the turn it belongs to."""

    run_id: str
    turn: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RunStarted(Event):
    """A run began; `input` is `None` when it continues an unfinished one."""

    input: Message | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnStarted(Event):
    """A turn is about to call the model; `over_line` tokens over the line, 0 if none (CTX-31).

    It comes again for a turn whose prompt was refused as too long (CTX-33), or whose typed answer
    has to be asked for in words.
    """

    over_line: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class TextDelta(Event):
    """A piece of the answer. `attempt` counts from 0."""

    text: str
    attempt: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ThinkingDelta(Event):
    """A piece of the model's reasoning."""

    text: str
    attempt: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptReset(Event):
    """The attempt before `attempt` failed: what was shown of this turn is void (ENG-25)."""

    attempt: int
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplyReceived(Event):
    """The model's reply is complete."""

    message: Message
    stop_reason: StopReason
    usage: Usage | None
    model: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCallRequested(Event):
    """The model asked for a call, as it wrote it."""

    call: ToolCallPart


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalRequested(Event):
    """A decision about a call is left to the approver."""

    call: ToolCallPart
    prompt: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalSettled(Event):
    """The approver answered, or could not."""

    call_id: str
    approved: bool
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolStarted(Event):
    """A call runs, with the arguments that really run."""

    call: ToolCallPart


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolProgress(Event):
    """What a running tool reports of itself; `fraction` from 0 to 1 if it knows."""

    call_id: str
    name: str
    text: str
    fraction: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolFinished(Event):
    """A call has its result. `display_hint` is the tool's advice to user interfaces."""

    result: ToolResultPart
    seconds: float
    display_hint: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnEnded(Event):
    """A turn is complete: the reply and all its results are in the conversation."""

    usage: Usage | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnDeferred(Event):
    """The turn waits for a pass: its payload of `tokens` crossed `line`."""

    tokens: int
    line: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CompactionStarted(Event):
    """A pass begins, for `reason`, at `tokens` aiming at `target`."""

    reason: str
    tokens: int
    target: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CompactionFinished(Event):
    """The pass shrank the messages from `before` to `after` tokens."""

    reason: str
    before: int
    after: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CompactionSkipped(Event):
    """The pass changed nothing: no gain, or a veto."""

    reason: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CompactionFailed(Event):
    """The pass failed; the history is as it was."""

    reason: str
    error: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ContributorFailed(Event):
    """A contributor's message is missing from this turn (CTX-9)."""

    contributor: str
    distribution: str | None
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryFailed(Event):
    """The memory store failed at `operation`; the turn goes on without it."""

    operation: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class AttachmentsChanged(Event):
    """An attachment was pinned, replaced or detached; `ids` are those pinned now, as they ride."""

    attachment_id: str
    ids: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SteeringDelivered(Event):
    """What a user said to the running run is now part of the conversation."""

    messages: tuple[Message, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSwitched(Event):
    """Another model serves from now on."""

    model: str
    previous: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LoopSuspected(Event):
    """The same thing happened `times` times without progress."""

    what: str
    times: int


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetWarning(Event):
    """Most of a budget is spent."""

    what: str
    used: float
    limit: float


@dataclass(frozen=True, kw_only=True, slots=True)
class RunEnded(Event):
    """The last event of every run, exactly once."""

    ending: Ending
    output: str | None
    usage: Usage
    turns: int
    error: str | None = None


class EventSink(Protocol):
    """Where the rooms below the driver tell their events."""

    @property
    def active(self) -> bool:
        """Whether anybody listens; events need not be made otherwise."""
        ...

    async def send(self, event: Event, deadline: Deadline | None = None) -> None:
        """Tell one event; `deadline` stands still while a slow reader is waited for."""
        ...


def to_json(event: Event) -> str:
    """One line of JSON with the event's name as `type`; `from_json` gives an equal event."""
    fields = {f.name: _plain(getattr(event, f.name)) for f in dataclasses.fields(event)}
    return _json.dumps({"type": type(event).__name__, **fields})


def from_json(text: str) -> Event:
    """Load one line of `to_json`. Unknown fields are ignored.

    Raises `ValueError` for an unknown `type` and for text that is no event.
    """
    document = _json.parse_object(text) or {}
    name = document.get("type")
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ValueError(f"not an event: unknown type {name!r}")
    known = {f.name: f for f in dataclasses.fields(kind)}
    try:
        return kind(**{n: _LOADERS.get(n, _same)(v) for n, v in document.items() if n in known})
    except (TypeError, LookupError, AttributeError) as error:
        raise ValueError(f"not a {kind.__name__}: {error}") from error


def _kinds() -> dict[str, type[Event]]:
    found = {v for v in globals().values() if isinstance(v, type) and issubclass(v, Event)}
    named = {kind.__name__: kind for kind in found if kind is not Event}
    return dict(sorted(named.items()))


KINDS: dict[str, type[Event]] = _kinds()
"""Every kind of event by its name."""


def _plain(value: Any) -> Any:
    if isinstance(value, (Message, Usage)):
        return value.to_json()
    if isinstance(value, ToolCallPart):
        return Message.assistant(value).to_json()["parts"][0]
    if isinstance(value, ToolResultPart):
        return Message.user(value).to_json()["parts"][0]
    if isinstance(value, tuple):
        return [_plain(item) for item in cast("tuple[Any, ...]", value)]
    if isinstance(value, Enum):
        return value.value
    return value


def _same(value: Any) -> Any:
    return value


def _message(value: Any) -> Message | None:
    return None if value is None else Message.from_json(value)


def _messages(value: Any) -> tuple[Message, ...]:
    return tuple(Message.from_json(item) for item in value)


def _usage(value: Any) -> Usage | None:
    return None if value is None else Usage.from_json(value)


def _call(value: Any) -> Any:
    return Message.from_json({"role": "assistant", "parts": [value]}).calls[0]


def _result(value: Any) -> Any:
    return Message.from_json({"role": "user", "parts": [value]}).results[0]


_LOADERS: dict[str, Any] = {
    "input": _message,
    "message": _message,
    "messages": _messages,
    "call": _call,
    "result": _result,
    "usage": _usage,
    "stop_reason": StopReason,
    "ids": tuple,
}
