"""Token counts: MOD-10, and the fault J4."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopctl import _json
from loopctl.usage import Usage

COUNT = st.none() | st.integers(0, 10**9)
USAGES = st.builds(
    Usage,
    input_tokens=COUNT,
    output_tokens=COUNT,
    cached_tokens=COUNT,
    cache_write_tokens=COUNT,
    thinking_tokens=COUNT,
)


def test_cumulative_reports_of_one_reply_are_merged_by_their_maximum() -> None:
    """MOD-10, J4: a start with 25/1 and a delta with 15 are 25/15, not 25/16."""
    start, delta = Usage(input_tokens=25, output_tokens=1), Usage(output_tokens=15)
    assert start.peak(delta) == Usage(input_tokens=25, output_tokens=15)


def test_usage_adds_up_over_calls() -> None:
    """MOD-10: sums are over messages and attempts."""
    total = Usage(input_tokens=25, output_tokens=15) + Usage(input_tokens=1, cached_tokens=1)
    assert total == Usage(input_tokens=26, output_tokens=15, cached_tokens=1)


def test_what_was_not_reported_is_none_and_not_zero() -> None:
    """MOD-10: absent usage stays apart from a count of zero."""
    assert Usage() + Usage() == Usage()
    assert (Usage() + Usage(input_tokens=0)).input_tokens == 0
    assert Usage().peak(Usage(output_tokens=0)) == Usage(output_tokens=0)


@given(USAGES)
def test_adding_or_merging_nothing_changes_nothing(usage: Usage) -> None:
    """MOD-10: a call without a report costs what is known."""
    assert usage + None == usage.peak(None) == usage + Usage() == usage.peak(usage) == usage


@given(USAGES, USAGES, USAGES)
def test_the_order_of_reports_does_not_matter(a: Usage, b: Usage, c: Usage) -> None:
    """MOD-10: neither for sums nor for maxima."""
    assert (a + b) + c == a + (c + b)
    assert a.peak(b).peak(c) == c.peak(b.peak(a))


def test_the_total_counts_cached_and_thinking_tokens_once() -> None:
    """MOD-10: cached is a subset of input, thinking of output."""
    usage = Usage(input_tokens=10, cached_tokens=8, output_tokens=5, thinking_tokens=4)
    assert usage.total_tokens == 15
    assert Usage().total_tokens == 0


@given(USAGES)
def test_a_usage_loads_back_equal(usage: Usage) -> None:
    """MOD-10: counts that were not reported are left out; unknown fields are ignored."""
    document = _json.loads(_json.dumps(usage.to_json()))
    assert None not in document.values()
    assert Usage.from_json(document | {"later": 1}) == usage


def test_a_usage_is_a_value() -> None:
    """MOD-10: it cannot change."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        Usage().input_tokens = 1  # type: ignore[misc] # the point of the test
