"""What Ollama's servers and models accept: data only (MOD-27).

As of 2026-11-28. A model that is not here is sent what the newest take.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast
from urllib.parse import urlsplit

AS_OF = "2026-11-28"

LOCAL_URL = "http://localhost:11434"
CLOUD_HOST = "ollama.com"
_PORT = 11434

DEFAULT_WINDOW = 32_768
"""The window that a model on one's own machine is loaded with, in tokens, unless told otherwise.

A server left to itself takes 4,096 on most machines, and drops what does not fit without a word.
It lowers what is more than the model was trained for.
"""

Efforts: TypeAlias = Mapping[str, bool | str]
"""For each effort that is understood, the value of `think`."""

_LEVELS: Efforts = {"none": False, "low": "low", "medium": "medium", "high": "high", "max": "max"}


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFacts:
    """One family of models: which efforts it has."""

    efforts: Efforts


_NEWEST = ModelFacts(efforts=_LEVELS)

_FAMILIES: Mapping[str, ModelFacts] = {
    # It cannot stop thinking, and takes max for high.
    "gpt-oss": ModelFacts(efforts={"low": "low", "medium": "medium", "high": "high"}),
}


def facts(model: str) -> ModelFacts:
    """What is known of `model`, whatever its namespace and tag."""
    return _FAMILIES.get(model.rpartition("/")[2].partition(":")[0], _NEWEST)


def is_cloud(model: str, base_url: str) -> bool:
    """Whether `model` runs at the vendor's: there its window is its maximum already."""
    return model.endswith(("-cloud", ":cloud")) or urlsplit(base_url).hostname == CLOUD_HOST


def address(host: str) -> str:
    """The URL that `OLLAMA_HOST` means: bare hosts get `http://` and Ollama's port.

    Where a scheme is written its own port counts, as in Ollama. The addresses that a server binds
    to mean this machine. Raises `ValueError` for what is none.
    """
    host = host.strip().rstrip("/")
    if "://" not in host:
        name = urlsplit(f"//{host}").hostname
        host = f"https://{host}" if name == CLOUD_HOST else f"http://{host}"
        parts = urlsplit(host)
        if parts.port is None and name != CLOUD_HOST:
            host = parts._replace(netloc=f"{parts.netloc.rstrip(':')}:{_PORT}").geturl()
    parts = urlsplit(host)
    if not parts.hostname:
        parts = parts._replace(netloc=f"localhost{parts.netloc}")
    port = f":{parts.port}" if parts.port is not None else ""
    here = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(parts.hostname or "")
    if here is not None:
        parts = parts._replace(netloc=f"{here}{port}")
    return parts.geturl()


def window_of(shown: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """What `/api/show` tells: the window that the model was trained for, and its Modelfile's."""
    given = shown.get("model_info")
    info: Mapping[str, Any] = (
        cast("Mapping[str, Any]", given) if isinstance(given, dict) else dict[str, Any]()
    )
    trained = info.get(f"{info.get('general.architecture')}.context_length")
    wanted: int | None = None
    parameters = shown.get("parameters")
    for line in parameters.split("\n") if isinstance(parameters, str) else ():
        name, _, value = line.strip().partition(" ")
        if name == "num_ctx" and value.strip().isdecimal():
            wanted = int(value)
    return (trained if type(trained) is int and trained > 0 else None), wanted or None
