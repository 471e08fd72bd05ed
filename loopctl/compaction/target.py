"""How small a pass should make the messages (CMP-3)."""

from __future__ import annotations

from loopctl._steps import CompactReason, Policy

FLOOR_PERCENT = 10
"""The least that a pass aims at, in per cent of the window."""


def target_for(
    reason: CompactReason,
    *,
    policy: Policy,
    fixed: int,
    size: int,
    reserve: int,
    refused: int = 0,
) -> int:
    """The target in tokens for the messages alone.

    Half of the soft line without F (`fixed`) and the `reserve`; for a salvage half of the
    `refused` estimate without F and X (`reserve`); never under a tenth of the window. Without
    window policy it is half of the present `size`.
    """
    if not policy.window:
        return size // 2
    line = refused if reason is CompactReason.SALVAGE else policy.soft_line
    return int(max(line / 2 - fixed - reserve, policy.window * FLOOR_PERCENT / 100))
