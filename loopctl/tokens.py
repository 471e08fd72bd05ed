"""How large messages are (CTX-28)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Protocol

from loopctl.errors import ConfigError
from loopctl.messages import (
    Message,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)


class TokenCounter(Protocol):
    """Counts tokens, as one figure for every decision of a session."""

    def count(self, message: Message) -> float:
        """The tokens of one message with its overhead."""
        ...

    def count_text(self, text: str) -> float:
        """The tokens of bare text, such as a system prompt."""
        ...


class HeuristicTokenCounter:
    """The default: good enough for every decision, and taught by what providers report.

    About four characters make a token, each CJK character or pictograph is one; an image costs
    1,600 whatever its size in bytes; each message has an overhead of 4.
    """

    def count(self, message: Message) -> float:
        """The tokens of one message with its overhead."""
        return OVERHEAD + _of_parts(message.parts, self.count_text)

    def count_text(self, text: str) -> float:
        """The tokens of bare text."""
        if text.isascii():
            return len(text) / 4
        high = text.encode("utf-16-le", "surrogatepass")[1::2]
        narrow = len(high.translate(None, _WIDE))
        return len(text) - narrow + narrow / 4


class RatioTokenCounter:
    """A fixed ratio, for who has measured: `chars_per_token` and tokens `per_message`.

    An image costs 1,600 tokens. Raises `ConfigError` for a ratio that is not positive and finite,
    and for an overhead that is negative or not finite.
    """

    def __init__(self, chars_per_token: float, per_message: float = 4) -> None:
        if not 0 < chars_per_token < math.inf:
            raise ConfigError(
                f"RatioTokenCounter.chars_per_token={chars_per_token!r}: must be > 0 and finite"
            )
        if not 0 <= per_message < math.inf:
            raise ConfigError(
                f"RatioTokenCounter.per_message={per_message!r}: must be ≥ 0 and finite"
            )
        self.chars_per_token = chars_per_token
        self.per_message = per_message

    def count(self, message: Message) -> float:
        """The tokens of one message with its overhead."""
        return self.per_message + _of_parts(message.parts, self.count_text)

    def count_text(self, text: str) -> float:
        """The tokens of bare text."""
        return len(text) / self.chars_per_token


OVERHEAD = 4
"""What a message costs beside its text, in tokens."""

IMAGE_TOKENS = 1_600
"""What an image costs, whatever its size in bytes."""

DEFAULT_COUNTER = HeuristicTokenCounter()
"""The counter of sessions that name none."""

_WIDE = bytes([0x11, *range(0x2E, 0xA0), *range(0xAC, 0xFB), 0xFF])
"""High bytes in UTF-16 of characters that are a token each: Chinese, Japanese, Korean, and all
beyond the first 65,536, such as pictographs. So they are counted without a loop."""


def _of_parts(parts: Iterable[Part], count: Callable[[str], float]) -> float:
    total = 0.0
    for part in parts:
        if isinstance(part, TextPart):
            total += count(part.text)
        elif isinstance(part, ToolCallPart):
            total += count(part.name) + count(part.arguments)
        elif isinstance(part, ToolResultPart):
            content = part.content
            total += count(content) if isinstance(content, str) else _of_parts(content, count)
        elif isinstance(part, ThinkingPart):
            total += count(part.text) + count(part.signature or "")
        else:
            total += IMAGE_TOKENS
    return total
