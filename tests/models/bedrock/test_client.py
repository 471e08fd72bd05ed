from __future__ import annotations

import datetime
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from botocore.session import Session

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
from loopctl.messages import Message, ThinkingPart, ToolResultPart
from loopctl.models.bedrock import BedrockClient
from loopctl.models.bedrock.facts import endpoint
from loopctl.models.bedrock.stream import REASONING
from loopctl.models.client import ModelClient, ModelInfo, ModelRequest, ToolSchema
from loopctl.models.connect import connect
from loopctl.replies import ModelResponse, StopReason
from loopctl.testing import (
    ByteServer,
    Close,
    FixedClock,
    Reset,
    Script,
    Stall,
    call,
    respond,
    respond_json,
    threaded,
)
from loopctl.testing.byte_server import ReceivedRequest
from loopctl.testing.contracts import Bench, ModelClientContract, Served
from loopctl.wire.accumulator import Accumulator
from loopctl.wire.sigv4 import AwsCredentials, sign
from tests.models.bedrock.replies import (
    MODEL,
    body,
    event,
    events,
    exception,
    reply,
    respond_error,
    respond_frames,
    respond_whole,
)

ASK = ModelRequest(messages=(Message.user("hi"),))
ANSWER = Message.assistant("Hello there", call("add", id="x1", a=1))
FRAMES = events(ANSWER)
KEYS = AwsCredentials(access_key="AKID", secret_key="secret", session_token="token")
NOW = datetime.datetime(2026, 11, 30, 12, tzinfo=datetime.UTC)
MANTLE = "https://bedrock-runtime.us-east-1.amazonaws.com"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))


def client(server: Any, **options: Any) -> BedrockClient:
    options = {"api_key": "k", "base_url": server.url, **options}
    return BedrockClient(MODEL, **options)


async def streamed(bedrock: ModelClient, request: ModelRequest = ASK) -> ModelResponse:
    accumulator = Accumulator()
    async with bedrock.stream(request) as told:
        async for each in told:
            accumulator.feed(each)
    return accumulator.response()


async def completed(bedrock: ModelClient, request: ModelRequest = ASK) -> ModelResponse:
    return await bedrock.complete(request)


class TestBedrockClient(ModelClientContract):
    """MOD-3, MOD-4, MOD-5, MOD-8: what every client must keep."""

    unsupported = RequestOptions(temperature=1.5)

    @contextmanager
    def serve(self, *replies: Served) -> Generator[Bench, None, None]:
        scripts = [
            reply(each) if isinstance(each, Message) else reply(each.message, broken_by=each.by)
            for each in replies
        ]
        with threaded(*scripts) as server:
            yield Bench(client=client(server), server=server)


@pytest.mark.anyio
async def test_whole_and_streamed_replies_are_equal_over_the_network(nothing_left: None) -> None:
    """MOD-3, MOD-4: on one kept connection; the token rides in a header and not in `encode`."""
    async with ByteServer(reply(ANSWER), reply(ANSWER)) as server:
        async with client(server, api_key=" key ", headers={"X-Team": "a"}) as bedrock:
            assert await completed(bedrock) == await streamed(bedrock)
        assert server.connections == 1
        await server.wait_closed()
    first, second = server.requests
    assert first.path == f"/model/{MODEL}/converse"
    assert second.path == f"/model/{MODEL}/converse-stream"
    assert first.headers["authorization"] == "Bearer key"
    assert first.headers["x-team"] == "a"
    for stream, request in ((False, first), (True, second)):
        encoded = bedrock.encode(ASK, stream=stream)
        assert encoded.body == request.body
        assert "authorization" not in encoded.headers
        assert encoded.headers.items() <= request.headers.items()


