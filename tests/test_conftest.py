"""The nets under the other tests must themselves catch something."""

from __future__ import annotations

import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

pytestmark = pytest.mark.anyio


async def test_sleeping_in_the_event_loop_is_refused_and_remembered(watchdog: Any) -> None:
    with pytest.raises(AssertionError, match=r"time\.sleep.* blocks the event loop"):
        time.sleep(0)  # noqa: ASYNC251
    assert len(watchdog.caught) == 1
    watchdog.caught.clear()


async def test_connecting_a_blocking_socket_in_the_event_loop_is_refused(watchdog: Any) -> None:
    with socket.socket() as unused, pytest.raises(AssertionError, match=r"socket\.connect"):
        unused.connect(("127.0.0.1", 9))
    watchdog.caught.clear()


async def test_a_worker_thread_may_block() -> None:
    def nap() -> str:
        time.sleep(0)
        return "rested"

    assert await anyio.to_thread.run_sync(nap) == "rested"


def test_code_outside_an_event_loop_may_block() -> None:
    time.sleep(0)


BROKEN = """
    import socket, threading
    import anyio, pytest

    pytestmark = pytest.mark.anyio
    stop = threading.Event()
    kept = []

    async def test_task(nothing_left, anyio_backend_name) -> None:
        if anyio_backend_name == "trio":
            import trio
            trio.lowlevel.spawn_system_task(trio.sleep_forever, name="stray")
        else:
            import asyncio
            kept.append(asyncio.get_running_loop().create_task(anyio.sleep_forever(), name="stray"))

    async def test_thread(nothing_left) -> None:
        threading.Thread(target=stop.wait, name="stray", daemon=True).start()

    async def test_socket(nothing_left) -> None:
        kept.append(socket.socket())

    async def test_swallowed(nothing_left) -> None:
        import time
        try:
            time.sleep(0)
        except AssertionError:
            pass

    async def test_clean(nothing_left) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 0)
"""


def test_leaks_and_swallowed_blocking_calls_fail_a_test(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        (Path(__file__).parent / "conftest.py").read_text().replace("timeout=5", "timeout=0.01")
    )
    (tmp_path / "test_broken.py").write_text(textwrap.dedent(BROKEN))
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-rA", str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=50,
    ).stdout
    for backend in ("asyncio", "trio"):
        for leak in ("task", "thread", "socket", "swallowed"):
            assert f"ERROR test_broken.py::test_{leak}[{backend}]" in found, found
        assert f"ERROR test_broken.py::test_clean[{backend}]" not in found
    assert "tasks left behind: ['stray']" in found
    assert "threads left behind: ['stray']" in found
    assert "sockets left behind" in found
