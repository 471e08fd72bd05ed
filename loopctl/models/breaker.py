"""When a client that keeps failing is left alone, and when it is asked again (MOD-18).

`Breaker` is for a client that one wants back:

    closed     calls go through; the third failure in a row opens it
    open       nothing goes through, for 60 seconds
    half open  one call at a time goes through, as a probe: two successes close it, any failure
               opens it again

`Tally` is for one that stands in: two failures in a row, and it is left alone for as long.

Decisions only: whoever makes a call takes a `Ticket` for it and says how it ended. A call that
was cancelled, or whose end is not its client's fault, gives the ticket back and counts for nothing.
"""

from __future__ import annotations

import datetime
from typing import Protocol

from loopctl._clock import Clock

TRIPPING_FAILURES = 3
"""How many failures in a row open a breaker."""

CLOSING_SUCCESSES = 2
"""How many successful probes close it."""

TALLY_FAILURES = 2
"""How many failures in a row are too many for a tally."""

COOLDOWN = 60.0
"""Seconds for which a client is left alone."""


class Gate(Protocol):
    """Lets calls through, or not, by how the ones before them ended."""

    def admit(self) -> Ticket | None:
        """A ticket for one call; `None` when none may go through now."""
        ...

    def settle(self, ticket: Ticket, *, failed: bool | None) -> None:
        """A call ended; `failed` is `None` where that says nothing about its client."""
        ...


class Ticket:
    """The permission for one call. What is said first of how it ended counts."""

    __slots__ = ("_gate", "_settled", "era", "probe")

    def __init__(self, gate: Gate, era: int = 0, *, probe: bool = False) -> None:
        self.probe = probe
        self.era = era
        self._gate = gate
        self._settled = False

    def settle(self, *, failed: bool | None) -> None:
        """Say how the call ended: by its client's fault, well, or in a way that says nothing."""
        if not self._settled:
            self._settled = True
            self._gate.settle(self, failed=failed)


class Breaker:
    """A circuit breaker; `clock` is what its pause is measured with."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures = 0
        self._successes = 0
        self._opened: datetime.datetime | None = None  # None: it is closed
        self._probe: Ticket | None = None
        self._era = 0  # counts its turns: what a ticket of an earlier one tells is old

    def admit(self) -> Ticket | None:
        """A ticket for one call, a probe while it is half open; `None` when none goes through."""
        if self._opened is None:
            return Ticket(self, self._era)
        if self._probe is not None or _is_recent(self._opened, self._clock):
            return None
        self._probe = Ticket(self, self._era, probe=True)
        return self._probe

    def settle(self, ticket: Ticket, *, failed: bool | None) -> None:
        """A call ended; `failed` is `None` where that says nothing about its client."""
        if ticket is self._probe:
            self._probe = None
        if failed is None or ticket.era != self._era:
            return
        if failed:
            self._failures += 1
            if ticket.probe or self._failures >= TRIPPING_FAILURES:
                self._turn(self._clock.now())
            return
        self._failures = 0
        if ticket.probe:
            self._successes += 1
            if self._successes >= CLOSING_SUCCESSES:
                self._turn(None)

    def _turn(self, opened: datetime.datetime | None) -> None:
        self._opened = opened
        self._failures = self._successes = 0
        self._era += 1


class Tally:
    """Counts failures in a row; `clock` is what its pause is measured with."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures = 0
        self._failed_at: datetime.datetime | None = None

    def admit(self) -> Ticket | None:
        """A ticket for one call; `None` after too many failures, too short a time ago."""
        if self._failed_at is not None and not _is_recent(self._failed_at, self._clock):
            self._failures, self._failed_at = 0, None
        return Ticket(self) if self._failures < TALLY_FAILURES else None

    def settle(self, ticket: Ticket, *, failed: bool | None) -> None:
        """A call ended; `failed` is `None` where that says nothing about its client."""
        if failed:
            self._failures += 1
            self._failed_at = self._clock.now()
        elif failed is not None:
            self._failures, self._failed_at = 0, None


def _is_recent(moment: datetime.datetime, clock: Clock) -> bool:
    """Whether `moment` lies in the last `COOLDOWN` seconds; one in the future does not."""
    return 0 <= (clock.now() - moment).total_seconds() < COOLDOWN
