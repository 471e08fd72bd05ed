"""How large messages are (CTX-28)."""

from __future__ import annotations

import math
import re
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

    About four characters make a token, each CJK character is one; an image costs 1,600 whatever
    its size in bytes; each message has an overhead of 4.
    """

    def count(self, message: Message) -> float:
        """The tokens of one message with its overhead."""
        return OVERHEAD + _of_parts(message.parts, self.count_text)

    def count_text(self, text: str) -> float:
        """The tokens of bare text."""
        if text.isascii():
            return len(text) / 4
        wide = len(_WIDE.sub("", text))
        return len(text) - wide + wide / 4


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

_WIDE = re.compile(
    "[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef"
    "\U0001f300-\U0001faff\U00020000-\U0003ffff]+"
)
"""Runs of characters that are a token each: Chinese, Japanese, Korean, pictographs."""


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
