"""A real model on this machine, from packages alone (MOD-25).

`connect_local()` gives a client of SmolLM2-135M-Instruct on a llama.cpp server. It proves that
everything works together, not that a model of this size can think.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from loopctl.errors import ConfigError
from loopctl.models.client import ModelClient
from loopctl.models.local.weights import find_weights, is_installed

if TYPE_CHECKING:
    from loopctl._http import HttpClient

__all__ = ["TRAINED_WINDOW", "connect_local", "is_installed"]

ToolsMode: TypeAlias = Literal["native", "emulated"]

TRAINED_WINDOW = 8_192
"""The longest window that the model knows, in tokens."""


def connect_local(
    *,
    tools: ToolsMode = "native",
    context_window: int = TRAINED_WINDOW,
    parallel: int = 1,
    max_output_tokens: int = 256,
    threads: int | None = None,
    http_client: HttpClient | None = None,
) -> ModelClient:
    """A client of the local model; opens nothing, the first request starts the server.

    `tools` says how the model calls tools: `"native"`, through a chat template of our own and the
    server's parser, or `"emulated"`, through a JSON schema of its replies. `context_window` is in
    tokens, 256 to 8,192 (about 23 KB of memory each), for each of `parallel` requests that are
    answered at once, others wait. `max_output_tokens` bounds a reply whose request names no bound.
    `threads` is how many processors the server uses at once, by default half of them, at most 4:
    its threads wait for each other all the time, so one that finds no free processor stops all.

    Raises `MissingExtra`, with the commands that install what is missing, and `ConfigError` for a
    value out of its range.
    """
    if tools not in ("native", "emulated"):
        raise ConfigError(f"tools={tools!r}: must be 'native' or 'emulated'")
    _within("context_window", context_window, 256, TRAINED_WINDOW)
    _within("parallel", parallel, 1, 64)
    _within("max_output_tokens", max_output_tokens, 1, TRAINED_WINDOW)
    if threads is None:
        threads = max(1, min(_processors() // 2, 4))
    _within("threads", threads, 1, 512)
    weights = find_weights()
    from loopctl.models.emulate import EmulatedTools
    from loopctl.models.local.client import MODEL, LocalClient
    from loopctl.models.local.server import ServerOptions

    native = tools == "native"
    options = ServerOptions(
        weights=str(weights),
        model=MODEL,
        template=str(Path(__file__).with_name("tools.jinja")) if native else None,
        context_window=context_window,
        parallel=parallel,
        threads=threads,
    )
    client = LocalClient(options, max_output_tokens=max_output_tokens, http_client=http_client)
    return client if native else EmulatedTools(client)


def _within(name: str, value: int, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise ConfigError(f"{name}={value!r}: must be a whole number ≥ {low} and ≤ {high}")


def _processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
