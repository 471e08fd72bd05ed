from __future__ import annotations

import gzip
import json
import subprocess
import sys
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
    QuotaError,
    RateLimitError,
    ServerError,
    StreamIncomplete,
)
from loopctl.messages import Message, ThinkingPart, ToolResultPart
from loopctl.models.client import ModelClient, ModelInfo, ModelRequest, ToolSchema
from loopctl.models.openai_responses import OpenAIResponsesClient
from loopctl.models.openai_responses.messages import PHASE, REASONING
from loopctl.replies import ModelResponse, StopReason
from loopctl.testing import (
    ByteServer,
    Close,
    Reset,
    Script,
    Stall,
    call,
    respond,
    respond_json,
    respond_sse,
    sse,
    threaded,
)
from loopctl.testing.contracts import Bench, ModelClientContract, Served
from loopctl.wire.accumulator import Accumulator
from tests.models.openai_responses.replies import (
    MODEL,
    document,
    documents,
    events,
    message,
    reply,
)

ASK = ModelRequest(messages=(Message.user("hi"),))
ANSWER = Message.assistant("Hello there", call("add", id="c1", a=1))
FRAMES = events(ANSWER)


def client(server: Any, **options: Any) -> OpenAIResponsesClient:
    return OpenAIResponsesClient(MODEL, base_url=server.url, **{"profile": "openai", **options})


async def streamed(responses: ModelClient, request: ModelRequest = ASK) -> ModelResponse:
    accumulator = Accumulator()
    async with responses.stream(request) as told:
        async for event in told:
            accumulator.feed(event)
    return accumulator.response()


async def completed(responses: ModelClient, request: ModelRequest = ASK) -> ModelResponse:
    return await responses.complete(request)


@pytest.mark.usefixtures("no_threads_or_sockets_left")
class TestOpenAIResponsesClientContract(ModelClientContract):
    unsupported = RequestOptions(stop=("x",))

    @contextmanager
    def serve(self, *replies: Served) -> Generator[Bench, None, None]:
        scripts = [
            reply(each) if isinstance(each, Message) else reply(each.message, broken_by=each.by)
            for each in replies
        ]
        with threaded(*scripts) as server:
            yield Bench(client=client(server, api_key="k"), server=server)


@pytest.mark.anyio
async def test_whole_and_streamed_replies_are_equal_over_the_network(nothing_left: None) -> None:
    """MOD-3, MOD-4: on one kept connection; the key rides in a header and not in `encode`."""
    async with ByteServer(reply(ANSWER), reply(ANSWER)) as server:
        async with client(server, api_key=" key ", headers={"X-Team": "a"}) as responses:
            assert await completed(responses) == await streamed(responses)
        assert server.connections == 1
        await server.wait_closed()
    first, second = server.requests
    assert first.path == second.path == "/responses"
    assert first.headers["authorization"] == "Bearer key"
    assert first.headers["x-team"] == "a"
    for stream, request in ((False, first), (True, second)):
        encoded = responses.encode(ASK, stream=stream)
        assert encoded.body == request.body
        assert "authorization" not in encoded.headers
        assert encoded.headers.items() <= request.headers.items()


ADD = ToolSchema(name="add", description="Add.", input_schema={"type": "object"})
SEALED = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "S+/=é\u2028"}
THOUGHT = ThinkingPart(signature=json.dumps(SEALED), provider="openai", kind=REASONING)
COMMENT = ThinkingPart(signature="commentary", provider="openai", kind=PHASE)
THOUGHTFUL = Message.assistant(
    THOUGHT, COMMENT, "Let me add.", call("add", id="c1", a=1), call("add", id="c2", a=2)
)


@pytest.mark.anyio
@pytest.mark.parametrize("ask", [completed, streamed])
async def test_a_conversation_keeps_its_reasoning_and_its_phases(
    ask: Callable[..., Any], nothing_left: None
) -> None:
    """MOD-20, MOD-26, A13: from the bytes of a reply to the bytes of the next request."""
    first = ModelRequest(messages=ASK.messages, system="s", tools=(ADD,))
    async with ByteServer(*[reply(THOUGHTFUL)] * 3) as server, client(server) as responses:
        said = (await ask(responses, first)).message
        assert said.parts[0].prefix == responses.encode(first).prefix
        answer = Message.user(*[ToolResultPart(c.id, c.name, "2") for c in said.calls])
        after = (*ASK.messages, said, answer)
        await ask(responses, ModelRequest(messages=after, system="s", tools=(ADD,)))
        await ask(responses, ModelRequest(messages=after, system="other", tools=(ADD,)))
    kept, lost = (request.json()["input"] for request in server.requests[1:])
    assert kept[1] == SEALED
    assert [item["type"] for item in kept[1:]] == [
        "reasoning",
        "message",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
    ]
    assert kept[2]["phase"] == "commentary"
    assert [item.get("id") for item in kept] == [None, "rs_1", *[None] * 5]
    assert lost == [item for item in kept if item != SEALED]


ERROR = {"error": {"message": "m", "type": "invalid_request_error", "code": None, "param": None}}


