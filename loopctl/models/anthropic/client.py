"""The client of the Messages API (MOD-3, MOD-13, MOD-19)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from loopctl._http import HttpResponse
from loopctl.errors import InvalidResponseError
from loopctl.models.anthropic.facts import API_VERSION, facts_for
from loopctl.models.anthropic.request import Body, encode_body
from loopctl.models.anthropic.stream import MessagesDecoder, Paused
from loopctl.models.claude import Facts
from loopctl.models.client import HttpRequest, ModelInfo, ModelRequest
from loopctl.models.dialect import SseDialectClient, key_header
from loopctl.models.limiter import RateLimiter
from loopctl.wire.stream_events import StreamEvent

if TYPE_CHECKING:
    from loopctl._http import HttpClient

ANTHROPIC_URL = "https://api.anthropic.com"

MAX_PAUSES = 5
"""How often one turn that the server paused is continued (MOD-13)."""

_PAGE = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class MessagesRequest(HttpRequest):
    """A request and what its reply is read with: its body's fields, and the pause it ends."""

    fields: Body
    after: Paused | None = None


class AnthropicClient(SseDialectClient):
    """A `ModelClient` for Anthropic's Messages API and every server that speaks it.

    `api_key`, a key or a token, may be `None` for servers that ask for none. `base_url` is the
    address without `/v1`. `provider` is what errors and messages call it. `headers` ride on every
    request; an `anthropic-beta` among them is added to what the client asks for itself, an
    `anthropic-version` replaces the client's. `context_window` overrides what is known of the
    model. `http_client`, an `httpx.AsyncClient`, is used as it is and stays yours to close.

    A turn that the server pauses is sent back up to `MAX_PAUSES` times, inside `complete` and
    `stream`: one message comes out.

    Raises `ConfigError` for an address or key that cannot work.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str = ANTHROPIC_URL,
        provider: str = "anthropic",
        headers: Mapping[str, str] | None = None,
        context_window: int | None = None,
        http_client: HttpClient | None = None,
        max_connections: int = 1000,
        limiter: RateLimiter | None = None,
    ) -> None:
        key = key_header(api_key)
        super().__init__(
            model,
            provider=provider,
            base_url=base_url,
            headers=headers,
            secret={"authorization": f"Bearer {key}"} if key else None,
            context_window=context_window,
            http_client=http_client,
            max_connections=max_connections,
            limiter=limiter,
        )
        address, question, query = base_url.partition("?")
        self._root = f"{address.rstrip('/').removesuffix('/v1')}/v1"
        self._query = question + query

    def encode(self, request: ModelRequest, *, stream: bool = False) -> HttpRequest:
        """The exact request, without the key.

        Raises `ConfigError` for an option that this model cannot honour.
        """
        body = self._body(request, stream=stream)
        return MessagesRequest(
            method="POST",
            url=f"{self._root}/messages{self._query}",
            headers=self._head(body, "text/event-stream" if stream else "application/json"),
            body=body.encode(),
            prefix=body.prefix,
            fields=body,
        )

    async def count_tokens(self, request: ModelRequest) -> int:
        """How many tokens the request's input has, by the server's own count."""
        body = self._body(request)
        counted = HttpRequest(
            method="POST",
            url=f"{self._root}/messages/count_tokens{self._query}",
            headers=self._head(body, "application/json"),
            body=body.counted(),
        )
        count = _field(await self._ask(counted), "input_tokens")
        if type(count) is not int:
            raise self._strange("the count of tokens is no number")
        return count

    async def list_models(self) -> list[ModelInfo]:
        """The models that may be asked for, with their limits as far as the server tells them."""
        models: list[ModelInfo] = []
        more = f"limit={_PAGE}"
        while more:
            mark = "&" if self._query else "?"
            page = await self._ask(
                HttpRequest(
                    method="GET",
                    url=f"{self._root}/models{self._query}{mark}{more}",
                    headers=self._head(None, "application/json"),
                    body=b"",
                )
            )
            listed, seen = _field(page, "data"), len(models)
            if not isinstance(listed, list):
                raise self._strange("the list of models is none")
            models += [
                ModelInfo(
                    id=id,
                    context_window=_positive(_field(item, "max_input_tokens")),
                    max_output=_positive(_field(item, "max_tokens")),
                )
                for item in cast("list[Any]", listed)
                if isinstance(id := _field(item, "id"), str)
            ]
            last = _field(page, "last_id")
            goes_on = _field(page, "has_more") is True and len(models) > seen
            more = f"limit={_PAGE}&after_id={last}" if goes_on and last else ""
        return models

    def _facts(self, model: str) -> Facts:
        return facts_for(model, self.base_url)

    def _body(self, request: ModelRequest, *, stream: bool = False) -> Body:
        model = request.options.model or self.model
        return encode_body(
            request, model=model, facts=self._facts(model), provider=self.provider, stream=stream
        )

    def _head(self, body: Body | None, accept: str) -> dict[str, str]:
        own = self._headers.get("anthropic-beta", "")
        betas = [name.strip() for name in own.split(",") if name.strip()]
        betas += [name for name in (body.betas if body else ()) if name not in betas]
        headers = {
            "content-type": "application/json",
            "accept": accept,
            "anthropic-version": body.version if body else API_VERSION,
            **self._headers,
        }
        return {**headers, "anthropic-beta": ",".join(betas)} if betas else headers

    def _known_window(self) -> int | None:
        return self._facts(self.model).window

    def _max_output(self, request: ModelRequest, model: str) -> int:
        return request.options.max_output_tokens or self._facts(model).max_output or 0

    def _decoder(
        self, encoded: HttpRequest, response: HttpResponse, request: ModelRequest, model: str
    ) -> MessagesDecoder:
        assert isinstance(encoded, MessagesRequest)
        return MessagesDecoder(
            provider=self.provider,
            model=model,
            request_id=response.headers.get("request-id"),
            prefix=encoded.prefix,
            reply_tool=encoded.fields.reply_tool,
            after=encoded.after,
        )

    async def _whole(
        self, encoded: HttpRequest, response: HttpResponse, request: ModelRequest, model: str
    ) -> Iterable[StreamEvent]:
        events = [*await super()._whole(encoded, response, request, model)]
        place, following = next(
            (
                (at, following)
                for at, event in enumerate(events)
                if isinstance(event, Paused) and (following := self._continued(encoded, event))
            ),
            (0, None),
        )
        if following is None:
            return events
        async with self._sent(following) as next_response:
            return [*events[:place], *await self._whole(following, next_response, request, model)]

    async def _events(
        self, encoded: HttpRequest, response: HttpResponse, request: ModelRequest, model: str
    ) -> AsyncGenerator[StreamEvent]:
        following = None
        async with aclosing(super()._events(encoded, response, request, model)) as events:
            async for event in events:
                if isinstance(event, Paused):
                    following = self._continued(encoded, event)
                    if following is not None:
                        break
                yield event
        if following is not None:
            async with (
                self._sent(following) as next_response,
                aclosing(self._events(following, next_response, request, model)) as events,
            ):
                async for event in events:
                    yield event

    def _continued(self, encoded: HttpRequest, pause: Paused) -> HttpRequest | None:
        """The request that goes on with a paused turn, unless it paused too often."""
        assert isinstance(encoded, MessagesRequest)
        if not pause.content or pause.times > MAX_PAUSES:
            return None
        body = encoded.fields.continued(list(pause.content))
        return replace(encoded, body=body, after=pause)

    def _strange(self, text: str) -> InvalidResponseError:
        return InvalidResponseError(text, provider=self.provider, model=self.model)


def _field(document: object, name: str) -> object:
    return cast("dict[str, object]", document).get(name) if isinstance(document, dict) else None


def _positive(value: object) -> int | None:
    return value if type(value) is int and value > 0 else None
