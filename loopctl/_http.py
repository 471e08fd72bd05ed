"""The only module that imports httpx: requests out, bytes in, its errors mapped (MOD-5, MOD-11).

httpx is imported when the first request is sent. Connections belong to one event loop, so each
loop that uses a `Transport` gets a pool of its own, which is closed when its loop shuts down, if
`aclose()` has not closed it before. No time limit runs here but the one for connecting: deadlines
belong to whoever waits (MOD-14).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from types import AsyncGeneratorType
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from weakref import WeakKeyDictionary

import anyio
from anyio.lowlevel import RunVar

from loopctl.errors import (
    ConfigError,
    ConnectError,
    InvalidResponseError,
    ModelError,
    StreamIncomplete,
    without_secrets,
)

if TYPE_CHECKING:
    import ssl

    import httpx

    HttpClient: TypeAlias = httpx.AsyncClient

CONNECT_TIMEOUT = 10.0
"""Seconds to establish a connection."""

POOL_SIZE = 32
"""Connections of one pool. httpx's pools take time that grows with the cube of their size, so a
`Transport` has several small ones rather than a large one."""

KEEP_ALIVE = 30.0
"""Seconds for which an idle connection is kept."""

MAX_ERROR_BODY = 8 * 1024
"""How much of an error's body is read, in bytes (MOD-7)."""


