from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any

import anyio
import httpx
import pytest

from loopctl.errors import (
    AuthError,
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
from loopctl.models.limiter import RateLimiter
from loopctl.models.openai_chat import OpenAIChatClient
from loopctl.replies import ModelResponse, StopReason
from loopctl.testing import (
    ByteServer,
    Close,
    Reset,
    Script,
    Stall,
    call,
    chat_pieces,
    chat_reply,
    respond,
    respond_json,
    respond_sse,
    sse,
    threaded,
)
from loopctl.wire.accumulator import Accumulator

pytestmark = pytest.mark.anyio

ASK = ModelRequest(messages=(Message.user("hi"),))
PIECES = chat_pieces(["Hello there", call("add", a=1)])


def client(server: Any, **options: Any) -> OpenAIChatClient:
    return OpenAIChatClient("m", base_url=server.url, **options)


async def streamed(chat: ModelClient, request: ModelRequest = ASK) -> ModelResponse:
    accumulator = Accumulator()
    async with chat.stream(request) as events:
        async for event in events:
            accumulator.feed(event)
    return accumulator.response()


async def completed(chat: ModelClient) -> ModelResponse:
    return await chat.complete(ASK)


async def test_whole_and_streamed_replies_are_equal_over_the_network(nothing_left: None) -> None:
    """MOD-3, MOD-4: on one kept connection; the key rides in a header and not in `encode`."""
    answer = Message.assistant("Hello there", call("add", a=1))
    async with ByteServer(chat_reply(answer), chat_reply(answer)) as server:
        async with client(server, api_key=" sk-key ", headers={"X-Team": "a"}) as chat:
            assert isinstance(chat, ModelClient)
            assert await completed(chat) == await streamed(chat)
        assert server.connections == 1
        await server.wait_closed()
    first, second = server.requests
    assert first.path == "/chat/completions"
    assert first.headers["authorization"] == "Bearer sk-key"
    assert first.headers["x-team"] == "a"
    for stream, request in ((False, first), (True, second)):
        encoded = chat.encode(ASK, stream=stream)
        assert encoded.body == request.body
        assert "authorization" not in encoded.headers
        assert encoded.headers.items() <= request.headers.items()


LISTS: dict[str, tuple[Any, list[ModelInfo]]] = {
    "openai": ({"data": [{"id": "m", "owned_by": "x"}, {}, 1]}, [ModelInfo(id="m")]),
    "openrouter": (
        {
            "data": [
                {
                    "id": "m",
                    "context_length": 9_000,
                    "top_provider": {"context_length": 8_000, "max_completion_tokens": 7},
                }
            ]
        },
        [ModelInfo(id="m", context_window=9_000, max_output=7)],
    ),
    "mistral": (
        {"data": [{"id": "a"}, {"id": "m", "max_context_length": 5_000}]},
        [ModelInfo(id="a"), ModelInfo(id="m", context_window=5_000)],
    ),
    "groq": (
        {"data": [{"id": "m", "context_window": 131_072, "max_completion_tokens": 65_536}]},
        [ModelInfo(id="m", context_window=131_072, max_output=65_536)],
    ),
    "vllm": (
        {"data": [{"id": "m", "max_model_len": 4_096}]},
        [ModelInfo(id="m", context_window=4_096)],
    ),
    "a bare list": ([{"id": "m", "context_length": -1}], [ModelInfo(id="m")]),
    "nothing": ({}, []),
}


@pytest.mark.parametrize("name", LISTS)
async def test_models_are_listed_with_what_their_server_tells(
    name: str, nothing_left: None
) -> None:
    """MOD-3: the window of the client's own model is remembered; a given one counts more."""
    answer, expected = LISTS[name]
    async with ByteServer(respond_json(answer), respond_json(answer)) as server:
        async with client(server, api_key="k") as chat:
            assert chat.context_window is None
            assert await chat.list_models() == expected
            windows = [info.context_window for info in expected if info.id == "m"]
            assert chat.context_window == (windows[0] if windows else None)
        async with client(server, context_window=1_000) as chat:
            await chat.list_models()
            assert chat.context_window == 1_000
    request = server.requests[0]
    assert (request.method, request.path) == ("GET", "/models")
    assert request.headers["authorization"] == "Bearer k"


async def test_a_list_that_fails_is_a_typed_error(nothing_left: None) -> None:
    """MOD-11: a wrong key, a page that is no list."""
    faults = [respond_json(ERROR, status=401), respond("<html>")]
    async with ByteServer(*faults) as server, client(server) as chat:
        with pytest.raises(AuthError):
            await chat.list_models()
        with pytest.raises(InvalidResponseError):
            await chat.list_models()


async def test_an_address_may_have_a_query() -> None:
    """MOD-6: old Azure addresses."""
    chat = OpenAIChatClient("m", base_url="https://h/openai/deployments/d/?api-version=1")
    assert chat.encode(ASK).url == "https://h/openai/deployments/d/chat/completions?api-version=1"


async def test_leaving_a_stream_early_closes_its_connection(nothing_left: None) -> None:
    """D2: break, and the server sees the client go; nothing is left to the garbage collector."""
    async with ByteServer(respond_sse(*PIECES[:3], Stall())) as server, client(server) as chat:
        async with chat.stream(ASK) as events:
            async for _ in events:
                break
        await server.wait_closed()


async def test_cancelling_a_stream_closes_its_connection(nothing_left: None) -> None:
    """MOD-14: every wait can be cancelled."""
    stall = Stall()
    async with ByteServer(respond_sse(PIECES[0], stall)) as server, client(server) as chat:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(streamed, chat)
            await server.wait_reached(stall)
            tasks.cancel_scope.cancel()
        await server.wait_closed()


ERROR = {"error": {"message": "too many", "type": "m", "code": None}}
OVERFLOW = {"error": {"message": "m", "code": "context_length_exceeded"}}

WHOLE_FAULTS: dict[str, tuple[Script, type[ModelError]]] = {
    "reset at once": ((Reset(),), ConnectError),
    "close at once": ((Close(),), ConnectError),
    "429": (respond_json(ERROR, status=429, headers={"Retry-After": "3"}), RateLimitError),
    "500": (respond("oops", status=500), ServerError),
    "529": (respond("", status=529), OverloadedError),
    "overflow": (respond_json(OVERFLOW, status=400), ContextOverflowError),
    "redirect": (respond("", status=302, headers={"Location": "/"}), NotFoundError),
    "a page": (respond("<html>", headers={"Content-Type": "text/html"}), InvalidResponseError),
    "no json": (
        respond("{", headers={"Content-Type": "application/json"}),
        InvalidResponseError,
    ),
    "no http": ((b"garbage\r\n\r\n", Close()), ConnectError),
    "an error in a 200": (respond_json(ERROR), ServerError),
}


@pytest.mark.parametrize("ask", [completed, streamed])
@pytest.mark.parametrize("name", WHOLE_FAULTS)
async def test_what_goes_wrong_before_a_reply_is_a_typed_error(
    name: str, ask: Callable[[ModelClient], Any], nothing_left: None
) -> None:
    """MOD-11, B6, E1, E4: with provider and model, streamed and not."""
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
    "garbage": (["data: {nonsense\n\n"], InvalidResponseError),
    "invalid utf-8": ([b"data: \xff\n\n"], InvalidResponseError),
    "error object": ([sse(ERROR)], ServerError),
    "error event": ([sse({"message": "busy, overloaded"}, event="error")], OverloadedError),
    "overflow": ([sse(OVERFLOW)], ContextOverflowError),
    "long line": ([b"data: " + b"x" * 1024 * 1024 + b"x\n\n"], InvalidResponseError),
}


