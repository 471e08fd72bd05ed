"""The client of Gemini's own API (MOD-3, MOD-19)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, urlsplit

from loopctl._http import HttpResponse
from loopctl.errors import ConfigError, InvalidResponseError
from loopctl.models.client import HttpRequest, ModelInfo, ModelRequest
from loopctl.models.dialect import SseDialectClient, key_header
from loopctl.models.gemini.facts import facts_for
from loopctl.models.gemini.request import counting_body, encode_body
from loopctl.models.gemini.stream import ChunkReader, GeminiDecoder
from loopctl.models.limiter import RateLimiter

if TYPE_CHECKING:
    from loopctl._http import HttpClient

GEMINI_URL = "https://generativelanguage.googleapis.com"
API_VERSION = "v1"

_VERSION = re.compile(r"/v\d+[a-z0-9]*(/|$)")
_PAGE = 1000


class GeminiClient(SseDialectClient):
    """A `ModelClient` for Google's Gemini API.

    `model` is a name such as `"gemini-4-argon"`, or a path such as `"tunedModels/mine"`.
    `api_version` is the part of the address that says which API is meant; a `base_url` that holds
    a version already is used as it is. `api_key` may be `None` where `headers` prove who asks.
    `provider` is what errors and messages call it; signatures go back only to the provider and
    the generation of models that they came from. `context_window` overrides what is known of the
    model. `http_client`, an `httpx.AsyncClient`, is used as it is and stays yours to close.

    Raises `ConfigError` for an address or key that cannot work.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str = GEMINI_URL,
        api_version: str = API_VERSION,
        provider: str = "gemini",
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
            secret={"x-goog-api-key": key} if key else None,
            context_window=context_window,
            http_client=http_client,
            max_connections=max_connections,
            limiter=limiter,
        )
        address, _, self._query = base_url.partition("?")
        address = address.rstrip("/")
        try:
            versioned = _VERSION.search(urlsplit(address).path)
        except ValueError as error:
            raise ConfigError(f"base_url={base_url!r}: {error}") from None
        self._address = address if versioned else f"{address}/{api_version.strip('/')}"
        self._revealed: int | None = None

    def encode(self, request: ModelRequest, *, stream: bool = False) -> HttpRequest:
        """The exact request, without the key.

        Raises `ConfigError` for an option that the API or the model cannot honour.
        """
        model = request.options.model or self.model
        body = encode_body(request, model=self.model, provider=self.provider)
        if stream:
            return self._request(f"{_path(model)}:streamGenerateContent", body, "alt=sse")
        return self._request(f"{_path(model)}:generateContent", body)

    async def count_tokens(self, request: ModelRequest) -> int:
        """How many tokens the request's prompt has, as the API counts them."""
        path = _path(request.options.model or self.model)
        body = encode_body(request, model=self.model, provider=self.provider)
        counted = counting_body(body, model_path=path)
        answer = await self._object(self._request(f"{path}:countTokens", counted))
        total = answer.get("totalTokens")
        if type(total) is not int:
            raise InvalidResponseError(
                "countTokens gave no totalTokens", provider=self.provider, model=self.model
            )
        return total

    async def list_models(self) -> list[ModelInfo]:
        """The models that can answer; the window of this client's own is remembered."""
        found: list[ModelInfo] = []
        query, seen = f"pageSize={_PAGE}", set[object]()
        while True:
            answer = await self._object(self._request("models", b"", query, method="GET"))
            models = cast("list[Mapping[str, Any]]", answer.get("models") or [])
            found += [_info(model) for model in models if _answers(model)]
            page: object = answer.get("nextPageToken")
            if not isinstance(page, str) or not page or page in seen:
                break
            seen.add(page)
            query = f"pageSize={_PAGE}&pageToken={quote(page, safe='')}"
        own = _path(self.model).removeprefix("models/")
        for model in found:
            if model.id == own:
                self._revealed = model.context_window
        return found

    async def _object(self, request: HttpRequest) -> Mapping[str, Any]:
        answer: object = await self._ask(request)
        return cast("Mapping[str, Any]", answer) if isinstance(answer, dict) else {}

    def _request(
        self, path: str, body: bytes, query: str = "", *, method: str = "POST"
    ) -> HttpRequest:
        queries = "&".join(part for part in (self._query, query) if part)
        headers = {
            "content-type": "application/json",
            "accept": "text/event-stream" if query == "alt=sse" else "application/json",
            **self._headers,
        }
        if not body:
            del headers["content-type"]
        url = f"{self._address}/{path}{'?' if queries else ''}{queries}"
        return HttpRequest(method=method, url=url, headers=headers, body=body)

    def _reader(self, max_body: int) -> ChunkReader:
        return ChunkReader(max_body=max_body)

    def _known_window(self) -> int | None:
        return self._revealed if self._revealed is not None else facts_for(self.model).window

    def _max_output(self, request: ModelRequest, model: str) -> int:
        return request.options.max_output_tokens or facts_for(model).max_output or 0

    def _decoder(
        self, encoded: HttpRequest, response: HttpResponse, request: ModelRequest, model: str
    ) -> GeminiDecoder:
        return GeminiDecoder(
            provider=self.provider,
            model=model,
            request_id=response.headers.get("x-request-id"),
        )


def _path(model: str) -> str:
    """The model as a part of an address."""
    return quote(model if "/" in model else f"models/{model}", safe="/-._~:@")


def _answers(model: Mapping[str, Any]) -> bool:
    methods = model.get("supportedGenerationMethods")
    return methods is None or "generateContent" in methods


def _info(model: Mapping[str, Any]) -> ModelInfo:
    return ModelInfo(
        id=str(model.get("name", "")).removeprefix("models/"),
        context_window=_limit(model.get("inputTokenLimit")),
        max_output=_limit(model.get("outputTokenLimit")),
    )


def _limit(value: object) -> int | None:
    return value if type(value) is int and value > 0 else None
