"""Token counts as a provider reports them (MOD-10)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Tokens of one call, or the sum of several. A count that was not reported is `None`.

    `cached_tokens` (read from a prompt cache) is a part of `input_tokens`; `thinking_tokens` is
    a part of `output_tokens`; `cache_write_tokens` were written to a cache by this call.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    thinking_tokens: int | None = None

    @property
    def total_tokens(self) -> int:
        """Input plus output, counting what was not reported as nothing."""
        return (self.input_tokens or 0) + (self.output_tokens or 0)

    def __add__(self, other: Usage | None) -> Usage:
        """The sum over two calls; a count stays `None` only if neither reported it."""
        if other is None:
            return self
        return Usage(**{f.name: _add(getattr(self, f.name), getattr(other, f.name)) for f in _F})

    def peak(self, other: Usage | None) -> Usage:
        """The larger of each count: cumulative reports inside one reply are merged so."""
        if other is None:
            return self
        return Usage(**{f.name: _peak(getattr(self, f.name), getattr(other, f.name)) for f in _F})

    def to_json(self) -> dict[str, Any]:
        """The reported counts as plain JSON."""
        return {f.name: v for f in _F if (v := getattr(self, f.name)) is not None}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Usage:
        """Load `to_json` output; unknown fields are ignored."""
        return cls(**{f.name: document[f.name] for f in _F if f.name in document})


def _add(left: int | None, right: int | None) -> int | None:
    return right if left is None else left if right is None else left + right


def _peak(left: int | None, right: int | None) -> int | None:
    return right if left is None else left if right is None else max(left, right)


_F = fields(Usage)
