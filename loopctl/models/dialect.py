"""The HTTP side that every dialect shares (MOD-3, MOD-5, MOD-7, MOD-8).

A dialect brings what is its own: the exact request, a decoder for the reply, and, where they
differ, its framing, its way to sign a request, and the content types of its streams.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeVar

import anyio

from loopctl import _json
from loopctl._http import HttpResponse, Transport
from loopctl.errors import ConfigError, InvalidResponseError, ModelError, StreamIncomplete
from loopctl.models.classify import Upstream, located, read_response, to_error
from loopctl.models.client import HttpRequest, ModelRequest
from loopctl.models.limiter import RateLimiter
from loopctl.replies import ModelResponse, StopReason
from loopctl.wire.accumulator import Accumulator
from loopctl.wire.sse import MAX_BODY, EventStreamReader, ServerSentEvent
from loopctl.wire.stream_events import MessageStart, MessageStop, Stop, StreamEvent

if TYPE_CHECKING:
    from loopctl._http import HttpClient

_LAST_BYTES = 0.25
"""Seconds that the end of a body may take to follow the terminal signal."""

_BYTES_FOR_A_TOKEN = 512
"""What one streamed token may take on the wire: a chunk of its own, with ids and padding."""

F = TypeVar("F")
F_contra = TypeVar("F_contra", contravariant=True)


class Reader(Protocol[F]):
    """Cuts the bytes of a stream into frames, however they are cut (MOD-7)."""

    def feed(self, data: bytes) -> list[F]:
        """The frames that `data` completes."""
        ...

    def close(self) -> list[F] | None:
        """The body ended; what lacked its end alone. Raises `StreamIncomplete` inside a frame."""
        ...


class Decoder(Protocol[F_contra]):
    """Turns one reply into stream events: frame by frame, or whole."""

    @property
    def done(self) -> bool:
        """Whether the dialect's terminal signal has come."""
        ...

    def frame(self, frame: F_contra, /) -> list[StreamEvent]:
        """The events of one frame; raises the error that it is."""
        ...

    def whole(self, body: bytes, /) -> list[StreamEvent]:
        """The events of a reply that came in one piece."""
        ...

    def finish(self) -> list[StreamEvent]:
        """The body ended: the last events, or `StreamIncomplete`."""
        ...


