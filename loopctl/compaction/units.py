"""The pieces that a conversation may be cut into (CMP-10).

A message with calls and all that follows it until the last of them is answered is one piece,
however many results there are and however they are spread over user messages; every other
message is a piece of its own. Pairs are made per occurrence: an id that comes again is new.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from loopctl.messages import Message, Role


@dataclass(frozen=True, slots=True)
class Unit:
    """The messages from `start` up to `end`, which go or stay together."""

    start: int
    end: int

    @property
    def indices(self) -> range:
        """Where its messages stand."""
        return range(self.start, self.end)


def units_of(messages: Sequence[Message]) -> list[Unit]:
    """The pieces of a conversation, in order; together they are all of it."""
    units: list[Unit] = []
    start = 0
    while start < len(messages):
        end = start + 1
        owed = Counter(call.id for call in messages[start].calls)
        while owed and end < len(messages) and messages[end].role is Role.USER:
            owed -= Counter(result.call_id for result in messages[end].results)
            end += 1
        units.append(Unit(start, end))
        start = end
    return units
