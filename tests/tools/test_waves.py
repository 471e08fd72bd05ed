"""Planning of waves."""

from __future__ import annotations

from itertools import chain, pairwise

from hypothesis import given
from hypothesis import strategies as st

from loopctl.tools.waves import Slot, plan

SLOTS = st.lists(
    st.builds(Slot, st.booleans(), st.one_of(st.none(), st.sampled_from("ab"))), max_size=20
)


@given(SLOTS, st.booleans(), st.integers(1, 8))
def test_waves_keep_order_and_safety(slots: list[Slot], parallel: bool, limit: int) -> None:
    """TOL-8: every call once and in order; unsafe alone; no resource twice; never too many."""
    waves = plan(slots, parallel=parallel, limit=limit)
    assert list(chain.from_iterable(waves)) == list(range(len(slots)))
    for wave in waves:
        assert 1 <= len(wave) <= (limit if parallel else 1)
        held = [slots[i].resource for i in wave if slots[i].resource is not None]
        assert len(held) == len(set(held))
        if len(wave) > 1:
            assert all(slots[i].safe for i in wave)
    assert plan(slots, parallel=parallel, limit=limit) == waves


@given(SLOTS, st.integers(1, 8))
def test_waves_are_as_few_as_the_order_allows(slots: list[Slot], limit: int) -> None:
    """TOL-8: a wave ends only because the next call could not have joined it."""
    waves = plan(slots, parallel=True, limit=limit)
    for wave, after in pairwise(waves):
        following = slots[after.start]
        held = {slots[i].resource for i in wave} - {None}
        assert (
            len(wave) == limit
            or not following.safe
            or not slots[wave.start].safe
            or following.resource in held
        )


def test_two_calls_on_one_file_stay_in_their_order() -> None:
    """TOL-8: calls with the same resource key never share a wave."""
    read, write, other = Slot(True, "a.txt"), Slot(True, "a.txt"), Slot(True, "b.txt")
    waves = plan([read, write, other], parallel=True, limit=8)
    assert [list(wave) for wave in waves] == [[0], [1, 2]]


def test_no_calls_need_no_waves() -> None:
    assert plan([], parallel=True, limit=8) == []
