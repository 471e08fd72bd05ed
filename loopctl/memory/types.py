"""What every store of memories keeps (MEM-1)."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from loopctl.errors import ConfigError


class MemoryCategory(StrEnum):
    """What kind of thing is remembered."""

    FACT = "fact"
    STRATEGY = "strategy"
    INSIGHT = "insight"
    ERROR_PATTERN = "error_pattern"
    TRAJECTORY = "trajectory"
    WORKING = "working"


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryEntry:
    """One thing remembered.

    `relevance` is from 0 to 1; `validated` entries are not forgotten; `origin` is who said it, such
    as a tool's name. `created` and `last_accessed` are set by the store where they are `None`.
    Raises `ConfigError` for a blank id or text, a relevance out of range, and times without a zone.
    """

    id: str
    text: str
    category: MemoryCategory = MemoryCategory.FACT
    tags: tuple[str, ...] = ()
    created: datetime.datetime | None = None
    last_accessed: datetime.datetime | None = None
    relevance: float = 0.5
    access_count: int = 0
    validated: bool = False
    origin: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "tags", tuple(self.tags))
        object.__setattr__(self, "category", MemoryCategory(self.category))
        if not self.id.strip() or not self.text.strip():
            raise ConfigError("MemoryEntry: the id and the text must not be blank")
        if not 0 <= self.relevance <= 1:
            raise ConfigError(f"MemoryEntry.relevance={self.relevance!r}: must be from 0 to 1")
        for name, moment in (("created", self.created), ("last_accessed", self.last_accessed)):
            if moment is not None and moment.tzinfo is None:
                raise ConfigError(f"MemoryEntry.{name}={moment!r}: needs a zone, as datetime.UTC")


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsolidationStats:
    """How many entries a consolidation let fade, merged into others, and dropped."""

    decayed: int = 0
    merged: int = 0
    pruned: int = 0


@runtime_checkable
class Memory(Protocol):
    """A store of memories. Each method may raise; a failing store never ends a run."""

    async def store(self, entry: MemoryEntry) -> None:
        """Keep an entry; one with the same id is replaced."""
        ...

    async def retrieve(self, query: str, limit: int) -> Sequence[MemoryEntry]:
        """At most `limit` entries that fit the query, the best first."""
        ...

    async def consolidate(self) -> ConsolidationStats:
        """Let old entries fade, merge those that say the same, drop what is not worth keeping."""
        ...

    async def count(self) -> int:
        """How many entries there are."""
        ...
