"""What Gemini's models accept: data only (MOD-27).

As of 2026-11-28. A model is looked up by the longest name that begins its own, so previews and
dated snapshots count as their model; one that is not here is sent what the newest ones take.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

AS_OF = "2026-11-28"

SKIP_SIGNATURE = "skip_thought_signature_validator"
"""The signature that the API documents for calls that no Gemini model made."""

RESULT_IMAGES = frozenset({"image/png", "image/jpeg", "image/webp"})
"""The images that a function response may hold."""

MAX_STOP = 5
"""How many stop sequences a request may have."""

Efforts: TypeAlias = Mapping[str, Mapping[str, Any]]
"""For each effort that is understood, the fields of `thinkingConfig` that ask for it."""


def _levels(*names: str) -> Efforts:
    return {name: {"thinkingLevel": name.upper()} for name in names}


def _budgets(**tokens: int) -> Efforts:
    return {name: {"thinkingBudget": budget} for name, budget in tokens.items()}


_GRADED = _levels("low", "medium", "high")
_FULL_SCALE = _levels("minimal", "low", "medium", "high", "xhigh")
_BUDGETS = _budgets(minimal=1_024, low=1_024, medium=8_192, high=24_576)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFacts:
    """One model: window and output cap in tokens; `None` where it is not known.

    `efforts` are the thinking efforts it has; `signatures` whether it wants a signature on the
    first call of each step; `result_images` whether function responses may hold images;
    `schema_with_tools` whether a schema for the reply and tools may ride together; `sampling`
    whether it heeds a temperature.
    """

    window: int | None = None
    max_output: int | None = None
    efforts: Efforts = field(default_factory=lambda: _GRADED)
    signatures: bool = True
    result_images: bool = True
    schema_with_tools: bool = True
    sampling: bool = True


_NEWEST = ModelFacts()


def _gemini_3(efforts: Efforts = _GRADED, *, sampling: bool = True) -> ModelFacts:
    return ModelFacts(window=1_048_576, max_output=65_536, efforts=efforts, sampling=sampling)


def _gemini_2(efforts: Efforts, max_output: int = 65_536) -> ModelFacts:
    return ModelFacts(
        window=1_048_576,
        max_output=max_output,
        efforts=efforts,
        signatures=False,
        result_images=False,
        schema_with_tools=False,
    )


MODELS: Mapping[str, ModelFacts] = {
    "gemini-4-argon": _gemini_3(sampling=False),  # it ignores temperature, so we refuse it
    "gemini-4-hydrogen": ModelFacts(window=1_048_576),
    "gemini-3.8-flash": _gemini_3(),
    "gemini-3.7-flash": _gemini_3(),
    "gemini-3.5-flash-lite": _gemini_3(_FULL_SCALE),
    "gemini-3.1-flash-lite": _gemini_3(_FULL_SCALE),
    "gemini-3.1-pro": _gemini_3(),
    "gemini-2.5-pro": _gemini_2(_BUDGETS),  # its budget has no 0
    "gemini-2.5-flash": _gemini_2({**_budgets(none=0), **_BUDGETS}),
    "gemini-2.0": _gemini_2({}, 8_192),
}
"""By the beginning of the name."""


def facts_for(model: str) -> ModelFacts:
    """What is known of a model; its name may stand in a path, as in `models/gemini-4-argon`."""
    name = model.rpartition("/")[2]
    known = max((known for known in MODELS if name.startswith(known)), key=len, default="")
    return MODELS.get(known, _NEWEST)


def generation(model: str | None) -> str | None:
    """The number in front of the dot of a model's version; `None` for names that tell none."""
    found = re.search(r"gemini-(\d+)", model or "")
    return found.group(1) if found else None
