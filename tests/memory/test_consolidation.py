"""MEM-8: how memories fade, merge and go."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopctl import MemoryCategory, MemoryEntry
from loopctl.memory.consolidation import faded, merged, spent
from loopctl.memory.scoring import words

LETTERS = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=8).map(" ".join)
ENTRIES = st.lists(
    st.tuples(
        LETTERS,
        st.sampled_from([MemoryCategory.FACT, MemoryCategory.INSIGHT]),
        st.sampled_from([0.0, 0.3, 0.5, 1.0]),
        st.booleans(),
    ),
    max_size=12,
)


def entry(id: str, text: str, **given: Any) -> MemoryEntry:
    return MemoryEntry(id=id, text=text, **given)


def jaccard(one: MemoryEntry, other: MemoryEntry) -> float:
    left, right = words(one.text), words(other.text)
    return len(left & right) / len(left | right)


@given(ENTRIES)
def test_nothing_that_comes_back_says_the_same_and_nothing_else_is_gone(
    rows: list[tuple[str, MemoryCategory, float, bool]],
) -> None:
    """MEM-8: as comparing all with all would have it, the best first; twice changes nothing."""
    given = [
        entry(
            f"{n:02}",
            text,
            category=category,
            relevance=relevance,
            validated=validated,
            tags=(str(n),),
        )
        for n, (text, category, relevance, validated) in enumerate(rows)
    ]
    expected: list[tuple[MemoryEntry, list[str]]] = []
    for one in sorted(given, key=lambda e: (not e.validated, -e.relevance, e.id)):
        alike = (o for o in expected if o[0].category is one.category and jaccard(o[0], one) >= 0.6)
        if (best := next(alike, None)) is not None:
            best[1].extend(one.tags)
        else:
            expected.append((one, list(one.tags)))
    found = merged(given)
    assert [(e.id, list(e.tags)) for e in found] == [(e.id, tags) for e, tags in expected]
    assert {each.id: each for each in merged(found)} == {each.id: each for each in found}


@pytest.mark.parametrize(
    ("left", "right", "alike"),
    [
        ("a b c d", "a b c e", True),  # 3 of 5
        ("a b c d", "a b e f", False),  # 2 of 6
        ("a b c d e", "a b c", True),  # 3 of 5
        ("a b c d e f", "a b c", False),  # 3 of 6
        ("…", "!", False),
    ],
)
def test_three_common_words_of_five_are_the_same(left: str, right: str, alike: bool) -> None:
    """MEM-8: 0.6, to the word."""
    assert (len(merged([entry("a", left), entry("b", right)])) == 1) is alike


def test_the_better_one_takes_over_what_the_other_adds() -> None:
    """MEM-8: tags and counts joined; validated is better than relevant."""
    then = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    day = datetime.timedelta(days=1)
    kept = entry(
        "z",
        "run the tests",
        validated=True,
        relevance=0.1,
        tags=("x",),
        access_count=2,
        created=then,
        last_accessed=then,
        origin="user",
    )
    other = entry(
        "a",
        "Run the tests!",
        relevance=0.9,
        tags=("y", "x"),
        access_count=3,
        last_accessed=then + day,
    )
    assert merged([other, kept]) == [
        entry(
            "z",
            "run the tests",
            validated=True,
            relevance=0.9,
            tags=("x", "y"),
            access_count=5,
            created=then,
            last_accessed=then + day,
            origin="user",
        )
    ]


def test_fading_in_steps_is_fading_at_once() -> None:
    """MEM-8: by half-lives."""
    whole = entry("a", "b", category=MemoryCategory.TRAJECTORY, relevance=0.8)
    week = datetime.timedelta(days=7)
    assert faded(faded(whole, week), week).relevance == pytest.approx(0.4)
    assert faded(whole, 2 * week).relevance == pytest.approx(0.4)
    assert faded(whole, datetime.timedelta(0)) is whole
    assert faded(whole, -week) is whole


@pytest.mark.parametrize(
    ("relevance", "validated", "gone"),
    [(0.05, False, False), (0.049, False, True), (0.049, True, False)],
)
def test_what_has_faded_below_the_least_goes(relevance: float, validated: bool, gone: bool) -> None:
    """MEM-8: below 0.05, unless validated."""
    assert spent(entry("a", "b", relevance=relevance, validated=validated)) is gone
