from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest

from loopctl.config import RequestOptions
from loopctl.errors import (
    AuthError,
    BadRequestError,
    ConfigError,
    ConnectError,
    ContextOverflowError,
    InvalidResponseError,
    ModelError,
    NotFoundError,
    OverloadedError,
    RateLimitError,
    ServerError,
    StreamIncomplete,
)
from loopctl.messages import Message
from loopctl.models.client import ModelClient, ModelInfo, ModelRequest
from loopctl.models.ollama import OllamaClient
from loopctl.models.ollama.facts import address, is_cloud
from loopctl.replies import ModelResponse
from loopctl.testing import (
    ByteServer,
    Close,
    Playable,
    Reset,
    Script,
    Stall,
    call,
    respond,
    respond_json,
    threaded,
)
from loopctl.testing.contracts import Bench, ModelClientContract, Served
from loopctl.testing.ollama_replies import NDJSON, body, events, ollama_reply
from loopctl.wire.accumulator import Accumulator

pytestmark = pytest.mark.anyio

ASK = ModelRequest(messages=(Message.user("hi"),))
LINES = events(["Hello there", call("add", a=1)])


def as_ollama(reply: Served) -> Playable:
    if isinstance(reply, Message):
        return ollama_reply(reply)
    return ollama_reply(reply.message, broken_by=reply.by)


@pytest.mark.usefixtures("no_threads_or_sockets_left")
class TestOllamaClient(ModelClientContract):
    unsupported = RequestOptions(strict_tools=True)

    @contextmanager
    def serve(self, *replies: Served) -> Generator[Bench, None, None]:
        with threaded(*map(as_ollama, replies)) as server:
            yield Bench(client=OllamaClient("m", base_url=server.url), server=server)


def client(server: Any, **options: Any) -> OllamaClient:
    return OllamaClient("m", base_url=server.url, **options)


async def streamed(chat: ModelClient, request: ModelRequest = ASK) -> ModelResponse:
    accumulator = Accumulator()
    async with chat.stream(request) as found:
        async for event in found:
            accumulator.feed(event)
    return accumulator.response()


async def completed(chat: ModelClient) -> ModelResponse:
    return await chat.complete(ASK)


async def test_the_request_that_is_sent_is_the_encoded_one(nothing_left: None) -> None:
    """MOD-3: to the byte; the key rides in a header and not in `encode`."""
    async with ByteServer(ollama_reply("Hi"), ollama_reply("Hi")) as server:
        async with client(server, api_key=" key ", headers={"X-Team": "a"}) as chat:
            assert await completed(chat) == await streamed(chat)
        assert server.connections == 1
    for stream, request in zip((False, True), server.requests, strict=True):
        encoded = chat.encode(ASK, stream=stream)
        assert request.path == "/api/chat"
        assert encoded.body == request.body
        assert request.headers["authorization"] == "Bearer key"
        assert "authorization" not in encoded.headers
        assert encoded.headers.items() <= request.headers.items()


async def test_nothing_but_the_call_is_sent(nothing_left: None) -> None:
    """MOD-5: no request that nobody asked for; the window is a fact that is asked for."""
    async with ByteServer(ollama_reply("Hi")) as server, client(server) as chat:
        assert chat.context_window == 32_768
        await streamed(chat)
        assert [request.path for request in server.requests] == ["/api/chat"]


def shown(trained: Any = None, parameters: Any = None) -> Script:
    info = {"general.architecture": "qwen3", "qwen3.context_length": trained}
    return respond_json({"model_info": info, "parameters": parameters, "capabilities": ["tools"]})


@pytest.mark.parametrize(
    ("answer", "window"),
    [
        (shown(262_144), 32_768),
        (shown(8_192), 8_192),
        (shown(262_144, 'stop "<|x|>"\nnum_ctx                        65536'), 65_536),
        (shown(8_192, "num_ctx 65536"), 8_192),
        (shown(None, "num_ctx 2048"), 2_048),
        (shown(None, "num_ctx many"), 32_768),
        (shown("odd", 5), 32_768),
        (respond_json({}), 32_768),
        (respond_json([]), 32_768),
    ],
)
async def test_the_window_is_learnt_when_asked_for(
    answer: Script, window: int, nothing_left: None
) -> None:
    """MOD-3: what the model was trained for and what its file says, asked once."""
    async with ByteServer(answer, ollama_reply("Hi")) as server, client(server) as chat:
        await chat.prepare()
        assert chat.context_window == window
        await completed(chat)
        first, second = server.requests
        assert (first.path, first.json()) == ("/api/show", {"model": "m"})
        assert second.json()["options"]["num_ctx"] == window


