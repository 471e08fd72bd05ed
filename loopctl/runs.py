"""A finished run and its audit trail (ENG-10, ENG-20)."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from loopctl import _json
from loopctl.messages import Message, ToolCallPart, ToolResultPart
from loopctl.replies import StopReason
from loopctl.usage import Usage

T_co = TypeVar("T_co", covariant=True)

Ending: TypeAlias = Literal[
    "completed",
    "max_turns",
    "cancelled",
    "context_exceeded",
    "budget_exceeded",
    "refused",
    "failed",
]
"""How a run ended. `failed` stands for every error without a word of its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallRecord:
    """One tool call and its result; `seconds` is how long it took, approval included."""

    call: ToolCallPart
    result: ToolResultPart
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnRecord:
    """One turn: what the model said, what its calls gave, what it cost, when and how long.

    `seconds` runs from the boundary to the last tool result.
    """

    number: int
    text: str
    calls: tuple[CallRecord, ...]
    usage: Usage | None
    stop_reason: StopReason
    model: str | None
    started: datetime.datetime
    seconds: float


@dataclass(frozen=True, kw_only=True)  # with slots, Python 3.11 cannot make a Run[str](…)
class Run(Generic[T_co]):
    """One input and all that it took to answer it.

    `output` is the answer (`None` when the run did not complete); `messages` what the run added
    to the conversation, its input first; `usage` the sum over all attempts; `warnings` what went
    wrong without ending it; `error` what ended it.
    """

    id: str
    input: Message | None
    output: T_co | None
    messages: tuple[Message, ...]
    turns: tuple[TurnRecord, ...]
    usage: Usage
    warnings: tuple[str, ...]
    ending: Ending
    started: datetime.datetime
    ended: datetime.datetime
    error: BaseException | None = field(default=None, compare=False)

    def to_json(self) -> dict[str, Any]:
        """The run as plain JSON: what the audit trail of a snapshot holds."""
        return {
            "id": self.id,
            "input": None if self.input is None else self.input.to_json(),
            "output": _json.to_plain(self.output),
            "messages": [message.to_json() for message in self.messages],
            "turns": [_turn_to_json(turn) for turn in self.turns],
            "usage": self.usage.to_json(),
            "warnings": list(self.warnings),
            "ending": self.ending,
            "started": self.started.isoformat(),
            "ended": self.ended.isoformat(),
            "error": None if self.error is None else f"{type(self.error).__name__}: {self.error}",
        }


def _turn_to_json(turn: TurnRecord) -> dict[str, Any]:
    calls = [
        {**Message.assistant(record.call).to_json()["parts"][0], "seconds": record.seconds}
        | {"result": Message.user(record.result).to_json()["parts"][0]}
        for record in turn.calls
    ]
    return {
        "number": turn.number,
        "text": turn.text,
        "calls": calls,
        "usage": None if turn.usage is None else turn.usage.to_json(),
        "stop_reason": turn.stop_reason.value,
        "model": turn.model,
        "started": turn.started.isoformat(),
        "seconds": turn.seconds,
    }
