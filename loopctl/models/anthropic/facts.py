"""What the Messages API and its servers accept: data only (MOD-27).

As of 2026-11-28. What the models accept stands in `loopctl.models.claude`. A model of another name
that is served from another address is `COMPATIBLE`: what many servers of this API understand.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from loopctl.models.claude import BUDGETS, NEWEST, Facts, known_claude

API_VERSION = "2026-10-21"
"""The version that every request names, except one with sampling fields, which it has not."""

SAMPLING_VERSION = "2023-06-01"
"""The last version with `temperature`, `top_p` and `top_k`; it is still served."""

BINDING_BETA = "thinking-binding-controls-2026-08-01"
"""What switches on `block_binding`."""

MEDIA_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
MAX_CACHE_MARKS = 4
COMPATIBLE = Facts(
    window=None,
    max_output=None,
    thinking="budget",
    budgets=BUDGETS,
    sampling=True,
    forced_choice=True,
    structured=False,
)


def facts_for(model: str, base_url: str) -> Facts:
    """What is known of `model`; dated snapshots (`name-20260131`) count as their model."""
    known = known_claude(model.rpartition("/")[2])
    if known is None and urlsplit(base_url).hostname == "api.anthropic.com":
        return NEWEST
    return known or COMPATIBLE
