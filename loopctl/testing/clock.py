"""A clock that makes two runs byte-identical (ENG-29)."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Sequence

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


class FixedClock:
    """A `Clock` whose every answer is known in advance.

    `now()` gives `start` (2026-01-01 00:00 UTC) and moves on by `step` (nothing) each time it is
    asked; `advance()` moves it by hand. Ids count up for each kind: `session-1`, `run-1`, `run-2`.
    `random()` gives the numbers of `randoms` (0.5) over and over.

    Raises `ValueError` for a `start` without a time zone or for no or unfit `randoms`.
    """

    def __init__(
        self,
        start: datetime.datetime = START,
        *,
        step: datetime.timedelta = datetime.timedelta(0),
        randoms: Sequence[float] = (0.5,),
    ) -> None:
        if start.tzinfo is None:
            raise ValueError("start needs a time zone, such as datetime.UTC")
        if not randoms or not all(0 <= number < 1 for number in randoms):
            raise ValueError(f"randoms={randoms!r}: give numbers from 0 up to but not including 1")
        self._now = start
        self._step = step
        self._randoms = tuple(randoms)
        self._drawn = 0
        self._ids: Counter[str] = Counter()

    def now(self) -> datetime.datetime:
        """The clock's time; it then moves on by `step`."""
        now = self._now
        self._now = now + self._step
        return now

    def advance(self, by: datetime.timedelta) -> None:
        """Move the clock on."""
        self._now += by

    def new_id(self, kind: str) -> str:
        """`kind`, a dash, and how many ids of this kind were asked for."""
        self._ids[kind] += 1
        return f"{kind}-{self._ids[kind]}"

    def random(self) -> float:
        """The next of `randoms`."""
        number = self._randoms[self._drawn % len(self._randoms)]
        self._drawn += 1
        return number
