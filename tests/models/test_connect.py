from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from loopctl.errors import ConfigError
from loopctl.messages import Message
from loopctl.models.anthropic import AnthropicClient
from loopctl.models.client import ModelRequest
from loopctl.models.connect import connect
from loopctl.models.ollama import OllamaClient
from loopctl.models.openai_chat import OpenAIChatClient
from loopctl.models.openai_chat.facts import PROFILES
from loopctl.models.openai_responses import OpenAIResponsesClient
from loopctl.models.providers import PROVIDERS, first_configured

ASK = ModelRequest(messages=(Message.user("hi"),))


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for provider in PROVIDERS.values():
        for name in (*provider.keys, *provider.urls, *provider.headers.values()):
            monkeypatch.delenv(name, raising=False)


def made(spec: str, **options: Any) -> OpenAIChatClient:
    client = connect(spec, **options)
    assert isinstance(client, OpenAIChatClient)
    return client


@pytest.mark.parametrize(
    "prefix", [name for name, provider in PROVIDERS.items() if provider.dialect == "openai_chat"]
)
def test_each_prefix_has_its_address_key_and_kind_of_server(
    prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MOD-6: a missing key names the variable; a set one is used; nothing is opened."""
    provider = PROVIDERS[prefix]
    with pytest.raises(ConfigError, match=provider.keys[0]):
        connect(f"{prefix}:m")
    monkeypatch.setenv(provider.keys[-1], " key ")
    client = made(f"{prefix}:a/b:c")
    assert (client.model, client.provider) == ("a/b:c", prefix)
    assert client.encode(ASK).url == f"{provider.base_url}/chat/completions"
    assert client.profile is PROFILES[provider.profile or "openai"]


def test_openai_speaks_responses_and_so_does_any_server_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """MOD-6: the vendor's own API; another address needs no key, a plain one is not told it."""
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        connect("openai:gpt-6-sol")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("OPENAI_ORG_ID", "org")
    client = connect("openai:gpt-6-sol")
    assert isinstance(client, OpenAIResponsesClient)
    assert (client.provider, client.context_window) == ("openai", 1_050_000)
    assert client.encode(ASK).url == "https://api.openai.com/v1/responses"
    assert client.encode(ASK).headers["openai-organization"] == "org"
    assert (client.profile.name, client._secret) == ("openai", {"authorization": "Bearer k"})
    client = connect("openai:m", base_url="http://127.0.0.1:8080/v1?a=b", provider="mine")
    assert isinstance(client, OpenAIResponsesClient)
    assert client.encode(ASK).url == "http://127.0.0.1:8080/v1/responses?a=b"
    assert (client.profile.name, client.provider, client._secret) == ("compatible", "mine", {})
    with pytest.raises(ConfigError, match="profile='vllm'"):
        connect("openai:m", profile="vllm")


def test_xai_has_its_address_and_its_kind_of_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """MOD-6: also behind a proxy."""
    with pytest.raises(ConfigError, match="XAI_API_KEY"):
        connect("xai:grok-4.7")
    monkeypatch.setenv("XAI_API_KEY", "k")
    client = connect("xai:grok-4.7")
    assert isinstance(client, OpenAIResponsesClient)
    assert client.encode(ASK).url == "https://api.x.ai/v1/responses"
    assert (client.provider, client.context_window) == ("xai", 500_000)
    client = connect("xai:m", base_url="https://proxy.example")
    assert isinstance(client, OpenAIResponsesClient)
    assert client.profile.name == "xai"


def test_azure_wants_an_address_and_takes_a_key_or_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """MOD-6: both are named when they are missing; each proof has its own header."""
    with pytest.raises(ConfigError, match="AZURE_OPENAI_ENDPOINT"):
        connect("azure:deployment", api_key="k")
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://r.openai.azure.com/")
    with pytest.raises(ConfigError, match="AZURE_OPENAI_API_KEY"):
        connect("azure:deployment")
    monkeypatch.setenv("AZURE_OPENAI_AD_TOKEN", "a.b.c")
    client = connect("azure:deployment")
    assert isinstance(client, OpenAIResponsesClient)
    assert client.encode(ASK).url == "https://r.openai.azure.com/openai/v1/responses"
    assert (client.provider, client.profile.name) == ("azure", "azure")
    assert client._secret == {"authorization": "Bearer a.b.c"}
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "k")
    client = connect("azure:deployment", base_url="https://gateway.example/openai/v1")
    assert isinstance(client, OpenAIResponsesClient)
    assert client._secret == {"api-key": "k"}


