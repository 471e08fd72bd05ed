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
from loopctl.messages import Message, ThinkingPart, ToolCallPart, ToolResultPart
from loopctl.models.client import ModelClient, ModelInfo, ModelRequest
from loopctl.models.connect import connect
from loopctl.models.gemini import GeminiClient
from loopctl.models.gemini.messages import EMPTY, OF_CALL
from loopctl.models.providers import PROVIDERS, first_configured
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
from loopctl.usage import Usage
from loopctl.wire.accumulator import Accumulator
from tests.models.gemini.replies import MODEL, body, chunk, events, reply

ASK = ModelRequest(messages=(Message.user("hi"),))
ANSWER = Message.assistant("Hello there", call("add", id="x1", a=1))
FRAMES = events(ANSWER)
PROVIDER = PROVIDERS["gemini"]


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*PROVIDER.keys, *PROVIDER.urls, "GOOGLE_GENAI_API_VERSION"):
        monkeypatch.delenv(name, raising=False)


def client(server: Any, **options: Any) -> GeminiClient:
    return GeminiClient(MODEL, base_url=server.url, **options)


async def streamed(gemini: ModelClient, request: ModelRequest = ASK) -> ModelResponse:
    accumulator = Accumulator()
    async with gemini.stream(request) as told:
        async for event in told:
            accumulator.feed(event)
    return accumulator.response()


async def completed(gemini: ModelClient, request: ModelRequest = ASK) -> ModelResponse:
    return await gemini.complete(request)


@pytest.mark.usefixtures("no_threads_or_sockets_left")
class TestGeminiClientContract(ModelClientContract):
    unsupported = RequestOptions(thinking_effort="none")

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
        async with client(server, api_key=" key ", headers={"X-Team": "a"}) as gemini:
            assert await completed(gemini) == await streamed(gemini)
        assert server.connections == 1
        await server.wait_closed()
    first, second = server.requests
    assert first.path == f"/v1/models/{MODEL}:generateContent"
    assert second.path == f"/v1/models/{MODEL}:streamGenerateContent?alt=sse"
    assert first.headers["x-goog-api-key"] == "key"
    assert first.headers["x-team"] == "a"
    for stream, request in ((False, first), (True, second)):
        encoded = gemini.encode(ASK, stream=stream)
        assert encoded.body == request.body
        assert "x-goog-api-key" not in encoded.headers
        assert encoded.headers.items() <= request.headers.items()


@pytest.mark.anyio
async def test_a_conversation_keeps_its_signatures(nothing_left: None) -> None:
    """MOD-20, C7: from the bytes of a reply to the bytes of the next request."""
    sent: list[dict[str, Any]] = [
        {"functionCall": {"name": "add", "args": {"a": 1}, "id": "x1"}, "thoughtSignature": "S+/="},
        {"functionCall": {"name": "add", "args": {"a": 2}, "id": "x2"}},
    ]
    last = {"text": "", "thoughtSignature": "T"}
    first = respond_sse(sse(chunk(*sent)), sse(chunk(last, finish="STOP")))
    async with ByteServer(first, reply("Two.")) as server, client(server) as gemini:
        said = (await streamed(gemini)).message
        calls = said.calls
        results = [ToolResultPart(c.id, c.name, "2") for c in calls]
        await streamed(gemini, ModelRequest(messages=(*ASK.messages, said, Message.user(*results))))
    assert [part.kind for part in said.parts if isinstance(part, ThinkingPart)] == [OF_CALL, EMPTY]
    assert server.requests[1].json()["contents"][1]["parts"] == [*sent, last]


ERROR = {"error": {"code": 429, "message": "slow", "status": "RESOURCE_EXHAUSTED"}}
WAIT = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "3s"}
LIMITED = {"error": {**ERROR["error"], "details": [WAIT]}}
BAD_KEY = {"error": {"code": 400, "message": "m", "details": [{"reason": "API_KEY_INVALID"}]}}
OVERFLOW = {
    "error": {
        "code": 400,
        "message": "The input token count (9) exceeds the maximum number of tokens allowed (8).",
        "status": "INVALID_ARGUMENT",
    }
}

