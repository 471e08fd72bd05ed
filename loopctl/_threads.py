"""Daemon threads for sync tools (TOL-7).

The framework's worker threads are joined when a process ends, so one call that never returns
would hold it open. These are daemons: a call that is cancelled is abandoned where it stands, its
thread ends or not as it likes, and the process can still exit at once. Threads are used again and
end after some idle seconds. The event loop is woken through the token of its own run, without
waiting for it, so a thread whose loop is gone harms nobody.
"""

from __future__ import annotations

import contextvars
import os
import queue
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

import anyio
import anyio.lowlevel

try:
    from sniffio import current_async_library_cvar as _async_library
except ModuleNotFoundError:  # anyio can do without it
    _async_library = None  # type: ignore[assignment] # mypy sees the other branch alone

T = TypeVar("T")

IDLE_SECONDS = 1.0
"""How long a thread waits for the next call before it ends."""

MAX_ABANDONED = 64
"""How many abandoned calls of one session may still run before it gets no new thread."""


class Threads:
    """The threads of one session. `abandoned` counts its calls that run on unwanted.

    How many calls run at once is the caller's to bound; this only refuses new ones when too many
    were abandoned and never ended.
    """

    def __init__(self) -> None:
        self._unwanted: set[_Job[Any]] = set()

    @property
    def abandoned(self) -> int:
        """How many abandoned calls still run."""
        self._unwanted = {job for job in self._unwanted if not job.finished}
        return len(self._unwanted)

    async def run(self, function: Callable[[], T]) -> T:
        """Run `function` in a thread, with a copy of the caller's context variables.

        Raises what it raises. When the caller is cancelled the call is abandoned at once.
        Raises `RuntimeError` when `MAX_ABANDONED` abandoned calls still run.
        """
        if self._unwanted and self.abandoned >= MAX_ABANDONED:
            raise RuntimeError(
                f"{MAX_ABANDONED} abandoned calls of sync tools still run; no thread is left."
                " Give these tools a way to end: look at ToolContext.cancelled"
            )
        job = _Job(function)
        _start(job)
        try:
            await job.done.wait()
        except BaseException:
            job.abandoned = True
            self._unwanted.add(job)
            raise
        return job.outcome()


def token() -> anyio.lowlevel.EventLoopToken:
    """The token of the event loop that waits for the present thread's call.

    Raises `RuntimeError` outside such a thread.
    """
    found = getattr(_local, "token", None)
    if found is None:
        raise RuntimeError("this is not the thread of a sync tool: await the function instead")
    return cast("anyio.lowlevel.EventLoopToken", found)


class _Job(Generic[T]):
    """One call on its way through a thread."""

    __slots__ = (
        "abandoned",
        "context",
        "done",
        "error",
        "finished",
        "function",
        "token",
        "value",
    )

    def __init__(self, function: Callable[[], T]) -> None:
        self.function: Callable[[], T] | None = function
        self.context = contextvars.copy_context()
        if _async_library is not None:  # no event loop runs in the thread: a tool may start one
            self.context.run(_async_library.set, None)
        self.token = anyio.lowlevel.current_token()
        self.done = anyio.Event()
        self.abandoned = False
        self.finished = False
        self.value: T | None = None
        self.error: BaseException | None = None

    def work(self) -> None:
        """Run the call in the present thread; never raises."""
        function, self.function = self.function, None
        if function is None:
            return
        try:
            self.value = self.context.run(function)
        except BaseException as error:
            self.error = error

    def deliver(self) -> None:
        """Wake the event loop that waits, unless nobody does any more."""
        self.finished = True
        if self.abandoned:
            return
        try:
            self.token.backend_class.run_sync_soon(self.done.set, (), self.token.native_token)
        except RuntimeError:  # that event loop has ended
            return

    def outcome(self) -> T:
        """What the call returned, or raise what it raised."""
        error, self.error = self.error, None
        try:
            if isinstance(error, StopIteration):
                raise RuntimeError("the tool raised StopIteration") from error
            if error is not None:
                raise error
            return cast("T", self.value)
        finally:
            del error


class _Worker:
    """A thread and the mailbox through which it gets its next call."""

    def __init__(self) -> None:
        self.mailbox: queue.SimpleQueue[_Job[Any]] = queue.SimpleQueue()

    def start(self) -> None:
        threading.Thread(target=self._serve, name="loopctl-tool", daemon=True).start()

    def _serve(self) -> None:
        while True:
            job = self._next()
            if job is None:
                return
            _local.token = job.token
            job.work()
            _local.token = None
            _idle.put(self)
            job.deliver()
            del job

    def _next(self) -> _Job[Any] | None:
        try:
            return self.mailbox.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            if _idle.remove(self):
                return None
        # Somebody took this thread in the very moment when it gave up: its call is on the way.
        return self.mailbox.get()


class _Idle:
    """The threads that wait for work, of all sessions; the last one in is the first out."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start afresh: a forked child has none of its parent's threads."""
        self._lock = threading.Lock()
        self._workers: list[_Worker] = []

    def put(self, worker: _Worker) -> None:
        with self._lock:
            self._workers.append(worker)

    def take(self) -> _Worker | None:
        with self._lock:
            return self._workers.pop() if self._workers else None

    def remove(self, worker: _Worker) -> bool:
        """Take this thread out; `False` when somebody has taken it already."""
        with self._lock:
            if worker not in self._workers:
                return False
            self._workers.remove(worker)
            return True


def _start(job: _Job[Any]) -> None:
    worker = _idle.take()
    if worker is None:
        worker = _Worker()
        worker.start()
    worker.mailbox.put(job)


_local = threading.local()
_idle = _Idle()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.forget)
