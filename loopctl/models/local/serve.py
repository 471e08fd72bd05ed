"""The process that the local model lives in; a script that needs nothing of loopctl (MOD-25).

It reads its settings as one line of JSON from standard input, writes one line of JSON with its
address, and ends when standard input ends: so it never outlives the process that started it,
whatever became of that. The server's library offers no way to stop it, and dropping it can hang;
ending its process always works.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import urllib.request
from importlib import import_module
from typing import Any

START_SECONDS = 60
"""A server that has not started after so long is given up."""


def main() -> None:
    """Serve until standard input ends."""
    # A native call that hangs runs no Python, so only the system can end it.
    if hasattr(signal, "alarm"):
        signal.alarm(START_SECONDS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that uses this one
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the library's own output goes nowhere
    settings: dict[str, Any] = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        server, answer = _start(settings)
    except Exception as error:
        answers.write(json.dumps({"error": f"{type(error).__name__}: {error}"}) + "\n")
        answers.flush()
        os._exit(1)
    if hasattr(signal, "alarm"):
        signal.alarm(0)
    answers.write(json.dumps(answer) + "\n")
    answers.flush()
    threading.Event().wait()
    del server


def _end_with_input() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)


def _start(settings: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    xllamacpp: Any = import_module("xllamacpp")  # it has no types
    params = xllamacpp.CommonParams()
    params.model.path = settings["weights"]
    params.model_alias = {settings["model"]}
    params.n_ctx = settings["context_window"] * settings["parallel"]  # it is divided among them
    params.n_parallel = settings["parallel"]
    params.port = 0
    params.api_keys = [settings["key"]]
    params.endpoint_props = True
    params.warmup = False
    params.verbosity = 0
    params.cpuparams.n_threads = settings["threads"]
    if settings["template"] is not None:
        with open(settings["template"], encoding="utf-8") as template:
            params.chat_template = template.read()
    server = xllamacpp.Server(params)
    address: str = server.listening_address
    request = urllib.request.Request(
        f"{address}/props", headers={"Authorization": f"Bearer {settings['key']}"}
    )
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(request, timeout=START_SECONDS) as response:
        props = json.load(response)
    window = props["default_generation_settings"]["n_ctx"]
    return server, {"address": address, "context_window": window}


if __name__ == "__main__":
    main()
