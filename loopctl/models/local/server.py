"""The server's process: started once, shared between equal clients, always ended (MOD-25).

A server runs in a process of its own, because its library cannot stop it and may hang when it is
dropped. That process ends when its standard input does, so it cannot outlive this one.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import secrets
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from loopctl.errors import ConnectError
from loopctl.models.local.serve import START_SECONDS

STOP_SECONDS = 2.0
"""How long a server's process is given to end before it is killed."""


SCRIPT = Path(__file__).with_name("serve.py")


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerOptions:
    """What makes two servers the same.

    `weights` and `template` (`None`: the model's own) are paths; `context_window` is for each of
    `parallel` requests.
    """

    weights: str
    model: str
    template: str | None
    context_window: int
    parallel: int
    threads: int


@dataclass(frozen=True, slots=True)
class Running:
    """A server that answers: its address, the key that it wants, its real window in tokens."""

    address: str
    key: str
    context_window: int


class LocalServer:
    """One server and its process."""

    def __init__(self, options: ServerOptions) -> None:
        self._options = options
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._running: Running | None = None

    @property
    def running(self) -> Running | None:
        """The running server; `None` when it has not been started, or has died."""
        process = self._process
        if process is None or process.poll() is not None:
            return None
        return self._running

    @property
    def pid(self) -> int | None:
        """The process that serves, if there is one."""
        return None if self._process is None else self._process.pid

    def start(self) -> Running:
        """Start the server unless it runs; blocks, for half a second as a rule.

        Raises `ConnectError` when it does not come up within `START_SECONDS`.
        """
        with self._lock:
            if (running := self.running) is not None:
                return running
            self._end()
            return self._launch()

    def stop(self) -> None:
        """End the process; blocks until it has ended. It may be started again."""
        with self._lock:
            self._end()

    def kill(self) -> None:
        """End the process at once, without waiting for a start that may be under way."""
        if (process := self._process) is not None:
            process.kill()
            _finish(process)

    def forget(self) -> None:
        """Let go of the server without stopping it: it belongs to the parent of a fork."""
        if (process := self._process) is not None:
            if process.stdin is not None:
                with contextlib.suppress(OSError):
                    os.close(process.stdin.fileno())
            process.returncode = 0
        self._begin()

    def _launch(self) -> Running:
        key = secrets.token_urlsafe(24)
        process = subprocess.Popen(
            # -P: what lies in the current folder must not be taken for a package.
            [sys.executable, "-P", str(SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in the terminal is not for this process
        )
        self._process = process
        too_late = threading.Timer(START_SECONDS, process.kill)
        too_late.daemon = True
        too_late.start()
        try:
            answer = _handshake(process, {**asdict(self._options), "key": key})
        finally:
            too_late.cancel()
        if "address" not in answer:
            self._end()
            reason = answer.get("error") or f"its process ended with {process.returncode}"
            raise ConnectError(
                f"the local server did not start: {reason}",
                provider="local",
                model=self._options.model,
            )
        self._running = Running(answer["address"], key, answer["context_window"])
        return self._running

    def _end(self) -> None:
        process, self._process, self._running = self._process, None, None
        if process is not None:
            process.terminate()
            _finish(process)


def _handshake(process: subprocess.Popen[bytes], settings: dict[str, Any]) -> dict[str, Any]:
    """Send the settings, read the answer; `{}` when the process ended without one."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(settings).encode() + b"\n")
        process.stdin.flush()
        line = process.stdout.readline()
    except OSError:
        return {}
    finally:
        process.stdout.close()
    return json.loads(line) if line.endswith(b"\n") else {}


def _finish(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process that has been told to end, and insist when it does not."""
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class _Shared:
    """The servers of this process, one for each set of options that is in use."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._servers: dict[ServerOptions, tuple[LocalServer, int]] = {}

    def acquire(self, options: ServerOptions) -> LocalServer:
        """The server with these options, not started yet if nobody used it before."""
        with self._lock:
            server, users = self._servers.get(options) or (LocalServer(options), 0)
            self._servers[options] = (server, users + 1)
            return server

    def release(self, options: ServerOptions) -> LocalServer | None:
        """Give one use back; the server comes out when it was the last, to be stopped."""
        with self._lock:
            server, users = self._servers.pop(options, (None, 0))
            if server is not None and users > 1:
                self._servers[options] = (server, users - 1)
                return None
            return server

    def kill(self) -> None:
        """End all of them; for the end of the interpreter."""
        for server, _ in list(self._servers.values()):
            server.kill()

    def forget(self) -> None:
        """Start afresh: a forked child does not own its parent's servers."""
        servers = [server for server, _ in self._servers.values()]
        self._begin()
        for server in servers:
            server.forget()


SHARED = _Shared()

atexit.register(SHARED.kill)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=SHARED.forget)
