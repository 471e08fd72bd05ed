"""The client of the Responses API (MOD-3, MOD-19)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from loopctl._http import HttpResponse
from loopctl.errors import ConfigError, InvalidResponseError
from loopctl.models.client import HttpRequest, ModelInfo, ModelRequest
from loopctl.models.dialect import SseDialectClient, key_header
from loopctl.models.limiter import RateLimiter
from loopctl.models.listing import models_of
from loopctl.models.openai_responses.facts import AZURE, PROFILES, Profile, profile_for
from loopctl.models.openai_responses.request import Body, encode_body
from loopctl.models.openai_responses.stream import ResponsesDecoder

if TYPE_CHECKING:
    from loopctl._http import HttpClient

OPENAI_URL = "https://api.openai.com/v1"


class OpenAIResponsesClient(SseDialectClient):
    """A `ModelClient` for OpenAI's Responses API and every server that speaks it.

    Nothing is stored at the server: each request brings the whole conversation, with reasoning as
    it came. `api_key` may be `None` for servers that ask for none; Azure takes a key, or a token
    of its directory. `profile` names the kind of server (`"openai"`, `"azure"`, `"xai"`,
    `"compatible"`) or is one; by default the address tells. `provider` is what errors and messages
    call it. `headers` ride on every request. `context_window` overrides what is known of the model,
    and what `list_models()` finds of it. `http_client`, an `httpx.AsyncClient`, is used as it is
    and stays yours to close.

    Raises `ConfigError` for an address, key or profile that cannot work.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str = OPENAI_URL,
        profile: str | Profile | None = None,
        provider: str = "openai",
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
        if isinstance(profile, str):
            if profile not in PROFILES:
                raise ConfigError(f"profile={profile!r}: must be one of {', '.join(PROFILES)}")
            profile = PROFILES[profile]
        self.profile = profile if profile is not None else told
        super().__init__(
            model,
            provider=provider,
            base_url=base_url,
            headers=headers,
            secret=_secret(key_header(api_key), self.profile),
            context_window=context_window,
            http_client=http_client,
            max_connections=max_connections,
            limiter=limiter,
        )
        address, question, query = base_url.partition("?")
        self._root = address.rstrip("/")
        self._query = question + query
        self._revealed: int | None = None

    def encode(self, request: ModelRequest, *, stream: bool = False) -> HttpRequest:
        """The exact request, without the key.

        Raises `ConfigError` for an option that this server or model cannot honour.
        """
        body = self._body(request, stream=stream)
        accept = "text/event-stream" if stream else "application/json"
        return self._post("/responses", body.encode(), accept, prefix=body.prefix)

    async def count_tokens(self, request: ModelRequest) -> int:
        """How many tokens the request's input has, by the server's own count."""
        counted = self._body(request).counted()
        found = await self._ask(self._post("/responses/input_tokens", counted, "application/json"))
        count = cast("dict[str, Any]", found).get("input_tokens") if type(found) is dict else None
        if type(count) is not int:
            raise InvalidResponseError(
                "the count of tokens is no number", provider=self.provider, model=self.model
            )
        return count

    async def list_models(self) -> list[ModelInfo]:
        """The server's models; their windows where it tells, this client's own is remembered."""
        headers = {"accept": "application/json", **self._headers}
        url = f"{self._root}/models{self._query}"
        found = models_of(
            await self._ask(HttpRequest(method="GET", url=url, headers=headers, body=b""))
        )
        for model in found:
            if model.id == self.model:
                self._revealed = model.context_window
        return found

    def _post(self, path: str, body: bytes, accept: str, prefix: str | None = None) -> HttpRequest:
        return HttpRequest(
            method="POST",
            url=f"{self._root}{path}{self._query}",
            headers={"content-type": "application/json", "accept": accept, **self._headers},
            body=body,
            prefix=prefix,
        )

    def _body(self, request: ModelRequest, *, stream: bool = False) -> Body:
        return encode_body(
            request,
            model=request.options.model or self.model,
            profile=self.profile,
            provider=self.provider,
            stream=stream,
        )

    def _known_window(self) -> int | None:
        known = self._revealed
        return known if known is not None else self.profile.facts(self.model).window

    def _max_output(self, request: ModelRequest, model: str) -> int:
        return request.options.max_output_tokens or self.profile.facts(model).max_output or 0

    def _decoder(
        self, encoded: HttpRequest, response: HttpResponse, request: ModelRequest, model: str
    ) -> ResponsesDecoder:
        return ResponsesDecoder(
            provider=self.provider,
            model=model,
            request_id=response.headers.get("x-request-id"),
            prefix=encoded.prefix,
        )


def _secret(key: str, profile: Profile) -> dict[str, str] | None:
    """The header that proves who asks. At Azure a token has three parts, and a key none."""
    if not key:
        return None
    if profile is AZURE and key.count(".") != 2:
        return {"api-key": key}
    return {"authorization": f"Bearer {key}"}
