"""A server on loopback that plays byte scripts: the faults of a network, on demand.

It reads HTTP/1.1 requests and answers each with the next script, to the byte. It runs in the
event loop of the test, on asyncio and on trio, or in a thread of its own (`threaded`) for sync
tests. It never sleeps: whatever waits, waits for a test to release it or for the client to go.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable, Generator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeAlias

import anyio
import anyio.abc
import anyio.from_thread
import anyio.lowlevel

from loopctl import _json
from loopctl.testing.byte_script import Close, Reset, Script, Stall, respond

PATIENCE = 10.0
"""How long the waits of a server last before they raise `TimeoutError`, in seconds."""

_RST_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReceivedRequest:
    """A request as it came; names of headers are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The body, decoded; raises `ValueError` when it is not JSON."""
        return _json.loads(self.body)


Playable: TypeAlias = Script | Callable[[ReceivedRequest], Script]
"""A script, or a function of the request that gives one."""


class ByteServer:
    """Answers the requests that come, in order, with `scripts`. An async context manager.

    `url` is `http://127.0.0.1:<port>`. `requests` holds what came, `connections` counts the
    connections made so far and `open_connections` those that still are. A connection is kept
    open between requests unless a script closes it. A request that nothing is scripted for is
    answered with status 500, and leaving the block raises an `AssertionError` about it.
    """

    def __init__(self, *scripts: Playable) -> None:
        self._scripts = list(scripts)
        self._stack = contextlib.AsyncExitStack()
        self._changed = anyio.Event()
        self._token: anyio.lowlevel.EventLoopToken | None = None
        self._failure: Exception | None = None
        self._unscripted: list[ReceivedRequest] = []
        self.requests: list[ReceivedRequest] = []
        self.connections = 0
        self.open_connections = 0
        self.url = ""

    async def __aenter__(self) -> Self:
        self._token = anyio.lowlevel.current_token()
        async with contextlib.AsyncExitStack() as stack:
            listener = stack.enter_context(socket.socket())
            listener.setblocking(False)
            listener.bind(("127.0.0.1", 0))
            listener.listen(1024)
            self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(tasks.cancel_scope.cancel)
            tasks.start_soon(self._accept, listener, tasks)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, anyio.get_cancelled_exc_class()):
            await self._stack.__aexit__(kind, error, traceback)
        else:  # a task group would wrap what the test raises
            await self._stack.aclose()
        if error is not None:
            return
        if self._failure is not None:
            raise self._failure
        if self._unscripted:
            asked = ", ".join(f"{r.method} {r.path}" for r in self._unscripted)
            raise AssertionError(
                f"ByteServer has {len(self._scripts)} scripts, but {len(self.requests)} requests"
                f" came; nothing was scripted for: {asked}"
            )

    def play(self, *scripts: Playable) -> None:
        """Add scripts behind those that are there."""
        self._scripts += scripts

    async def wait_reached(self, stall: Stall, *, timeout: float = PATIENCE) -> None:
        """Wait until a connection has come to `stall`."""
        await self._wait_for(lambda: stall.reached, timeout)

    async def wait_closed(self, *, timeout: float = PATIENCE) -> None:
        """Wait until no connection is open any more."""
        await self._wait_for(lambda: self.open_connections == 0, timeout)

    async def _wait_for(self, holds: Callable[[], bool], timeout: float) -> None:
        with anyio.fail_after(timeout):
            while not holds():
                await self._changed.wait()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def _accept(self, listener: socket.socket, tasks: anyio.abc.TaskGroup) -> None:
        while True:
            await anyio.wait_readable(listener)
            with contextlib.suppress(OSError):
                accepted, _ = listener.accept()
                self.connections += 1
                self.open_connections += 1
                tasks.start_soon(self._serve, accepted)

    async def _serve(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = _Connection(accepted)
        try:
            with contextlib.suppress(OSError):
                while (request := await connection.read_request()) is not None:
                    if not await self._play(self._script_for(request), connection):
                        return
        except Exception as failure:
            self._failure = failure
        finally:
            accepted.close()
            self.open_connections -= 1
            self._tell()

    def _script_for(self, request: ReceivedRequest) -> Script:
        number = len(self.requests)
        self.requests.append(request)
        self._tell()
        if number >= len(self._scripts):
            self._unscripted.append(request)
            return respond("nothing is scripted for this request", status=500)
        script = self._scripts[number]
        return script(request) if callable(script) else script

    async def _play(self, script: Script, connection: _Connection) -> bool:
        """Play one script; false when the connection must not be used again."""
        for step in script:
            match step:
                case bytes():
                    await connection.send(step)
                case Stall():
                    if not await self._stall(step, connection):
                        return False
                case Close():
                    return False
                case Reset():
                    connection.reset_on_close()
                    return False
        return True

    async def _stall(self, stall: Stall, connection: _Connection) -> bool:
        """Wait at `stall`; false when the client went away first."""
        ended = anyio.Event()
        stall.on_release(lambda: self._call_soon(ended.set))
        stall.reached = True
        self._tell()

        async def watch() -> None:
            await connection.wait_gone()
            ended.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            await ended.wait()
            tasks.cancel_scope.cancel()
        return stall.released

    def _call_soon(self, action: Callable[[], None]) -> None:
        """Call `action` in the server's event loop, from any thread, without waiting."""
        token = self._token
        if token is not None:
            with contextlib.suppress(RuntimeError):  # that event loop has ended
                token.backend_class.run_sync_soon(action, (), token.native_token)


