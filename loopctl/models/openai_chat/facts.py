"""What servers and models that speak Chat Completions accept: data only (MOD-27).

As of 2026-11-28. An address that is not here is `COMPATIBLE`, the careful profile; a model that
is not here is sent what its server's newest models take.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

AS_OF = "2026-11-28"

Efforts: TypeAlias = Mapping[str, Mapping[str, Any]]
"""For each effort that is understood, the fields of the body that ask for it."""


def _plain(*names: str) -> Efforts:
    return {name: {"reasoning_effort": name} for name in names}


_OFF = {"thinking": {"type": "disabled"}}
_LOW_HIGH_MAX: Efforts = _plain("low", "high", "max")
_CHOICES = frozenset({"auto", "none", "required", "named"})


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFacts:
    """One model: window and output cap in tokens; `None` where it is not known.

    `efforts` replaces those of its server; `default_effort` is what it does unasked;
    `tools_while_thinking` and `sampling_while_thinking` say what it refuses while it thinks.
    """

    window: int | None = None
    max_output: int | None = None
    efforts: Efforts | None = None
    default_effort: str = "none"
    tools_while_thinking: bool = True
    sampling_while_thinking: bool = True


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Profile:
    """One kind of server: what it wants, what it has not, what it does its own way.

    Requests: `cap_field` is the name of the output cap; `system_role` the role of system text;
    `one_system` says that only one leading system message is sure to be taken; `alternate` that
    neighbours of one role are merged, the user begins and speaks last; `after_tools` is what the
    assistant is made to say where a user may not follow a tool result; `ids` which call ids are
    accepted (`"any"`, `"safe"`: up to 40 letters, digits, `_`, `-`; `"nine"`: nine letters or
    digits); `ask_usage` whether usage must be, and may be, asked for; `tool_choices`, `strict`
    and `schemas` what of these exists; `efforts` the reasoning knob; `echo` the form in which
    reasoning is sent back, `echo_always` whether a turn with calls needs it even when empty;
    `sampling` and `stop` whether temperature and stop sequences are taken; `result_images`
    whether tool results may hold images; `cache_key` whether it routes requests of one
    `prompt_cache_key` to where their beginning is cached.

    Replies: `lenient_end` accepts `[DONE]` without a finish reason.
    """

    name: str
    cap_field: Literal["max_completion_tokens", "max_tokens"] = "max_tokens"
    system_role: Literal["system", "developer"] = "system"
    one_system: bool = True
    alternate: bool = False
    after_tools: str | None = None
    ids: Literal["any", "safe", "nine"] = "any"
    ask_usage: bool = True
    tool_choices: frozenset[str] = _CHOICES
    strict: bool = False
    schemas: bool = True
    efforts: Efforts = field(default_factory=dict[str, Mapping[str, Any]])
    echo: Literal["reasoning_content", "reasoning", "reasoning_details", "chunks"] | None = None
    echo_always: bool = False
    sampling: bool = True
    stop: bool = True
    result_images: bool = False
    cache_key: bool = False
    lenient_end: bool = True
    models: Mapping[str, ModelFacts] = field(default_factory=dict[str, ModelFacts])

    def facts(self, model: str) -> ModelFacts:
        """What is known of `model`; dated snapshots (`name-2026-01-31`) count as their model."""
        known = self.models.get(model)
        if known is None:
            known = self.models.get(re.sub(r"-20\d\d(-?\d\d){2}$", "", model))
        return known if known is not None else _UNKNOWN


_UNKNOWN = ModelFacts()


def _gpt(window: int, efforts: Efforts, default: str, max_output: int = 128_000) -> ModelFacts:
    return ModelFacts(
        window=window,
        max_output=max_output,
        efforts=efforts,
        default_effort=default,
        tools_while_thinking=False,
        sampling_while_thinking=False,
    )


# `max` exists on the Responses API only; `minimal` ended with gpt-5.
_ALWAYS_ON = _plain("low", "medium", "high", "xhigh")
_GRADED = _plain("none", "low", "medium", "high", "xhigh")

OPENAI = Profile(
    name="openai",
    cap_field="max_completion_tokens",
    system_role="developer",
    one_system=False,
    ids="safe",
    strict=True,
    efforts=_plain("none", "minimal", "low", "medium", "high", "xhigh"),
    cache_key=True,
    lenient_end=False,
    models={
        "gpt-6.2-astra": _gpt(1_050_000, _ALWAYS_ON, "medium"),
        "gpt-6.2-sol": _gpt(1_050_000, _GRADED, "medium"),
        "gpt-6.1-sol": _gpt(1_050_000, _ALWAYS_ON, "medium"),
        "gpt-6.1-terra": _gpt(1_050_000, _GRADED, "medium"),
        "gpt-6-astra": _gpt(1_050_000, _ALWAYS_ON, "medium"),
        "gpt-6-sol": _gpt(1_050_000, _GRADED, "medium"),
        "gpt-6-luna": _gpt(1_050_000, _GRADED, "medium"),
        "gpt-5.6-sol": _gpt(1_050_000, _GRADED, "medium"),
        "gpt-5.6-terra": _gpt(1_050_000, _GRADED, "medium"),
        "gpt-5.6-luna": _gpt(1_050_000, _GRADED, "medium"),
        "gpt-5.5": _gpt(1_050_000, _GRADED, "medium"),
        "gpt-5.4": _gpt(1_050_000, _GRADED, "none"),
        "gpt-5.4-mini": _gpt(400_000, _GRADED, "none"),
        "gpt-5.4-nano": _gpt(400_000, _GRADED, "none"),
        "gpt-5": ModelFacts(
            window=400_000,
            max_output=128_000,
            efforts=_plain("minimal", "low", "medium", "high"),
            default_effort="medium",
            sampling_while_thinking=False,
        ),
        "gpt-4.1": ModelFacts(window=1_047_576, max_output=32_768, efforts={}),
    },
)

# A deployment may have any name, so nothing is known of its model.
AZURE = replace(OPENAI, name="azure", models={})

# Its Responses API is the one that it recommends: here no reasoning comes back.
XAI = Profile(
    name="xai",
    cap_field="max_completion_tokens",
    ids="safe",
    efforts=_plain("low", "medium", "high", "xhigh"),
    stop=False,
    models={
        "grok-4.7": ModelFacts(window=500_000),
        "grok-4.6": ModelFacts(window=500_000, efforts=_plain("low", "medium", "high")),
        "grok-4.5": ModelFacts(window=500_000, efforts=_plain("low", "medium", "high")),
        "grok-4.3": ModelFacts(window=1_000_000, efforts=_plain("none", "low", "medium", "high")),
    },
)

DEEPSEEK = Profile(
    name="deepseek",
    ids="safe",
    schemas=False,
    tool_choices=frozenset({"auto", "none"}),  # forcing is refused while it thinks, its default
    efforts={
        "none": _OFF,
        "minimal": {"reasoning_effort": "low"},
        "low": {"reasoning_effort": "low"},
        "medium": {"reasoning_effort": "high"},
        "high": {"reasoning_effort": "high"},
        "xhigh": {"reasoning_effort": "high"},
        "max": {"reasoning_effort": "max"},
    },
    echo="reasoning_content",
    echo_always=True,
    models={
        "deepseek-v4-pro": ModelFacts(window=1_000_000, max_output=384_000),
        "deepseek-flash": ModelFacts(window=1_000_000, max_output=384_000),
        "deepseek-v4-flash": ModelFacts(window=1_000_000, max_output=384_000),
    },
)

MOONSHOT = Profile(
    name="moonshot",
    cap_field="max_completion_tokens",
    tool_choices=frozenset({"auto", "none"}),
    efforts=_LOW_HIGH_MAX,
    echo="reasoning_content",
    echo_always=True,
    sampling=False,
    models={
        "kimi-k3": ModelFacts(window=1_048_576),
        "kimi-k3.1-pro": ModelFacts(window=1_048_576),
        "kimi-k2.7-code": ModelFacts(window=262_144, max_output=262_144, efforts={}),
        "kimi-k2.6": ModelFacts(window=262_144, max_output=262_144, efforts={"none": _OFF}),
    },
)

ZAI = Profile(
    name="zai",
    schemas=False,
    tool_choices=frozenset({"auto"}),
    efforts=_LOW_HIGH_MAX,
    echo="reasoning_content",
    models={"glm-5.3": ModelFacts(window=1_000_000)},
)

OPENROUTER = Profile(
    name="openrouter",
    ids="safe",
    strict=True,
    efforts={
        name: {"reasoning": {"effort": name}}
        for name in ("none", "minimal", "low", "medium", "high", "xhigh", "max")
    },
    echo="reasoning_details",
    result_images=True,
    cache_key=True,
)

MISTRAL = Profile(
    name="mistral",
    alternate=True,
    after_tools="OK.",
    ids="nine",
    ask_usage=False,
    strict=True,
    efforts=_plain("none", "minimal", "low", "medium", "high", "xhigh", "max"),
    echo="chunks",
    models={
        "mistral-large-4": ModelFacts(window=1_048_576),
        "mistral-large-4-0": ModelFacts(window=1_048_576),
        "mistral-medium-3-5": ModelFacts(window=262_144, max_output=262_144),
        "mistral-small-2603": ModelFacts(window=262_144, max_output=262_144),
    },
)

GROQ = Profile(
    name="groq",
    cap_field="max_completion_tokens",
    ids="safe",
    strict=True,
    efforts=_plain("none", "low", "medium", "high"),
    echo="reasoning",
    models={
        name: ModelFacts(window=131_072, max_output=65_536, efforts=_plain("low", "medium", "high"))
        for name in ("openai/gpt-oss-120b", "openai/gpt-oss-20b")
    },
)

OLLAMA = Profile(
    name="ollama",
    alternate=True,
    tool_choices=frozenset({"auto"}),  # others are ignored without a word
    efforts=_plain("none", "minimal", "low", "medium", "high", "xhigh", "max"),
    echo="reasoning",
)

LLAMA_CPP = Profile(
    name="llama.cpp",
    alternate=True,
    efforts=_plain("none", "low", "medium", "high"),
)

VLLM = Profile(
    name="vllm",
    alternate=True,
    strict=True,
    efforts=_plain("none", "minimal", "low", "medium", "high", "xhigh", "max"),
)

COMPATIBLE = Profile(
    name="compatible",
    alternate=True,
    efforts=_plain("none", "minimal", "low", "medium", "high", "xhigh", "max"),
)

PROFILES: Mapping[str, Profile] = {
    profile.name: profile
    for profile in (
        OPENAI,
        AZURE,
        XAI,
        DEEPSEEK,
        MOONSHOT,
        ZAI,
        OPENROUTER,
        MISTRAL,
        GROQ,
        OLLAMA,
        LLAMA_CPP,
        VLLM,
        COMPATIBLE,
    )
}

_HOSTS: Mapping[str, Profile] = {
    "api.openai.com": OPENAI,
    "openai.azure.com": AZURE,
    "api.x.ai": XAI,
    "api.deepseek.com": DEEPSEEK,
    "api.moonshot.ai": MOONSHOT,
    "api.moonshot.cn": MOONSHOT,
    "api.z.ai": ZAI,
    "openrouter.ai": OPENROUTER,
    "api.mistral.ai": MISTRAL,
    "api.groq.com": GROQ,
}


def profile_for(base_url: str) -> Profile:
    """The profile of an address: by its host, or by Ollama's port; else `COMPATIBLE`."""
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    for known, profile in _HOSTS.items():
        if host == known or host.endswith("." + known):
            return profile
    return OLLAMA if parts.port == 11434 else COMPATIBLE