def verified(request: ReceivedRequest, server: Any, credentials: AwsCredentials) -> bool:
    """Whether the signature that came covers the request as it came."""
    names = request.headers["authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
    given = {name: request.headers[name] for name in names if not name.startswith("x-amz-")}
    expected = sign(
        credentials,
        region="eu-central-1",
        service="bedrock",
        now=NOW,
        method=request.method,
        url=server.url + request.path,
        headers=given,
        body=request.body,
    )
    return expected.items() <= request.headers.items()


@pytest.mark.anyio
@pytest.mark.parametrize("model", [MODEL, "amazon.nova-pro-v1:0", "arn:aws:bedrock:x-1:1:a/b c"])
async def test_a_request_is_signed_as_it_reaches_the_server(model: str, nothing_left: None) -> None:
    """MOD-19: the path is not written anew on its way, the host is the one that is asked."""
    async with ByteServer(reply("Hi"), reply("Hi"), reply("Hi")) as server:
        bedrock = BedrockClient(
            model,
            base_url=server.url,
            credentials=KEYS,
            region="eu-central-1",
            headers={"X-Team": "a   b"},
            clock=FixedClock(NOW),
        )
        async with bedrock:
            await completed(bedrock)
            await streamed(bedrock)
            await completed(bedrock)
    assert all(verified(request, server, KEYS) for request in server.requests)
    first, second, third = server.requests
    assert first.headers == third.headers
    assert first.headers["x-amz-security-token"] == "token"
    assert first.headers["authorization"] != second.headers["authorization"]
    assert "secret" not in str(first.headers)
    assert first.path == bedrock.encode(ASK).url.removeprefix(server.url)
    assert ":" not in first.path


@pytest.mark.anyio
async def test_credentials_come_from_the_environment_and_the_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, nothing_left: None
) -> None:
    """MOD-6: nothing is sent without them; a refusal makes the files be read again."""
    refused = respond_error("ExpiredTokenException", 403)
    scripts = (reply("a"), refused, reply("b"), reply("c"))
    async with ByteServer(*scripts) as server, client(server, api_key=None) as bedrock:
        with pytest.raises(ConfigError, match="no region|no AWS credentials"):
            await completed(bedrock)
        assert server.requests == []
        shared, config = tmp_path / "credentials", tmp_path / "config"
        shared.write_text("[default]\naws_access_key_id=ONE\naws_secret_access_key=s\n")
        with pytest.raises(ConfigError, match="no region"):
            await completed(bedrock)
        config.write_text("[default]\nregion = eu-central-1\n")
        await completed(bedrock)
        shared.write_text("[default]\naws_access_key_id=TWO\naws_secret_access_key=s\n")
        with pytest.raises(AuthError):
            await completed(bedrock)
        await completed(bedrock)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "THREE")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
        monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "not in the clear")
        await completed(bedrock)
    told = [request.headers["authorization"].split("/")[0] for request in server.requests]
    assert [each.rpartition("=")[2] for each in told] == ["ONE", "ONE", "TWO", "THREE"]
    assert all("/eu-central-1/bedrock/" in r.headers["authorization"] for r in server.requests)


@pytest.mark.anyio
async def test_a_bearer_token_of_the_environment_comes_before_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """MOD-6: over TLS, and unless a profile was asked for."""
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", " token ")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    bedrock = BedrockClient(MODEL, region="us-east-1")
    encoded = bedrock.encode(ASK)
    assert await bedrock._credentials(encoded) == {"authorization": "Bearer token"}
    given = BedrockClient(MODEL, region="us-east-1", credentials=KEYS)
    assert "Credential=AKID/" in (await given._credentials(encoded))["authorization"]
    profile = BedrockClient(MODEL, region="us-east-1", profile="nowhere")
    with pytest.raises(ConfigError, match="nowhere"):
        await profile._credentials(encoded)


