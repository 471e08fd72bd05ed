"""The one place that time, ids and random numbers come from (ENG-29).

With a fixed clock two runs send byte-identical requests. `loopctl.testing.FixedClock` is one.
Deadlines are not measured here: they belong to the event loop's own clock.
"""

from __future__ import annotations

import datetime
import random
import time
import uuid
from typing import Protocol


class Clock(Protocol):
    """What a session asks instead of the system. Implement it to make runs repeatable."""

    def now(self) -> datetime.datetime:
        """The present moment, with a time zone."""
        ...

    def new_id(self, kind: str) -> str:
        """A fresh id for a `"session"` or a `"run"`; letters, digits, `_` and `-` only."""
        ...

    def random(self) -> float:
        """A number from 0 up to but not including 1; used for the jitter of retries."""
        ...


class SystemClock:
    """The machine's own time, random ids, random jitter."""

    def now(self) -> datetime.datetime:
        """The present moment in UTC."""
        return datetime.datetime.now(datetime.UTC)

    def new_id(self, kind: str) -> str:
        """`kind`, a dash, and 12 hexadecimal digits."""
        return f"{kind}-{uuid.uuid4().hex[:12]}"

    def random(self) -> float:
        """A number from 0 up to but not including 1."""
        return random.random()


SYSTEM_CLOCK = SystemClock()

stopwatch = time.perf_counter
"""Seconds from an arbitrary start, for how long a thing took; nothing is decided by it."""