async def test_a_window_that_is_known_is_not_asked_for(nothing_left: None) -> None:
    """MOD-3: given, or learnt before; a server that fails is a typed error."""
    async with ByteServer(shown(8_192)) as server, client(server) as chat:
        await client(server, context_window=1_000).prepare()
        await chat.prepare()
        await chat.prepare()
        assert len(server.requests) == 1
    missing = respond_json({"error": "model 'm' not found"}, status=404)
    async with ByteServer(missing) as server, client(server) as chat:
        with pytest.raises(NotFoundError, match="not found"):
            await chat.prepare()


async def test_a_model_in_the_cloud_has_what_it_was_trained_for(nothing_left: None) -> None:
    """MOD-27: nothing is loaded here."""
    async with ByteServer(shown(131_072)) as server:
        chat = OllamaClient("gpt-oss:120b-cloud", base_url=server.url)
        await chat.prepare()
        assert chat.context_window == 131_072
        await chat.aclose()


async def test_models_are_listed(nothing_left: None) -> None:
    """MOD-3: those that are installed; older servers call them by another field."""
    listed = respond_json({"models": [{"name": "a", "model": "a:latest"}, {"name": "b"}, {}, 1]})
    async with ByteServer(listed, respond_json({})) as server, client(server) as chat:
        assert await chat.list_models() == [ModelInfo(id="a:latest"), ModelInfo(id="b")]
        assert await chat.list_models() == []
        assert [(r.method, r.path) for r in server.requests] == [("GET", "/api/tags")] * 2


def error(text: str, status: int, **headers: str) -> Script:
    return respond_json({"error": text}, status=status, headers=headers)


WHOLE_FAULTS: dict[str, tuple[Script, type[ModelError]]] = {
    "reset at once": ((Reset(),), ConnectError),
    "close at once": ((Close(),), ConnectError),
    "400": (error("m does not support tools", 400), BadRequestError),
    "401": (error("unauthorized", 401), AuthError),
    "404": (error('model "m" not found, try pulling it first', 404), NotFoundError),
    "429": (error("too many", 429, **{"Retry-After": "3"}), RateLimitError),
    "500": (error("model requires more system memory", 500), ServerError),
    "502": (respond("oops", status=502), ServerError),
    "503": (error("server busy, please try again", 503), OverloadedError),
    "overflow": (
        error("the prompt is longer than the context length currently available", 400),
        ContextOverflowError,
    ),
    "a page": (respond("<html>", headers={"Content-Type": "text/html"}), InvalidResponseError),
    "no json": (respond("{", headers={"Content-Type": "application/json"}), InvalidResponseError),
    "an error in a 200": (error("the runner died", 200), ServerError),
}


@pytest.mark.parametrize("ask", [completed, streamed])
@pytest.mark.parametrize("name", WHOLE_FAULTS)
async def test_what_goes_wrong_before_a_reply_is_a_typed_error(
    name: str, ask: Callable[[ModelClient], Any], nothing_left: None
) -> None:
    """MOD-11, MOD-12, B6, E1, E4: with provider and model, streamed and not."""
    script, kind = WHOLE_FAULTS[name]
    async with ByteServer(script) as server, client(server, provider="acme") as chat:
        with pytest.raises(kind) as caught:
            await ask(chat)
    assert type(caught.value) is kind
    assert (caught.value.provider, caught.value.model) == ("acme", "m")
    assert caught.value.retry_after == (3.0 if name == "429" else None)