@pytest.mark.anyio
async def test_the_region_of_the_profile_is_found_with_the_first_request(tmp_path: Path) -> None:
    """MOD-6: in a thread; until then there is no address to encode for."""
    bedrock = BedrockClient(MODEL, api_key="k", profile="work")
    with pytest.raises(ConfigError, match="AWS_REGION"):
        bedrock.encode(ASK)
    for ask in (completed, streamed):
        with pytest.raises(ConfigError, match="AWS_REGION"):
            await ask(bedrock)
    (tmp_path / "config").write_text("[profile work]\nregion = ap-south-1\n", encoding="utf-8")
    await bedrock._locate()
    assert bedrock.encode(ASK).url.startswith("https://bedrock-runtime.ap-south-1.amazonaws.com/")
    (tmp_path / "config").write_text("[profile work]\nregion = evil.example/\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="evil"):
        await BedrockClient(MODEL, api_key="k", profile="work")._locate()


REGIONS = [
    "us-east-1",
    "eu-central-1",
    "us-gov-west-1",
    "cn-north-1",
    "us-iso-east-1",
    "us-isob-east-1",
    "eu-isoe-west-1",
    "us-isof-south-1",
    "eusc-de-east-1",
    "il-central-1",
]


@pytest.mark.parametrize("region", REGIONS)
def test_a_region_has_the_address_that_the_official_library_knows(region: str) -> None:
    """MOD-6, MOD-24: whatever its partition."""
    official = Session().create_client(
        "bedrock-runtime", region_name=region, aws_access_key_id="a", aws_secret_access_key="b"
    )
    assert endpoint(region) == official.meta.endpoint_url


def test_where_is_said_in_one_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """MOD-6: argument, address, ARN, environment."""
    arn = "arn:aws:bedrock:eu-west-1:1:inference-profile/eu.anthropic.claude-opus-4-6"
    with pytest.raises(ConfigError, match="AWS_REGION"):
        BedrockClient(MODEL).encode(ASK)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "sa-east-1")
    assert BedrockClient(MODEL).region == "sa-east-1"
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    assert BedrockClient(MODEL).region == "us-west-2"
    assert BedrockClient(arn).region == "eu-west-1"
    address = "https://bedrock-runtime-fips.us-gov-west-1.amazonaws.com/"
    made = BedrockClient(arn, base_url=address)
    assert (made.region, made.base_url) == ("us-gov-west-1", address.rstrip("/"))
    assert BedrockClient(arn, base_url=address, region="us-east-2").region == "us-east-2"
    proxied = BedrockClient(MODEL, base_url="https://proxy.example/aws")
    assert proxied.region == "us-west-2"
    assert proxied.encode(ASK).url == f"https://proxy.example/aws/model/{MODEL}/converse"
    quoted = BedrockClient(arn).encode(ASK, stream=True).url
    assert quoted.endswith(
        "/model/arn%3Aaws%3Abedrock%3Aeu-west-1%3A1%3Ainference-profile%2F"
        "eu.anthropic.claude-opus-4-6/converse-stream"
    )


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"base_url": "bedrock-runtime.us-east-1.amazonaws.com"}, "base_url"),
        ({"region": "us-east-1.evil.example/"}, "region"),
        ({"region": "us-east-1", "api_key": "kéy"}, "api_key"),
    ],
)
def test_settings_that_cannot_work_are_refused(options: dict[str, Any], named: str) -> None:
    """MOD-6: when the client is made."""
    with pytest.raises(ConfigError, match=named):
        BedrockClient("m", **options)