class ThreadedByteServer:
    """A `ByteServer` that runs in a thread of its own; made by `threaded`. Its waits block."""

    def __init__(self, server: ByteServer, portal: anyio.from_thread.BlockingPortal) -> None:
        self._server = server
        self._portal = portal

    @property
    def url(self) -> str:
        """`http://127.0.0.1:<port>`."""
        return self._server.url

    @property
    def requests(self) -> list[ReceivedRequest]:
        """The requests that came so far."""
        return self._server.requests

    @property
    def connections(self) -> int:
        """How many connections were made so far."""
        return self._server.connections

    @property
    def open_connections(self) -> int:
        """How many connections are open."""
        return self._server.open_connections

    def play(self, *scripts: Playable) -> None:
        """Add scripts behind those that are there."""
        self._portal.call(self._server.play, *scripts)

    def wait_reached(self, stall: Stall, *, timeout: float = PATIENCE) -> None:
        """Block until a connection has come to `stall`; raises `TimeoutError`."""
        self._portal.call(lambda: self._server.wait_reached(stall, timeout=timeout))

    def wait_closed(self, *, timeout: float = PATIENCE) -> None:
        """Block until no connection is open any more; raises `TimeoutError`."""
        self._portal.call(lambda: self._server.wait_closed(timeout=timeout))


@contextlib.contextmanager
def threaded(*scripts: Playable) -> Generator[ThreadedByteServer, None, None]:
    """A `ByteServer` in a thread of its own, for sync tests and for code that runs several loops.

    What it has is what `ByteServer` has; its waits block the thread that calls them.
    """
    with anyio.from_thread.start_blocking_portal("asyncio") as portal:
        server = portal.call(lambda: ByteServer(*scripts))
        with portal.wrap_async_context_manager(server):
            yield ThreadedByteServer(server, portal)


class _Connection:
    """One accepted socket: its requests in, its bytes out."""

    def __init__(self, accepted: socket.socket) -> None:
        self._socket = accepted
        self._buffer = b""

    async def send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                await anyio.wait_writable(self._socket)
        await anyio.lowlevel.checkpoint()

    def reset_on_close(self) -> None:
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST_ON_CLOSE)

    async def wait_gone(self) -> None:
        """Wait until the client closed its side, or for ever if it sends something instead."""
        await anyio.wait_readable(self._socket)
        with contextlib.suppress(ConnectionError):
            if self._socket.recv(1, socket.MSG_PEEK):
                await anyio.sleep_forever()

    async def read_request(self) -> ReceivedRequest | None:
        """The next request, or `None` when the client is done."""
        while b"\r\n\r\n" not in self._buffer:
            if not await self._more():
                return None
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ", 2)
        pairs = (line.partition(":")[::2] for line in lines)
        headers = {name.strip().lower(): value.strip() for name, value in pairs}
        if "chunked" in headers.get("transfer-encoding", ""):
            body = await self._chunks()
        else:
            body = await self._exactly(int(headers.get("content-length", "0")))
        return ReceivedRequest(method=method, path=path, headers=headers, body=body)

    async def _chunks(self) -> bytes:
        body = b""
        while size := int((await self._line()).split(b";")[0], 16):
            body += await self._exactly(size)
            await self._line()
        while await self._line():
            pass
        return body

    async def _line(self) -> bytes:
        while b"\r\n" not in self._buffer:
            await self._need_more()
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        return line

    async def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            await self._need_more()
        body, self._buffer = self._buffer[:size], self._buffer[size:]
        return body

    async def _need_more(self) -> None:
        if not await self._more():
            raise ConnectionError("the client closed in the middle of its request")

    async def _more(self) -> bool:
        while True:
            await anyio.wait_readable(self._socket)
            with contextlib.suppress(BlockingIOError):
                data = self._socket.recv(65536)
                self._buffer += data
                return bool(data)
