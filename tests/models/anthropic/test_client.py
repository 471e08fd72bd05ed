from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from loopctl.config import RequestOptions
from loopctl.errors import (
    AuthError,
    ConfigError,
    ConnectError,
    ContextOverflowError,
    InvalidResponseError,
    ModelError,
    NotFoundError,
    OverloadedError,
    QuotaError,
    RateLimitError,
    ServerError,
    StreamIncomplete,
)
from loopctl.messages import Message, TextPart, ThinkingPart
from loopctl.models.anthropic import AnthropicClient
from loopctl.models.anthropic.client import MAX_PAUSES
from loopctl.models.client import ModelClient, ModelInfo, ModelRequest, ToolSchema
from loopctl.replies import ModelResponse, StopReason
from loopctl.testing import (
    ByteServer,
    Close,
    Playable,
    Reset,
    Script,
    call,
    respond,
    respond_json,
    respond_sse,
    sse,
    threaded,
)
from loopctl.testing import (
    anthropic_replies as replies,
)
from loopctl.testing.contracts import Bench, ModelClientContract, Served
from loopctl.usage import Usage
from loopctl.wire.accumulator import Accumulator
from loopctl.wire.stream_events import StreamEvent

pytestmark = pytest.mark.anyio

ASK = ModelRequest(messages=(Message.user("hi"),))
ANSWER = Message.assistant("Hello there", call("add", id="toolu_1", a=1))
FRAMES = replies.events(ANSWER)
BOUND = "claude-opus-5-5"


def client(server: Any, model: str = "m", **options: Any) -> AnthropicClient:
    return AnthropicClient(model, base_url=server.url, **options)


async def completed(model: ModelClient, request: ModelRequest = ASK) -> ModelResponse:
    return await model.complete(request)


async def streamed(model: ModelClient, request: ModelRequest = ASK) -> ModelResponse:
    accumulator = Accumulator()
    async with model.stream(request) as events:
        async for event in events:
            accumulator.feed(event)
    return accumulator.response()


both = pytest.mark.parametrize("ask", [completed, streamed])


def as_messages(reply: Served) -> Playable:
    if isinstance(reply, Message):
        return replies.reply(reply)
    return replies.reply(reply.message, broken_by=reply.by)


@pytest.mark.usefixtures("no_threads_or_sockets_left")
class TestAnthropicClient(ModelClientContract):
    unsupported = RequestOptions(temperature=1.5)

    @contextmanager
    def serve(self, *served: Served) -> Generator[Bench, None, None]:
        with threaded(*map(as_messages, served)) as server:
            yield Bench(client=client(server, api_key="k"), server=server)


async def test_whole_and_streamed_replies_are_equal_over_the_network(nothing_left: None) -> None:
    """MOD-3, MOD-4: on one kept connection; the key rides in a header and not in `encode`."""
    async with ByteServer(replies.reply(ANSWER), replies.reply(ANSWER)) as server:
        async with client(server, api_key=" sk-key ", headers={"X-Team": "a"}) as model:
            assert isinstance(model, ModelClient)
            whole = await completed(model)
            assert whole == await streamed(model)
        assert whole.message == ANSWER
        assert server.connections == 1
        await server.wait_closed()
    first, second = server.requests
    assert first.path == "/v1/messages"
    assert first.headers["authorization"] == "Bearer sk-key"
    assert first.headers["anthropic-version"] == "2026-10-21"
    for stream, request in ((False, first), (True, second)):
        encoded = model.encode(ASK, stream=stream)
        assert encoded.body == request.body
        assert "authorization" not in encoded.headers
        assert encoded.headers.items() <= request.headers.items()


@both
async def test_reasoning_comes_back_with_the_digest_of_its_request(
    ask: Callable[..., Any], nothing_left: None
) -> None:
    """MOD-26: and goes out again behind what it answered, under the model's own name for it."""
    thought = ThinkingPart("hm", "S1")
    said = Message.assistant(thought, "Hello")
    answer = ModelResponse(message=said, model=f"{BOUND}-20261101")
    async with ByteServer(*[replies.reply(answer)] * 2) as server, client(server, BOUND) as model:
        response = await ask(model)
        (part, _) = response.message.parts
        assert isinstance(part, ThinkingPart)
        assert (part.prefix, part.model) == (model.encode(ASK).prefix, BOUND)
        assert response.model == f"{BOUND}-20261101"
        more = ModelRequest(messages=(*ASK.messages, response.message, Message.user("more")))
        await ask(model, more)
    back = server.requests[1].json()["messages"][1]["content"][0]
    assert back == {"type": "thinking", "thinking": "hm", "signature": "S1"}


