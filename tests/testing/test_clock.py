"""FixedClock."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from loopctl._clock import Clock
from loopctl.testing import FixedClock


def test_a_fixed_clock_is_a_clock_and_stands_still() -> None:
    """ENG-29: with it, time, ids and jitter are the same in each run."""
    clock: Clock = FixedClock()
    assert clock.now() == clock.now() == datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    assert [clock.new_id("run"), clock.new_id("session"), clock.new_id("run")] == [
        "run-1",
        "session-1",
        "run-2",
    ]
    assert clock.random() == 0.5


def test_it_moves_by_its_step_or_by_hand() -> None:
    start = datetime.datetime(2030, 5, 1, 12, tzinfo=datetime.UTC)
    second = datetime.timedelta(seconds=1)
    clock = FixedClock(start, step=second)
    assert [clock.now(), clock.now()] == [start, start + second]
    clock.advance(datetime.timedelta(hours=1))
    assert clock.now() == start + 2 * second + datetime.timedelta(hours=1)


def test_its_random_numbers_are_given_and_come_around() -> None:
    clock = FixedClock(randoms=[0.0, 0.25])
    assert [clock.random() for _ in range(3)] == [0.0, 0.25, 0.0]


@pytest.mark.parametrize("randoms", [[], [1.0], [-0.1]])
def test_unfit_settings_are_refused(randoms: Any) -> None:
    with pytest.raises(ValueError, match="randoms"):
        FixedClock(randoms=randoms)
    with pytest.raises(ValueError, match="time zone"):
        FixedClock(datetime.datetime(2026, 1, 1))  # noqa: DTZ001
