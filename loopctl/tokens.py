"""How large messages are (CTX-28)."""

from __future__ import annotations

from typing import Protocol

from loopctl.messages import Message


class TokenCounter(Protocol):
    """Counts tokens, as one figure for every decision of a session."""

    def count(self, message: Message) -> float:
        """The tokens of one message with its overhead."""
        ...

    def count_text(self, text: str) -> float:
        """The tokens of bare text, such as a system prompt."""
        ...
