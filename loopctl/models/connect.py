"""`connect("provider:model")`: a client from a string, a table and the environment (MOD-6)."""

from __future__ import annotations

import difflib
import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from loopctl._failures import error_text
from loopctl.errors import ConfigError
from loopctl.models.client import ModelClient
from loopctl.models.limiter import RateLimiter
from loopctl.models.providers import LOCAL, PROVIDERS, Provider, first_set

if TYPE_CHECKING:
    from loopctl._http import HttpClient

ModelFactory: TypeAlias = Callable[..., ModelClient]
"""What makes the client of a prefix: the model's name, then the options that were given."""

MAX_CONNECTIONS = 1000
"""How many connections a client may hold at once, unless told otherwise."""

_OPTIONS = ("context_window", "headers", "provider")


def connect(
    spec: str,
    *,
    api_key: str | None = None,
    base_url: str | None = None,
    http_client: HttpClient | None = None,
    max_connections: int = MAX_CONNECTIONS,
    limiter: RateLimiter | None = None,
    prefixes: Mapping[str, ModelFactory] = {},
    **options: Any,
) -> ModelClient:
    """Make the client that `spec` names, such as `"openai:gpt-6-sol"`; opens nothing.

    The key and the address come from the arguments, else from the provider's usual environment
    variables (a key from the environment does not go to a plain `http://` address that was given
    as an argument). `"openai-chat:model"` with a `base_url` reaches any server that speaks OpenAI's
    Chat Completions, `"openai:model"` any that speaks its Responses API, and both need no key then.
    `"local"` is the model on this machine; it takes options of its own.

    `options` for the others: `headers` for every request; `context_window` in tokens; `provider`,
    the name in errors and messages; `profile`, the kind of server, where it speaks one of OpenAI's
    APIs, or AWS's profile for Bedrock, which takes `region` and `credentials` too;
    `keep_alive` for Ollama.

    `prefixes` are more of them, such as plugins bring (a session adds those of its plugins):
    `prefixes[prefix](model, **given)` makes the client, of the arguments that differ from their
    defaults. The ones that are built in cannot be replaced.

    Raises `ConfigError` for an unknown prefix or option and for a key that is not set.
    """
    prefix, _, model = spec.partition(":")
    shared: dict[str, Any] = {"api_key": api_key, "base_url": base_url, "http_client": http_client}
    shared = {name: value for name, value in shared.items() if value is not None}
    if prefix == LOCAL:
        if limiter is not None or max_connections != MAX_CONNECTIONS:
            raise ConfigError(f"{spec!r} takes no limiter and no max_connections")
        return _local(spec, model, options | shared)
    provider = PROVIDERS.get(prefix)
    if provider is None and prefix in prefixes:
        if limiter is not None:
            shared["limiter"] = limiter
        if max_connections != MAX_CONNECTIONS:
            shared["max_connections"] = max_connections
        return _made(spec, prefixes[prefix], model, options | shared)
    if provider is None:
        known = dict.fromkeys((*PROVIDERS, LOCAL, *prefixes))
        raise ConfigError(_unknown(prefix, known, "provider", spec))
    if not model:
        example = provider.default_model or "model"
        raise ConfigError(f'{spec!r} names no model; write "{prefix}:{example}"')
    dialect = _DIALECTS[provider.dialect]
    known_options = (*_OPTIONS, *dialect.options)
    for name in options:
        if name not in known_options:
            raise ConfigError(_unknown(name, known_options, "option", spec))
    if "profile" in dialect.options:
        options.setdefault("profile", provider.profile)
    address = dialect.address(base_url or _address(provider))
    if not address and provider.url_suffix:
        raise ConfigError(
            f"{prefix}: no address; set the environment variable {provider.urls[0]}"
            " or pass base_url="
        )
    headers = {
        name: os.environ[variable]
        for name, variable in provider.headers.items()
        if os.environ.get(variable)
    }
    headers |= options.pop("headers", None) or {}
    return dialect.load()(
        model,
        api_key=api_key or _key(provider, base_url, address),
        base_url=address,
        provider=options.pop("provider", prefix),
        headers=headers,
        http_client=http_client,
        max_connections=max_connections,
        limiter=limiter,
        **options,
    )


