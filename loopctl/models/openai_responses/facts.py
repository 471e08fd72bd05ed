"""What servers and models that speak the Responses API accept: data only (MOD-27).

As of 2026-11-28. An address that is not here is `COMPATIBLE`, the careful profile. A model that is
not here is taken for its server's newest: at OpenAI one that thinks unasked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

AS_OF = "2026-11-28"

_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_ALWAYS_ON = _EFFORTS[2:]
_GRADED = ("none", *_ALWAYS_ON)

WAITING = frozenset(
    {
        "apply_patch_call",
        "computer_call",
        "local_shell_call",
        "mcp_approval_request",
        "shell_call",
    }
)
"""Items that wait for an answer of the client's own: sent back without one they are refused."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFacts:
    """One model: window and output cap in tokens; `None` where it is not known.

    `efforts` are those that it takes; `thinks` says that it does so unasked, `sampling` that it
    takes a temperature while it thinks, `seals` that its reasoning can be asked for, sealed.
    """

    window: int | None = None
    max_output: int | None = None
    efforts: tuple[str, ...] = _EFFORTS
    thinks: bool = True
    sampling: bool = False
    seals: bool = True


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Profile:
    """One kind of server.

    `notes` is the role of system text that may stand anywhere in the input, `None` where only
    `instructions` is sure to be taken; `include` whether sealed reasoning is asked for; `bound`
    whether it is bound to the request that it came for; `cache_key` whether requests of one
    `prompt_cache_key` are routed to where their beginning is cached; `strict` whether tools can be
    strict; `result_images` whether tool results may hold images; `calls_last` that a turn's calls
    must not be parted from their results by what else it said. `unknown` are the facts of a model
    that is not among `models`.
    """

    name: str
    notes: str | None = None
    include: bool = False
    bound: bool = False
    cache_key: bool = False
    strict: bool = True
    result_images: bool = False
    calls_last: bool = False
    models: Mapping[str, ModelFacts] = field(default_factory=dict[str, ModelFacts])
    unknown: ModelFacts = ModelFacts(sampling=True)

    def facts(self, model: str) -> ModelFacts:
        """What is known of `model`; dated snapshots (`name-2026-01-31`) count as their model."""
        known = self.models.get(model)
        if known is None:
            known = self.models.get(re.sub(r"-20\d\d(-?\d\d){2}$", "", model))
        return self.unknown if known is None else known


def _gpt(
    efforts: tuple[str, ...],
    *,
    window: int | None = 1_050_000,
    max_output: int | None = 128_000,
    thinks: bool = True,
) -> ModelFacts:
    return ModelFacts(window=window, max_output=max_output, efforts=efforts, thinks=thinks)


OPENAI = Profile(
    name="openai",
    notes="developer",
    include=True,
    bound=True,
    cache_key=True,
    result_images=True,
    models={
        "gpt-6.2-astra": _gpt(_ALWAYS_ON),
        "gpt-6.2-sol": _gpt(_GRADED),
        "gpt-6.1-sol": _gpt(_ALWAYS_ON),
        "gpt-6.1-terra": _gpt(_GRADED),
        "gpt-6-astra": _gpt(_ALWAYS_ON),
        "gpt-6-sol": _gpt(_GRADED),
        "gpt-6-luna": _gpt(_GRADED),
        "gpt-5.6-sol": _gpt(_GRADED),
        "gpt-5.6-terra": _gpt(_GRADED),
        "gpt-5.6-luna": _gpt(_GRADED),
        "gpt-5.5": _gpt(_GRADED[:-1]),
        "gpt-5.5-pro": _gpt(("medium", "high", "xhigh"), window=None, max_output=None),
        "gpt-5.4": _gpt(_GRADED[:-1], thinks=False),
        "gpt-5.4-mini": _gpt(_GRADED[:-1], window=400_000, thinks=False),
        "gpt-5.4-nano": _gpt(_GRADED[:-1], window=400_000, thinks=False),
        "gpt-5": _gpt(("minimal", "low", "medium", "high"), window=400_000),
        "gpt-5-pro": _gpt(("high",), window=None, max_output=None),
        "gpt-4.1": ModelFacts(
            window=1_047_576, max_output=32_768, efforts=(), thinks=False, seals=False
        ),
    },
    unknown=ModelFacts(),
)

# A deployment may have any name, so nothing is known of its model.
AZURE = Profile(
    name="azure",
    notes="developer",
    include=True,
    bound=True,
    cache_key=True,
    result_images=True,
)

XAI = Profile(
    name="xai",
    notes="system",
    include=True,
    cache_key=True,
    strict=False,
    result_images=True,
    models={
        "grok-4.7": ModelFacts(
            window=500_000, efforts=("low", "medium", "high", "xhigh"), sampling=True
        ),
        "grok-4.6": ModelFacts(window=500_000, efforts=("low", "medium", "high"), sampling=True),
        "grok-4.5": ModelFacts(window=500_000, efforts=("low", "medium", "high"), sampling=True),
        "grok-4.3": ModelFacts(
            window=1_000_000, efforts=("none", "low", "medium", "high"), sampling=True
        ),
    },
    unknown=ModelFacts(efforts=("none", "low", "medium", "high", "xhigh"), sampling=True),
)

COMPATIBLE = Profile(name="compatible", strict=False, calls_last=True)

PROFILES: Mapping[str, Profile] = {
    profile.name: profile for profile in (OPENAI, AZURE, XAI, COMPATIBLE)
}

_HOSTS: Mapping[str, Profile] = {
    "api.openai.com": OPENAI,
    "openai.azure.com": AZURE,
    "api.x.ai": XAI,
}


def profile_for(base_url: str) -> Profile:
    """The profile of an address by its host; else `COMPATIBLE`. Raises `ValueError` for none."""
    host = urlsplit(base_url).hostname or ""
    for known, profile in _HOSTS.items():
        if host == known or host.endswith("." + known):
            return profile
    return COMPATIBLE
