"""What the machine decides by, and what it answers (ENG-3, ENG-4): values only."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from loopctl.messages import ToolCallPart, ToolResultPart
from loopctl.runs import Ending

EMERGENCY_PERCENT = 95
"""The emergency line, in per cent of the window."""

MAX_SALVAGES = 3
"""How many salvages a run may have; a turn has one."""

LATCH_GROWTH_PERCENT = 5
"""How much the conversation must grow, in per cent of the window, to try a pass again."""


class CompactReason(StrEnum):
    """Why a pass is due (CMP-2)."""

    THRESHOLD = "threshold"
    EMERGENCY = "emergency"
    DEFERRAL = "deferral"
    SALVAGE = "salvage"
    MANUAL = "manual"


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """What the machine decides by. Passed in at every step, never stored (ENG-4).

    `window` in tokens, 0 switches the lines off; `threshold` in per cent of it.
    """

    max_turns: int = 200
    window: int = 0
    threshold: float = 80
    auto_compact: bool = True
    soft_line: float = field(init=False)
    """T, in tokens."""
    emergency_line: float = field(init=False)
    """E, in tokens."""
    line: float = field(init=False)
    """L, in tokens."""
    lowest: float = field(init=False)
    """Under this figure no line is reached."""

    def __post_init__(self) -> None:
        soft = self.window * self.threshold / 100
        emergency = self.window * EMERGENCY_PERCENT / 100
        object.__setattr__(self, "soft_line", soft)
        object.__setattr__(self, "emergency_line", emergency)
        line = soft if self.auto_compact else emergency
        object.__setattr__(self, "line", line)
        object.__setattr__(self, "lowest", min(line, emergency))

    def crosses(self, payload: float) -> bool:
        """Whether a payload is over L: strictly for the threshold, at or over for E."""
        if not self.window:
            return False
        return payload > self.line if self.auto_compact else payload >= self.line


class Figures(NamedTuple):
    """Sizes in tokens: `fixed` is F, `conversation` is C, `transients` is X.

    X is `None` until the contributors have been consulted at this boundary; `attachments` is the
    part of X that is pinned.
    """

    fixed: int = 0
    conversation: int = 0
    transients: int | None = None
    attachments: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How a run ended. `limit` and `used` are turns or tokens; `detail` is text for people."""

    ending: Ending
    limit: int | None = None
    used: int | None = None
    detail: str = ""


class CallModel(NamedTuple):
    """Call the model for this turn. X not yet weighed: consult, weigh, ask again first."""

    turn: int
    over_line: int = 0


class CallTools(NamedTuple):
    """Run `calls`; `answered` are the results of calls that cannot run."""

    turn: int
    calls: tuple[ToolCallPart, ...]
    answered: tuple[ToolResultPart, ...] = ()


@dataclass(frozen=True, slots=True)
class Compact:
    """Shrink the conversation, leaving room for `reserve` tokens of transients.

    `refused` is the estimate of a prompt that the provider found too long, 0 otherwise.
    """

    reason: CompactReason
    reserve: int
    refused: int = 0


@dataclass(frozen=True, slots=True)
class Done:
    """The run is over: feed this outcome to `end`, unless the machine is terminal already."""

    outcome: Outcome


Step: TypeAlias = CallModel | CallTools | Compact | Done