@pytest.mark.parametrize("name", CUTS)
async def test_a_fault_at_any_event_of_a_stream_is_a_typed_error(
    name: str, nothing_left: None
) -> None:
    """B6, B7, MOD-8: the matrix of faults over the places in a stream; none is a reply.

    Where the finish reason had come already, a clean end is a whole reply.
    """
    fault, kind = CUTS[name]
    scripts = [respond_sse(*PIECES[:at], *fault) for at in range(len(PIECES) - 1)]
    async with ByteServer(*scripts) as server, client(server) as chat:
        for at in range(len(PIECES) - 1):
            with pytest.raises(kind) as caught:
                await streamed(chat)
            assert type(caught.value) is kind, at
            assert caught.value.model == "m"


async def test_a_stream_that_ends_after_its_finish_reason_is_whole(nothing_left: None) -> None:
    """B7: some servers never say [DONE]."""
    async with ByteServer(respond_sse(*PIECES[:-1])) as server, client(server) as chat:
        assert (await streamed(chat)).message.text == "Hello there"


async def test_a_connection_is_kept_after_a_stream(nothing_left: None) -> None:
    """MOD-5: the body is read to its end, also when it comes late."""
    parts = respond_sse(*PIECES)
    async with ByteServer(parts, parts, parts) as server, client(server) as chat:
        for _ in range(3):
            await streamed(chat)
        assert server.connections == 1


