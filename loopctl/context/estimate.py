"""How large a request will be, at a cost that does not grow with the history (CTX-28, CTX-29).

A message is counted once in its life; a conversation that only grew is counted from where it was.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Protocol

from loopctl import _json
from loopctl.messages import Message
from loopctl.models.client import ToolSchema
from loopctl.tokens import TokenCounter

LEAST_CALIBRATION, MOST_CALIBRATION = 0.25, 4.0
"""The bounds of what real usage may teach."""


class Conversation(Protocol):
    """Whoever holds the conversation."""

    @property
    def count(self) -> int:
        """How many messages there are."""
        ...

    @property
    def edition(self) -> int:
        """Changes when the conversation changes other than by new messages at its end."""
        ...

    def tail(self, start: int) -> Sequence[Message]:
        """The messages from one place on."""
        ...


class Estimate:
    """The sizes of one session, in tokens, by one counter and one calibration."""

    __slots__ = (
        "_asked",
        "_conversation",
        "_counted",
        "_edition",
        "_fixed",
        "_raw_counter",
        "_taught",
        "calibration",
    )

    def __init__(self, counter: TokenCounter) -> None:
        self._raw_counter = counter
        # plain objects are told apart by identity already, and faster
        plain = type(counter).__hash__ is object.__hash__
        self._asked: object = counter if plain else _Key(counter)
        self._fixed: tuple[str | None, tuple[ToolSchema, ...] | None, float] = (None, None, 0.0)
        self._conversation, self._counted, self._edition = 0.0, 0, -1
        self._taught = False
        self.calibration = 1.0
        """What a raw figure is multiplied by; 1 until real usage has taught another."""

    @property
    def counter(self) -> TokenCounter:
        """The counter with the present calibration: what compactors and judges count with."""
        return _Calibrated(self)

    def fixed(self, system: str | None, tools: tuple[ToolSchema, ...]) -> int:
        """F: the system prompt and the tool schemas."""
        return math.ceil(self.raw_fixed(system, tools) * self.calibration)

    def conversation(self, conversation: Conversation) -> int:
        """C: history and pending."""
        return math.ceil(self.raw_conversation(conversation) * self.calibration)

    def messages(self, messages: Iterable[Message]) -> int:
        """The size of any messages."""
        return math.ceil(self.raw_messages(messages) * self.calibration)

    def raw_fixed(self, system: str | None, tools: tuple[ToolSchema, ...]) -> float:
        """F without calibration; counted again only for another prompt or other tools."""
        known_system, known_tools, size = self._fixed
        if known_tools is tools and known_system is system:
            return size
        count = self._raw_counter.count_text
        size = count(system) if system else 0.0
        for tool in tools:
            shape = _json.dumps(_json.to_plain(tool.input_schema))
            size += count(tool.name) + count(tool.description) + count(shape)
        self._fixed = (system, tools, size)
        return size

    def raw_conversation(self, conversation: Conversation) -> float:
        """C without calibration: only what is new is counted."""
        count, edition = conversation.count, conversation.edition
        if edition != self._edition or count < self._counted:
            self._conversation, self._counted, self._edition = 0.0, 0, edition
        if count > self._counted:
            self._conversation += self.raw_messages(conversation.tail(self._counted))
            self._counted = count
        return self._conversation

    def raw_messages(self, messages: Iterable[Message]) -> float:
        """The size of any messages without calibration; each is counted once in its life."""
        key, total = self._asked, 0.0
        for message in messages:
            size: float | None = message.memo.get(key)
            if size is None:
                size = message.memo[key] = self._raw_counter.count(message)
            total += size
        return total

    def learn(self, reported: int | None, raw: float) -> None:
        """What a provider counted for a request whose raw figure was `raw`.

        The first report is adopted, later ones half-way, within 0.25 and 4.
        """
        if not reported or raw <= 0:
            return
        told = min(max(reported / raw, LEAST_CALIBRATION), MOST_CALIBRATION)
        self.calibration = (self.calibration + told) / 2 if self._taught else told
        self._taught = True


class _Key:
    """Names a counter by identity, and keeps it alive so that no other takes its place."""

    __slots__ = ("_counter",)

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter

    def __hash__(self) -> int:
        return id(self._counter)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and other._counter is self._counter


class _Calibrated:
    """A counter as the session counts now."""

    __slots__ = ("_estimate",)

    def __init__(self, estimate: Estimate) -> None:
        self._estimate = estimate

    def count(self, message: Message) -> float:
        return self._estimate.raw_messages((message,)) * self._estimate.calibration

    def count_text(self, text: str) -> float:
        estimate = self._estimate
        return estimate._raw_counter.count_text(text) * estimate.calibration  # pyright: ignore[reportPrivateUsage]
