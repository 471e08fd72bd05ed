"""The client of Ollama's own API (MOD-3, MOD-19)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, cast

from loopctl import _json
from loopctl._http import HttpResponse
from loopctl.errors import ConfigError
from loopctl.models.client import HttpRequest, ModelInfo, ModelRequest
from loopctl.models.dialect import DialectClient, Reader, key_header
from loopctl.models.limiter import RateLimiter
from loopctl.models.ollama.facts import (
    DEFAULT_WINDOW,
    LOCAL_URL,
    address,
    is_cloud,
    window_of,
)
from loopctl.models.ollama.request import encode_body
from loopctl.models.ollama.stream import OllamaDecoder
from loopctl.wire.ndjson import NdjsonReader

if TYPE_CHECKING:
    from loopctl._http import HttpClient


class OllamaClient(DialectClient[str]):
    """A `ModelClient` for Ollama's `/api/chat`, on this machine or at `https://ollama.com`.

    `base_url` may be what `OLLAMA_HOST` may be: a host alone too. `context_window` is the window
    in tokens that the model is loaded with, asked for on every request as `num_ctx` (another
    value loads it anew); without it 32,768, or what `prepare()` found; a model in the cloud has
    its maximum. `keep_alive` says how long the model stays loaded: seconds, or a text such as
    `"10m"`. More of the server's own settings go into `extra_body={"options": {…}}`.

    Raises `ConfigError` for an address or key that cannot work.
    """

    STREAMS: ClassVar[frozenset[str]] = frozenset(
        {"application/x-ndjson", "application/ndjson", "", "application/octet-stream"}
    )

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str = LOCAL_URL,
        provider: str = "ollama",
        headers: Mapping[str, str] | None = None,
        context_window: int | None = None,
        keep_alive: str | float | None = None,
        http_client: HttpClient | None = None,
        max_connections: int = 1000,
        limiter: RateLimiter | None = None,
    ) -> None:
        try:
            found = address(base_url)
        except ValueError as error:
            raise ConfigError(f"base_url={base_url!r}: {error}") from None
        key = key_header(api_key)
        super().__init__(
            model,
            provider=provider,
            base_url=found,
            headers=headers,
            secret={"authorization": f"Bearer {key}"} if key else None,
            context_window=context_window,
            http_client=http_client,
            max_connections=max_connections,
            limiter=limiter,
        )
        self._keep_alive = keep_alive
        self._learnt: int | None = None

    def encode(self, request: ModelRequest, *, stream: bool = False) -> HttpRequest:
        """The exact request, without the key.

        Raises `ConfigError` for an option that this server or model cannot honour.
        """
        model = request.options.model or self.model
        cloud = is_cloud(model, self.base_url)
        body = encode_body(
            request,
            model=model,
            provider=self.provider,
            window=self.context_window or (None if cloud else DEFAULT_WINDOW),
            cloud=cloud,
            keep_alive=self._keep_alive,
            stream=stream,
        )
        accept = "application/x-ndjson" if stream else "application/json"
        return self._request("POST", "/api/chat", body, accept)

    async def prepare(self) -> None:
        """Ask the server once for the model's window, so that `context_window` is the true one.

        That is what its Modelfile says, else 32,768, and at most what it was trained for. Nothing
        needs this; without it a smaller window shows when the server refuses a longer prompt.
        """
        if self._window is not None or self._learnt is not None:
            return
        body = _json.wire({"model": self.model})
        shown = await self._ask(self._request("POST", "/api/show", body))
        trained, wanted = window_of(_mapping(shown))
        if trained is not None and is_cloud(self.model, self.base_url):
            self._learnt = trained
        elif trained is not None or wanted is not None:
            window = wanted or DEFAULT_WINDOW
            self._learnt = window if trained is None else min(window, trained)

    async def list_models(self) -> list[ModelInfo]:
        """The models that the server has; the list tells no windows."""
        listed = _mapping(await self._ask(self._request("GET", "/api/tags")))
        models = listed.get("models")
        entries = [_mapping(each) for each in cast("list[Any]", models or [])]
        return [
            ModelInfo(id=str(entry.get("model") or entry["name"]))
            for entry in entries
            if entry.get("model") or entry.get("name")
        ]

    def _request(
        self, method: str, path: str, body: bytes = b"", accept: str = "application/json"
    ) -> HttpRequest:
        headers = {"content-type": "application/json", "accept": accept, **self._headers}
        return HttpRequest(method=method, url=self.base_url + path, headers=headers, body=body)

    def _known_window(self) -> int | None:
        if self._learnt is not None:
            return self._learnt
        return None if is_cloud(self.model, self.base_url) else DEFAULT_WINDOW

    def _reader(self, max_body: int) -> Reader[str]:
        return NdjsonReader(max_body=max_body)

    def _decoder(
        self, encoded: HttpRequest, response: HttpResponse, request: ModelRequest, model: str
    ) -> OllamaDecoder:
        return OllamaDecoder(provider=self.provider, model=model)


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
