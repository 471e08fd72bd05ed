"""The HTTP side of Chat Completions (MOD-3, MOD-5, MOD-7, MOD-8)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio

from loopctl._http import HttpResponse, Transport
from loopctl.errors import ConfigError, InvalidResponseError, ModelError
from loopctl.models.classify import located, read_response, to_error
from loopctl.models.client import HttpRequest, ModelRequest
from loopctl.models.limiter import RateLimiter
from loopctl.models.openai_chat.facts import PROFILES, Profile, profile_for
from loopctl.models.openai_chat.request import encode_body
from loopctl.models.openai_chat.stream import ChatDecoder
from loopctl.replies import ModelResponse, StopReason
from loopctl.wire.accumulator import Accumulator
from loopctl.wire.sse import MAX_BODY, EventStreamReader
from loopctl.wire.stream_events import MessageStart, MessageStop, Stop, StreamEvent

if TYPE_CHECKING:
    from loopctl._http import HttpClient

OPENAI_URL = "https://api.openai.com/v1"

_LAST_BYTES = 0.25
"""Seconds that the end of a body may take to follow the terminal signal."""

_BYTES_FOR_A_TOKEN = 512
"""What one streamed token may take on the wire: a chunk of its own, with ids and padding."""


class OpenAIChatClient:
    """A `ModelClient` for OpenAI's Chat Completions and every server that speaks it.

    `api_key` may be `None` for servers that ask for none. `profile` names the kind of server
    (`"openai"`, `"deepseek"`, …, see `facts.PROFILES`) or is one; by default the address tells.
    `provider` is what errors and messages call it. `headers` ride on every request.
    `context_window` overrides what is known of the model. `http_client`, an `httpx.AsyncClient`,
    is used as it is and stays yours to close.

    Raises `ConfigError` for an address, key or profile that cannot work.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str = OPENAI_URL,
        profile: str | Profile | None = None,
        provider: str = "openai-chat",
        headers: Mapping[str, str] | None = None,
        context_window: int | None = None,
        http_client: HttpClient | None = None,
        max_connections: int = 1000,
        limiter: RateLimiter | None = None,
    ) -> None:
        try:
            told = profile_for(base_url)
        except ValueError as error:
            raise ConfigError(f"base_url={base_url!r}: {error}") from None
        if not base_url.startswith(("http://", "https://")):
            raise ConfigError(f"base_url={base_url!r}: must begin with http:// or https://")
        if isinstance(profile, str) and profile not in PROFILES:
            raise ConfigError(f"profile={profile!r}: must be one of {', '.join(PROFILES)}")
        key = api_key.strip() if api_key else ""
        if key and not (key.isascii() and key.isprintable()):
            raise ConfigError("api_key: holds characters that no header can carry")
        if isinstance(profile, str):
            profile = PROFILES[profile]
        self.model = model
        self.provider = provider
        self.base_url = base_url
        self.profile = profile if profile is not None else told
        self._secret = {"authorization": f"Bearer {key}"} if key else {}
        self._headers = {name.lower(): value for name, value in (headers or {}).items()}
        self._window = context_window
        self._limiter = limiter
        self._transport = Transport(http_client=http_client, max_connections=max_connections)
        address, question, query = base_url.partition("?")
        self._url = f"{address.rstrip('/')}/chat/completions{question}{query}"

    @property
    def context_window(self) -> int | None:
        """The model's window in tokens, `None` when unknown."""
        return self._window if self._window is not None else self.profile.facts(self.model).window

    def encode(self, request: ModelRequest, *, stream: bool = False) -> HttpRequest:
        """The exact request, without the key.

        Raises `ConfigError` for an option that this server or model cannot honour.
        """
        body = encode_body(
            request, model=self.model, profile=self.profile, provider=self.provider, stream=stream
        )
        headers = {
            "content-type": "application/json",
            "accept": "text/event-stream" if stream else "application/json",
            **self._headers,
        }
        return HttpRequest(method="POST", url=self._url, headers=headers, body=body)

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """The whole reply at once."""
        accumulator = Accumulator()
        model = request.options.model or self.model
        try:
            async with self._sent(self.encode(request)) as response:
                for event in await self._whole(response, model):
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
                aclosing(self._events(response, request, model)) as events,
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

    @asynccontextmanager
    async def _sent(self, request: HttpRequest) -> AsyncGenerator[HttpResponse]:
        if self._limiter is not None:
            await self._limiter.wait(self.base_url)
        headers = {**request.headers, **self._secret}
        async with self._transport.send(
            request.method, request.url, headers, request.body
        ) as response:
            yield response

    async def _events(
        self, response: HttpResponse, request: ModelRequest, model: str
    ) -> AsyncGenerator[StreamEvent]:
        try:
            if response.status != 200 or response.media_type not in _STREAMS:
                for event in await self._whole(response, model):
                    yield event
                return
            decoder = self._decoder(response, model)
            reader = EventStreamReader(max_body=self._max_body(request, model))
            async with aclosing(response.chunks()) as chunks:
                async for chunk in chunks:
                    for sent in reader.feed(chunk):
                        found = decoder.feed(sent.data, sent.event)
                        if decoder.done:
                            await _read_to_the_end(chunks)
                        for event in found:
                            yield event
                    if decoder.done:
                        return
            reader.close()
            for event in decoder.finish():
                yield event
        except ModelError as error:
            raise located(error, self.provider, model) from error.__cause__

    async def _whole(self, response: HttpResponse, model: str) -> Iterable[StreamEvent]:
        """The events of a reply that comes in one piece; raises the error that it is."""
        if response.status != 200:
            body = await response.read_error()
            upstream = read_response(response.status, response.headers, body)
            if upstream.refused:
                code = upstream.codes[0] if upstream.codes else None
                start = MessageStart(model, None, self.provider, upstream.request_id)
                return [start, Stop(StopReason.FILTER, code, upstream.text), MessageStop()]
            raise to_error(upstream, provider=self.provider, model=model)
        if "json" not in response.media_type and response.media_type not in ("", "text/plain"):
            raise InvalidResponseError(
                f"a reply of type {response.media_type}; is {self._url} the API's address?",
                status=200,
            )
        return self._decoder(response, model).whole(await response.read(MAX_BODY))

    def _decoder(self, response: HttpResponse, model: str) -> ChatDecoder:
        return ChatDecoder(
            provider=self.provider,
            model=model,
            request_id=response.headers.get("x-request-id"),
            lenient_end=self.profile.lenient_end,
        )

    def _max_body(self, request: ModelRequest, model: str) -> int:
        """10 MiB, or what as many tokens as the model may answer can take (MOD-7)."""
        tokens = request.options.max_output_tokens or self.profile.facts(model).max_output or 0
        return max(MAX_BODY, tokens * _BYTES_FOR_A_TOKEN)


async def _read_to_the_end(chunks: AsyncGenerator[bytes]) -> None:
    """Take what follows the terminal signal: only a connection that was read out can be kept."""
    with anyio.move_on_after(_LAST_BYTES), suppress(ModelError):
        async for _ in chunks:
            pass


_STREAMS = frozenset({"text/event-stream", "", "application/octet-stream"})
