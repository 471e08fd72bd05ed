"""Which model a command talks to."""

from __future__ import annotations

import os

from loopctl.errors import ConfigError
from loopctl.models.client import ModelClient
from loopctl.models.connect import connect
from loopctl.models.local import is_installed
from loopctl.models.providers import LOCAL, PROVIDERS, first_configured


def choose(given: str | None = None) -> str:
    """The model to use, as `connect` takes it.

    What is given; else `LOOPCTL_MODEL`; else the first provider whose key is set; else `local`
    when it is installed. Raises `ConfigError` that lists the choices.
    """
    for name in (given, os.environ.get("LOOPCTL_MODEL")):
        if name is not None and name.strip():
            return name.strip()
    found = first_configured() or (LOCAL if is_installed() else None)
    if found is None:
        keys = ", ".join(each.keys[0] for each in PROVIDERS.values() if each.default_model)
        raise ConfigError(
            f"no model: give --model or set LOOPCTL_MODEL (known: {', '.join(PROVIDERS)}, {LOCAL});"
            f" or set a key ({keys}); --model {LOCAL} says how to install a model of your own"
        )
    return found


def uncalled(name: str) -> ModelClient | str:
    """A client to encode requests with, never to call: the built-in ones need no key for that.

    The placeholder that stands for the key is in no `HttpRequest`: those are without it.
    """
    provider = PROVIDERS.get(name.partition(":")[0])
    if provider is None or provider.keyless:
        return name
    return connect(name, api_key="not-needed")
