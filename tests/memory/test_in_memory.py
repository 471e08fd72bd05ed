"""MEM-1, MEM-3, MEM-4, MEM-8: the store that lives as long as its process."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from loopctl import InMemoryStore, Memory, MemoryCategory, MemoryEntry
from loopctl.memory.types import ConsolidationStats
from loopctl.testing import FixedClock

pytestmark = pytest.mark.anyio


def entry(id: str, text: str, **given: Any) -> MemoryEntry:
    return MemoryEntry(id=id, text=text, **given)


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


async def test_being_asked_for_stops_the_fading_and_starts_it_anew() -> None:
    """MEM-8: it is counted from the last time that somebody asked."""
    clock = FixedClock()
    days = datetime.timedelta(days=14)
    store = InMemoryStore([entry("a", "sky", category="insight", relevance=1.0)], clock=clock)
    clock.advance(days)
    await store.retrieve("sky", 1)
    assert (await store.consolidate()).decayed == 0
    for _ in range(2):
        clock.advance(days / 2)
        await store.consolidate()
    (found,) = await store.retrieve("sky", 1)
    assert found.relevance == pytest.approx(0.5)


async def test_an_old_entry_fades_from_when_it_was_last_asked_for() -> None:
    """MEM-8: entries that are brought along have times of their own; the future fades nothing."""
    clock = FixedClock()
    now, month = clock.now(), datetime.timedelta(days=28)
    store = InMemoryStore(
        [
            entry("old", "sky", created=now - 2 * month, last_accessed=now - month),
            entry("new", "sea", created=now + month),
        ],
        clock=clock,
    )
    assert (await store.consolidate()).decayed == 1
    found = {each.id: each.relevance for each in await store.retrieve("", 2)}
    assert found == {"old": pytest.approx(0.25), "new": 0.5}


async def test_what_is_gone_is_not_found_by_its_words() -> None:
    """MEM-1: replaced, merged or dropped."""
    clock = FixedClock()
    store = InMemoryStore([entry("a", "green grass", relevance=0.0)], clock=clock)
    await store.store(entry("a", "blue sky", relevance=0.0))
    await store.store(entry("b", "tall tree", relevance=0.0, validated=True))
    assert [found.id for found in await store.retrieve("green grass", 1)] == ["a"], "a tie"
    assert [found.id for found in await store.retrieve("tall grass", 1)] == ["b"]
    assert (await store.consolidate()).pruned == 1
    assert [found.id for found in await store.retrieve("blue sky", 5)] == ["b"]
    await store.store(entry("a", "blue sky"))
    assert [found.id for found in await store.retrieve("blue sky", 1)] == ["a"]


async def test_a_store_can_be_consolidated_again_and_again() -> None:
    """MEM-8: at one moment the second time changes nothing."""
    clock = FixedClock()
    texts = [f"step {n // 3} of the plan was {n}" for n in range(30)]
    store = InMemoryStore([entry(str(n), text) for n, text in enumerate(texts)], clock=clock)
    clock.advance(datetime.timedelta(days=50))
    first = await store.consolidate()
    assert (first.decayed, first.merged > 0) == (30, True)
    before = await store.count()
    assert await store.consolidate() == ConsolidationStats()
    assert await store.count() == before