class HttpResponse:
    """A response whose body has not been read. Names of headers are in lower case."""

    def __init__(self, response: httpx.Response) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = dict(response.headers)
        self._response = response

    @property
    def media_type(self) -> str:
        """The content type without its parameters, in lower case; `""` when there is none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def chunks(self) -> AsyncGenerator[bytes]:
        """The body as it comes, decoded; to be closed where it is not read to its end.

        Raises `StreamIncomplete` when the body ends too early, `ConnectError` when the connection
        breaks, and `InvalidResponseError` for a body that does not decode.
        """
        import httpx

        source = cast("AsyncGeneratorType[bytes, None]", self._response.aiter_bytes())
        try:
            async for piece in source:
                yield piece
        except httpx.HTTPError as error:
            raise _mapped(error, begun=True) from error
        finally:
            await _finish(source)

    async def read(self, limit: int) -> bytes:
        """The whole body; raises `InvalidResponseError` when it is longer than `limit` bytes."""
        pieces, size = await self._up_to(limit)
        if size > limit:
            raise InvalidResponseError(f"the body is longer than {limit} bytes")
        return b"".join(pieces)

    async def read_error(self) -> bytes:
        """The first `MAX_ERROR_BODY` bytes of the body, or as many as came before it broke."""
        pieces, _ = await self._up_to(MAX_ERROR_BODY, forgiving=True)
        return b"".join(pieces)[:MAX_ERROR_BODY]

    async def _up_to(self, limit: int, *, forgiving: bool = False) -> tuple[list[bytes], int]:
        pieces: list[bytes] = []
        size = 0
        chunks = self.chunks()
        try:
            async for piece in chunks:
                pieces.append(piece)
                size += len(piece)
                if size > limit:
                    break
        except ModelError:
            if not forgiving:
                raise
        finally:
            await chunks.aclose()
        return pieces, size


class Transport:
    """Sends requests. `http_client` is used as it is, and never closed, when one is given."""

    def __init__(
        self, *, http_client: HttpClient | None = None, max_connections: int = 1000
    ) -> None:
        if max_connections < 1:
            raise ConfigError(f"max_connections={max_connections!r}: must be a whole number ≥ 1")
        self._given = http_client
        self._max_connections = max_connections

    @asynccontextmanager
    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> AsyncGenerator[HttpResponse]:
        """Send one request; leaving the block closes the response, and its connection if unread.

        A connection that had been kept and turns out to be dead before any byte of a response
        came is replaced once, at once. Raises `ConnectError` when there is no response, and
        `ConfigError` for what cannot be sent.
        """
        given = self._given
        pool = _Pool(given, 0) if given is not None else (await self._pools()).pick()
        pool.busy += 1
        try:
            response = await self._response(pool.client, method, url, headers, body)
            try:
                yield HttpResponse(response)
            finally:
                with anyio.CancelScope(shield=True):
                    await response.aclose()
        finally:
            pool.busy -= 1

    async def _response(
        self,
        client: httpx.AsyncClient,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
    ) -> httpx.Response:
        import httpx

        timeout = httpx.Timeout(None, connect=CONNECT_TIMEOUT)
        try:
            request = client.build_request(
                method, url, headers=dict(headers), content=body, timeout=timeout
            )
            sent = _Sent()
            request.extensions["trace"] = sent.trace
            try:
                return await client.send(request, stream=True)
            except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
                if not sent.on_kept_connection:
                    raise
                return await client.send(request, stream=True)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError) as error:
            raise ConfigError(f"{without_secrets(url)} cannot be requested: {error}") from error
        except httpx.HTTPError as error:
            raise _mapped(error, begun=False) from error

    async def aclose(self) -> None:
        """Close the connections of the current event loop; the next request opens new ones."""
        of_loop = _POOLS.get(None)
        pools = of_loop.pop(self, None) if of_loop is not None else None
        if pools is not None:
            await pools.closing.aclose()

    async def _pools(self) -> _Pools:
        of_loop = _POOLS.get(None)
        if of_loop is None:
            of_loop = WeakKeyDictionary[Transport, _Pools]()
            _POOLS.set(of_loop)
        pools = of_loop.get(self)
        if pools is None:
            pools = of_loop[self] = _Pools(self._max_connections)
            await anext(pools.closing)
        return pools


@dataclass(slots=True, eq=False)
class _Pool:
    """A client, how many connections it may have, and how many requests it has."""

    client: httpx.AsyncClient
    size: int
    busy: int = 0


class _Pools:
    """The clients of one event loop, and the generator that closes them when the loop shuts down.

    Event loops close the async generators that are left when they end; nothing else runs then.
    """

    def __init__(self, max_connections: int) -> None:
        self._left = max_connections
        self._pools: list[_Pool] = []
        self.closing = _close_at_the_end(self._pools)

    def pick(self) -> _Pool:
        """The first pool with a free connection; the least busy one when none may be added."""
        for pool in self._pools:
            if pool.busy < pool.size:
                return pool
        if self._left <= 0:
            return min(self._pools, key=lambda pool: pool.busy / pool.size)
        size = min(POOL_SIZE, self._left)
        self._left -= size
        self._pools.append(_Pool(_new_client(size), size))
        return self._pools[-1]


def _new_client(size: int) -> httpx.AsyncClient:
    import httpx

    limits = httpx.Limits(
        max_connections=size, max_keepalive_connections=size, keepalive_expiry=KEEP_ALIVE
    )
    # A proxy of the environment is for the world outside: no key for this machine goes there.
    here: dict[str, httpx.AsyncBaseTransport | None] = dict.fromkeys(_THIS_MACHINE)
    return httpx.AsyncClient(verify=_tls(), limits=limits, mounts=here)


_THIS_MACHINE = ("all://localhost", "all://127.0.0.1", "all://[::1]")


async def _close_at_the_end(pools: list[_Pool]) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        for pool in pools:
            await pool.client.aclose()


_POOLS: RunVar[WeakKeyDictionary[Transport, _Pools]] = RunVar("loopctl_http")


class _Sent:
    """What httpx reports of one request: whether it went out on a connection that was kept."""

    def __init__(self) -> None:
        self._connected = False
        self._written = False

    @property
    def on_kept_connection(self) -> bool:
        return self._written and not self._connected

    async def trace(self, event: str, info: Mapping[str, Any]) -> None:
        if event.startswith("connection.connect"):
            self._connected = True
        elif event.endswith("send_request_headers.started"):
            self._written = True


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    """One context for all pools: reading the certificates takes some 20 milliseconds."""
    import httpx

    return httpx.create_ssl_context()


async def _finish(source: AsyncGeneratorType[bytes, None]) -> None:
    """End a body's generator that was left in the middle, and those inside it.

    Closing the outer one would leave the inner ones to the garbage collector, which trio reports.
    Resumed under a cancellation, the innermost ends first and the others with it.
    """
    with anyio.CancelScope() as scope:
        scope.cancel()
        while source.ag_frame is not None:
            try:
                await anext(source)
            except StopAsyncIteration:
                break
            except Exception:  # the connection is given up; how it ends does not matter
                break


def _mapped(error: httpx.HTTPError, *, begun: bool) -> ModelError:
    import httpx

    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if begun and isinstance(error, httpx.RemoteProtocolError):
        return StreamIncomplete(text)
    if isinstance(error, httpx.DecodingError):
        return InvalidResponseError(text)
    return ConnectError(text)
