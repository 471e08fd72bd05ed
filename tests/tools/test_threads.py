"""Sync tools in threads of our own."""

from __future__ import annotations

import asyncio
import contextvars
import os
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from loopctl import _threads
from loopctl._threads import Threads
from loopctl.config import SessionConfig
from loopctl.tools.function import tool
from loopctl.tools.types import ToolContext
from tests.tools.bench import Bench, call

pytestmark = pytest.mark.anyio

LABEL: contextvars.ContextVar[str] = contextvars.ContextVar("LABEL", default="unset")


async def test_a_sync_tool_runs_beside_the_event_loop() -> None:
    """TOL-7, F2: the loop goes on while the tool works."""
    ticked = threading.Event()

    @tool
    def wait() -> str:
        assert ticked.wait(5)
        return threading.current_thread().name

    async def tick() -> None:
        await anyio.lowlevel.checkpoint()
        ticked.set()

    bench = Bench(wait)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(bench.run, call("wait"))
            group.start_soon(tick)
    assert bench.finished["c1"].result.content == "loopctl-tool"


async def test_context_variables_reach_the_thread() -> None:
    """TOL-7, F2: a copy of the caller's context."""

    @tool
    def read() -> str:
        found = LABEL.get()
        LABEL.set("changed in the thread")
        return found

    LABEL.set("from the task")
    assert (await Bench(read).one("read")).content == "from the task"
    assert LABEL.get() == "from the task"


async def test_an_awaitable_that_a_sync_tool_returns_is_awaited() -> None:
    """F2: on the event loop."""
    home = threading.get_ident()

    async def later() -> bool:
        await anyio.lowlevel.checkpoint()
        return threading.get_ident() == home

    @tool
    def start() -> Awaitable[bool]:
        return later()

    assert (await Bench(start).one("start")).content == "true"


async def test_an_iterator_is_read_in_the_thread() -> None:
    """TOL-7: what comes bit by bit cannot block the event loop."""
    home = threading.get_ident()

    @tool
    def count() -> Iterator[bool]:
        yield threading.get_ident() == home

    assert (await Bench(count).one("count")).content == "[false]"


async def test_an_async_callable_object_is_not_put_into_a_thread() -> None:
    class Where:
        async def __call__(self) -> int:
            return threading.get_ident()

    where = tool(Where())
    assert (await Bench(where).one("Where")).content == str(threading.get_ident())


async def test_errors_come_back_from_the_thread() -> None:
    """TOL-9: as from any tool; StopIteration too."""

    @tool
    def fail(kind: str) -> None:
        raise {"value": ValueError("broken"), "stop": StopIteration()}[kind]

    bench = Bench(fail)
    assert (await bench.one("fail", kind="value")).text == "ValueError: broken"
    assert (await bench.one("fail", kind="stop")).text.startswith("RuntimeError: ")


async def test_threads_are_used_again() -> None:
    """TOL-7: calls in a row need one thread."""

    @tool
    def which() -> int:
        return threading.get_ident()

    bench = Bench(which)
    seen = {(await bench.one("which")).content for _ in range(20)}
    assert len(seen) == 1


async def test_an_idle_thread_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left behind for long."""
    monkeypatch.setattr(_threads, "IDLE_SECONDS", 0.01)
    monkeypatch.setattr(_threads, "_idle", _threads._Idle())
    thread = await Threads().run(threading.current_thread)
    assert await Threads().run(_joined(thread))


def _joined(thread: threading.Thread) -> Callable[[], bool]:
    def join() -> bool:
        if thread is threading.current_thread():  # it was still there and took this call
            return True
        thread.join(5)
        return not thread.is_alive()

    return join


async def test_a_timed_out_sync_tool_is_abandoned() -> None:
    """TOL-7, TOL-10, F3: the call ends at once; its thread sees that it is not wanted."""
    release = threading.Event()
    seen: list[bool] = []
    ended = threading.Event()

    @tool(timeout=0.02)
    def stuck(ctx: ToolContext) -> None:
        seen.append(ctx.cancelled)
        release.wait(5)
        seen.append(ctx.cancelled)
        with pytest.raises(RuntimeError, match="has ended"):
            ctx.from_thread(ctx.progress, "late")
        ended.set()

    bench = Bench(stuck)
    with anyio.fail_after(5):
        result = await bench.one("stuck")
    assert "deadline of 0.02 s" in result.text
    assert bench.dispatcher._threads.abandoned == 1
    release.set()
    await Threads().run(lambda: ended.wait(5))
    assert seen == [False, True]
    assert ended.is_set()
    assert "ToolProgress" not in bench.sink.kinds()


async def test_a_cancelled_sync_tool_is_abandoned() -> None:
    """TOL-7, TOL-9: cancellation does not wait for the thread."""
    started = threading.Event()
    release = threading.Event()

    @tool
    def stuck() -> None:
        started.set()
        release.wait(5)

    bench = Bench(stuck)
    try:
        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                group.start_soon(bench.run, call("stuck"))
                await Threads().run(lambda: started.wait(5))
                group.cancel_scope.cancel()
        assert bench.finished == {}
        assert bench.dispatcher._threads.abandoned == 1
    finally:
        release.set()


async def test_too_many_abandoned_threads_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """TOL-7, F3: a session's stuck tools cannot eat threads without end."""
    monkeypatch.setattr(_threads, "MAX_ABANDONED", 2)
    release = threading.Event()

    @tool
    def stuck(wait: bool = True) -> str:
        if wait:
            release.wait(5)
        return "ran"

    bench = Bench(stuck, config=SessionConfig(tool_timeout=0.02))
    try:
        for _ in range(2):
            assert "deadline" in (await bench.one("stuck")).text
        refused = await bench.one("stuck", wait=False)
        assert refused.is_error
        assert "2 abandoned calls" in refused.text
    finally:
        release.set()
    with anyio.fail_after(5):
        while bench.dispatcher._threads.abandoned:
            await anyio.lowlevel.checkpoint()
    assert (await bench.one("stuck", wait=False)).content == "ran"