WHOLE_FAULTS: dict[str, tuple[Script, type[ModelError]]] = {
    "reset at once": ((Reset(),), ConnectError),
    "close at once": ((Close(),), ConnectError),
    "429": (respond_json(ERROR, status=429, headers={"Retry-After": "3"}), RateLimitError),
    "429 with details": (respond_json([LIMITED], status=429), RateLimitError),
    "bad key": (respond_json(BAD_KEY, status=400), AuthError),
    "500": (respond("oops", status=500), ServerError),
    "529": (respond("", status=529), OverloadedError),
    "overflow": (respond_json(OVERFLOW, status=400), ContextOverflowError),
    "redirect": (respond("", status=302, headers={"Location": "/"}), NotFoundError),
    "a page": (respond("<html>", headers={"Content-Type": "text/html"}), InvalidResponseError),
    "no json": (respond("{", headers={"Content-Type": "application/json"}), InvalidResponseError),
    "an error in a 200": (respond_json([ERROR]), RateLimitError),
    "no candidates": (respond_json({}), StreamIncomplete),
}


@pytest.mark.anyio
@pytest.mark.parametrize("ask", [completed, streamed])
@pytest.mark.parametrize("name", WHOLE_FAULTS)
async def test_what_goes_wrong_before_a_reply_is_a_typed_error(
    name: str, ask: Callable[[ModelClient], Any], nothing_left: None
) -> None:
    """MOD-11, B6, E1, E4: with provider and model, streamed and not."""
    script, kind = WHOLE_FAULTS[name]
    async with ByteServer(script) as server, client(server, provider="acme") as gemini:
        with pytest.raises(kind) as caught:
            await ask(gemini)
    assert type(caught.value) is kind
    assert (caught.value.provider, caught.value.model) == ("acme", MODEL)
    assert caught.value.retry_after == (3.0 if name.startswith("429") else None)


