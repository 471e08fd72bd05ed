"""The command as a process of its own, talked to through pipes or a terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from loopctl.testing import ThreadedByteServer, threaded

PATIENCE = 20.0
"""How long any wait may take, in seconds; none does unless something is broken."""

# A shell starts its background jobs with interrupts ignored, and children inherit that. Only a
# terminal that controls the process makes signals of keys, and knows who is in the foreground.
LAUNCH = """
import fcntl, os, signal, sys, termios
signal.signal(signal.SIGINT, signal.default_int_handler)
if sys.stdin.isatty():
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
if os.environ.get("IN_THE_BACKGROUND"):
    child = os.fork()
    if child:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    os.setpgid(0, 0)
from loopctl.cli import main
sys.exit(main())
"""


class Command:
    """A running `loopctl`; `out` and `err` hold what it has said so far.

    Under a terminal both are one: `out`.
    """

    def __init__(
        self,
        arguments: list[str],
        folder: Path,
        url: str,
        *,
        terminal: bool = False,
        stdin: int = subprocess.DEVNULL,
    ) -> None:
        unwanted = ("_API_KEY", "_BASE_URL", "UNBUFFERED")  # the last one hides what is not flushed
        known = {k: v for k, v in os.environ.items() if not k.endswith(unwanted)}
        self._environment = known | {
            "OPENAI_BASE_URL": url,
            "LOOPCTL_MODEL": "openai-chat:m",
            "TERM": "xterm",
            "NO_COLOR": "1",
        }
        self._said: dict[int, bytes] = {}
        self._names: dict[str, int] = {}
        self._open: set[int] = set()
        self._folder = folder
        self._read = 0
        given = [sys.executable, "-c", LAUNCH, *arguments]
        if terminal:
            ours, theirs = pty.openpty()
            self._keys = ours
            self.modes_before = termios.tcgetattr(ours)
            self._start(given, theirs, theirs, theirs)
            os.close(theirs)
            self._listen("out", ours)
        else:
            outs, errs = os.pipe(), os.pipe()
            self._start(given, stdin, outs[1], errs[1])
            os.close(outs[1])
            os.close(errs[1])
            self._listen("out", outs[0])
            self._listen("err", errs[0])

    def _start(self, given: list[str], stdin: int, stdout: int, stderr: int) -> None:
        self.process = subprocess.Popen(
            given,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=self._folder,
            env=self._environment,
            start_new_session=True,
        )

    def _listen(self, name: str, descriptor: int) -> None:
        self._names[name] = descriptor
        self._said[descriptor] = b""
        self._open.add(descriptor)

    @property
    def out(self) -> str:
        """What came on standard output; a terminal's line ends are plain ones."""
        return self._text("out")

    @property
    def err(self) -> str:
        """What came on standard error."""
        return self._text("err")

    def _text(self, name: str) -> str:
        return self._said[self._names[name]].decode().replace("\r\n", "\n")

    @property
    def raw(self) -> bytes:
        """Everything that came, to the byte."""
        return b"".join(self._said.values())

    def wait_for(self, text: str) -> None:
        """Wait until it has said this, on either stream."""
        self._until(lambda: any(text in self._text(name) for name in self._names), text)

    def then(self, text: str) -> None:
        """Wait until it has said this behind what was waited for last."""
        self._until(lambda: text in self.out[self._read :], text)
        self._read = self.out.index(text, self._read) + len(text)

    def type(self, keys: str) -> None:
        """Press keys; `\\r` is Enter, `\\x03` Ctrl-C."""
        os.write(self._keys, keys.encode())

    @property
    def modes(self) -> list[Any]:
        """The settings of its terminal."""
        return termios.tcgetattr(self._keys)

    def interrupt(self) -> None:
        """What Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)

    def stop_listening(self) -> None:
        """Close our end of its standard output."""
        descriptor = self._names.pop("out")
        del self._said[descriptor]
        self._open.discard(descriptor)
        os.close(descriptor)

    def hang_up(self) -> None:
        """Take its terminal away."""
        self.stop_listening()

    def wait(self) -> int:
        """Wait for its end; gives its exit code."""
        self._until(lambda: not self._open, "its end")
        return self.process.wait(PATIENCE)

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not holds():
            left = deadline - time.monotonic()
            ready = select.select([*self._open], [], [], max(0, left))[0] if left > 0 else []
            if not ready:
                raise AssertionError(f"waited in vain for {what!r}; it said {self._said}")
            for descriptor in ready:
                try:
                    data = os.read(descriptor, 65536)
                except OSError:  # how a terminal says that the other side is gone
                    data = b""
                self._said[descriptor] += data
                if not data:
                    self._open.discard(descriptor)

    def close(self) -> None:
        """End it, if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)
        for descriptor in self._said:
            os.close(descriptor)


Launch: TypeAlias = Callable[..., Command]


@pytest.fixture(autouse=True)
def no_installed_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is installed on the machine that runs the tests changes none of them."""
    monkeypatch.setenv("LOOPCTL_PLUGINS", ",")


@pytest.fixture
def server() -> Iterator[ThreadedByteServer]:
    """A Chat Completions server; have it `play` replies."""
    with threaded() as running:
        yield running


@pytest.fixture
def launch(server: ThreadedByteServer, tmp_path: Path) -> Iterator[Launch]:
    """Start `loopctl run …`, or another command, in a folder of its own, talking to `server`."""
    with ExitStack() as stack:

        def start(*arguments: str, command: str = "run", **how: Any) -> Command:
            given = [command, "--window", "100000", *arguments]
            started = Command(given, tmp_path, f"{server.url}/v1", **how)
            stack.callback(started.close)
            return started

        yield start
