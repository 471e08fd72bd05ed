"""The prefixes of `connect`: addresses, environment variables, kinds of server (MOD-6, MOD-27).

Data only, as of 2026-11-28; in the order in which the first configured one is looked for.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

LOCAL = "local"
"""The prefix of the model that runs on this machine; it stands without a model too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Provider:
    """One prefix. `keys` and `urls` are environment variables, the first that is set counts.

    `keyless` says that no key is needed. `dialect` is the folder of the client that speaks its
    API. `profile` is the kind of server whatever its address, `None` to tell it by the address,
    where that is one of OpenAI's.
    `url_suffix` is appended to an address from the environment. `headers` are sent with the value
    of an environment variable where it is set. `default_model` is a sensible first choice that
    calls tools.
    """

    prefix: str
    base_url: str
    keys: tuple[str, ...]
    urls: tuple[str, ...] = ()
    url_suffix: str = ""
    keyless: bool = False
    dialect: str = "openai_chat"
    profile: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    default_model: str | None = None


PROVIDERS: Mapping[str, Provider] = {
    provider.prefix: provider
    for provider in (
        Provider(
            prefix="openai",
            base_url="https://api.openai.com/v1",
            keys=("OPENAI_API_KEY",),
            urls=("OPENAI_BASE_URL",),
            dialect="openai_responses",
            headers={
                "openai-organization": "OPENAI_ORG_ID",
                "openai-project": "OPENAI_PROJECT_ID",
            },
            default_model="gpt-6-sol",
        ),
        Provider(
            prefix="openai-chat",
            base_url="https://api.openai.com/v1",
            keys=("OPENAI_API_KEY",),
            urls=("OPENAI_BASE_URL",),
            headers={
                "openai-organization": "OPENAI_ORG_ID",
                "openai-project": "OPENAI_PROJECT_ID",
            },
            default_model="gpt-5.4",
        ),
        Provider(
            prefix="anthropic",
            base_url="https://api.anthropic.com",
            keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
            urls=("ANTHROPIC_BASE_URL",),
            dialect="anthropic",
            headers={"anthropic-workspace-id": "ANTHROPIC_WORKSPACE_ID"},
            default_model="claude-sonnet-5-5",
        ),
        Provider(
            prefix="azure",
            base_url="",  # the resource's own
            keys=("AZURE_OPENAI_API_KEY", "AZURE_OPENAI_AD_TOKEN"),
            urls=("AZURE_OPENAI_ENDPOINT",),
            url_suffix="/openai/v1",
            dialect="openai_responses",
            profile="azure",
        ),
        Provider(
            prefix="xai",
            base_url="https://api.x.ai/v1",
            keys=("XAI_API_KEY",),
            dialect="openai_responses",
            profile="xai",
            default_model="grok-4.7",
        ),
        Provider(
            prefix="deepseek",
            base_url="https://api.deepseek.com",
            keys=("DEEPSEEK_API_KEY",),
            profile="deepseek",
            default_model="deepseek-v4-pro",
        ),
        Provider(
            prefix="moonshot",
            base_url="https://api.moonshot.ai/v1",
            keys=("MOONSHOT_API_KEY", "MOONSHOTAI_API_KEY"),
            urls=("MOONSHOTAI_BASE_URL",),
            profile="moonshot",
            default_model="kimi-k3",
        ),
        Provider(
            prefix="zai",
            base_url="https://api.z.ai/api/paas/v4",
            keys=("ZAI_API_KEY",),
            profile="zai",
            default_model="glm-5.3",
        ),
        Provider(
            prefix="openrouter",
            base_url="https://openrouter.ai/api/v1",
            keys=("OPENROUTER_API_KEY",),
            profile="openrouter",
            headers={
                "http-referer": "OPENROUTER_HTTP_REFERER",
                "x-openrouter-title": "OPENROUTER_X_OPEN_ROUTER_TITLE",
            },
        ),
        Provider(
            prefix="mistral",
            base_url="https://api.mistral.ai/v1",
            keys=("MISTRAL_API_KEY",),
            profile="mistral",
            default_model="mistral-large-4",
        ),
        Provider(
            prefix="groq",
            base_url="https://api.groq.com/openai/v1",
            keys=("GROQ_API_KEY",),
            urls=("GROQ_BASE_URL",),
            url_suffix="/openai/v1",
            profile="groq",
            default_model="openai/gpt-oss-120b",
        ),
        Provider(
            prefix="gemini",
            base_url="https://generativelanguage.googleapis.com",
            keys=("GOOGLE_API_KEY", "GEMINI_API_KEY"),
            urls=("GOOGLE_GEMINI_BASE_URL",),
            dialect="gemini",
            default_model="gemini-4-argon",
        ),
        Provider(
            prefix="bedrock",
            base_url="",  # the region's
            keys=(),  # the client looks for credentials of AWS by itself
            urls=("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", "AWS_ENDPOINT_URL"),
            keyless=True,
            dialect="bedrock",
        ),
        Provider(
            prefix="ollama",
            base_url="http://localhost:11434",
            keys=("OLLAMA_API_KEY",),
            urls=("OLLAMA_HOST",),
            keyless=True,
            dialect="ollama",
        ),
    )
}


def first_configured() -> str | None:
    """`"prefix:model"` of the first provider whose key is set in the environment."""
    for provider in PROVIDERS.values():
        if provider.default_model and first_set(provider.keys):
            return f"{provider.prefix}:{provider.default_model}"
    return None


def first_set(variables: tuple[str, ...]) -> str | None:
    """The value of the first environment variable that is set and not blank."""
    return next((value for name in variables if (value := os.environ.get(name, "").strip())), None)
