"""What the next request would hold, block by block (ENG-26)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from loopctl.context.contributors import ContributorFailure
from loopctl.messages import Message
from loopctl.models.client import ModelRequest

Origin: TypeAlias = Literal[
    "system", "tool", "attachment", "contributor", "memory", "conversation", "input"
]
"""Where a block of a request comes from; `"input"` is what the run would add."""

Place: TypeAlias = Literal["beside", "head", "conversation", "tail"]
"""Where a block stands: beside the messages, in front of the conversation, in it, behind it."""

Decision: TypeAlias = Literal[
    "call", "threshold", "emergency", "deferral", "context_exceeded", "max_turns"
]
"""What the machine would do: call the model, or make a pass for this reason first, or end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """One part of a request.

    `name` is the tool's, the attachment's id, the contributor's, or who speaks; `source` is the
    distribution or plugin that it came with; `tokens` is the estimate; `milliseconds` is how long
    a contributor or the memory took; `message` is `None` for what rides beside the messages and
    for a contributor that stayed quiet.
    """

    origin: Origin
    name: str
    place: Place
    tokens: int
    source: str | None = None
    milliseconds: float | None = None
    message: Message | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """The request that would be sent, its blocks in its order, and the lines of the window.

    Tokens are estimates: `fixed` is F, `conversation` C, `transients` X, `tokens` all together.
    `window` is W (0: no lines); `threshold` and `emergency` are where its lines stand, and
    `decision` is what would be done at these figures. `quiet` are contributors that gave nothing,
    `failures` those that failed.
    """

    request: ModelRequest
    blocks: tuple[Block, ...]
    quiet: tuple[Block, ...]
    failures: tuple[ContributorFailure, ...]
    warnings: tuple[str, ...]
    fixed: int
    conversation: int
    transients: int
    window: int
    threshold: int
    emergency: int
    decision: Decision
    calibration: float

    @property
    def tokens(self) -> int:
        """The whole payload."""
        return self.fixed + self.conversation + self.transients

    def to_json(self) -> dict[str, Any]:
        """The explanation as plain JSON, without the request's tools and options."""
        return {
            "blocks": [_block(block) for block in self.blocks],
            "quiet": [_block(block) for block in self.quiet],
            "failures": [
                {
                    "contributor": failure.contributor,
                    "distribution": failure.distribution,
                    "reason": failure.reason,
                }
                for failure in self.failures
            ],
            "warnings": list(self.warnings),
            "tokens": {
                "fixed": self.fixed,
                "conversation": self.conversation,
                "transients": self.transients,
                "total": self.tokens,
            },
            "window": {
                "tokens": self.window,
                "threshold": self.threshold,
                "emergency": self.emergency,
            },
            "decision": self.decision,
            "calibration": self.calibration,
        }


def _block(block: Block) -> dict[str, Any]:
    return {
        "origin": block.origin,
        "name": block.name,
        "source": block.source,
        "place": block.place,
        "tokens": block.tokens,
        "milliseconds": block.milliseconds,
        "message": None if block.message is None else block.message.to_json(),
    }
