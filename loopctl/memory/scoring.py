"""How well an entry fits a query (MEM-4)."""

from __future__ import annotations

import re

from loopctl.memory.types import MemoryEntry

_WORD = re.compile(r"\w+")


def words(text: str) -> frozenset[str]:
    """The words of a text, without case and punctuation."""
    return frozenset(_WORD.findall(text.casefold()))


def score(entry: MemoryEntry, query: str, query_words: frozenset[str] | None = None) -> float:
    """0.5 × relevance + 0.4 × share of query words found + 0.3 if a tag holds the query + 0.1.

    `query_words` are those of the query, where they are known.
    """
    wanted = words(query) if query_words is None else query_words
    found = len(wanted & words(entry.text)) / len(wanted) if wanted else 0.0
    whole = query.strip().casefold()
    tagged = bool(whole) and any(whole in tag.casefold() for tag in entry.tags)
    return 0.5 * entry.relevance + 0.4 * found + 0.3 * tagged + 0.1


def best(entries: list[MemoryEntry], query: str, limit: int) -> list[MemoryEntry]:
    """The `limit` best entries, the best first; equals by their ids."""
    wanted = words(query)
    ranked = sorted(entries, key=lambda entry: (-score(entry, query, wanted), entry.id))
    return ranked[: max(0, limit)]
