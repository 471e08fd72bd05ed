"""What every test runs under: both backends, a watchdog for blocking calls, leak checks."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ipaddress
import os
import sys
import sysconfig
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import hypothesis
import pytest
import trio

from loopctl._threads import _idle

hypothesis.settings.register_profile(
    "loopctl",
    deadline=None,  # the machine's speed decides nothing
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("loopctl")

HERE = Path(__file__).parent
LIBRARY = str(HERE.parent / "loopctl") + os.sep
STDLIB = sysconfig.get_path("stdlib") + os.sep
SOURCE_READERS = {STDLIB + name for name in ("linecache.py", "tokenize.py", "traceback.py")}
SITE = os.sep + "site-packages" + os.sep


@pytest.fixture(
    params=[pytest.param("asyncio", id="asyncio"), pytest.param("trio", id="trio")],
    scope="module",
)
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Each test marked `anyio` runs on asyncio and on trio."""
    backend: str = request.param
    return backend


class BlockingCall(AssertionError):
    """Something blocked the thread that an event loop runs in."""


class Watchdog:
    """Refuses calls that block, in a thread that runs an event loop, on either backend.

    It listens to Python's audit events, so the machine's speed plays no part: sleeping, name
    look-ups, connecting a blocking socket, waiting for a shell, opening a database; and opening
    a file, when it is loopctl's own code that opens it. A call is both refused on the spot and
    remembered, because a loop under test may turn the refusal into a soft failure.
    """

    EVENTS = frozenset(
        {
            "time.sleep",
            "socket.getaddrinfo",
            "socket.gethostbyname",
            "socket.gethostbyaddr",
            "os.system",
            "sqlite3.connect",
            "socket.connect",
            "open",
        }
    )

    def __init__(self) -> None:
        self.on = False
        self.caught: list[str] = []

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on or event not in self.EVENTS or not _in_event_loop():
            return
        if event == "open" and not _opened_by_loopctl():
            return
        if event == "socket.connect" and arguments[0].gettimeout() == 0:
            return
        if event == "socket.getaddrinfo" and _is_address(arguments[0]):
            return
        self.caught.append(f"{event}{arguments[1:] if event == 'socket.connect' else arguments}")
        raise BlockingCall(f"{self.caught[-1]} blocks the event loop; do it in a thread")


def _in_event_loop() -> bool:
    return asyncio._get_running_loop() is not None or trio.lowlevel.in_trio_run()


def _is_address(host: Any) -> bool:
    """Whether nothing needs to be looked up."""
    try:
        return bool(ipaddress.ip_address(host))
    except ValueError:
        return host is None


def _opened_by_loopctl() -> bool:
    """Whether the first frame above the standard library is loopctl's; imports and tracebacks do
    not count."""
    frame = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(LIBRARY):
            return True
        if name.endswith("linecache.py"):  # the source lines of a traceback that is logged
            return False
        if name.startswith("<frozen importlib") or name in SOURCE_READERS:
            return False
        if SITE in name or not name.startswith(STDLIB):
            return False
        frame = frame.f_back  # type: ignore[assignment] # the loop ends at None
    return False


WATCHDOG = Watchdog()
sys.addaudithook(WATCHDOG)

if sys.version_info < (3, 13):  # where sleeping makes no audit event of its own
    _sleep = time.sleep

    def _audited_sleep(seconds: Any, /) -> None:
        sys.audit("time.sleep", seconds)
        _sleep(seconds)

    time.sleep = _audited_sleep


@pytest.fixture(autouse=True)
def watchdog(request: pytest.FixtureRequest) -> Iterator[Watchdog]:
    """Fail the test whose event loop was blocked; `watchdog.caught` may be read and cleared."""
    WATCHDOG.caught.clear()
    WATCHDOG.on = True
    try:
        yield WATCHDOG
    finally:
        WATCHDOG.on = False
    assert not WATCHDOG.caught, f"the event loop was blocked by {WATCHDOG.caught}"


@pytest.fixture
def no_threads_or_sockets_left() -> Iterator[None]:
    """Fail when threads or sockets outlive the test and its event loop.

    Threads that end by themselves get a bounded moment. Sockets are counted by the system
    (Linux); what only the garbage collector would close is a warning, and warnings are errors.
    """
    threads = _threads()
    sockets = _sockets()
    yield
    gc.collect()
    for thread in _threads() - threads:
        thread.join(timeout=5)
    left = [thread.name for thread in _threads() - threads]
    assert not left, f"threads left behind: {left}"
    for _ in range(500):
        if not _busy_tool_threads():
            break
        time.sleep(0.01)
    assert not _busy_tool_threads(), "a sync tool still runs"
    assert not (_sockets() - sockets), "sockets left behind"


@pytest.fixture
async def nothing_left(no_threads_or_sockets_left: None) -> AsyncIterator[None]:
    """Fail when tasks, threads or sockets outlive an async test.

    Tasks that are about to end get a bounded number of steps of the event loop.
    """
    before = _tasks()
    yield
    left: list[str] = []
    for _ in range(20):
        left = [name for number, name in _tasks().items() if number not in before]
        if not left:
            return
        await anyio.lowlevel.checkpoint()
    pytest.fail(f"tasks left behind: {left}")


def _tasks() -> dict[int, str]:
    """The names of all tasks but those that anyio's plugin makes for each fixture and test."""
    if trio.lowlevel.in_trio_run():
        own = anyio.get_current_task().id
        return {t.id: str(t.name) for t in anyio.get_running_tasks() if t.id != own}
    own_tasks = ("TestRunner._call_in_runner_task", "TestRunner._run_tests_and_fixtures")
    tasks = {
        task: str(getattr(task.get_coro(), "__qualname__", "")) for task in asyncio.all_tasks()
    }
    return {id(t): t.get_name() for t, name in tasks.items() if name not in own_tasks}


def _threads() -> set[threading.Thread]:
    """The threads that exist, without those that trio and loopctl keep to use again."""
    kept = ("Trio thread ", "loopctl-tool")
    return {t for t in threading.enumerate() if not t.name.startswith(kept)}


def _busy_tool_threads() -> int:
    alive = sum(thread.name == "loopctl-tool" for thread in threading.enumerate())
    return max(0, alive - len(_idle._workers))


def _sockets() -> set[str]:
    found: set[str] = set()
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(f"/proc/self/fd/{name}")
                if target.startswith("socket:"):
                    found.add(target)
    return found