# -- pauses -----------------------------------------------------------------------------------

SEARCH = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"q": "x"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}


def sealed(block: dict[str, Any]) -> ThinkingPart:
    text = json.dumps(block, separators=(",", ":"))
    return ThinkingPart("", text, redacted=True, kind="block")


def pause(*parts: Any, output: int = 1) -> ModelResponse:
    return ModelResponse(
        message=Message.assistant(*parts),
        stop_reason=StopReason.PAUSE,
        usage=Usage(input_tokens=10, output_tokens=output),
    )


@both
async def test_a_paused_turn_is_continued_and_one_message_comes_out(
    ask: Callable[..., Any], nothing_left: None
) -> None:
    """C8, MOD-13: sent back unchanged, again and again; its costs add up."""
    last = ModelResponse(
        message=Message.assistant(sealed(FOUND), "Found.", call("add", id="toolu_1", a=1)),
        stop_reason=StopReason.TOOL_CALLS,
        usage=Usage(input_tokens=30, output_tokens=7),
    )
    served = [pause("Let me see.", sealed(SEARCH), output=5), pause("Still.", output=2), last]
    async with ByteServer(*[replies.reply(each) for each in served]) as server:
        async with client(server, BOUND, max_connections=1) as model:
            response = await ask(model)
            prefix = model.encode(ASK).prefix
        await server.wait_closed()
    texts = [part.text for part in response.message.parts if isinstance(part, TextPart)]
    assert texts == ["Let me see.", "Still.", "Found."]
    blocks = [part for part in response.message.parts if isinstance(part, ThinkingPart)]
    assert [json.loads(part.signature or "") for part in blocks] == [SEARCH, FOUND]
    assert {part.prefix for part in blocks} == {prefix}
    assert response.stop_reason is StopReason.TOOL_CALLS
    assert response.usage == Usage(input_tokens=50, output_tokens=14)
    first, second, third = [request.json() for request in server.requests]
    said = [{"type": "text", "text": "Let me see."}, SEARCH]
    assert second == {
        **first,
        "messages": [*first["messages"], {"role": "assistant", "content": said}],
    }
    said = [*said, {"type": "text", "text": "Still."}]
    assert third["messages"][-1] == {"role": "assistant", "content": said}
    assert len(third["messages"]) == 2


async def test_a_continued_reply_is_equal_streamed_and_whole(nothing_left: None) -> None:
    """MOD-4: also in the middle of both forms."""
    first = replies.reply(pause("One.", sealed(SEARCH)))
    last = replies.reply(Message.assistant(sealed(FOUND), "Two."))
    async with (
        ByteServer(first, last, first, last) as server,
        client(server, "claude-opus-5") as model,
    ):
        assert await completed(model) == await streamed(model)


@both
async def test_a_turn_that_pauses_for_ever_ends(
    ask: Callable[..., Any], nothing_left: None
) -> None:
    """MOD-13: bounded; the label says that it is no end."""
    async with ByteServer(*[replies.reply(pause("Hm."))] * 20) as server, client(server) as model:
        response = await ask(model)
    assert response.stop_reason is StopReason.PAUSE
    assert response.message == Message.assistant(*["Hm."] * (MAX_PAUSES + 1))
    assert len(server.requests) == MAX_PAUSES + 1


@both
async def test_a_pause_that_said_nothing_is_not_sent_back(
    ask: Callable[..., Any], nothing_left: None
) -> None:
    """MOD-13: an empty message would be refused."""
    async with ByteServer(replies.reply(pause())) as server, client(server) as model:
        assert (await ask(model)).stop_reason is StopReason.PAUSE


