"""What a dialect's stream is turned into: the events that the accumulator reads (MOD-4).

A part of the reply is addressed by `(kind, index)`, and `index` is its place: the message holds
its parts by rising index, whatever order they came in. `PartStart` may be left out: a delta for a
part not seen before opens it; a second `PartStart` fills in what the first one lacked. `PartStop`
is optional too; a call that is still open when the output limit cuts the reply is the one that
was cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from loopctl.replies import StopReason
from loopctl.usage import Usage

PartKind: TypeAlias = Literal["text", "thinking", "tool_call"]


@dataclass(frozen=True, slots=True)
class MessageStart:
    """The provider has begun: the ids and the model that it named, and the provider's own name.

    Thinking that comes after it is marked as this provider's. Where it is bound to its request,
    `prefix` is the digest of what that sent, and `asked` the model by the name that it was asked by
    (MOD-26).
    """

    model: str | None = None
    response_id: str | None = None
    provider: str | None = None
    request_id: str | None = None
    prefix: str | None = None
    asked: str | None = None


@dataclass(frozen=True, slots=True)
class PartStart:
    """A part begins. `id` and `name` for tool calls; `redacted` and `field` for thinking.

    `as_object` says that this API means the arguments as an object: a stream writes them its own
    way, and in the message they are written ours, so that a whole reply gives the same.
    """

    kind: PartKind
    index: int
    id: str | None = None
    name: str | None = None
    redacted: bool = False
    field: str | None = None
    as_object: bool = False


@dataclass(frozen=True, slots=True)
class PartDelta:
    """More of a part: text, thinking text or argument JSON in `text`; a piece of a signature."""

    kind: PartKind
    index: int
    text: str = ""
    signature: str | None = None


@dataclass(frozen=True, slots=True)
class PartStop:
    """A part is complete."""

    kind: PartKind
    index: int


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Token counts so far; cumulative reports of one reply are merged by their maximum (MOD-10)."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class Stop:
    """Why the model stopped; `refusal` is the provider's explanation when it refused."""

    reason: StopReason
    raw: str | None = None
    refusal: str | None = None


@dataclass(frozen=True, slots=True)
class MessageStop:
    """The dialect's own terminal signal: without it nothing is success (MOD-8)."""


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    """The call is made again: what came before it is void (MOD-15).

    `attempt` counts from 1, `reason` is the text of the error that ended the one before, and
    `failed_usage` what that one cost as far as it was reported. Only a `RetryingClient` says it.
    """

    attempt: int
    reason: str
    failed_usage: Usage | None = None


StreamEvent: TypeAlias = (
    MessageStart
    | PartStart
    | PartDelta
    | PartStop
    | UsageReport
    | Stop
    | MessageStop
    | AttemptStarted
)