CUTS: dict[str, tuple[list[Any], type[ModelError]]] = {
    "reset": ([Reset()], ConnectError),
    "close": ([Close()], StreamIncomplete),
    "end": ([], StreamIncomplete),
    "garbage": (["data: {nonsense\n\n"], InvalidResponseError),
    "invalid utf-8": ([b"data: \xff\n\n"], InvalidResponseError),
    "error object": ([sse(ERROR)], RateLimitError),
    "bare error": ([json.dumps(OVERFLOW, indent=2)], ContextOverflowError),
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
    async with ByteServer(*scripts) as server, client(server) as gemini:
        for at in places:
            with pytest.raises(kind) as caught:
                await streamed(gemini)
            assert type(caught.value) is kind, at
            assert caught.value.model == MODEL


@pytest.mark.anyio
async def test_a_connection_is_kept_after_a_stream(nothing_left: None) -> None:
    """MOD-5: there is no last event, so the body is read to its end anyway."""
    script = respond_sse(*FRAMES)
    async with ByteServer(script, script, script) as server, client(server) as gemini:
        for _ in range(3):
            await streamed(gemini)
        assert server.connections == 1


@pytest.mark.anyio
async def test_a_compressed_stream_that_is_cut_short_is_incomplete(nothing_left: None) -> None:
    """B7: half of the bytes of a gzip body, whole ones too."""
    packed = gzip.compress(b"".join(FRAMES), mtime=0)
    headers = {"Content-Encoding": "gzip"}
    scripts = [respond_sse(packed[:-30], headers=headers), respond_sse(packed, headers=headers)]
    async with ByteServer(*scripts) as server, client(server) as gemini:
        with pytest.raises(StreamIncomplete):
            await streamed(gemini)
        assert (await streamed(gemini)).message.text == "Hello there"


@pytest.mark.anyio
async def test_a_server_without_streams_is_understood(nothing_left: None) -> None:
    """MOD-4: a whole reply, or an array of the chunks, where a stream was asked for."""
    array = [json.loads(frame.removeprefix(b"data: ")) for frame in FRAMES]
    scripts = [respond_json(array), respond_json(json.loads(body(ANSWER)))]
    async with ByteServer(*scripts) as server, client(server) as gemini:
        assert (await streamed(gemini)).message == (await streamed(gemini)).message == ANSWER


@pytest.mark.anyio
async def test_what_a_failed_reply_cost_is_told(nothing_left: None) -> None:
    """MOD-15, J4: usage of a call that the model got wrong."""
    cost = Usage(input_tokens=7, output_tokens=3)
    failed = chunk(finish="MALFORMED_FUNCTION_CALL", said="add(1", usage=cost)
    async with ByteServer(respond_json(failed)) as server, client(server) as gemini:
        with pytest.raises(ServerError, match="add") as caught:
            await completed(gemini)
    assert caught.value.usage == cost


@pytest.mark.anyio
async def test_a_blocked_prompt_is_a_refusal_and_not_a_failure(nothing_left: None) -> None:
    """MOD-13: with status 200 and without candidates."""
    blocked = respond_json({"promptFeedback": {"blockReason": "SAFETY"}})
    async with ByteServer(blocked, blocked) as server, client(server) as gemini:
        for ask in (completed, streamed):
            response = await ask(gemini)
            assert (response.stop_reason, response.raw_stop_reason) == (StopReason.FILTER, "SAFETY")


@pytest.mark.anyio
async def test_tokens_are_counted_by_the_api(nothing_left: None) -> None:
    """MOD-19, J2: of the whole request; an answer without a count is none."""
    scripts = [respond_json({"totalTokens": 31}), respond_json([]), respond_json(ERROR, status=429)]
    async with ByteServer(*scripts) as server, client(server) as gemini:
        assert await gemini.count_tokens(ASK) == 31
        with pytest.raises(InvalidResponseError, match="totalTokens"):
            await gemini.count_tokens(ASK)
        with pytest.raises(RateLimitError):
            await gemini.count_tokens(ASK)
    (first, *_) = server.requests
    assert first.path == f"/v1/models/{MODEL}:countTokens"
    counted = first.json()["generateContentRequest"]
    assert counted.pop("model") == f"models/{MODEL}"
    assert counted == json.loads(gemini.encode(ASK).body)


@pytest.mark.anyio
async def test_the_list_of_models_reveals_the_window(nothing_left: None) -> None:
    """MOD-3, MOD-19: page by page, those that can answer; what the API says counts more."""
    own = {"name": f"models/{MODEL}", "inputTokenLimit": 99, "outputTokenLimit": 9}
    other = {"name": "models/e", "supportedGenerationMethods": ["embedContent"]}
    tuned = {"name": "tunedModels/t", "supportedGenerationMethods": ["generateContent"]}
    again = {"models": [tuned], "nextPageToken": "p/2"}  # a page that names itself is the last
    pages = [{"models": [own, other], "nextPageToken": "p/2"}, again, {}]
    scripts = map(respond_json, pages)
    async with ByteServer(*scripts) as server, client(server, api_key="k") as gemini:
        assert gemini.context_window == 1_048_576
        assert await gemini.list_models() == [
            ModelInfo(id=MODEL, context_window=99, max_output=9),
            ModelInfo(id="tunedModels/t"),
        ]
        assert gemini.context_window == 99
        assert await gemini.list_models() == []
    assert [request.path for request in server.requests] == [
        "/v1/models?pageSize=1000",
        "/v1/models?pageSize=1000&pageToken=p%2F2",
        "/v1/models?pageSize=1000",
    ]
    assert {request.method for request in server.requests} == {"GET"}
    assert server.requests[0].headers["x-goog-api-key"] == "k"


def test_the_address_says_which_version_is_meant() -> None:
    """MOD-6: added where it is missing, the model quoted, queries kept."""
    made = {
        GeminiClient("m"): "https://generativelanguage.googleapis.com/v1/models/m",
        GeminiClient("m", api_version="v1beta", base_url="http://h/"): "http://h/v1beta/models/m",
        GeminiClient("tunedModels/a b", base_url="http://h/v1"): "http://h/v1/tunedModels/a%20b",
        GeminiClient(
            "m", base_url="https://h/v1beta1/projects/p/locations/l/publishers/google"
        ): "https://h/v1beta1/projects/p/locations/l/publishers/google/models/m",
    }
    for gemini, url in made.items():
        assert gemini.encode(ASK).url == f"{url}:generateContent"
    queried = GeminiClient("m", base_url="https://h/v1?key=k").encode(ASK, stream=True).url
    assert queried == "https://h/v1/models/m:streamGenerateContent?key=k&alt=sse"


def test_the_request_may_name_another_model() -> None:
    """MOD-3: an override for one request, in the address and in what the model is sent."""
    request = ModelRequest(
        messages=(Message.user("q"), Message.assistant(ToolCallPart("c", "add", {}))),
        options=RequestOptions(model="gemini-2.5-flash"),
    )
    encoded = GeminiClient(MODEL).encode(request)
    assert encoded.url.endswith("/models/gemini-2.5-flash:generateContent")
    assert b"thoughtSignature" not in encoded.body


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"base_url": "generativelanguage.googleapis.com"}, "base_url"),
        ({"base_url": "http://[::bad"}, "base_url"),
        ({"api_key": "kéy"}, "api_key"),
    ],
)
def test_settings_that_cannot_work_are_refused(options: dict[str, Any], named: str) -> None:
    """MOD-6: when the client is made."""
    with pytest.raises(ConfigError, match=named):
        GeminiClient("m", **options)


