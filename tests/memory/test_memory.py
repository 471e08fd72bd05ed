"""MEM-1, MEM-4, MEM-8: entries, their scores, and the store in memory."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from loopctl import InMemoryStore, Memory, MemoryCategory, MemoryEntry
from loopctl.errors import ConfigError
from loopctl.memory.scoring import score
from loopctl.testing import FixedClock

pytestmark = pytest.mark.anyio


def entry(id: str, text: str, **given: Any) -> MemoryEntry:
    return MemoryEntry(id=id, text=text, **given)


@pytest.mark.parametrize(
    ("given", "query", "expected"),
    [
        (entry("a", "the sky is blue", relevance=1.0), "blue sky", 0.5 + 0.4 + 0.1),
        (entry("a", "the sky is blue", relevance=0.0), "blue sea", 0.2 + 0.1),
        (entry("a", "x", relevance=0.0, tags=("Deploy steps",)), "deploy", 0.3 + 0.1),
        (entry("a", "x", relevance=0.0, tags=("deploy",)), "deploy now", 0.1),
        (entry("a", "x", relevance=0.5), "", 0.25 + 0.1),
        (entry("a", "Straße, GROSS!", relevance=0.0), "strasse gross", 0.4 + 0.1),
    ],
)
def test_the_flat_score(given: MemoryEntry, query: str, expected: float) -> None:
    """MEM-4: 0.5 × relevance + 0.4 × share of words + 0.3 for a tag + 0.1."""
    assert score(given, query) == pytest.approx(expected)


async def test_it_retrieves_the_best_and_breaks_ties_by_id() -> None:
    """MEM-1, MEM-4: at most as many as asked for."""
    store = InMemoryStore([entry("c", "sky"), entry("a", "sky"), entry("b", "sky blue")])
    assert isinstance(store, Memory)
    assert [found.id for found in await store.retrieve("blue sky", 2)] == ["b", "a"]
    assert await store.retrieve("blue sky", 0) == []
    assert await store.count() == 3


async def test_retrieving_marks_what_was_asked_for() -> None:
    """MEM-1: last accessed and access count."""
    clock = FixedClock()
    store = InMemoryStore([entry("a", "sky")], clock=clock)
    clock.advance(datetime.timedelta(days=1))
    (found,) = await store.retrieve("sky", 1)
    assert found.access_count == 1
    assert found.created is not None
    assert found.last_accessed == found.created + datetime.timedelta(days=1)


async def test_the_same_id_replaces() -> None:
    """MEM-1."""
    store = InMemoryStore()
    await store.store(entry("a", "old"))
    await store.store(entry("a", "new", category=MemoryCategory.INSIGHT))
    (found,) = await store.retrieve("new", 5)
    assert (found.text, found.category) == ("new", MemoryCategory.INSIGHT)


@pytest.mark.parametrize(
    ("category", "left"),
    [
        (MemoryCategory.INSIGHT, 0.5),
        (MemoryCategory.FACT, 0.5**0.5),
        (MemoryCategory.STRATEGY, 0.5**0.5),
        (MemoryCategory.WORKING, 0.25),
    ],
)
async def test_entries_fade_by_half_lives(category: MemoryCategory, left: float) -> None:
    """MEM-8: 14 days; facts and strategies at half speed, working memory at double."""
    clock = FixedClock()
    store = InMemoryStore([entry("a", "sky", category=category, relevance=1.0)], clock=clock)
    clock.advance(datetime.timedelta(days=14))
    assert (await store.consolidate()).decayed == 1
    assert (await store.consolidate()).decayed == 0
    (found,) = await store.retrieve("sky", 1)
    assert found.relevance == pytest.approx(left, rel=1e-3)


async def test_what_says_the_same_is_merged_into_the_best() -> None:
    """MEM-8: within a category, from a share of 0.6 common words; tags and counts joined."""
    same = "always run the tests first"
    store = InMemoryStore(
        [
            entry("a", same, tags=("x",), relevance=0.4, access_count=1),
            entry("b", same + " please", tags=("y", "x"), relevance=0.9, access_count=2),
            entry("c", same, category=MemoryCategory.STRATEGY),
            entry("d", "something else entirely"),
        ]
    )
    assert (await store.consolidate()).merged == 1
    assert (await store.consolidate()).merged == 0
    assert await store.count() == 3
    found = {each.id: each for each in await store.retrieve(same, 5)}
    assert (found["b"].tags, found["b"].access_count) == (("y", "x"), 4)


async def test_what_has_faded_away_is_dropped_unless_validated() -> None:
    """MEM-8: below 0.05."""
    clock = FixedClock()
    store = InMemoryStore(
        [
            entry("a", "one thing", relevance=0.06),
            entry("b", "another matter", relevance=0.06, validated=True),
        ],
        clock=clock,
    )
    clock.advance(datetime.timedelta(days=30))
    assert (await store.consolidate()).pruned == 1
    assert await store.count() == 1


@pytest.mark.parametrize("bad", [{"id": " "}, {"text": ""}, {"relevance": 1.5}, {"category": "x"}])
def test_an_entry_that_cannot_be_is_refused(bad: dict[str, Any]) -> None:
    """MEM-1."""
    with pytest.raises(ValueError, match=r".+"):
        MemoryEntry(**{"id": "a", "text": "b", **bad})
    assert issubclass(ConfigError, ValueError)