@both
async def test_a_continuation_that_fails_fails_the_call(
    ask: Callable[..., Any], nothing_left: None
) -> None:
    """MOD-13, MOD-14: another try begins at the beginning; what was spent is told."""
    busy = respond_json({"error": {"type": "overloaded_error", "message": "m"}}, status=529)
    async with ByteServer(replies.reply(pause("One.")), busy) as server, client(server) as model:
        with pytest.raises(OverloadedError):
            await ask(model)


async def test_leaving_a_continued_stream_early_closes_it(nothing_left: None) -> None:
    """D2: the second connection too."""
    later = replies.reply("x" * 1000, broken_by=Close())
    async with ByteServer(replies.reply(pause("One.")), later) as server, client(server) as model:
        seen: list[StreamEvent] = []
        async with model.stream(ASK) as events:
            async for event in events:
                seen.append(event)
                if len(server.requests) == 2:
                    break
        await server.wait_closed()
    assert len(server.requests) == 2


# -- what goes wrong --------------------------------------------------------------------------


def failed(type: str, message: str = "m", status: int = 400, **headers: str) -> Script:
    document = {"type": "error", "error": {"type": type, "message": message}, "request_id": "r"}
    return respond_json(document, status=status, headers=headers)


LONG = "prompt is too long: 210000 tokens > 200000 maximum"
FAULTS: dict[str, tuple[Script, type[ModelError]]] = {
    "reset at once": ((Reset(),), ConnectError),
    "close at once": ((Close(),), ConnectError),
    "400": (failed("invalid_request_error"), ModelError),
    "401": (failed("authentication_error", status=401), AuthError),
    "402": (failed("billing_error", status=402), QuotaError),
    "credit": (failed("invalid_request_error", "Your credit balance is too low"), QuotaError),
    "404": (failed("not_found_error", status=404), NotFoundError),
    "429": (failed("rate_limit_error", status=429, **{"Retry-After": "3"}), RateLimitError),
    "500": (failed("api_error", status=500), ServerError),
    "504": (failed("timeout_error", status=504), ServerError),
    "529": (failed("overloaded_error", status=529), OverloadedError),
    "overflow": (failed("invalid_request_error", LONG), ContextOverflowError),
    "a page": (respond("<html>", headers={"Content-Type": "text/html"}), InvalidResponseError),
    "no json": (respond("{", headers={"Content-Type": "application/json"}), InvalidResponseError),
    "an error in a 200": (failed("api_error", status=200), ServerError),
}


@both
@pytest.mark.parametrize("name", FAULTS)
async def test_what_goes_wrong_before_a_reply_is_a_typed_error(
    name: str, ask: Callable[..., Any], nothing_left: None
) -> None:
    """MOD-11, MOD-12, B6, E1, E4: with provider, model and request id, streamed and not."""
    script, kind = FAULTS[name]
    async with ByteServer(script) as server, client(server, provider="acme") as model:
        with pytest.raises(kind) as caught:
            await ask(model)
    assert (caught.value.provider, caught.value.model) == ("acme", "m")
    assert caught.value.retry_after == (3.0 if name == "429" else None)
    assert caught.value.recoverable == (
        name in ("429", "500", "504", "529") or "at once" in name or name == "an error in a 200"
    )
    if name == "overflow":
        assert isinstance(caught.value, ContextOverflowError)
        assert (caught.value.used, caught.value.limit) == (210_000, 200_000)
        assert caught.value.request_id == "r"


CUTS: dict[str, tuple[list[Any], type[ModelError]]] = {
    "reset": ([Reset()], ConnectError),
    "close": ([Close()], StreamIncomplete),
    "end": ([], StreamIncomplete),
    "garbage": (["data: {nonsense\n\n"], InvalidResponseError),
    "invalid utf-8": ([b"data: \xff\n\n"], InvalidResponseError),
    "error event": (
        [sse({"type": "error", "error": {"type": "overloaded_error"}}, event="error")],
        OverloadedError,
    ),
    "overflow": (
        [sse({"type": "error", "error": {"type": "invalid_request_error", "message": LONG}})],
        ContextOverflowError,
    ),
}


