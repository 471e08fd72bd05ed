"""How small a pass should make the messages."""

from __future__ import annotations

import pytest

from loopctl.compaction import CompactReason, target_for
from loopctl.machine import Policy

WINDOW = Policy(window=8_000, threshold=80)


@pytest.mark.parametrize("reason", [r for r in CompactReason if r is not CompactReason.SALVAGE])
@pytest.mark.parametrize(
    ("fixed", "reserve", "target"),
    [
        (0, 0, 3_200),
        (500, 0, 2_700),
        (500, 1_000, 1_700),
        (2_400, 0, 800),
        (2_401, 0, 800),
        (9_000, 9_000, 800),
    ],
)
def test_the_target_is_half_of_the_threshold_without_what_rides_along(
    reason: CompactReason, fixed: int, reserve: int, target: int
) -> None:
    """CMP-3: max(50 % of T − F − reserve, 10 % of W)."""
    found = target_for(reason, policy=WINDOW, fixed=fixed, size=6_000, reserve=reserve)
    assert found == target


@pytest.mark.parametrize(
    ("refused", "fixed", "reserve", "target"),
    [(10_000, 500, 700, 3_800), (10_000, 5_000, 0, 800), (1_000, 500, 700, 800)],
)
def test_a_salvage_aims_at_half_of_what_was_refused(
    refused: int, fixed: int, reserve: int, target: int
) -> None:
    """CMP-3: half of the refused estimate − F − X, with the same floor."""
    found = target_for(
        CompactReason.SALVAGE,
        policy=WINDOW,
        fixed=fixed,
        size=9_000,
        reserve=reserve,
        refused=refused,
    )
    assert found == target


@pytest.mark.parametrize("reason", [CompactReason.SALVAGE, CompactReason.MANUAL])
def test_without_window_policy_the_target_is_half_of_what_there_is(reason: CompactReason) -> None:
    """CMP-3: salvage and manual passes exist without a window too."""
    found = target_for(
        reason, policy=Policy(window=0), fixed=500, size=6_001, reserve=100, refused=9_000
    )
    assert found == 3_000