CUTS: dict[str, tuple[list[Any], type[ModelError]]] = {
    "reset": ([Reset()], ConnectError),
    "close": ([Close()], StreamIncomplete),
    "end": ([], StreamIncomplete),
    "half a line": ([LINES[-1][:-9]], StreamIncomplete),
    "garbage": (["{nonsense\n"], InvalidResponseError),
    "invalid utf-8": ([b'{"a":"\xff"}\n'], InvalidResponseError),
    "error line": (['{"error":"the runner died"}\n'], ServerError),
    "overflow": (['{"error":"input length exceeds the context length"}'], ContextOverflowError),
    "long line": ([b"x" * 1024 * 1024 + b"x\n"], InvalidResponseError),
}


@pytest.mark.parametrize("name", CUTS)
async def test_a_fault_at_any_line_of_a_stream_is_a_typed_error(
    name: str, nothing_left: None
) -> None:
    """B6, B7, MOD-8: the matrix of faults over the places in a stream; none is a reply."""
    fault, kind = CUTS[name]
    scripts = [respond(*LINES[:at], *fault, headers=NDJSON) for at in range(len(LINES))]
    async with ByteServer(*scripts) as server, client(server) as chat:
        for at in range(len(LINES)):
            with pytest.raises(kind) as caught:
                await streamed(chat)
            assert type(caught.value) is kind, at
            assert caught.value.model == "m"


async def test_a_last_line_may_lack_its_end(nothing_left: None) -> None:
    """MOD-7: what was said to be done is whole."""
    lines = [*LINES[:-1], LINES[-1].rstrip()]
    async with ByteServer(respond(*lines, headers=NDJSON)) as server, client(server) as chat:
        assert (await streamed(chat)).message.text == "Hello there"


@pytest.mark.parametrize("after", [Stall(), Reset(), Close(), b'{"error":"late"}\n'])
async def test_what_follows_the_terminal_signal_does_not_matter(
    after: Any, nothing_left: None
) -> None:
    """MOD-8: the reply was whole."""
    script = respond(*LINES, after, headers=NDJSON)
    async with ByteServer(script) as server, client(server) as chat:
        with anyio.fail_after(10):
            assert (await streamed(chat)).message.text == "Hello there"


async def test_a_whole_reply_to_a_streaming_request_is_taken(nothing_left: None) -> None:
    """MOD-4: servers in front of it that do not stream."""
    script = respond(body("Hi"), headers={"Content-Type": "application/json"})
    async with ByteServer(script) as server, client(server) as chat:
        assert (await streamed(chat)).message == Message.assistant("Hi")


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("", "http://localhost:11434"),
        (":8080", "http://localhost:8080"),
        ("myhost", "http://myhost:11434"),
        ("myhost:", "http://myhost:11434"),
        (" myhost:1/ ", "http://myhost:1"),
        ("myhost/proxy/", "http://myhost:11434/proxy"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("http://0.0.0.0:1", "http://127.0.0.1:1"),
        ("[::]:1", "http://[::1]:1"),
        ("[::1]", "http://[::1]:11434"),
        ("http://myhost", "http://myhost"),
        ("https://gateway.example/o/", "https://gateway.example/o"),
        ("ollama.com", "https://ollama.com"),
    ],
)
def test_an_address_is_read_as_ollama_reads_it(given: str, url: str) -> None:
    """MOD-6: a scheme brings its own port; addresses to bind to mean this machine."""
    assert address(given) == url
    assert OllamaClient("m", base_url=given).base_url == url


@pytest.mark.parametrize("given", ["host:port", "ftp://host", "http://host:99999"])
def test_an_address_that_cannot_work_is_a_config_error(given: str) -> None:
    """MOD-6: told when the client is made."""
    with pytest.raises(ConfigError, match="base_url"):
        OllamaClient("m", base_url=given)


def test_what_runs_in_the_cloud_is_known_by_name_or_address() -> None:
    """MOD-27: everything else runs on the user's own machine."""
    assert is_cloud("gpt-oss:120b-cloud", "http://localhost:11434")
    assert is_cloud("glm-5:cloud", "http://localhost:11434")
    assert is_cloud("m", "https://ollama.com")
    assert not is_cloud("cloud", "http://localhost:11434")