@dataclass(frozen=True, slots=True)
class _Dialect:
    """How the client of a dialect is found, and its own options beside those that all have.

    `address` completes an address that need not be a whole URL.
    """

    load: Callable[[], ModelFactory]
    options: tuple[str, ...] = ()
    address: Callable[[str], str] = str


def _openai_chat() -> ModelFactory:
    from loopctl.models.openai_chat import OpenAIChatClient

    return OpenAIChatClient


def _openai_responses() -> ModelFactory:
    from loopctl.models.openai_responses import OpenAIResponsesClient

    return OpenAIResponsesClient


def _anthropic() -> ModelFactory:
    from loopctl.models.anthropic import AnthropicClient

    return AnthropicClient


def _gemini() -> ModelFactory:
    from loopctl.models.gemini import GeminiClient

    version = os.environ.get("GOOGLE_GENAI_API_VERSION", "").strip()
    if not version:
        return GeminiClient
    return functools.partial(GeminiClient, api_version="v1beta" if version == "beta" else version)


def _bedrock() -> ModelFactory:
    from loopctl.models.bedrock import BedrockClient

    return BedrockClient


def _ollama() -> ModelFactory:
    from loopctl.models.ollama import OllamaClient

    return OllamaClient


def _ollama_address(given: str) -> str:
    from loopctl.models.ollama.facts import address

    try:
        return address(given)
    except ValueError:
        return given  # the client says what is wrong with it


_DIALECTS: Mapping[str, _Dialect] = {
    "openai_chat": _Dialect(_openai_chat, ("profile",)),
    "openai_responses": _Dialect(_openai_responses, ("profile",)),
    "anthropic": _Dialect(_anthropic),
    "gemini": _Dialect(_gemini, ("api_version",)),
    "bedrock": _Dialect(_bedrock, ("region", "profile", "credentials")),
    "ollama": _Dialect(_ollama, ("keep_alive",), _ollama_address),
}


def is_built_in(prefix: str) -> bool:
    """Whether a prefix is one of loopctl's own."""
    return prefix in PROVIDERS or prefix == LOCAL


def _made(spec: str, factory: ModelFactory, model: str, options: dict[str, Any]) -> ModelClient:
    """What a plugin's factory makes; whatever is wrong with it is told as such."""
    if not model:
        raise ConfigError(f'{spec!r} names no model; write "{spec.rstrip(":")}:model"')
    try:
        made = cast(object, factory(model, **options))
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"connect({spec!r}): no client: {error_text(error)}") from error
    if not isinstance(made, ModelClient):
        raise ConfigError(f"connect({spec!r}): the factory of the prefix made {made!r}, no client")
    return made


def _local(spec: str, model: str, options: dict[str, Any]) -> ModelClient:
    from loopctl.models.local import connect_local

    if model:
        raise ConfigError(f'{spec!r}: there is one local model; write "{LOCAL}"')
    known = inspect.signature(connect_local).parameters
    for name in options:
        if name not in known:
            raise ConfigError(_unknown(name, known, "option", spec))
    return connect_local(**options)


def _address(provider: Provider) -> str:
    found = first_set(provider.urls)
    if found is None:
        return provider.base_url
    found = found.rstrip("/")
    return found if found.endswith(provider.url_suffix) else found + provider.url_suffix


def _key(provider: Provider, given_url: str | None, address: str) -> str | None:
    """The key from the environment; `None` where none is needed."""
    if provider.keyless:
        # nor is one told in the clear, whoever gave the address
        return first_set(provider.keys) if address.startswith("https://") else None
    open_address = provider.profile is None and address != provider.base_url
    if given_url is not None and given_url.startswith("http://"):
        key = None
    else:
        key = first_set(provider.keys)
    if key is None and not open_address and (given_url is None or provider.profile is None):
        raise ConfigError(
            f"{provider.prefix}: no key; set the environment variable {provider.keys[0]}"
            " or pass api_key="
        )
    return key


def _unknown(name: str, known: Iterable[str], what: str, spec: str) -> str:
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"connect({spec!r}): there is no {what} {name!r}{hint} Known: {', '.join(known)}"