class DialectClient(ABC, Generic[F]):
    """A `ModelClient` over HTTP. `F` is a frame of its streams.

    `secret` holds the headers that no error and no `encode` ever shows. `http_client`, an
    `httpx.AsyncClient`, is used as it is and stays yours to close. Raises `ConfigError` for an
    address that cannot work.
    """

    STREAMS: ClassVar[frozenset[str]] = frozenset(
        {"text/event-stream", "", "application/octet-stream"}
    )
    """Content types that are read as a stream; others are taken for a whole reply."""

    def __init__(
        self,
        model: str,
        *,
        provider: str,
        base_url: str,
        headers: Mapping[str, str] | None = None,
        secret: Mapping[str, str] | None = None,
        context_window: int | None = None,
        http_client: HttpClient | None = None,
        max_connections: int = 1000,
        limiter: RateLimiter | None = None,
    ) -> None:
        if not base_url.startswith(("http://", "https://")):
            raise ConfigError(f"base_url={base_url!r}: must begin with http:// or https://")
        self.model = model
        self.provider = provider
        self.base_url = base_url
        self._headers = {name.lower(): value for name, value in (headers or {}).items()}
        self._secret = dict(secret or {})
        self._window = context_window
        self._limiter = limiter
        self._transport = Transport(http_client=http_client, max_connections=max_connections)

    # -- what a dialect brings ----------------------------------------------------------------

    @abstractmethod
    def encode(self, request: ModelRequest, *, stream: bool = False) -> HttpRequest:
        """The exact request, without the key: pure.

        Raises `ConfigError` for an option that this server or model cannot honour.
        """

    @abstractmethod
    def _decoder(
        self, encoded: HttpRequest, response: HttpResponse, request: ModelRequest, model: str
    ) -> Decoder[F]:
        """A decoder for the reply to one request."""

    @abstractmethod
    def _reader(self, max_body: int) -> Reader[F]:
        """What cuts a stream into frames."""

    @abstractmethod
    def _known_window(self) -> int | None:
        """What is known of the model's window."""

    def _max_output(self, request: ModelRequest, model: str) -> int:
        """How many tokens the reply may have, 0 if unknown: it bounds the body that is read."""
        return request.options.max_output_tokens or 0

    async def _credentials(self, request: HttpRequest) -> Mapping[str, str]:
        """The headers that prove who asks."""
        return self._secret

    # -- what all have ------------------------------------------------------------------------

    @property
    def context_window(self) -> int | None:
        """The model's window in tokens, `None` when unknown."""
        return self._window if self._window is not None else self._known_window()

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """The whole reply at once."""
        accumulator = Accumulator()
        model = request.options.model or self.model
        encoded = self.encode(request)
        try:
            async with self._sent(encoded) as response:
                for event in await self._whole(encoded, response, request, model):
                    accumulator.feed(event)
            return accumulator.response()
        except ModelError as error:
            raise located(error, self.provider, model, accumulator.usage) from error.__cause__

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[StreamEvent]]:
        """The reply as it comes; leaving the block closes the connection at once."""
        encoded = self.encode(request, stream=True)
        model = request.options.model or self.model
        try:
            async with (
                self._sent(encoded) as response,
                aclosing(self._events(encoded, response, request, model)) as events,
            ):
                yield events
        except ModelError as error:
            raise located(error, self.provider, model) from error.__cause__

    async def aclose(self) -> None:
        """Close the connections; the client may be used again."""
        await self._transport.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def _ask(self, request: HttpRequest) -> Any:
        """The JSON document that a request beside the model's calls is answered with."""
        try:
            async with self._sent(request) as response:
                if response.status != 200:
                    upstream = await _upstream(response)
                    raise to_error(upstream, provider=self.provider, model=self.model)
                body = await response.read(MAX_BODY)
            return _json.loads(body)
        except ModelError as error:
            raise located(error, self.provider, self.model) from error.__cause__
        except ValueError as error:
            raise InvalidResponseError(
                f"{request.url} gave no JSON", provider=self.provider, model=self.model
            ) from error

    @asynccontextmanager
    async def _sent(self, request: HttpRequest) -> AsyncGenerator[HttpResponse]:
        if self._limiter is not None:
            await self._limiter.wait(self.base_url)
        headers = {**request.headers, **await self._credentials(request)}
        async with self._transport.send(
            request.method, request.url, headers, request.body
        ) as response:
            yield response

    async def _events(
        self, encoded: HttpRequest, response: HttpResponse, request: ModelRequest, model: str
    ) -> AsyncGenerator[StreamEvent]:
        try:
            if response.status != 200 or response.media_type not in self.STREAMS:
                for event in await self._whole(encoded, response, request, model):
                    yield event
                return
            decoder = self._decoder(encoded, response, request, model)
            # 10 MiB, or what as many tokens as the model may answer can take (MOD-7)
            tokens = self._max_output(request, model)
            reader = self._reader(max(MAX_BODY, tokens * _BYTES_FOR_A_TOKEN))
            async with aclosing(response.chunks()) as chunks:
                async for chunk in chunks:
                    for frame in reader.feed(chunk):
                        found = decoder.frame(frame)
                        if decoder.done:
                            await _read_to_the_end(chunks)
                        for event in found:
                            yield event
                    if decoder.done:
                        return
            for frame in reader.close() or ():
                for event in decoder.frame(frame):
                    yield event
            for event in decoder.finish():
                yield event
        except ModelError as error:
            raise located(error, self.provider, model) from error.__cause__

    async def _whole(
        self, encoded: HttpRequest, response: HttpResponse, request: ModelRequest, model: str
    ) -> Iterable[StreamEvent]:
        """The events of a reply that comes in one piece; raises the error that it is."""
        if response.status != 200:
            upstream = await _upstream(response)
            if upstream.refused:
                code = upstream.codes[0] if upstream.codes else None
                start = MessageStart(model, None, self.provider, upstream.request_id)
                return [start, Stop(StopReason.FILTER, code, upstream.text), MessageStop()]
            raise to_error(upstream, provider=self.provider, model=model)
        if "json" not in response.media_type and response.media_type not in ("", "text/plain"):
            raise InvalidResponseError(
                f"a reply of type {response.media_type}; is {encoded.url} the API's address?",
                status=200,
            )
        decoder = self._decoder(encoded, response, request, model)
        body = await response.read(MAX_BODY)
        if _is_cut(response.headers, body):
            raise StreamIncomplete("the reply ended in its middle", status=200)
        return decoder.whole(body)


class SseDialectClient(DialectClient[ServerSentEvent]):
    """A dialect whose streams are server-sent events."""

    def _reader(self, max_body: int) -> Reader[ServerSentEvent]:
        return EventStreamReader(max_body=max_body)


def key_header(api_key: str | None) -> str:
    """A key as a header can carry it, blank for none. Raises `ConfigError` if none can."""
    key = api_key.strip() if api_key else ""
    if key and not (key.isascii() and key.isprintable()):
        raise ConfigError("api_key: holds characters that no header can carry")
    return key


async def _upstream(response: HttpResponse) -> Upstream:
    return read_response(response.status, response.headers, await response.read_error())


def _is_cut(headers: Mapping[str, str], body: bytes) -> bool:
    """Whether an object's end is missing, where HTTP itself cannot tell: no length, or packed."""
    text = body.strip()
    counted = "content-length" in headers or "transfer-encoding" in headers
    if text and counted and "content-encoding" not in headers:
        return False
    return not text.endswith(b"}")


async def _read_to_the_end(chunks: AsyncGenerator[bytes]) -> None:
    """Take what follows the terminal signal: only a connection that was read out can be kept."""
    with anyio.move_on_after(_LAST_BYTES), suppress(ModelError):
        async for _ in chunks:
            pass
