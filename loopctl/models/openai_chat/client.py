"""The client of Chat Completions (MOD-3, MOD-19)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from loopctl._http import HttpResponse
from loopctl.errors import ConfigError
from loopctl.models.client import HttpRequest, ModelInfo, ModelRequest
from loopctl.models.dialect import SseDialectClient, key_header
from loopctl.models.limiter import RateLimiter
from loopctl.models.listing import models_of
from loopctl.models.openai_chat.facts import PROFILES, Profile, profile_for
from loopctl.models.openai_chat.request import encode_body
from loopctl.models.openai_chat.stream import ChatDecoder

if TYPE_CHECKING:
    from loopctl._http import HttpClient

OPENAI_URL = "https://api.openai.com/v1"


class OpenAIChatClient(SseDialectClient):
    """A `ModelClient` for OpenAI's Chat Completions and every server that speaks it.

    `api_key` may be `None` for servers that ask for none. `profile` names the kind of server
    (`"openai"`, `"deepseek"`, …, see `facts.PROFILES`) or is one; by default the address tells.
    `provider` is what errors and messages call it. `headers` ride on every request.
    `context_window` overrides what is known of the model, and what `list_models()` finds of it.
    `http_client`, an `httpx.AsyncClient`,
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
        if isinstance(profile, str) and profile not in PROFILES:
            raise ConfigError(f"profile={profile!r}: must be one of {', '.join(PROFILES)}")
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
        if isinstance(profile, str):
            profile = PROFILES[profile]
        self.profile = profile if profile is not None else told
        address, question, query = base_url.partition("?")
        self._url = f"{address.rstrip('/')}/chat/completions{question}{query}"
        self._list_url = f"{address.rstrip('/')}/models{question}{query}"
        self._revealed: int | None = None

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

    async def list_models(self) -> list[ModelInfo]:
        """The server's models; their windows where it tells, this client's own is remembered."""
        headers = {"accept": "application/json", **self._headers}
        request = HttpRequest(method="GET", url=self._list_url, headers=headers, body=b"")
        found = models_of(await self._ask(request))
        for model in found:
            if model.id == self.model:
                self._revealed = model.context_window
        return found

    def _known_window(self) -> int | None:
        known = self._revealed
        return known if known is not None else self.profile.facts(self.model).window

    def _max_output(self, request: ModelRequest, model: str) -> int:
        return request.options.max_output_tokens or self.profile.facts(model).max_output or 0

    def _decoder(
        self, encoded: HttpRequest, response: HttpResponse, request: ModelRequest, model: str
    ) -> ChatDecoder:
        return ChatDecoder(
            provider=self.provider,
            model=model,
            request_id=response.headers.get("x-request-id"),
            lenient_end=self.profile.lenient_end,
        )