def error(code: str, text: str = "m") -> dict[str, Any]:
    return {"error": {"message": text, "type": "invalid_request_error", "code": code}}


OVERFLOW = error("context_length_exceeded", "Your input exceeds the context window of this model.")
STATUSES: dict[str, tuple[Script, type[ModelError]]] = {
    "400": (respond_json(ERROR, status=400), BadRequestError),
    "overflow": (respond_json(OVERFLOW, status=400), ContextOverflowError),
    "a blob that is not known": (
        respond_json(error("invalid_encrypted_content"), status=400),
        BadRequestError,
    ),
    "401": (respond_json(error("invalid_api_key"), status=401), AuthError),
    "a bad key at xAI": (
        respond_json({"error": "Incorrect API key provided: x", "code": "c"}, status=400),
        AuthError,
    ),
    "404": (respond_json(error("model_not_found"), status=404), NotFoundError),
    "429": (
        respond_json(
            error("rate_limit_exceeded"), status=429, headers={"Retry-After": "3", "x": "y"}
        ),
        RateLimitError,
    ),
    "money": (respond_json(error("insufficient_quota"), status=429), QuotaError),
    "500": (respond("oops", status=500), ServerError),
    "503": (respond_json(error("server_is_overloaded"), status=503), OverloadedError),
    "529": (respond("", status=529), OverloadedError),
    "a page": (respond("<html>", headers={"Content-Type": "text/html"}), InvalidResponseError),
    "no json": (respond("{", headers={"Content-Type": "application/json"}), InvalidResponseError),
    "an error in a 200": (respond_json(error("server_error")), ServerError),
    "no output": (respond_json({}), InvalidResponseError),
}


@pytest.mark.anyio
@pytest.mark.parametrize("ask", [completed, streamed])
@pytest.mark.parametrize("name", STATUSES)
async def test_what_goes_wrong_before_a_reply_is_a_typed_error(
    name: str, ask: Callable[[ModelClient], Any], nothing_left: None
) -> None:
    """MOD-11, MOD-12, B6, E1, E4: with provider and model, streamed and not."""
    script, kind = STATUSES[name]
    async with ByteServer(script) as server, client(server, provider="acme") as responses:
        with pytest.raises(kind) as caught:
            await ask(responses)
    assert type(caught.value) is kind
    assert (caught.value.provider, caught.value.model) == ("acme", MODEL)
    assert caught.value.retry_after == (3.0 if name == "429" else None)


CUTS: dict[str, tuple[list[Any], type[ModelError]]] = {
    "reset": ([Reset()], ConnectError),
    "close": ([Close()], StreamIncomplete),
    "end": ([], StreamIncomplete),
    "done without an end": ([sse("[DONE]")], StreamIncomplete),
    "garbage": (["data: {nonsense\n\n"], InvalidResponseError),
    "invalid utf-8": ([b"data: \xff\n\n"], InvalidResponseError),
    "error event": ([sse({"type": "error", "code": "slow_down", "message": "m"})], OverloadedError),
    "error object": ([sse(error("rate_limit_exceeded"))], RateLimitError),
    "overflow": (
        [sse({"type": "response.failed", "response": OVERFLOW | {"status": "failed"}})],
        ContextOverflowError,
    ),
    "long line": ([b"data: " + b"x" * 1024 * 1024 + b"x\n\n"], InvalidResponseError),
}


@pytest.mark.anyio
@pytest.mark.parametrize("name", CUTS)
async def test_a_fault_at_any_event_of_a_stream_is_a_typed_error(
    name: str, nothing_left: None
) -> None:
    """B6, B7, MOD-8: the matrix of faults over the places in a stream; none is a reply."""
    fault, kind = CUTS[name]
    places = range(len(FRAMES))
    scripts = [respond_sse(*FRAMES[:at], *fault) for at in places]
    async with ByteServer(*scripts) as server, client(server) as responses:
        for at in places:
            with pytest.raises(kind) as caught:
                await streamed(responses)
            assert type(caught.value) is kind, at
            assert caught.value.model == MODEL


@pytest.mark.anyio
async def test_a_connection_is_kept_after_a_stream(nothing_left: None) -> None:
    """MOD-5: also where something follows the terminal event."""
    script = respond_sse(*FRAMES, sse("[DONE]"))
    async with ByteServer(script, script, script) as server, client(server) as responses:
        for _ in range(3):
            await streamed(responses)
        assert server.connections == 1


