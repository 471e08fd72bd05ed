"""A store that lives as long as its process (MEM-1, MEM-3, MEM-4, MEM-8)."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import replace

from loopctl._clock import SYSTEM_CLOCK, Clock
from loopctl.memory.scoring import best, words
from loopctl.memory.types import ConsolidationStats, MemoryCategory, MemoryEntry

HALF_LIFE_DAYS = 14
"""After so many days without being asked for, an entry is half as relevant."""

_PACE = {MemoryCategory.FACT: 0.5, MemoryCategory.STRATEGY: 0.5, MemoryCategory.WORKING: 2.0}
"""How fast entries of a category fade, as a multiple."""

SAME_WORDS = 0.6
"""The share of common words (Jaccard) from which two entries of a category say the same."""

LEAST_RELEVANCE = 0.05
"""Below it an entry is dropped, unless it is validated."""


class InMemoryStore:
    """A `Memory` without a disk: for tests, scripts, and sessions that may forget.

    `entries` are there from the start; `clock` says when something was asked for.
    """

    def __init__(self, entries: Iterable[MemoryEntry] = (), *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._entries: dict[str, MemoryEntry] = {}
        self._faded: dict[str, datetime.datetime] = {}
        for entry in entries:
            self._put(entry)

    def _put(self, entry: MemoryEntry) -> None:
        now = self._clock.now()
        created = entry.created or now
        kept = replace(entry, created=created, last_accessed=entry.last_accessed or created)
        self._entries[entry.id] = kept
        self._faded.pop(entry.id, None)

    async def store(self, entry: MemoryEntry) -> None:
        """Keep an entry; one with the same id is replaced."""
        self._put(entry)

    async def retrieve(self, query: str, limit: int) -> list[MemoryEntry]:
        """At most `limit` entries, the best first; each is marked as asked for."""
        now, found = self._clock.now(), list[MemoryEntry]()
        for entry in best(list(self._entries.values()), query, limit):
            touched = replace(entry, last_accessed=now, access_count=entry.access_count + 1)
            self._entries[entry.id] = touched
            self._faded.pop(entry.id, None)
            found.append(touched)
        return found

    async def consolidate(self) -> ConsolidationStats:
        """Fade by half-lives, merge what says the same, drop what has faded away.

        Doing it twice at one moment changes nothing more.
        """
        now = self._clock.now()
        decayed = self._fade(now)
        merged = self._merge()
        gone = [
            entry.id
            for entry in self._entries.values()
            if entry.relevance < LEAST_RELEVANCE and not entry.validated
        ]
        for entry_id in gone:
            del self._entries[entry_id]
        return ConsolidationStats(decayed=decayed, merged=merged, pruned=len(gone))

    async def count(self) -> int:
        """How many entries there are."""
        return len(self._entries)

    def _fade(self, now: datetime.datetime) -> int:
        faded = 0
        for entry in list(self._entries.values()):
            since = self._faded.get(entry.id) or entry.last_accessed or now
            days = (now - since).total_seconds() / 86_400
            if days <= 0:
                continue
            self._faded[entry.id] = now
            share = 0.5 ** (days / HALF_LIFE_DAYS * _PACE.get(entry.category, 1.0))
            self._entries[entry.id] = replace(entry, relevance=entry.relevance * share)
            faded += 1
        return faded

    def _merge(self) -> int:
        kept: list[tuple[MemoryEntry, frozenset[str]]] = []
        merged = 0
        order = sorted(self._entries.values(), key=lambda e: (-e.validated, -e.relevance, e.id))
        for entry in order:
            said = words(entry.text)
            for number, (other, known) in enumerate(kept):
                alike = len(said & known) / (len(said | known) or 1)
                if other.category is entry.category and alike >= SAME_WORDS:
                    kept[number] = (_joined(other, entry), known)
                    del self._entries[entry.id]
                    merged += 1
                    break
            else:
                kept.append((entry, said))
        for entry, _ in kept:
            self._entries[entry.id] = entry
        return merged


def _joined(best_one: MemoryEntry, other: MemoryEntry) -> MemoryEntry:
    """The better of two with what the other adds."""
    tags = tuple(dict.fromkeys((*best_one.tags, *other.tags)))
    moments = [m for m in (best_one.last_accessed, other.last_accessed) if m is not None]
    return replace(
        best_one,
        tags=tags,
        access_count=best_one.access_count + other.access_count,
        last_accessed=max(moments, default=None),
    )
