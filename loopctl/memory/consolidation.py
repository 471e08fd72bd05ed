"""How memories fade, merge and go (MEM-8): pure functions, for every store."""

from __future__ import annotations

import datetime
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace

from loopctl.memory.scoring import words
from loopctl.memory.types import MemoryCategory, MemoryEntry

HALF_LIFE_DAYS = 14
"""After so many days without being asked for, an entry is half as relevant."""

PACE = {MemoryCategory.FACT: 0.5, MemoryCategory.STRATEGY: 0.5, MemoryCategory.WORKING: 2.0}
"""How fast the entries of a category fade, as a multiple; others at 1."""

SAME_WORDS = 60
"""The percentage of common words (Jaccard) from which two entries of a category say the same."""

LEAST_RELEVANCE = 0.05
"""Below it an entry goes, unless it is validated."""


def faded(entry: MemoryEntry, over: datetime.timedelta) -> MemoryEntry:
    """The entry after a time in which nobody asked for it; the same object after none."""
    days = over / datetime.timedelta(days=1)
    if days <= 0 or not entry.relevance:
        return entry
    half_lives = days / HALF_LIFE_DAYS * PACE.get(entry.category, 1.0)
    return replace(entry, relevance=entry.relevance * 0.5**half_lives)


def spent(entry: MemoryEntry) -> bool:
    """Whether it is not worth keeping."""
    return entry.relevance < LEAST_RELEVANCE and not entry.validated


def merged(entries: Iterable[MemoryEntry]) -> list[MemoryEntry]:
    """The entries without near-duplicates: what says the same as a better one is joined to it.

    Validated entries are better than others, then the more relevant ones, then by id. No two
    of those that come back say the same, so that merging again changes nothing.
    """
    order = sorted(entries, key=lambda entry: (-entry.validated, -entry.relevance, entry.id))
    texts = [words(entry.text) for entry in order]
    often = Counter(word for text in texts for word in text)
    rarity = {word: n for n, word in enumerate(sorted(often, key=lambda word: (often[word], word)))}
    said = [frozenset(rarity[word] for word in text) for text in texts]
    kept: list[int] = []
    # Two that say the same share one of the rarest 40 % of either's words, or more. Counting
    # these finds the few that are worth a comparison.
    having: dict[str, defaultdict[int, list[int]]] = {
        c.value: defaultdict(list) for c in MemoryCategory
    }
    for number, entry in enumerate(order):
        mine, known = said[number], having[entry.category.value]
        rare = sorted(mine)[: len(mine) - -(-len(mine) * SAME_WORDS // 100) + 1]
        shared = Counter[int]()
        for word in rare:
            shared.update(known.get(word, ()))
        others = len(mine) - len(rare)
        alike = [
            other
            for other, common in shared.items()
            if common + others >= (least := _least_common(len(mine), len(said[other])))
            and len(mine & said[other]) >= least
        ]
        if alike:
            first = min(alike)
            order[first] = _joined(order[first], entry)
            continue
        kept.append(number)
        for word in mine:
            known[word].append(number)
    return [order[number] for number in kept]


def _least_common(one: int, other: int) -> int:
    """How many common words two sets of these sizes need to say the same."""
    return -(-(one + other) * SAME_WORDS // (100 + SAME_WORDS))


def _joined(better: MemoryEntry, other: MemoryEntry) -> MemoryEntry:
    """The better of two with what the other adds."""
    moments = [m for m in (better.last_accessed, other.last_accessed) if m is not None]
    return replace(
        better,
        tags=tuple(dict.fromkeys((*better.tags, *other.tags))),
        access_count=better.access_count + other.access_count,
        last_accessed=max(moments, default=None),
        relevance=max(better.relevance, other.relevance),
    )
