"""MEM-1: what an entry is."""

from __future__ import annotations

import datetime
import math
from typing import Any

import pytest

from loopctl import Memory, MemoryCategory, MemoryEntry
from loopctl.errors import ConfigError
from loopctl.memory.in_memory import InMemoryStore

NAIVE = datetime.datetime(2026, 1, 1)  # noqa: DTZ001 - the very thing that is refused


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        ({"id": " "}, "blank"),
        ({"text": "\n"}, "blank"),
        ({"relevance": 1.5}, "relevance"),
        ({"relevance": math.nan}, "relevance"),
        ({"created": NAIVE}, "created"),
        ({"last_accessed": NAIVE}, "last_accessed"),
        ({"category": "gossip"}, "gossip"),
    ],
)
def test_an_entry_that_cannot_be_is_refused(bad: dict[str, Any], named: str) -> None:
    """MEM-1: with what is wrong."""
    with pytest.raises((ConfigError, ValueError), match=named):
        MemoryEntry(**{"id": "a", "text": "b", **bad})


def test_a_category_is_known_by_its_word_and_tags_are_kept() -> None:
    """MEM-1: FACT, STRATEGY, INSIGHT, ERROR_PATTERN, TRAJECTORY, WORKING."""
    entry = MemoryEntry(id="a", text="b", category="error_pattern", tags=["x"])  # type: ignore[arg-type]
    assert entry.category is MemoryCategory.ERROR_PATTERN
    assert entry.tags == ("x",)
    assert len(MemoryCategory) == 6


def test_the_store_in_memory_keeps_the_protocol() -> None:
    """MEM-1: store, retrieve, consolidate, count."""
    assert isinstance(InMemoryStore(), Memory)