@pytest.mark.anyio
async def test_a_compressed_stream_that_is_cut_short_is_incomplete(nothing_left: None) -> None:
    """B7: half of the bytes of a gzip body, whole ones too."""
    packed = gzip.compress(b"".join(FRAMES), mtime=0)
    headers = {"Content-Encoding": "gzip"}
    scripts = [respond_sse(data, headers=headers) for data in (packed[: len(packed) // 2], packed)]
    async with ByteServer(*scripts) as server, client(server) as responses:
        with pytest.raises(StreamIncomplete):
            await streamed(responses)
        assert (await streamed(responses)).message == ANSWER


@pytest.mark.anyio
async def test_a_server_without_streams_is_understood(nothing_left: None) -> None:
    """MOD-4: a whole reply where a stream was asked for."""
    async with ByteServer(respond_json(document(ANSWER))) as server, client(server) as responses:
        assert (await streamed(responses)).message == ANSWER


@pytest.mark.anyio
async def test_a_blocked_prompt_is_a_refusal_and_not_a_failure(nothing_left: None) -> None:
    """MOD-13: with status 400, in a failed response, and in one that is cut."""
    blocked = error("content_filter", "blocked")
    cut = {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}
    scripts = [
        respond_json(blocked, status=400),
        respond_json({**document(""), **blocked, "status": "failed"}),
        respond_json({**document(""), **cut}),
    ]
    async with ByteServer(*scripts * 2) as server, client(server) as responses:
        for ask in (completed, streamed):
            for _ in scripts:
                response = await ask(responses)
                assert response.stop_reason is StopReason.FILTER
                assert response.raw_stop_reason == "content_filter"


@pytest.mark.anyio
async def test_tokens_are_counted_by_the_api(nothing_left: None) -> None:
    """MOD-19, J2: of the whole request; an answer without a count is none."""
    request = ModelRequest(messages=ASK.messages, system="s", tools=(ADD,))
    limited = respond_json(error("rate_limit_exceeded"), status=429)
    scripts = [respond_json({"input_tokens": 31}), respond_json([]), limited]
    async with ByteServer(*scripts) as server, client(server, api_key="k") as responses:
        assert await responses.count_tokens(request) == 31
        with pytest.raises(InvalidResponseError, match="count"):
            await responses.count_tokens(ASK)
        with pytest.raises(RateLimitError):
            await responses.count_tokens(ASK)
    (first, *_) = server.requests
    assert first.path == "/responses/input_tokens"
    assert first.headers["authorization"] == "Bearer k"
    sent = json.loads(responses.encode(request).body)
    assert first.json() == {n: sent[n] for n in ("model", "instructions", "tools", "input")}


@pytest.mark.anyio
async def test_the_list_of_models_may_reveal_the_window(nothing_left: None) -> None:
    """MOD-3, MOD-19: OpenAI's does not; where a server tells it, it counts more than the facts."""
    scripts = [
        respond_json({"object": "list", "data": [{"id": MODEL, "object": "model", "created": 1}]}),
        respond_json({"data": [{"id": MODEL, "max_model_len": 99}, {"id": "b"}, {}]}),
    ]
    async with ByteServer(*scripts) as server, client(server, api_key="k") as responses:
        assert await responses.list_models() == [ModelInfo(id=MODEL)]
        assert responses.context_window == 1_050_000
        found = await responses.list_models()
        assert found == [ModelInfo(id=MODEL, context_window=99), ModelInfo(id="b")]
        assert responses.context_window == 99
    assert {(request.method, request.path) for request in server.requests} == {("GET", "/models")}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"base_url": "api.openai.com/v1"}, "base_url"),
        ({"base_url": "http://[::bad"}, "base_url"),
        ({"api_key": "kéy"}, "api_key"),
        ({"profile": "open_ai"}, "profile"),
    ],
)
def test_settings_that_cannot_work_are_refused(options: dict[str, Any], named: str) -> None:
    """MOD-6: when the client is made."""
    with pytest.raises(ConfigError, match=named):
        OpenAIResponsesClient("m", **options)


def test_the_window_is_known_or_told() -> None:
    """MOD-3, MOD-27: of the model; `None` when nobody knows it."""
    assert OpenAIResponsesClient("gpt-6-sol-2026-06-01").context_window == 1_050_000
    assert OpenAIResponsesClient("gpt-9-nobody-knows").context_window is None
    assert OpenAIResponsesClient("m", context_window=5).context_window == 5


def test_connecting_imports_no_sdk() -> None:
    """MOD-5: neither an HTTP library nor an SDK before the first request."""
    code = (
        "import sys; from loopctl.models.connect import connect;"
        "connect('openai:m', api_key='k');"
        "sys.exit(bool({'httpx', 'openai'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.anyio
async def test_cancelling_a_stream_closes_its_connection(nothing_left: None) -> None:
    """MOD-14, D2: every wait can be cancelled, also the one for the end of the body."""
    for at in (3, len(FRAMES)):
        stall = Stall()
        script = respond_sse(*FRAMES[:at], stall)
        async with ByteServer(script) as server, client(server) as responses:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(streamed, responses)
                await server.wait_reached(stall)
                tasks.cancel_scope.cancel()
            await server.wait_closed()


@pytest.mark.anyio
async def test_a_refusal_is_no_answer(nothing_left: None) -> None:
    """MOD-13: its words are on the response, in a stream and without."""
    said = message("msg_1", {"type": "refusal", "refusal": "No."})
    whole = document("", [said])
    frames = [sse(each) for each in documents("")[:2]]
    frames.append(sse({"type": "response.completed", "response": whole}))
    scripts = [respond_json(whole), respond_sse(*frames)]
    async with ByteServer(*scripts) as server, client(server) as responses:
        for ask in (completed, streamed):
            response = await ask(responses)
            assert (response.stop_reason, response.refusal) == (StopReason.REFUSAL, "No.")