@pytest.mark.parametrize("name", CUTS)
async def test_a_fault_at_any_event_of_a_stream_is_a_typed_error(
    name: str, nothing_left: None
) -> None:
    """B6, B7, MOD-8: nothing before message_stop is a reply."""
    fault, kind = CUTS[name]
    scripts = [respond_sse(*FRAMES[:at], *fault) for at in range(len(FRAMES))]
    async with ByteServer(*scripts) as server, client(server) as model:
        for at in range(len(FRAMES)):
            with pytest.raises(kind) as caught:
                await streamed(model)
            assert type(caught.value) is kind, at


# -- counting and listing ---------------------------------------------------------------------


async def test_tokens_are_counted_by_the_server(nothing_left: None) -> None:
    """MOD-19: the same input, without what only a reply needs."""
    tool = ToolSchema(name="add", description="Add.", input_schema={"type": "object"})
    options = RequestOptions(max_output_tokens=5, stop=("x",), thinking_effort="low")
    request = ModelRequest(messages=ASK.messages, system="s", tools=(tool,), options=options)
    async with (
        ByteServer(respond_json({"input_tokens": 42})) as server,
        client(server, BOUND, api_key="k") as model,
    ):
        assert await model.count_tokens(request) == 42
    (asked,) = server.requests
    assert (asked.method, asked.path) == ("POST", "/v1/messages/count_tokens")
    assert asked.headers["authorization"] == "Bearer k"
    counted, whole = asked.json(), json.loads(model.encode(request).body)
    assert counted == {name: whole[name] for name in counted}
    assert whole.keys() - counted.keys() == {"max_tokens", "stop_sequences"}


async def test_models_are_listed_with_their_limits(nothing_left: None) -> None:
    """MOD-19: page by page; a server that tells none, or never ends, is no trouble."""
    first = {"id": "a", "max_input_tokens": 10, "max_tokens": 5, "type": "model"}
    pages = [
        {"data": [first, {"no": "id"}], "has_more": True, "last_id": "a"},
        {"data": [{"id": "b", "max_tokens": None}], "has_more": True, "last_id": "b"},
        {"data": [], "has_more": True, "last_id": "b"},
    ]
    async with ByteServer(*map(respond_json, pages)) as server, client(server) as model:
        assert await model.list_models() == [
            ModelInfo(id="a", context_window=10, max_output=5),
            ModelInfo(id="b"),
        ]
    targets = [request.path for request in server.requests]
    assert targets == [
        "/v1/models?limit=1000",
        "/v1/models?limit=1000&after_id=a",
        "/v1/models?limit=1000&after_id=b",
    ]


@pytest.mark.parametrize("reply", [{}, [], {"input_tokens": "7", "data": {}}])
async def test_a_strange_answer_is_a_typed_error(reply: Any, nothing_left: None) -> None:
    """MOD-11: of the endpoints beside the messages too."""
    scripts = [respond_json(reply)] * 2 + [failed("authentication_error", status=401)] * 2
    async with ByteServer(*scripts) as server, client(server) as model:
        for kind in (InvalidResponseError, AuthError):
            with pytest.raises(kind):
                await model.count_tokens(ASK)
            with pytest.raises(kind):
                await model.list_models()


async def test_a_given_http_client_is_used_and_left_open(nothing_left: None) -> None:
    """MOD-6: the caller's transport."""

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(
            200, content=replies.body("Hi"), headers={"Content-Type": "application/json"}
        )

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as given:
        async with AnthropicClient("m", base_url="http://h", http_client=given) as model:
            assert (await completed(model)).message.text == "Hi"
        assert not given.is_closed


@pytest.mark.parametrize(
    ("options", "named"),
    [({"base_url": "api.anthropic.com"}, "base_url"), ({"api_key": "kéy"}, "api_key")],
)
async def test_settings_that_cannot_work_are_refused(options: dict[str, Any], named: str) -> None:
    """MOD-6: when the client is made."""
    with pytest.raises(ConfigError, match=named):
        AnthropicClient("m", **options)


async def test_the_window_is_known_or_told() -> None:
    """MOD-3, MOD-27: of the model; `None` when nobody knows it."""
    assert AnthropicClient("claude-haiku-4-5-20251001").context_window == 200_000
    assert AnthropicClient("claude-of-tomorrow").context_window == 1_000_000
    assert AnthropicClient("m", base_url="http://h").context_window is None
    assert AnthropicClient("m", context_window=5).context_window == 5
