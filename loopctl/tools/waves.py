"""Which calls of one reply may run together (TOL-8). Pure: figures in, plan out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Slot:
    """What planning knows of one call: may it run beside others, and what does it touch."""

    safe: bool
    resource: str | None = None


def plan(slots: Sequence[Slot], *, parallel: bool, limit: int) -> list[range]:
    """Cut the calls into waves: stretches of neighbours that run together, in the given order.

    A call that is not safe is a wave of its own. A wave holds at most `limit` calls and no
    resource twice. So calls on one resource run in the order in which the model asked for them,
    and nothing overtakes an unsafe call. Without `parallel` every call is a wave.
    """
    waves: list[range] = []
    start = 0
    taken: set[str] = set()
    for index, slot in enumerate(slots):
        joins = (
            index > start
            and parallel
            and slot.safe
            and slots[index - 1].safe
            and index - start < limit
            and slot.resource not in taken
        )
        if not joins:
            if index > start:
                waves.append(range(start, index))
            start = index
            taken = set()
        if slot.resource is not None:
            taken.add(slot.resource)
    if slots:
        waves.append(range(start, len(slots)))
    return waves
