"""`connect("provider:model")`: a client from a string, a table and the environment (MOD-6)."""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from loopctl.errors import ConfigError
from loopctl.models.client import ModelClient
from loopctl.models.limiter import RateLimiter
from loopctl.models.providers import LOCAL, PROVIDERS, Provider, first_set

if TYPE_CHECKING:
    from loopctl._http import HttpClient

MAX_CONNECTIONS = 1000
"""How many connections a client may hold at once, unless told otherwise."""

_OPTIONS = ("context_window", "headers", "profile", "provider")


def connect(
    spec: str,
    *,
    api_key: str | None = None,
    base_url: str | None = None,
    http_client: HttpClient | None = None,
    max_connections: int = MAX_CONNECTIONS,
    limiter: RateLimiter | None = None,
    **options: Any,
) -> ModelClient:
    """Make the client that `spec` names, such as `"openai-chat:gpt-5.4"`; opens nothing.

    The key and the address come from the arguments, else from the provider's usual environment
    variables (a key from the environment does not go to a plain `http://` address that was given
    as an argument). `"openai-chat:model"` with a `base_url` reaches any compatible server and
    needs no key. `"local"` is the model on this machine; it takes options of its own.

    `options` for the others: `profile`, the kind of server; `headers` for every request;
    `context_window` in tokens; `provider`, the name in errors and messages.

    Raises `ConfigError` for an unknown prefix or option and for a key that is not set.
    """
    prefix, _, model = spec.partition(":")
    if prefix == LOCAL:
        if limiter is not None or max_connections != MAX_CONNECTIONS:
            raise ConfigError(f"{spec!r} takes no limiter and no max_connections")
        given = {"api_key": api_key, "base_url": base_url, "http_client": http_client}
        return _local(spec, model, options | {k: v for k, v in given.items() if v is not None})
    provider = PROVIDERS.get(prefix)
    if provider is None:
        raise ConfigError(_unknown(prefix, (*PROVIDERS, LOCAL), "provider", spec))
    if not model:
        example = provider.default_model or "model"
        raise ConfigError(f'{spec!r} names no model; write "{prefix}:{example}"')
    for name in options:
        if name not in _OPTIONS:
            raise ConfigError(_unknown(name, _OPTIONS, "option", spec))
    address = base_url or _address(provider)
    headers = {
        name: os.environ[variable]
        for name, variable in provider.headers.items()
        if os.environ.get(variable)
    }
    from loopctl.models.openai_chat import OpenAIChatClient

    return OpenAIChatClient(
        model,
        api_key=api_key or _key(provider, base_url, address),
        base_url=address,
        profile=options.get("profile", provider.profile),
        provider=options.get("provider", prefix),
        headers={**headers, **(options.get("headers") or {})},
        context_window=options.get("context_window"),
        http_client=http_client,
        max_connections=max_connections,
        limiter=limiter,
    )


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
