"""What the tests of compaction share: a counter that anybody can follow, and conversations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import anyio

from loopctl.compaction import CompactionContext, Compactor, CompactReason
from loopctl.messages import (
    ImagePart,
    Message,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)

IMAGE = ImagePart("image/png", b"picture")


@dataclass(frozen=True)
class PerChar:
    """One token for each character of text and result, `image` for an image, one for a message."""

    image: int = 1_000

    def count(self, message: Message) -> float:
        return 1 + sum(map(self._size, message.parts))

    def count_text(self, text: str) -> float:
        return len(text)

    def _size(self, part: Part) -> int:
        match part:
            case TextPart() | ThinkingPart():
                return len(part.text)
            case ImagePart():
                return self.image
            case ToolCallPart():
                return len(part.arguments)
            case ToolResultPart():
                content = part.content
                return len(content) if isinstance(content, str) else sum(map(self._size, content))


COUNTER = PerChar()


def size(messages: Sequence[Message]) -> float:
    return sum(map(COUNTER.count, messages))


def asks(*ids: str, thinking: str | None = None) -> Message:
    thoughts = [] if thinking is None else [ThinkingPart(thinking, signature=f"sig {thinking}")]
    return Message.assistant(*thoughts, *(ToolCallPart(id, "look") for id in ids))


def result(id: str, content: Any = "found", **fields: Any) -> ToolResultPart:
    return ToolResultPart(id, "look", content, **fields)


def turns(count: int, chars: int = 100, *, first: int = 0) -> list[Message]:
    """Turns with one call each, numbered from `first`; their results have `chars` characters."""
    made: list[Message] = []
    for number in range(first, first + count):
        made += [
            asks("c", thinking=f"t{number}"),
            Message.user(result("c", f"{number}".zfill(chars))),
        ]
    return made


def compact(
    compactor: Compactor,
    messages: Sequence[Message],
    target: int,
    *,
    reason: CompactReason = CompactReason.THRESHOLD,
    pinned: Sequence[Message] | None = None,
    counter: PerChar = COUNTER,
) -> list[Message]:
    """One pass by hand; the first message is pinned unless others are named."""
    ctx = CompactionContext(
        reason=reason,
        turn=0,
        window=100_000,
        size=int(size(messages)),
        reserve=0,
        counter=counter,
        pinned=tuple(messages[:1] if pinned is None else pinned),
    )
    return list(anyio.run(compactor.compact, messages, target, ctx))
