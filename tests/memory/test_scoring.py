"""MEM-4: how well an entry fits a query."""

from __future__ import annotations

from typing import Any

import pytest

from loopctl import MemoryEntry
from loopctl.memory.scoring import Query, score, words


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
        (entry("a", "x", relevance=0.0, tags=("deploy",)), " ", 0.1),
        (entry("a", "Straße, GROSS!", relevance=0.0), "strasse gross", 0.4 + 0.1),
    ],
)
def test_the_flat_score(given: MemoryEntry, query: str, expected: float) -> None:
    """MEM-4: 0.5 × relevance + 0.4 × share of words + 0.3 for a tag + 0.1."""
    assert score(given, Query.of(query)) == pytest.approx(expected)


def test_what_is_known_is_not_searched_again() -> None:
    """MEM-4: a store with an index knows how many words are found."""
    given = entry("a", "x", relevance=0.0)
    assert score(given, Query.of("blue sky"), 1) == pytest.approx(0.2 + 0.1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don't PANIC, don't!", {"don", "t", "panic"}),
        ("read_text_file: 42", {"read_text_file", "42"}),
        ("部署步骤v2です", {"部", "署", "步", "骤", "v2", "で", "す"}),
        ("안녕 세상", {"안녕", "세상"}),
        ("…!", set()),
    ],
)
def test_the_words_of_a_text(text: str, expected: set[str]) -> None:
    """MEM-4: without case and punctuation; where no spaces part them, each character is one."""
    assert words(text) == expected