async def test_a_sync_tool_reaches_the_event_loop_through_its_context() -> None:
    """TOL-6: progress and attachments from a sync tool."""

    class Pinned:
        id = "todo:a"

    @tool
    def work(ctx: ToolContext) -> str:
        ctx.from_thread(ctx.progress, "half way", 0.5)
        ctx.from_thread(ctx.set_attachment, Pinned())
        return ",".join(ctx.attachment_ids())

    bench = Bench(work)
    assert (await bench.one("work")).content == "todo:a"
    assert bench.sink.kinds() == ["ToolStarted", "ToolProgress", "ToolFinished"]


async def test_from_thread_is_for_threads() -> None:
    @tool
    async def work(ctx: ToolContext) -> None:
        ctx.from_thread(ctx.progress, "never")

    assert "await the function instead" in (await Bench(work).one("work")).text


EXIT = """
import sys, time
import anyio
from loopctl.config import RunConfig, SessionConfig
from loopctl.messages import ToolCallPart
from loopctl.tools.dispatch import Dispatcher
from loopctl.tools.function import tool
from loopctl.tools.registry import ToolRegistry
from pathlib import Path

class Services:
    deps = None
    session_id = "s"
    working_folder = Path(".")

class Sink:
    active = False

@tool(concurrency_safe=True)
def stuck() -> None:
    time.sleep(30)

async def main():
    dispatcher = Dispatcher(
        ToolRegistry([stuck]), services=Services(), config=SessionConfig(tool_timeout=0.1)
    )
    finished = {}
    await dispatcher.run(
        [ToolCallPart(str(n), "stuck") for n in range(10)],
        run_id="r", turn=0, run_config=RunConfig(max_concurrency=10), sink=Sink(),
        finished=finished,
    )
    assert all("deadline" in record.result.text for record in finished.values())
    print(len(finished))

anyio.run(main, backend=sys.argv[1])
"""


def test_a_process_ends_at_once_with_ten_abandoned_tools(anyio_backend_name: str) -> None:
    """TOL-7, F3: ten times sleep(30), timed out; the process does not wait for them."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", EXIT, anyio_backend_name],
        capture_output=True,
        timeout=20,
        check=True,
    )
    assert done.stdout.strip() == b"10"
    assert done.stderr == b""


async def test_a_result_for_an_event_loop_that_has_ended_harms_nobody() -> None:
    """TOL-7: an abandoned thread outlives its loop quietly."""
    release = threading.Event()
    ended = threading.Event()
    unwanted: list[Any] = []

    def work() -> None:
        release.wait(5)
        ended.set()

    async def abandon() -> None:
        threads = Threads()
        with anyio.move_on_after(0.01):
            await threads.run(work)
        unwanted.extend(threads._unwanted)

    await Threads().run(lambda: anyio.run(abandon))
    (job,) = unwanted
    job.abandoned = False  # as if the cancellation had come a moment too late
    release.set()
    await Threads().run(lambda: ended.wait(5))
    assert await Threads().run(lambda: 7) == 7


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_starts_threads_of_its_own() -> None:
    """TOL-7: the parent's idle threads do not exist in the child."""
    program = (
        "import os, anyio, threading\n"
        "from loopctl._threads import Threads\n"
        "async def main():\n"
        "    await Threads().run(int)\n"
        "anyio.run(main)\n"
        "pid = os.fork()\n"
        "anyio.run(main)\n"
        "if pid: raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    subprocess.run([sys.executable, "-c", program], timeout=20, check=True)


async def test_many_sync_calls_at_once_each_have_a_thread() -> None:
    """TOL-7, TOL-8: a wave of sync tools runs together."""
    barrier = threading.Barrier(8, timeout=5)

    @tool(concurrency_safe=True)
    def meet() -> str:
        barrier.wait()
        return "met"

    with anyio.fail_after(10):
        results = await Bench(meet).run(*[call("meet", str(number)) for number in range(8)])
    assert [result.content for result in results] == ["met"] * 8


def test_two_event_loops_share_the_idle_threads() -> None:
    """D8: nothing is bound to the first loop."""

    async def run() -> int:
        return await Threads().run(threading.get_ident)

    assert asyncio.run(run()) == asyncio.run(run())
