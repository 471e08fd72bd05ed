"""A store that lives as long as its process (MEM-1, MEM-3, MEM-4, MEM-8)."""

from __future__ import annotations

import datetime
import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace

from loopctl._clock import SYSTEM_CLOCK, Clock
from loopctl.memory.consolidation import faded, merged, spent
from loopctl.memory.scoring import Query, score, words
from loopctl.memory.types import ConsolidationStats, MemoryEntry


class InMemoryStore:
    """A `Memory` without a disk: for tests, scripts, and sessions that may forget.

    `entries` are there from the start; `clock` says when something was asked for.
    """

    def __init__(self, entries: Iterable[MemoryEntry] = (), *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._entries: dict[str, MemoryEntry] = {}
        self._faded_until: dict[str, datetime.datetime] = {}
        self._with_word: defaultdict[str, set[str]] = defaultdict(set)
        for entry in entries:
            self._put(entry)

    async def store(self, entry: MemoryEntry) -> None:
        """Keep an entry; one with the same id is replaced."""
        self._put(entry)

    async def retrieve(self, query: str, limit: int) -> list[MemoryEntry]:
        """At most `limit` entries, the best first; each is marked as asked for."""
        wanted, now = Query.of(query), self._clock.now()
        found = Counter[str]()
        for word in wanted.words:
            found.update(self._with_word.get(word, ()))
        best = heapq.nsmallest(
            limit,
            self._entries.values(),
            key=lambda entry: (-score(entry, wanted, found.get(entry.id, 0)), entry.id),
        )
        touched = [replace(e, last_accessed=now, access_count=e.access_count + 1) for e in best]
        for entry in touched:
            self._entries[entry.id] = entry
            self._faded_until[entry.id] = now
        return touched

    async def consolidate(self) -> ConsolidationStats:
        """Fade by half-lives, merge what says the same, drop what has faded away.

        Doing it twice at one moment changes nothing more.
        """
        now = self._clock.now()
        before = list(self._entries.values())
        older = [faded(entry, now - self._faded_until[entry.id]) for entry in before]
        apart = merged(older)
        left = {entry.id: entry for entry in apart if not spent(entry)}
        for entry in before:
            if entry.id in left:
                self._entries[entry.id] = left[entry.id]
                self._faded_until[entry.id] = max(now, self._faded_until[entry.id])
            else:
                self._drop(entry)
        return ConsolidationStats(
            decayed=sum(new is not old for new, old in zip(older, before, strict=True)),
            merged=len(older) - len(apart),
            pruned=len(apart) - len(left),
        )

    async def count(self) -> int:
        """How many entries there are."""
        return len(self._entries)

    def _put(self, entry: MemoryEntry) -> None:
        if (old := self._entries.get(entry.id)) is not None:
            self._drop(old)
        created = entry.created or self._clock.now()
        accessed = entry.last_accessed or created
        self._entries[entry.id] = replace(entry, created=created, last_accessed=accessed)
        self._faded_until[entry.id] = accessed
        for word in words(entry.text):
            self._with_word[word].add(entry.id)

    def _drop(self, entry: MemoryEntry) -> None:
        del self._entries[entry.id], self._faded_until[entry.id]
        for word in words(entry.text):
            having = self._with_word[word]
            having.discard(entry.id)
            if not having:
                del self._with_word[word]
