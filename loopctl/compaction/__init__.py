"""How a conversation shrinks, and what must hold in whatever comes out (CMP-2 … CMP-15).

A compactor decides what goes and what stays. Nothing here decides when a pass is due (the
machine does) or runs one (the driver does): `target` says how small, `pinned` what is untouchable,
`judge` whether an output may replace what was there, `split` where the run in flight then begins.
"""

from loopctl._steps import CompactReason
from loopctl.compaction.judge import judge, split
from loopctl.compaction.pinned import SUMMARY_LABEL, is_summary, pinned_in, shortened
from loopctl.compaction.target import target_for
from loopctl.compaction.truncating import TruncatingCompactor
from loopctl.compaction.types import CompactionAdvice, CompactionContext, Compactor

__all__ = [
    "SUMMARY_LABEL",
    "CompactReason",
    "CompactionAdvice",
    "CompactionContext",
    "Compactor",
    "TruncatingCompactor",
    "is_summary",
    "judge",
    "pinned_in",
    "shortened",
    "split",
    "target_for",
]
