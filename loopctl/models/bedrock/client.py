"""The client of Bedrock's Converse API (MOD-3, MOD-6, MOD-19)."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast
from urllib.parse import quote, urlsplit

from loopctl._clock import SYSTEM_CLOCK, Clock
from loopctl._http import HttpResponse
from loopctl.errors import ConfigError, InvalidResponseError
from loopctl.models.bedrock.credentials import BEARER, CredentialChain
from loopctl.models.bedrock.facts import (
    SERVICE,
    base_id,
    endpoint,
    facts_for,
    is_region,
    region_of,
)
from loopctl.models.bedrock.request import Body, encode_body
from loopctl.models.bedrock.stream import ConverseDecoder
from loopctl.models.client import HttpRequest, ModelInfo, ModelRequest
from loopctl.models.dialect import DialectClient, Reader, key_header
from loopctl.models.limiter import RateLimiter
from loopctl.models.providers import first_set
from loopctl.replies import ModelResponse
from loopctl.wire.eventstream import MEDIA_TYPE, EventFrame, EventFrameReader
from loopctl.wire.sigv4 import AwsCredentials, sign
from loopctl.wire.stream_events import StreamEvent

if TYPE_CHECKING:
    from loopctl._http import HttpClient


@dataclass(frozen=True, kw_only=True, slots=True)
class ConverseRequest(HttpRequest):
    """A request, and whether its reply comes as the arguments of a tool."""

    reply_tool: bool = False


class BedrockClient(DialectClient[EventFrame]):
    """A `ModelClient` for Amazon Bedrock's Converse API.

    `model` is an id, an inference profile or an ARN. Who asks: `api_key`, a bearer token of
    Bedrock's; else `credentials`; else what the environment, the shared files (`profile` names the
    one that counts) or botocore give, found when the first request is sent and again when they
    have ended. Where: `region`, else the region in `base_url` or in the model's ARN, else
    `AWS_REGION`, `AWS_DEFAULT_REGION`, or the profile's, which is read with the first request:
    `encode` needs one of the others before that. `base_url` overrides the address.
    `provider` is what errors and messages call it. `headers` ride on every request, and are
    signed. `context_window` overrides what is known of the model. `http_client`, an
    `httpx.AsyncClient`, is used as it is and stays yours to close. `clock` gives the time that
    requests are signed with.

    Raises `ConfigError` for an address, key or region that cannot work.
    """

    STREAMS: ClassVar[frozenset[str]] = frozenset({MEDIA_TYPE, "", "application/octet-stream"})

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        credentials: AwsCredentials | None = None,
        profile: str | None = None,
        region: str | None = None,
        base_url: str = "",
        provider: str = "bedrock",
        headers: Mapping[str, str] | None = None,
        context_window: int | None = None,
        http_client: HttpClient | None = None,
        max_connections: int = 1000,
        limiter: RateLimiter | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        key = key_header(api_key)
        self.region = _region(region, base_url, model)
        if not base_url and self.region is not None:
            base_url = endpoint(self.region)
        super().__init__(
            model,
            provider=provider,
            base_url=base_url.rstrip("/") or _NOT_YET_KNOWN,
            headers=headers,
            secret={"authorization": f"Bearer {key}"} if key else None,
            context_window=context_window,
            http_client=http_client,
            max_connections=max_connections,
            limiter=limiter,
        )
        self.base_url = base_url.rstrip("/")
        self._given = credentials
        self._named = profile is not None
        self._chain = CredentialChain(profile=profile, clock=clock)
        self._clock = clock

    def encode(self, request: ModelRequest, *, stream: bool = False) -> HttpRequest:
        """The exact request, without what proves who asks.

        Raises `ConfigError` for an option that this model cannot honour.
        """
        model = request.options.model or self.model
        body = self._body(request)
        return ConverseRequest(
            method="POST",
            url=self._url(model, "converse-stream" if stream else "converse"),
            headers=self._head(MEDIA_TYPE if stream else "application/json"),
            body=body.encode(),
            prefix=body.prefix,
            reply_tool=body.reply_tool,
        )

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """The whole reply at once."""
        await self._locate()
        return await super().complete(request)

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[StreamEvent]]:
        """The reply as it comes; leaving the block closes the connection at once."""
        await self._locate()
        async with super().stream(request) as events:
            yield events

    async def count_tokens(self, request: ModelRequest) -> int:
        """How many tokens the request's input has, by the server's own count; few models have it.

        It knows models by their own ids only, so the geography of an inference profile is left out.
        """
        await self._locate()
        model = base_id(request.options.model or self.model)
        document = await self._ask(
            HttpRequest(
                method="POST",
                url=self._url(model, "count-tokens"),
                headers=self._head("application/json"),
                body=self._body(request).counted(),
            )
        )
        count = _field(document, "inputTokens")
        if type(count) is not int:
            raise self._strange("the count of tokens is no number")
        return count

    async def list_models(self) -> list[ModelInfo]:
        """The models of the region that write text; the list tells no windows.

        Many of them are called by an inference profile, such as `us.` in front of their id.
        """
        await self._locate()
        host = urlsplit(self.base_url).hostname or ""
        control = self.base_url
        if host.startswith("bedrock-runtime"):
            control = control.replace("://bedrock-runtime", "://bedrock", 1)
        document = await self._ask(
            HttpRequest(
                method="GET",
                url=f"{control}/foundation-models?byOutputModality=TEXT",
                headers=self._head("application/json"),
                body=b"",
            )
        )
        listed = _field(document, "modelSummaries")
        if not isinstance(listed, list):
            raise self._strange("the list of models is none")
        ids = [_field(item, "modelId") for item in cast("list[Any]", listed)]
        return [ModelInfo(id=id) for id in ids if isinstance(id, str)]

    def _body(self, request: ModelRequest) -> Body:
        model = request.options.model or self.model
        return encode_body(request, model=model, facts=facts_for(model), provider=self.provider)

    async def _locate(self) -> None:
        """Ask the profile where Bedrock is, where nothing else has said it."""
        if not self.base_url:
            self.base_url = endpoint(await self._find_region())

    async def _find_region(self) -> str:
        if self.region is None:
            self.region = _checked(await self._chain.region())
        if self.region is None:
            raise _no_region()
        return self.region

    def _url(self, model: str, operation: str) -> str:
        if not self.base_url:
            raise _no_region()
        return f"{self.base_url}/model/{quote(model, safe='')}/{operation}"

    def _head(self, accept: str) -> dict[str, str]:
        return {"content-type": "application/json", "accept": accept, **self._headers}

    def _known_window(self) -> int | None:
        return facts_for(self.model).window

    def _max_output(self, request: ModelRequest, model: str) -> int:
        return request.options.max_output_tokens or facts_for(model).max_output or 0

    def _reader(self, max_body: int) -> Reader[EventFrame]:
        return EventFrameReader(max_body=max_body)

    def _decoder(
        self, encoded: HttpRequest, response: HttpResponse, request: ModelRequest, model: str
    ) -> ConverseDecoder:
        assert isinstance(encoded, ConverseRequest)
        return ConverseDecoder(
            provider=self.provider,
            model=model,
            request_id=response.headers.get("x-amzn-requestid"),
            prefix=encoded.prefix,
            reply_tool=encoded.reply_tool,
        )

    async def _credentials(self, request: HttpRequest) -> Mapping[str, str]:
        if self._secret:
            return self._secret
        credentials = self._given
        if credentials is None:
            token = os.environ.get(BEARER, "").strip()
            # a profile that was asked for comes first, and no token is told in the clear
            if token and not self._named and request.url.startswith("https://"):
                return {"authorization": f"Bearer {key_header(token)}"}
            credentials = await self._chain.find()
        return sign(
            credentials,
            region=await self._find_region(),
            service=SERVICE,
            now=self._clock.now(),
            method=request.method,
            url=request.url,
            headers=request.headers,
            body=request.body,
        )

    @asynccontextmanager
    async def _sent(self, request: HttpRequest) -> AsyncGenerator[HttpResponse]:
        async with super()._sent(request) as response:
            if response.status == 403:
                self._chain.forget()
            yield response

    def _strange(self, text: str) -> InvalidResponseError:
        return InvalidResponseError(text, provider=self.provider, model=self.model)


_NOT_YET_KNOWN = "https://"


def _no_region() -> ConfigError:
    return ConfigError(
        "bedrock: no region; set the environment variable AWS_REGION or pass region="
    )


def _region(given: str | None, base_url: str, model: str) -> str | None:
    found = given or region_of(base_url) or region_of(model)
    return _checked(found or first_set(("AWS_REGION", "AWS_DEFAULT_REGION")))


def _checked(region: str | None) -> str | None:
    if region and not is_region(region):
        raise ConfigError(f"region={region!r}: must be the name of a region, as us-east-1")
    return region or None


def _field(document: object, name: str) -> object:
    return cast("dict[str, object]", document).get(name) if isinstance(document, dict) else None
