"""The truncating compactor keeps the contract of compactors, with every kind of setting."""

from __future__ import annotations

from loopctl.compaction import Compactor, TruncatingCompactor
from loopctl.testing.compaction import CompactorContract


class TestTruncating(CompactorContract):
    def compactor(self) -> Compactor:
        return TruncatingCompactor()


class TestTruncatingToTheBone(CompactorContract):
    def compactor(self) -> Compactor:
        return TruncatingCompactor(preserve_recent=1, min_messages=1)