def test_connect_knows_the_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    """MOD-6: region, profile and credentials are its own options; addresses by variable."""
    made = connect("bedrock:amazon.nova-pro-v1:0", region="us-east-1")
    assert isinstance(made, BedrockClient)
    assert (made.model, made.provider) == ("amazon.nova-pro-v1:0", "bedrock")
    assert made.context_window == 300_000
    assert made.encode(ASK).url == f"{MANTLE}/model/amazon.nova-pro-v1%3A0/converse"
    monkeypatch.setenv("AWS_REGION", "eu-west-3")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://all.example")
    made = connect("bedrock:m", credentials=KEYS, profile="work", context_window=5)
    assert isinstance(made, BedrockClient)
    assert (made.base_url, made.region, made.context_window) == (
        "https://all.example",
        "eu-west-3",
        5,
    )
    monkeypatch.setenv("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", "https://own.example")
    made = connect("bedrock:m", api_key="k")
    assert isinstance(made, BedrockClient)
    assert (made.base_url, made._secret) == ("https://own.example", {"authorization": "Bearer k"})
    with pytest.raises(ConfigError, match="did you mean 'region'"):
        connect("bedrock:m", regio="us-east-1")


def test_connecting_imports_no_sdk() -> None:
    """MOD-5: neither an HTTP library nor an SDK before the first request."""
    code = (
        "import sys; from loopctl.models.connect import connect;"
        "connect('bedrock:m', region='us-east-1');"
        "sys.exit(bool({'httpx', 'botocore'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.anyio
async def test_a_conversation_keeps_its_reasoning(nothing_left: None) -> None:
    """MOD-20, MOD-26: from the bytes of a reply to the bytes of the next request."""
    model = "anthropic.claude-opus-5-5"
    thought = ThinkingPart("", signature="S+/=", provider="bedrock", model=model, kind=REASONING)
    said = Message.assistant(thought, call("add", id="x1", a=1))
    asked = RequestOptions(model=model)
    tools = (ToolSchema(name="add", description="Add.", input_schema={"type": "object"}),)
    ask = ModelRequest(messages=ASK.messages, tools=tools, options=asked)
    scripts = (reply(said), reply("Two."), reply("Two."))
    async with ByteServer(*scripts) as server, client(server) as bedrock:
        first = await streamed(bedrock, ask)
        (part, _) = first.message.parts
        assert isinstance(part, ThinkingPart)
        assert part.prefix == bedrock.encode(ask).prefix
        follow = (*ask.messages, first.message, Message.user(ToolResultPart("x1", "add", "2")))
        after = replace(ask, messages=follow)
        await completed(bedrock, after)
        await completed(bedrock, replace(after, system="new"))
    kept, gone = [json.loads(request.body)["messages"][1] for request in server.requests[1:]]
    block = {"reasoningContent": {"reasoningText": {"text": "", "signature": "S+/="}}}
    assert kept["content"][0] == block
    assert [*gone["content"][0]] == ["toolUse"]


OVERFLOW = "Input is too long for requested model."

WHOLE_FAULTS: dict[str, tuple[Script, type[ModelError]]] = {
    "reset at once": ((Reset(),), ConnectError),
    "close at once": ((Close(),), ConnectError),
    "429": (respond_error("ThrottlingException", 429, Retry_After="3"), RateLimitError),
    "not ready": (respond_error("ModelNotReadyException", 429), RateLimitError),
    "quota": (respond_error("ServiceQuotaExceededException", 400), QuotaError),
    "bad key": (respond_error("UnrecognizedClientException", 403), AuthError),
    "no model": (respond_error("ResourceNotFoundException", 404), NotFoundError),
    "timeout": (respond_error("ModelTimeoutException", 408), ServerError),
    "500": (respond("oops", status=500), ServerError),
    "503": (respond_error("ServiceUnavailableException", 503), OverloadedError),
    "529": (respond("", status=529), OverloadedError),
    "overflow": (respond_error("ValidationException", 400, OVERFLOW), ContextOverflowError),
    "a page": (respond("<html>", headers={"Content-Type": "text/html"}), InvalidResponseError),
    "no json": (respond_whole(b"{"), InvalidResponseError),
    "an error in a 200": (
        respond_whole(b'{"__type":"ThrottlingException","message":"m"}'),
        RateLimitError,
    ),
    "nothing": (respond_whole(b"{}"), InvalidResponseError),
}


@pytest.mark.anyio
@pytest.mark.parametrize("ask", [completed, streamed])
@pytest.mark.parametrize("name", WHOLE_FAULTS)
async def test_what_goes_wrong_before_a_reply_is_a_typed_error(
    name: str, ask: Callable[[ModelClient], Any], nothing_left: None
) -> None:
    """MOD-11, MOD-12, B6, E1, E4: with provider, model and request id, streamed and not."""
    script, kind = WHOLE_FAULTS[name]
    async with ByteServer(script) as server, client(server, provider="acme") as bedrock:
        with pytest.raises(kind) as caught:
            await ask(bedrock)
    assert type(caught.value) is kind
    assert (caught.value.provider, caught.value.model) == ("acme", MODEL)
    if caught.value.code is not None and name != "429":
        assert caught.value.request_id == "req-1"


CUTS: dict[str, tuple[list[Any], type[ModelError]]] = {
    "reset": ([Reset()], ConnectError),
    "close": ([Close()], StreamIncomplete),
    "end": ([], StreamIncomplete),
    "garbage": ([b"data: {nonsense\n\n"], InvalidResponseError),
    "half a frame": ([FRAMES[1][:-3]], StreamIncomplete),
    "a damaged frame": ([FRAMES[1][:-5] + b"x" + FRAMES[1][-4:]], InvalidResponseError),
    "no document": ([event("contentBlockDelta", b"[]")], InvalidResponseError),
    "exception": ([exception("throttlingException", {"message": "m"})], RateLimitError),
    "overflow": ([exception("validationException", {"message": OVERFLOW})], ContextOverflowError),
    "a long frame": ([event("contentBlockDelta", b"x" * (1024 * 1024 + 1))], InvalidResponseError),
}


@pytest.mark.anyio
@pytest.mark.parametrize("name", CUTS)
async def test_a_fault_at_any_frame_of_a_stream_is_a_typed_error(
    name: str, nothing_left: None
) -> None:
    """B6, B7, MOD-7, MOD-8: the matrix of faults over the places in a stream; none is a reply."""
    fault, kind = CUTS[name]
    places = range(len(FRAMES) - 1)  # the last frame only counts tokens
    scripts = [respond_frames(*FRAMES[:at], *fault) for at in places]
    async with ByteServer(*scripts) as server, client(server) as bedrock:
        for at in places:
            with pytest.raises(kind) as caught:
                await streamed(bedrock)
            assert type(caught.value) is kind, at
            assert (caught.value.provider, caught.value.model) == ("bedrock", MODEL)


@pytest.mark.anyio
async def test_a_stream_without_its_usage_is_a_reply(nothing_left: None) -> None:
    """MOD-8, B8: the terminal signal has come; and a connection that is read out is kept."""
    short, long = respond_frames(*FRAMES[:-1]), respond_frames(*FRAMES)
    async with ByteServer(short, long, long) as server, client(server) as bedrock:
        bare, counted = await streamed(bedrock), await streamed(bedrock)
        await streamed(bedrock)
        assert server.connections == 1
    assert (bare.message, bare.usage) == (counted.message, None)
    assert counted.usage is not None


@pytest.mark.anyio
async def test_a_compressed_stream_that_is_cut_short_is_incomplete(nothing_left: None) -> None:
    """B7: half of the bytes of a gzip body; whole ones are read."""
    packed = gzip.compress(b"".join(FRAMES), mtime=0)
    headers = {"Content-Encoding": "gzip"}
    scripts = [respond_frames(packed[: len(packed) // 2], **headers)]
    scripts.append(respond_frames(packed, **headers))
    async with ByteServer(*scripts) as server, client(server) as bedrock:
        with pytest.raises(StreamIncomplete):
            await streamed(bedrock)
        assert (await streamed(bedrock)).message == ANSWER


@pytest.mark.anyio
async def test_a_server_without_streams_is_understood(nothing_left: None) -> None:
    """MOD-4: a whole reply where a stream was asked for."""
    async with ByteServer(respond_whole(body(ANSWER))) as server, client(server) as bedrock:
        assert (await streamed(bedrock)).message == ANSWER


@pytest.mark.anyio
async def test_what_a_guardrail_stopped_is_a_refusal(nothing_left: None) -> None:
    """MOD-13: with its own words, streamed and not."""
    said = ModelResponse(message=Message.assistant("Not that."), stop_reason=StopReason.REFUSAL)
    async with ByteServer(reply(said), reply(said)) as server, client(server) as bedrock:
        for ask in (completed, streamed):
            response = await ask(bedrock)
            assert (response.stop_reason, response.refusal) == (StopReason.FILTER, "Not that.")


@pytest.mark.anyio
async def test_tokens_are_counted_by_the_api(nothing_left: None) -> None:
    """MOD-19, J2: of the whole request, under the model's own id."""
    scripts = [respond_json({"inputTokens": 31}), respond_json([])]
    scripts.append(respond_error("ThrottlingException", 429))
    async with ByteServer(*scripts) as server, client(server) as bedrock:
        assert await bedrock.count_tokens(ASK) == 31
        with pytest.raises(InvalidResponseError, match="count"):
            await bedrock.count_tokens(ASK)
        with pytest.raises(RateLimitError):
            await bedrock.count_tokens(ASK)
    (first, *_) = server.requests
    assert first.path == f"/model/{MODEL.removeprefix('us.')}/count-tokens"
    assert first.json()["input"]["converse"] == json.loads(bedrock.encode(ASK).body)


@pytest.mark.anyio
async def test_models_are_listed_by_the_control_plane(nothing_left: None) -> None:
    """MOD-19: signed like all the rest; the list tells no windows."""
    listed = {"modelSummaries": [{"modelId": MODEL}, {"modelId": None}, "odd"]}
    async with ByteServer(respond_json(listed), respond_json({})) as server:
        bedrock = client(
            server,
            api_key=None,
            credentials=KEYS,
            region="eu-central-1",
            clock=FixedClock(NOW),
        )
        async with bedrock:
            assert await bedrock.list_models() == [ModelInfo(id=MODEL)]
            with pytest.raises(InvalidResponseError, match="list"):
                await bedrock.list_models()
    (first, _) = server.requests
    assert (first.method, first.path) == ("GET", "/foundation-models?byOutputModality=TEXT")
    assert verified(first, server, KEYS)
    asked: list[str] = []

    async def noted(request: Any) -> Any:
        asked.append(request.url)
        return listed

    aws = BedrockClient(MODEL, region="us-east-1", api_key="k")
    aws._ask = noted  # type: ignore[method-assign] # what goes to AWS itself
    await aws.list_models()
    address = "https://bedrock.us-east-1.amazonaws.com/foundation-models?byOutputModality=TEXT"
    assert asked == [address]


def test_the_request_may_name_another_model() -> None:
    """MOD-3: an override for one request, in the address and in what the model is sent."""
    request = ModelRequest(
        messages=ASK.messages,
        options=RequestOptions(model="amazon.nova-2-lite-v1:0", thinking_effort="low"),
    )
    encoded = BedrockClient(MODEL, region="us-east-1").encode(request)
    assert encoded.url.endswith("/model/amazon.nova-2-lite-v1%3A0/converse")
    assert b"maxReasoningEffort" in encoded.body
    assert b"cachePoint" not in encoded.body


@pytest.mark.anyio
async def test_cancelling_a_stream_closes_its_connection(nothing_left: None) -> None:
    """MOD-14, D2: every wait can be cancelled, also the one for the usage."""
    stall = Stall()
    script = respond_frames(*FRAMES[:-1], stall)
    async with ByteServer(script) as server, client(server) as bedrock:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(streamed, bedrock)
            await server.wait_reached(stall)
            tasks.cancel_scope.cancel()
        await server.wait_closed()