@pytest.mark.parametrize("after", [Stall(), Reset(), Close()])
async def test_what_follows_the_terminal_signal_does_not_matter(
    after: Any, nothing_left: None
) -> None:
    """MOD-8: the reply was whole."""
    async with ByteServer(respond_sse(*PIECES, after)) as server, client(server) as chat:
        with anyio.fail_after(10):
            assert (await streamed(chat)).message.text == "Hello there"


async def test_a_compressed_stream_that_is_cut_short_is_incomplete(nothing_left: None) -> None:
    """B7: half of the bytes of a gzip body, whole ones too."""
    packed = gzip.compress(b"".join(PIECES), mtime=0)
    headers = {"Content-Encoding": "gzip"}
    scripts = [respond_sse(packed[:-30], headers=headers), respond_sse(packed, headers=headers)]
    async with ByteServer(*scripts) as server, client(server) as chat:
        with pytest.raises(StreamIncomplete):
            await streamed(chat)
        assert (await streamed(chat)).message.text == "Hello there"


async def test_a_whole_reply_that_is_cut_unseen_by_http_is_incomplete(nothing_left: None) -> None:
    """B7: half of a packed body, of one without a length, and none at all."""
    body = json.dumps({"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]})
    kind = {"Content-Type": "application/json"}
    packed = gzip.compress(body.encode(), mtime=0)
    zipped = {**kind, "Content-Encoding": "gzip"}
    cut = [
        respond(packed[:-20], headers=zipped),
        respond(body[:40], headers=kind, framing="close"),
        respond("", headers=kind),
    ]
    whole = [respond(packed, headers=zipped), respond(body, headers=kind, framing="close")]
    async with ByteServer(*cut, *whole) as server, client(server) as chat:
        for _ in cut:
            with pytest.raises(StreamIncomplete):
                await completed(chat)
        for _ in whole:
            assert (await completed(chat)).message.text == "Hi"


async def test_a_whole_reply_to_a_streaming_request_is_taken(nothing_left: None) -> None:
    """MOD-4: servers that do not stream."""
    body = {"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]}
    async with ByteServer(respond_json(body)) as server, client(server) as chat:
        assert (await streamed(chat)).message == Message.assistant("Hi")


@pytest.mark.parametrize("ask", [completed, streamed])
async def test_refused_content_is_a_refusal_and_not_a_failure(
    ask: Callable[[ModelClient], Any], nothing_left: None
) -> None:
    """MOD-13: filters that answer with a status."""
    script = respond_json({"error": {"code": "content_filter", "message": "no"}}, status=400)
    async with ByteServer(script) as server, client(server) as chat:
        response = await ask(chat)
    assert (response.stop_reason, response.refusal) == (StopReason.FILTER, "no")


async def test_an_error_body_is_read_up_to_its_limit(nothing_left: None) -> None:
    """MOD-7: 8 KiB of a page without an end."""
    script = respond(b"x" * 9000, Stall(), status=500, headers={"Content-Type": "text/html"})
    async with ByteServer(script) as server, client(server) as chat:
        with pytest.raises(ServerError, match="xxx"):
            await completed(chat)


async def test_a_body_over_its_limit_is_a_typed_error(nothing_left: None) -> None:
    """MOD-7: 10 MiB for a whole reply; a stream may have what its tokens can take."""
    mebibyte = b" " * 1024 * 1024
    huge = respond(*[mebibyte] * 11, headers={"Content-Type": "application/json"})
    line = b": keep-alive\n" * 1000
    endless = respond_sse(*[line] * 900, *PIECES)
    async with ByteServer(huge, endless, endless) as server, client(server) as chat:
        for ask in (completed, streamed):
            with pytest.raises(InvalidResponseError, match="body"):
                await ask(chat)
        big = OpenAIChatClient("gpt-4.1", base_url=server.url, profile="openai")
        assert (await streamed(big)).message.text == "Hello there"
        await big.aclose()


async def test_a_dead_kept_connection_is_replaced_once(nothing_left: None) -> None:
    """MOD-14: the only retry below the resilient layer: no byte of a response had come."""
    good = chat_reply("Hi")
    async with ByteServer(good, (Close(),), good, good, (Reset(),), (Close(),)) as server:
        async with client(server) as chat:
            await completed(chat)
            assert (await completed(chat)).message.text == "Hi"
            assert server.connections == 2
            await completed(chat)
            with pytest.raises(ConnectError):
                await completed(chat)  # kept and dead, then new and dead: no third try
        assert len(server.requests) == 6


async def test_a_new_connection_that_breaks_is_not_retried(nothing_left: None) -> None:
    """MOD-14: one layer retries, and it is not this one."""
    async with ByteServer((Close(),)) as server, client(server) as chat:
        with pytest.raises(ConnectError):
            await completed(chat)
        assert len(server.requests) == 1


async def test_no_server_is_a_connect_error(nothing_left: None) -> None:
    """MOD-11: nobody listens."""
    async with ByteServer() as server:
        url = server.url
    async with OpenAIChatClient("m", base_url=url) as chat:
        with pytest.raises(ConnectError):
            await completed(chat)


async def test_an_impossible_request_is_a_config_error(nothing_left: None) -> None:
    """MOD-3: what cannot be sent was configured wrong."""
    async with ByteServer() as server, client(server, headers={"x": "a\nb"}) as chat:
        with pytest.raises(ConfigError):
            await completed(chat)


async def test_more_requests_than_connections_wait_their_turn(nothing_left: None) -> None:
    """MOD-6: max_connections bounds what is open at once."""
    async with ByteServer(*[chat_reply("Hi")] * 120) as server:
        async with client(server, max_connections=40) as chat:
            async with anyio.create_task_group() as tasks:
                for _ in range(120):
                    tasks.start_soon(completed, chat)
            assert server.connections <= 40
        assert len(server.requests) == 120


async def test_a_given_http_client_is_used_and_left_open(nothing_left: None) -> None:
    """MOD-6: the caller's transport; its own time limits do not count."""
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        body = {"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]}
        return httpx.Response(200, json=body)

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as given:
        async with OpenAIChatClient("m", base_url="http://h/v1", http_client=given) as chat:
            assert (await completed(chat)).message.text == "Hi"
        assert not given.is_closed
    timeout = seen[0].extensions["timeout"]
    assert (timeout["read"], timeout["pool"], timeout["write"]) == (None, None, None)


async def test_a_limiter_is_asked_before_each_request(nothing_left: None) -> None:
    """MOD-17: by base URL; a wait that is too long sends nothing."""
    async with ByteServer(chat_reply("Hi")) as server:
        async with client(server, limiter=RateLimiter(1, max_wait=0)) as chat:
            await completed(chat)
            with pytest.raises(RateLimitError):
                await completed(chat)
        assert len(server.requests) == 1


async def test_five_hundred_slow_requests_on_one_client_all_succeed(nothing_left: None) -> None:
    """MOD-5: no limit of the pool is below the attempt's own."""
    gate, count = Stall(), 500
    body = json.dumps({"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]})
    script = respond(gate, body, headers={"Content-Type": "application/json"})
    texts: list[str] = []

    async with ByteServer(*[script] * count) as server, client(server) as chat:

        async def one() -> None:
            texts.append((await completed(chat)).message.text)

        async with anyio.create_task_group() as tasks:
            for _ in range(count):
                tasks.start_soon(one)
            await server.wait_reached(gate)
            gate.release()
    assert texts == ["Hi"] * count


def test_one_client_serves_one_event_loop_after_another(no_threads_or_sockets_left: None) -> None:
    """MOD-5, D8: a second run, another backend, without closing in between."""
    with threaded(*[chat_reply("Hi")] * 6) as server:
        chat = client(server)

        async def twice() -> None:
            assert (await completed(chat)).message.text == "Hi"
            assert (await streamed(chat)).message.text == "Hi"

        for backend in ("asyncio", "asyncio", "trio"):
            anyio.run(twice, backend=backend)
        server.wait_closed()
        assert server.connections == 3


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"base_url": "api.openai.com"}, "base_url"),
        ({"base_url": "http://[::bad"}, "base_url"),
        ({"base_url": "http://h:port"}, "base_url"),
        ({"profile": "nope"}, "profile"),
        ({"api_key": "kéy"}, "api_key"),
    ],
)
async def test_settings_that_cannot_work_are_refused(options: dict[str, Any], named: str) -> None:
    """MOD-6: when the client is made."""
    with pytest.raises(ConfigError, match=named):
        OpenAIChatClient("m", **options)


async def test_the_window_is_known_or_told() -> None:
    """MOD-3, MOD-27: of the model; `None` when nobody knows it."""
    assert OpenAIChatClient("gpt-5.4").context_window == 1_050_000
    assert OpenAIChatClient("gpt-4.1-2025-04-14").context_window == 1_047_576
    assert OpenAIChatClient("m").context_window is None
    assert OpenAIChatClient("m", context_window=5).context_window == 5
