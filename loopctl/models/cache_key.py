"""The key by which OpenAI's APIs find a request's beginning in their prompt cache (MOD-22)."""

from __future__ import annotations

import hashlib
from functools import lru_cache

from loopctl import _json
from loopctl.models.client import ToolSchema


@lru_cache(maxsize=64)
def cache_key(system: str | None, tools: tuple[ToolSchema, ...]) -> str | None:
    """The same for all requests that begin alike, so that they meet where that is cached.

    Of what stands in front of every conversation: system text and tools. `None` without either.
    """
    if not (tools or (system and system.strip())):
        return None
    digest = hashlib.sha256((system or "").encode(errors="replace"))
    for tool in tools:
        shape = [tool.name, tool.description, _json.to_plain(tool.input_schema)]
        digest.update(b"\0" + _json.wire(shape))
    return f"loopctl-{digest.hexdigest()[:32]}"
