"""How well an entry fits a query (MEM-4)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from loopctl.memory.types import MemoryEntry

_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(f"[{_UNSPACED}]|[^\\W{_UNSPACED}]+")


def words(text: str) -> frozenset[str]:
    """The words of a text, without case and punctuation.

    Chinese and Japanese put no spaces between words: there each character is one.
    """
    return frozenset(_WORD.findall(text.casefold()))


@dataclass(frozen=True, slots=True)
class Query:
    """What is looked for: the whole of it in lower case, and its words."""

    whole: str
    words: frozenset[str]

    @classmethod
    def of(cls, text: str) -> Query:
        """The query that a text is."""
        return cls(text.strip().casefold(), words(text))


def score(entry: MemoryEntry, query: Query, found: int | None = None) -> float:
    """0.5 × relevance + 0.4 × share of query words found + 0.3 if a tag has the query + 0.1.

    `found` is how many of the query's words the entry's text has, where that is known.
    """
    if found is None:
        found = len(query.words & words(entry.text))
    share = found / len(query.words) if query.words else 0.0
    tagged = bool(query.whole) and any(query.whole in tag.casefold() for tag in entry.tags)
    return 0.5 * entry.relevance + 0.4 * share + 0.3 * tagged + 0.1
