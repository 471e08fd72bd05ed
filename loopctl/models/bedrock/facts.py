"""What models behind the Converse API accept, and where it is: data only (MOD-27).

As of 2026-11-28. A model of an unknown vendor, or behind a name that tells none, is sent what most
take. What Claude models accept stands in `loopctl.models.claude`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias

from loopctl.models import claude

AS_OF = "2026-11-28"

SERVICE = "bedrock"
"""What signatures are for, whatever the host is called."""

MAX_CACHE_POINTS = 4

IMAGE_FORMATS: Mapping[str, str] = {
    "image/png": "png",
    "image/jpeg": "jpeg",
    "image/gif": "gif",
    "image/webp": "webp",
}

Efforts: TypeAlias = Mapping[str, Mapping[str, Any]]
"""For each effort that is understood, the fields for the model that ask for it."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Facts:
    """One model: window and output cap in tokens; `None` where it is not known.

    `claude` has what is known of a Claude: how it thinks, what it refuses. `efforts` are those of
    the others. `choices` says in which ways it can be made to call tools: `"any"` of them, one
    `"tool"`. `structured` whether schemas of replies and strict tools exist. `cache_system` and
    `cache_all` say where cache points may stand: behind system text, or behind tools and messages
    too. `status` says that a failed result may be marked as such, `beside_results` that a message
    with tool results may hold more than those.
    """

    window: int | None = None
    max_output: int | None = None
    claude: claude.Facts | None = None
    efforts: Efforts = field(default_factory=dict[str, Mapping[str, Any]])
    choices: frozenset[str] = frozenset({"any", "tool"})
    structured: bool = True
    cache_system: bool = False
    cache_all: bool = False
    status: bool = False
    beside_results: bool = True


UNKNOWN = Facts()

_NO_CHOICE: frozenset[str] = frozenset()
_OPENAI_EFFORTS: Efforts = {name: {"reasoning_effort": name} for name in ("low", "medium", "high")}
_NOVA_EFFORTS: Efforts = {
    "none": {"reasoningConfig": {"type": "disabled"}},
    **{
        name: {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": name}}
        for name in ("low", "medium", "high")
    },
}


def _nova(window: int | None, max_output: int | None, efforts: Efforts) -> Facts:
    return Facts(
        window=window,
        max_output=max_output,
        efforts=efforts,
        structured=False,
        cache_system=True,
        status=True,
    )


VENDORS: Mapping[str, Facts] = {
    "amazon": _nova(None, None, _NOVA_EFFORTS),
    "openai": Facts(efforts=_OPENAI_EFFORTS),
    "qwen": Facts(efforts={name: {"reasoning_config": name} for name in ("low", "high")}),
    "mistral": Facts(choices=frozenset({"any"}), beside_results=False),
    "meta": Facts(choices=_NO_CHOICE, structured=False, beside_results=False),
    "deepseek": Facts(choices=_NO_CHOICE),
    "cohere": Facts(choices=_NO_CHOICE, structured=False),
    "ai21": Facts(choices=_NO_CHOICE, structured=False),
    "writer": Facts(choices=_NO_CHOICE, structured=False),
}
"""By the vendor's part of the id; Claude's stand beside them."""

MODELS: Mapping[str, Facts] = {
    "amazon.nova-2-lite": _nova(1_000_000, 64_000, _NOVA_EFFORTS),
    "amazon.nova-micro": _nova(128_000, 10_000, {}),
    "amazon.nova-lite": _nova(300_000, 10_000, {}),
    "amazon.nova-pro": _nova(300_000, 10_000, {}),
    "amazon.nova-premier": _nova(1_000_000, 10_000, {}),
    "openai.gpt-6-sol": Facts(window=922_000, max_output=128_000, efforts=_OPENAI_EFFORTS),
    "openai.gpt-6-luna": Facts(window=922_000, max_output=128_000, efforts=_OPENAI_EFFORTS),
}

_GEOGRAPHY = re.compile(r"(?:us|eu|apac|jp|au|ca|in|us-gov|global)\.(?=[^.]+\.)")
_VERSION = re.compile(r"-v\d+(?::\d+)?(?::\d+k)?$")


def base_id(model: str) -> str:
    """The id without what says where it runs: the name of an ARN, no geography in front."""
    return _GEOGRAPHY.sub("", model.rpartition("/")[2], count=1)


@lru_cache(maxsize=64)
def facts_for(model: str) -> Facts:
    """What is known of `model`, an id, an inference profile or an ARN that holds one of these."""
    name = _VERSION.sub("", base_id(model))
    vendor, _, rest = name.partition(".")
    if vendor == "anthropic":
        known = claude.known_claude(rest) or claude.NEWEST
        cache = known.thinking != "none"  # those that cannot think are too old for either
        return Facts(
            window=known.window,
            max_output=known.max_output,
            claude=known,
            choices=frozenset({"any", "tool"}) if known.forced_choice else _NO_CHOICE,
            structured=known.structured,
            cache_system=cache,
            cache_all=cache,
            status=True,
        )
    return MODELS.get(name) or VENDORS.get(vendor, UNKNOWN)


# -- where it is ----------------------------------------------------------------------------------

_SUFFIXES: tuple[tuple[str, str], ...] = (
    ("cn-", "amazonaws.com.cn"),
    ("eusc-", "amazonaws.eu"),
    ("us-iso-", "c2s.ic.gov"),
    ("us-isob-", "sc2s.sgov.gov"),
    ("eu-isoe-", "cloud.adc-e.uk"),
    ("us-isof-", "csp.hci.ic.gov"),
)
_ARN = re.compile(r"arn:[^:]+:[a-z0-9-]+:([a-z0-9-]+):")
_HOST = re.compile(r"https?://bedrock(?:-runtime)?(?:-fips)?\.([a-z0-9-]+)\.")
_REGION = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)+")


def is_region(region: str) -> bool:
    """Whether it can be the name of a region, and so a part of an address."""
    return _REGION.fullmatch(region) is not None


def endpoint(region: str) -> str:
    """The address of Bedrock in a region."""
    suffix = next((end for begin, end in _SUFFIXES if region.startswith(begin)), "amazonaws.com")
    return f"https://bedrock-runtime.{region}.{suffix}"


def region_of(text: str) -> str | None:
    """The region that a model's ARN or an address of Bedrock names."""
    found = _ARN.match(text) or _HOST.match(text)
    return found.group(1) if found else None