def test_the_window_is_known_or_told() -> None:
    """MOD-3, MOD-27: of the model; `None` when nobody knows it."""
    assert GeminiClient("gemini-3.8-flash").context_window == 1_048_576
    assert GeminiClient("gemini-9-nobody-knows").context_window is None
    assert GeminiClient("m", context_window=5).context_window == 5


def test_connect_knows_the_prefix_its_keys_and_its_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """MOD-6: GOOGLE_API_KEY wins; the version by variable or argument."""
    with pytest.raises(ConfigError, match="GOOGLE_API_KEY"):
        connect("gemini:m")
    monkeypatch.setenv("GEMINI_API_KEY", "second")
    assert first_configured() == f"gemini:{MODEL}"
    made = connect("gemini:m")
    assert isinstance(made, GeminiClient)
    assert (made.model, made.provider) == ("m", "gemini")
    assert made.encode(ASK).url.startswith("https://generativelanguage.googleapis.com/v1/models/m:")
    assert made._secret == {"x-goog-api-key": "second"}
    monkeypatch.setenv("GOOGLE_API_KEY", "first")
    monkeypatch.setenv("GOOGLE_GENAI_API_VERSION", "beta")
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", "https://proxy.example")
    made = connect("gemini:m")
    assert isinstance(made, GeminiClient)
    assert made._secret == {"x-goog-api-key": "first"}
    assert made.encode(ASK).url.startswith("https://proxy.example/v1beta/models/m:")
    made = connect("gemini:m", api_version="v1alpha")
    assert isinstance(made, GeminiClient)
    assert "/v1alpha/" in made.encode(ASK).url
    with pytest.raises(ConfigError, match="api_version"):
        connect("gemini:m", api_versio="v1")


def test_connecting_imports_no_sdk() -> None:
    """MOD-5: neither an HTTP library nor an SDK before the first request."""
    code = (
        "import sys; from loopctl.models.connect import connect;"
        "connect('gemini:m', api_key='k');"
        "sys.exit(bool({'httpx', 'google.genai'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.anyio
async def test_cancelling_a_stream_closes_its_connection(nothing_left: None) -> None:
    """MOD-14, D2: every wait can be cancelled, also the one for the end of the body."""
    stall = Stall()
    async with ByteServer(respond_sse(*FRAMES, stall)) as server, client(server) as gemini:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(streamed, gemini)
            await server.wait_reached(stall)
            tasks.cancel_scope.cancel()
        await server.wait_closed()