def test_anthropic_takes_a_key_or_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """MOD-6: its variables; another address needs no key, a plain one is not told it."""
    with pytest.raises(ConfigError, match="ANTHROPIC_API_KEY"):
        connect("anthropic:claude-opus-5-5")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "token")
    client = connect("anthropic:claude-opus-5-5")
    assert isinstance(client, AnthropicClient)
    assert (client.provider, client.context_window) == ("anthropic", 1_000_000)
    assert client.encode(ASK).url == "https://api.anthropic.com/v1/messages"
    assert client._secret == {"authorization": "Bearer token"}
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "https://gateway.example/v1/")
    client = connect("anthropic:m", api_key="k", headers={"X-Team": "a"}, context_window=5)
    assert isinstance(client, AnthropicClient)
    assert client.encode(ASK).url == "https://gateway.example/v1/messages"
    assert (client.encode(ASK).headers["x-team"], client.context_window) == ("a", 5)
    assert client._secret == {"authorization": "Bearer k"}
    client = connect("anthropic:m", base_url="http://127.0.0.1:1?beta=true")
    assert isinstance(client, AnthropicClient)
    assert client.encode(ASK).url == "http://127.0.0.1:1/v1/messages?beta=true"
    assert client._secret == {}


def test_ollama_needs_no_key_and_is_not_told_one_in_the_clear(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """MOD-6: its variables; the vendor's own address gets the key; its option is its own."""
    monkeypatch.setenv("OLLAMA_API_KEY", "k")
    client = connect("ollama:qwen3:8b", keep_alive="1h", context_window=8_192)
    assert isinstance(client, OllamaClient)
    assert (client.model, client.provider, client.context_window) == ("qwen3:8b", "ollama", 8_192)
    assert (client.encode(ASK).url, client._secret) == ("http://localhost:11434/api/chat", {})
    assert b'"keep_alive":"1h"' in client.encode(ASK).body
    monkeypatch.setenv("OLLAMA_HOST", "0.0.0.0:8080")
    client = connect("ollama:m")
    assert isinstance(client, OllamaClient)
    assert (client.base_url, client._secret) == ("http://127.0.0.1:8080", {})
    for address in ("https://ollama.com", "ollama.com"):
        client = connect("ollama:m", base_url=address)
        assert isinstance(client, OllamaClient)
        assert client.base_url == "https://ollama.com"
        assert client._secret == {"authorization": "Bearer k"}
    with pytest.raises(ConfigError, match="base_url"):
        connect("ollama:m", base_url="host:port")
    with pytest.raises(ConfigError, match="no option 'profile'"):
        connect("ollama:m", profile="vllm")


def test_arguments_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """MOD-6: an address decides the kind of server for openai-chat."""
    monkeypatch.setenv("OPENAI_BASE_URL", "https://env.example/v1")
    monkeypatch.setenv("OPENAI_ORG_ID", "org")
    client = made("openai-chat:m", api_key="k")
    assert client.base_url == "https://env.example/v1"
    assert client.profile is PROFILES["compatible"]
    assert client.encode(ASK).headers["openai-organization"] == "org"
    client = made("openai-chat:m", api_key="k", base_url="https://arg.example/v1", profile="vllm")
    assert (client.base_url, client.profile) == ("https://arg.example/v1", PROFILES["vllm"])


def test_a_groq_address_from_the_environment_is_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    """MOD-6: its variable leaves the path out."""
    monkeypatch.setenv("GROQ_API_KEY", "k")
    monkeypatch.setenv("GROQ_BASE_URL", "https://groq.example/")
    assert made("groq:m").base_url == "https://groq.example/openai/v1"


def test_a_compatible_server_needs_no_key_and_is_not_told_one_in_the_clear(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """MOD-6: a key of the environment does not go to a plain address of an argument."""
    local = "http://127.0.0.1:8000/v1"
    assert made("openai-chat:m", base_url=local)._secret == {}
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert made("openai-chat:m", base_url=local)._secret == {}
    assert made("openai-chat:m", base_url=local, api_key="k")._secret != {}
    assert made("openai-chat:m", base_url="https://gateway.example")._secret != {}


@pytest.mark.parametrize(
    ("spec", "options", "words"),
    [
        ("openai_chat:m", {}, "did you mean 'openai-chat'"),
        ("depseek:m", {}, "did you mean 'deepseek'"),
        ("zzz:m", {}, "Known: openai, openai-chat, .*deepseek, .*local"),
        ("openai-chat", {}, "names no model"),
        ("openai-chat:m", {"api_key": "k", "profil": "vllm"}, "did you mean 'profile'"),
        ("local:m", {}, "one local model"),
        ("local", {"profile": "vllm"}, "there is no option 'profile'"),
    ],
)
def test_what_cannot_be_connected_says_what_can(
    spec: str, options: dict[str, Any], words: str
) -> None:
    """MOD-6: the known ones and the nearest."""
    with pytest.raises(ConfigError, match=words):
        connect(spec, **options)


def test_the_first_provider_whose_key_is_set_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """MOD-6: with a model that calls tools; a provider without a default is passed over."""
    assert first_configured() is None
    monkeypatch.setenv("OPENROUTER_API_KEY", "k")
    assert first_configured() is None
    monkeypatch.setenv("GROQ_API_KEY", "k")
    assert first_configured() == "groq:openai/gpt-oss-120b"
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert first_configured() == "openai:gpt-6-sol"


def test_connecting_imports_no_http_library() -> None:
    """MOD-5: until the first request, neither httpx nor an SDK."""
    code = (
        "import sys; from loopctl.models.connect import connect;"
        "connect('openai-chat:m', base_url='http://127.0.0.1:1');"
        "sys.exit(bool({'httpx', 'openai'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
