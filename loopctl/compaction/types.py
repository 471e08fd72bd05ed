"""What users implement to shrink a conversation, and what they are told (CMP-2, CMP-5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from loopctl._steps import CompactReason
from loopctl.messages import Message
from loopctl.tokens import TokenCounter


@dataclass(frozen=True, kw_only=True, slots=True)
class CompactionContext:
    """What a compactor, and the hook `before_compaction`, know of a pass. Sizes are tokens.

    `reason` says why it is due and `turn` which turn waits for it; `window` is the model's (0: no
    window policy); `size` is that of the messages before the pass and `reserve` the room that the
    pass leaves for transients, already taken off the target. `counter` is the one that the driver
    judges by. `pinned` are messages that must come out as they are, in order, the goal first: the
    very objects that stand among the messages. `instructions` and `added` are what hooks or the
    caller asked for, for compactors that can read.
    """

    reason: CompactReason
    turn: int
    window: int
    size: int
    reserve: int
    counter: TokenCounter
    pinned: tuple[Message, ...]
    instructions: str | None = None
    added: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class CompactionAdvice:
    """What the hook `before_compaction(ctx)` may answer; `None` is no advice.

    `veto` says why there must be no pass now; `instructions` replace what was asked before;
    `context` is added to what other hooks add.
    """

    veto: str | None = None
    instructions: str | None = None
    context: str | None = None


@runtime_checkable
class Compactor(Protocol):
    """The strategy that rewrites messages so that they take less room."""

    async def compact(
        self, messages: Sequence[Message], target: int, ctx: CompactionContext
    ) -> Sequence[Message]:
        """The messages that replace `messages`, of `target` tokens or less where that is possible.

        The output must keep CMP-9 … CMP-13 and be smaller; what does not is discarded. Returning
        `messages` as they are says that there is nothing to gain; raising fails the pass. Either
        way the conversation stays as it was.
        """
        ...
