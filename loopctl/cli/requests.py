"""The exact request, as a dialect sends it (ENG-26)."""

from __future__ import annotations

from typing import Any, TextIO

from loopctl.cli.screen import Line, one_line, visible
from loopctl.cli.terminal import Screen
from loopctl.errors import ConfigError
from loopctl.models.client import HttpRequest, ModelClient, ModelRequest


def encoded(client: ModelClient, request: ModelRequest) -> HttpRequest:
    """What a run would send, streamed as `loopctl run` does; the key is not in it.

    Raises `ConfigError` for a client that cannot show its requests.
    """
    encode: Any = getattr(client, "encode", None)
    made: Any = None if encode is None else encode(request, stream=True)
    if not isinstance(made, HttpRequest):
        name = f"{client.provider}:{client.model}"
        raise ConfigError(f"--request: the client of {name} cannot show its requests")
    return made


def show(request: HttpRequest, out: TextIO, screen: Screen) -> None:
    """Write the body to `out`, to the byte unless it is a terminal, and say the rest."""
    screen.say(Line(f"{request.method} {one_line(request.url, 2_000)}"))
    for name, value in request.headers.items():
        screen.say(Line(f"{one_line(name)}: {one_line(value, 2_000)}"))
    if out.isatty():
        out.write(visible(request.body.decode("utf-8", "backslashreplace")) + "\n")
    else:
        out.flush()
        out.buffer.write(request.body)
    out.flush()
