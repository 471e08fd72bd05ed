from __future__ import annotations

import base64
import itertools
import json
import random
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from google import genai
from google.genai import types
from hypothesis import given, settings
from hypothesis import strategies as st

from loopctl.errors import (
    BadRequestError,
    ContextOverflowError,
    InvalidResponseError,
    ModelError,
    OverloadedError,
    QuotaError,
    RateLimitError,
    ServerError,
    StreamIncomplete,
)
from loopctl.messages import Message, TextPart, ThinkingPart, ToolCallPart, ToolResultPart
from loopctl.models.client import ModelRequest
from loopctl.models.gemini import GeminiClient
from loopctl.models.gemini.messages import EMPTY, OF_CALL, OF_TEXT, THOUGHT, VERBATIM
from loopctl.models.gemini.stream import ChunkReader, GeminiDecoder
from loopctl.replies import ModelResponse, StopReason
from loopctl.testing import sse
from loopctl.usage import Usage
from loopctl.wire.accumulator import Accumulator
from loopctl.wire.stream_events import MessageStart, PartStop, StreamEvent
from tests.models.gemini.replies import MODEL, body, chunk, events

Q = Message.user("q")


def decoder() -> GeminiDecoder:
    return GeminiDecoder(provider="gemini", model="m", request_id="req-1")


def read(*documents: Any) -> ModelResponse:
    """The reply of which these are the data of the events."""
    gemini, accumulator = decoder(), Accumulator()
    for document in documents:
        data = document if isinstance(document, str) else json.dumps(document)
        for event in gemini.feed(data):
            accumulator.feed(event)
    for event in gemini.finish():
        accumulator.feed(event)
    return accumulator.response()


def thinking(kind: str, signature: str | None = None, text: str = "") -> ThinkingPart:
    return ThinkingPart(text, signature=signature, kind=kind, provider="gemini", model=MODEL)


def call(name: str, id: str | None = None, signature: str | None = None, **args: Any) -> Any:
    made: dict[str, Any] = {"functionCall": {"name": name, "args": args}}
    if id is not None:
        made["functionCall"]["id"] = id
    return made if signature is None else {**made, "thoughtSignature": signature}


END = chunk({"text": ""}, finish="STOP")


def test_text_comes_in_increments() -> None:
    """MOD-4, MOD-8: one part, whole when a finish reason has come and the body has ended."""
    response = read(chunk({"text": "Hel"}), chunk({"text": "lo"}), END)
    assert response.message == Message.assistant("Hello")
    assert (response.stop_reason, response.raw_stop_reason) == (StopReason.END, "STOP")
    assert (response.model, response.response_id, response.request_id) == (
        MODEL,
        "resp-1",
        "req-1",
    )


def test_calls_come_whole_in_one_chunk_or_in_several() -> None:
    """B17: the label is STOP, the content decides; ids are the API's where it gives them."""
    for chunks in (
        [chunk(call("add", "x1", a=1), call("look", "x2"), finish="STOP")],
        [chunk(call("add", "x1", a=1)), chunk(call("look", "x2")), END],
    ):
        response = read(*chunks)
        assert (response.stop_reason, response.raw_stop_reason) == (StopReason.TOOL_CALLS, "STOP")
        assert response.message.calls == (
            ToolCallPart("x1", "add", '{"a":1}'),
            ToolCallPart("x2", "look", "{}"),
        )
    first, second = read(chunk(call("add"), call("add")), END).message.calls
    assert first.id.startswith("call_")
    assert first.id != second.id


def test_a_call_is_told_to_be_complete() -> None:
    """MOD-4: nothing of it is still to come."""
    told = decoder().feed(json.dumps(chunk(call("add", "x1"))))
    assert isinstance(told[-1], PartStop)


@pytest.mark.parametrize("arguments", [None, {}, "", "missing"])
def test_absent_arguments_are_an_empty_object(arguments: Any) -> None:
    """B14: null, empty and missing."""
    given: dict[str, Any] = {"name": "now", "args": arguments}
    if arguments == "missing":
        del given["args"]
    assert read(chunk({"functionCall": given}), END).message.calls[0].arguments == "{}"


def test_a_call_told_twice_is_one_call_and_its_signature_goes_with_it() -> None:
    """B18, C7: same id, name and arguments; other arguments are another call."""
    twice = call("add", "x1", "S1", a=1)
    response = read(chunk(twice), chunk(twice, call("look", "x2")), END)
    assert response.message == Message.assistant(
        thinking(OF_CALL, "S1"),
        ToolCallPart("x1", "add", '{"a":1}'),
        ToolCallPart("x2", "look", "{}"),
    )
    other = read(chunk(call("add", "x1", a=1), call("add", "x1", a=2)), END).message.calls
    assert len({made.id for made in other}) == 2


def test_signatures_stand_in_front_of_what_they_sign() -> None:
    """A13, MOD-20: on a thought, a text, a call, an empty text; never merged with what has none."""
    response = read(
        chunk({"text": "h", "thought": True}),
        chunk({"text": "m", "thought": True}),
        chunk({"text": "!", "thought": True, "thoughtSignature": "S0"}),
        chunk({"text": "pl"}),
        chunk({"text": "ain"}),
        chunk({"text": "signed", "thoughtSignature": "S1"}),
        chunk({"text": "plain again"}),
        chunk(call("add", "x1", "S2+/=="), call("look", "x2")),
        chunk({"text": "", "thoughtSignature": "S3"}, finish="STOP"),
    )
    assert response.message == Message.assistant(
        thinking(THOUGHT, text="hm"),
        thinking(THOUGHT, "S0", "!"),
        "plain",
        thinking(OF_TEXT, "S1"),
        "signed",
        "plain again",
        thinking(OF_CALL, "S2+/=="),
        ToolCallPart("x1", "add", "{}"),
        ToolCallPart("x2", "look", "{}"),
        thinking(EMPTY, "S3"),
    )
    bare = read(chunk({"thoughtSignature": "S"}), END)
    assert bare.message == Message.assistant(thinking(EMPTY, "S"))


def test_parts_that_have_no_name_here_are_kept_as_they_came() -> None:
    """MOD-20: what the API ran itself must go back to it."""
    part = {"executableCode": {"code": "1", "language": "PYTHON"}, "thoughtSignature": "S"}
    (kept,) = read(chunk(part), END).message.parts
    assert isinstance(kept, ThinkingPart)
    assert kept.kind == VERBATIM
    assert json.loads(kept.signature or "") == part


def test_odd_chunks_pass() -> None:
    """B5, B8: blanks, comments, no candidates, null content, no parts, other candidates."""
    response = read(
        "",
        " ",
        ": keep-alive",
        {},
        {"candidates": []},
        {"candidates": None, "usageMetadata": {"promptTokenCount": 3}},
        {"candidates": [{"content": None}]},
        {"candidates": [{"content": {"role": "model"}}]},
        {"candidates": [{"content": {"parts": None}}]},
        {"candidates": [{"content": {"parts": [{}, None]}}]},
        {"candidates": [{"index": 1, "content": {"parts": [{"text": "other"}]}}]},
        chunk({"text": "Hello"}, finish="STOP"),
        {"usageMetadata": {"candidatesTokenCount": 2}},
        {"promptFeedback": {"safetyRatings": []}},
    )
    assert response.message.text == "Hello"
    assert response.usage == Usage(input_tokens=3, output_tokens=2)


def test_a_finish_reason_in_the_middle_ends_nothing() -> None:
    """B17: older models say STOP with every chunk."""
    response = read(chunk({"text": "Hel"}, finish="STOP"), chunk({"text": "lo"}, finish="STOP"))
    assert response.message.text == "Hello"
    assert read(chunk({"text": "Hel"}, finish="STOP"), chunk({"text": "lo"})) == response


def test_usage_is_a_snapshot_in_each_chunk() -> None:
    """J4, MOD-10, MOD-22: the largest of each; thoughts are output, cached is a part of input."""

    def usage(**counts: int) -> dict[str, Any]:
        return {**chunk({"text": "x"}), "usageMetadata": counts}

    response = read(
        usage(promptTokenCount=20, thoughtsTokenCount=40, totalTokenCount=60),
        usage(promptTokenCount=20, candidatesTokenCount=60, toolUsePromptTokenCount=5),
        usage(promptTokenCount=20, candidatesTokenCount=9, cachedContentTokenCount=16),
        usage(promptTokenCount=5, candidatesTokenCount=-1),
        END,
    )
    assert response.usage == Usage(
        input_tokens=25, output_tokens=100, cached_tokens=16, thinking_tokens=40
    )
    assert read(chunk({"text": "x"}, finish="STOP")).usage is None
    assert read({**END, "usageMetadata": {"promptTokenCount": "3"}}).usage is None


FILTERED = """
    SAFETY RECITATION BLOCKLIST PROHIBITED_CONTENT SPII MODEL_ARMOR ESCALATION IMAGE_SAFETY
    PUP_LIMITED_DISABLED IMAGE_PROHIBITED_CONTENT IMAGE_RECITATION
""".split()


@pytest.mark.parametrize("reason", FILTERED)
def test_a_filter_is_a_refusal(reason: str) -> None:
    """MOD-13: with what the provider said, never an ordinary answer."""
    response = read(chunk({"text": "I"}), chunk(finish=reason, said="not that"))
    assert (response.stop_reason, response.refusal) == (StopReason.FILTER, "not that")
    assert (read(chunk(finish=reason)).refusal or "").endswith(reason)


@pytest.mark.parametrize("said", [None, "no"])
def test_a_blocked_prompt_is_a_refusal(said: str | None) -> None:
    """MOD-13: without candidates, with status 200; also after some text."""
    feedback = {"blockReason": "PROHIBITED_CONTENT", "blockReasonMessage": said}
    for before in ([], [chunk({"text": "I"})]):
        response = read(*before, {"promptFeedback": feedback, "modelVersion": MODEL})
        assert (response.stop_reason, response.raw_stop_reason) == (
            StopReason.FILTER,
            "PROHIBITED_CONTENT",
        )
        assert response.refusal == (said or "the prompt was blocked: PROHIBITED_CONTENT")


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("MALFORMED_FUNCTION_CALL", ServerError),
        ("MALFORMED_RESPONSE", ServerError),
        ("UNEXPECTED_TOOL_CALL", ServerError),
        ("TOO_MANY_TOOL_CALLS", ServerError),
        ("MISSING_THOUGHT_SIGNATURE", BadRequestError),
    ],
)
def test_what_the_model_got_wrong_is_an_error(reason: str, kind: type[ModelError]) -> None:
    """MOD-13, B20: another try may mend what the model did, and not what we did."""
    with pytest.raises(kind, match="call: print") as caught:
        read(chunk({"text": "I"}), chunk(finish=reason, said="call: print(add(1"))
    assert caught.value.code == reason
    assert caught.value.recoverable is (kind is ServerError)
    with pytest.raises(kind, match=reason):
        read(chunk(finish=reason))


@pytest.mark.parametrize("reason", ["OTHER", "LANGUAGE", "NO_IMAGE", "FROM_TOMORROW"])
def test_an_unknown_stop_reason_is_told(reason: str) -> None:
    """MOD-13: the provider's own word is kept; with nothing said it is an error."""
    response = read(chunk({"text": "x"}, finish=reason))
    assert (response.stop_reason, response.raw_stop_reason) == (StopReason.UNKNOWN, reason)
    with pytest.raises(InvalidResponseError, match=reason):
        read(chunk(finish=reason))


@pytest.mark.parametrize("reason", ["MAX_TOKENS", "CONTINUATION"])
def test_a_call_that_the_output_limit_may_have_cut_is_marked(reason: str) -> None:
    """B16, MOD-13: the earlier call is whole, the last one does not run."""
    response = read(chunk(call("add", "x1"), call("look", "x2"), finish=reason))
    assert response.stop_reason is StopReason.LENGTH
    assert [made.truncated for made in response.message.calls] == [False, True]
    assert read(chunk(finish=reason)).message.parts == ()


def google_error(code: int, name: str, text: str, *details: Any) -> dict[str, Any]:
    said = {"code": code, "message": text, "status": name, "details": list(details)}
    return {"error": said}


ERRORS: dict[str, tuple[dict[str, Any], type[ModelError]]] = {
    "overloaded": (google_error(503, "UNAVAILABLE", "busy"), OverloadedError),
    "limited": (
        google_error(429, "RESOURCE_EXHAUSTED", "slow", {"retryDelay": "14s"}),
        RateLimitError,
    ),
    "quota": (
        google_error(429, "RESOURCE_EXHAUSTED", "q", {"violations": [{"quotaId": "xPerDay"}]}),
        QuotaError,
    ),
    "internal": (google_error(500, "INTERNAL", "oops"), ServerError),
    "overflow": (
        google_error(
            400, "INVALID_ARGUMENT", "The input token count (9) exceeds the maximum number of "
            "tokens allowed (8)."
        ),
        ContextOverflowError,
    ),
    "named only": ({"error": {"status": "UNAVAILABLE", "message": "busy"}}, OverloadedError),
}  # fmt: skip


@pytest.mark.parametrize("first", [True, False], ids=["first", "after text"])
@pytest.mark.parametrize("name", ERRORS)
def test_an_error_inside_a_stream_is_that_error(name: str, first: bool) -> None:
    """B6, MOD-8, MOD-12: as the first event and after partial text, in a list too."""
    document, kind = ERRORS[name]
    before = [] if first else [chunk({"text": "Hel"})]
    for said in (document, [document]):
        with pytest.raises(kind) as caught:
            read(*before, said)
        assert type(caught.value) is kind
        assert caught.value.upstream == document["error"]["message"]
        assert (caught.value.provider, caught.value.request_id) == ("gemini", "req-1")
        assert caught.value.retry_after == (14.0 if name == "limited" else None)


def frames(data: bytes, cuts: list[int]) -> Iterator[str]:
    reader = ChunkReader(max_body=10**7)
    edges = [0, *sorted(cut for cut in cuts if cut <= len(data)), len(data)]
    for start, end in itertools.pairwise(edges):
        for event in reader.feed(data[start:end]):
            yield event.data
    reader.close()


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("ending", ["", "\n", "\r\n\r\n"])
@pytest.mark.parametrize("name", ["overloaded", "overflow"])
def test_an_error_may_stand_between_the_events_as_bare_text(
    name: str, ending: str, indent: int | None
) -> None:
    """B6: pretty-printed over many lines, without `data:`; however it is cut (MOD-7)."""
    document, kind = ERRORS[name]
    said = json.dumps(document, indent=indent) + ending
    for before in ([], [chunk({"text": "Hel"})]):
        stream = b"".join(sse(each) for each in before) + said.encode()
        uncut = list(frames(stream, []))
        for cut in range(len(stream)):
            assert list(frames(stream, [cut])) == uncut
            with pytest.raises(kind):
                read(*frames(stream, [cut]))


@pytest.mark.parametrize("text", ["{", '{"error": {\n"a": 1', "[\n]x", "}", "garbage"])
def test_bare_text_that_is_no_json_is_an_incomplete_reply(text: str) -> None:
    """B7: nothing is success without a finish reason; what follows is still read."""
    with pytest.raises(StreamIncomplete):
        read(*frames(text.encode(), []))
    assert read(*frames(text.encode() + b"\n\n" + sse(END), [])).stop_reason is StopReason.END


@pytest.mark.parametrize("chunks", [[], [{}], [chunk({"text": "Hi"})], [chunk(call("add"))]])
def test_an_end_without_a_finish_reason_is_incomplete(chunks: list[dict[str, Any]]) -> None:
    """B7, MOD-8: text and calls alike; a whole reply too."""
    with pytest.raises(StreamIncomplete):
        read(*chunks)
    for each in chunks:
        with pytest.raises(StreamIncomplete):
            decoder().whole(json.dumps(each).encode())


@pytest.mark.parametrize("data", ["{", "3", "[1]", "nonsense", '{"a":' * 5000, "[DONE]"])
def test_what_is_no_json_object_is_a_typed_error(data: str) -> None:
    """MOD-8: garbage inside a stream."""
    with pytest.raises(InvalidResponseError):
        decoder().feed(data)


def test_an_array_of_chunks_is_a_whole_reply() -> None:
    """MOD-4: what a server answers that does not know `alt=sse`."""
    gemini, accumulator = decoder(), Accumulator()
    for event in gemini.whole(
        json.dumps([chunk({"text": "Hel"}), chunk({"text": "lo"}), END]).encode()
    ):
        accumulator.feed(event)
    assert accumulator.response().message.text == "Hello"


REPLIES: dict[str, ModelResponse] = {
    "text": ModelResponse(message=Message.assistant("Hello 你好🙂 \u2028 there")),
    "calls": ModelResponse(
        message=Message.assistant(
            thinking(THOUGHT, text="hm, let me see"),
            "I shall add and look.",
            thinking(OF_CALL, "c2lnbmF0dXJl"),
            ToolCallPart("x1", "add", '{"a":1,"text":"é\\n"}'),
            ToolCallPart("x2", "look", "{}"),
        ),
        stop_reason=StopReason.TOOL_CALLS,
        usage=Usage(input_tokens=9, output_tokens=7, cached_tokens=2, thinking_tokens=3),
    ),
    "signed text": ModelResponse(
        message=Message.assistant("x", thinking(OF_TEXT, "c2ln"), "y", thinking(EMPTY, "c2lo"))
    ),
    "cut": ModelResponse(message=Message.assistant("x"), stop_reason=StopReason.LENGTH),
    "refusal": ModelResponse(
        message=Message.assistant("I"), stop_reason=StopReason.FILTER, refusal="No."
    ),
}


def streamed(data: bytes, cuts: list[int]) -> ModelResponse:
    return read(*frames(data, cuts))


@pytest.mark.parametrize("name", REPLIES)
def test_whole_and_streamed_replies_make_equal_messages(name: str) -> None:
    """MOD-4: one set of rules; cut at every byte the stream says the same (MOD-7, B1, B4)."""
    reply = REPLIES[name]
    gemini, accumulator = decoder(), Accumulator()
    for event in gemini.whole(body(reply)):
        accumulator.feed(event)
    whole = accumulator.response()
    assert whole.message == reply.message
    data = b"".join(events(reply))
    for cut in range(len(data)):
        assert streamed(data, [cut]) == whole
    assert whole.stop_reason is reply.stop_reason


def test_chunks_of_the_tests_are_chunks_of_the_sdk() -> None:
    """MOD-24: what our tests stream is what the API streams."""
    for reply in REPLIES.values():
        types.GenerateContentResponse.model_validate(json.loads(body(reply)))


class Pieces(httpx.SyncByteStream):
    def __init__(self, data: bytes, cuts: list[int]) -> None:
        edges = [0, *sorted(cuts), len(data)]
        self._pieces = [data[start:end] for start, end in itertools.pairwise(edges)]

    def __iter__(self) -> Iterator[bytes]:
        yield from self._pieces


class Official:
    """The SDK's chat over a transport that answers with given bytes, cut in given places."""

    def __init__(self) -> None:
        self._asked: list[Any] = []
        self._answer: tuple[bytes, list[int]] = b"", []
        self.http = httpx.Client(transport=httpx.MockTransport(self._play))
        options = types.HttpOptions(httpx_client=self.http, base_url="http://h")
        self._client = genai.Client(api_key="x", http_options=options)

    def _play(self, request: httpx.Request) -> httpx.Response:
        self._asked.append(json.loads(request.content))
        headers = {"content-type": "text/event-stream"}
        return httpx.Response(200, headers=headers, stream=Pieces(*self._answer))

    def told(self, data: bytes, cuts: list[int]) -> tuple[list[Any], str, Any]:
        """What the chat sends back of a reply, flat; its text; and why it stopped."""
        self._asked, self._answer = [], (data, cuts)
        chat = self._client.chats.create(model=MODEL)
        chunks = list(chat.send_message_stream("q"))
        list(chat.send_message_stream("again"))
        contents = self._asked[1]["contents"][1:-1]
        said = [part for content in contents for part in content["parts"]]
        parts = [part for each in chunks for part in (each.parts or []) if not part.thought]
        last = chunks[-1].candidates
        text = "".join(part.text or "" for part in parts)
        return said, text, last[0].finish_reason if last else None


@pytest.fixture(scope="module")
def official() -> Iterator[Official]:
    made = Official()
    with made.http:
        yield made


def flat(parts: list[Any]) -> list[Any]:
    """Parts with increments joined that no signature keeps apart; empty ones left out."""
    out: list[Any] = []
    for part in parts:
        part = {name: value for name, value in part.items() if value not in (None, False)}
        if set(part) <= {"text", "thought"} and out and set(out[-1]) == set(part):
            out[-1] = {**part, "text": out[-1]["text"] + part["text"]}
        elif part not in ({"text": ""}, {"text": "", "thought": True}):
            out.append(part)
    return out


texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12).filter(str.strip)
secrets = st.binary(min_size=1, max_size=9).map(  # in the alphabet that the SDK writes
    lambda data: base64.urlsafe_b64encode(data).decode()
)
arguments = st.dictionaries(texts, st.integers(-9, 9) | texts | st.none(), max_size=2)
said = st.builds(lambda text: [TextPart(text)], texts)
signed_text = st.builds(
    lambda text, secret: [thinking(OF_TEXT, secret), TextPart(text)], texts, secrets
)
summaries = st.builds(lambda text: [thinking(THOUGHT, text=text)], texts)
signed_summaries = st.builds(lambda text, s: [thinking(THOUGHT, s, text)], texts, secrets)
plain_calls = st.builds(lambda a: [ToolCallPart("", "add", json.dumps(a))], arguments)
signed_calls = st.builds(
    lambda a, secret: [thinking(OF_CALL, secret), ToolCallPart("", "look", json.dumps(a))],
    arguments,
    secrets,
)
empties = st.builds(lambda secret: [thinking(EMPTY, secret)], secrets)
contents = st.lists(
    said | signed_text | summaries | signed_summaries | plain_calls | signed_calls | empties,
    min_size=1,
    max_size=6,
)


@settings(max_examples=60)
@given(contents, st.booleans(), st.integers())
def test_the_official_sdk_puts_the_same_message_together(
    official: Official, made: list[list[Any]], with_ids: bool, seed: int
) -> None:
    """MOD-24: generated streams, cut at random, in the SDK's chat and here: both send it back."""
    parts = list(itertools.chain.from_iterable(made))
    if with_ids:
        parts = [
            ToolCallPart(f"x{n}", part.name, part.arguments)
            if isinstance(part, ToolCallPart)
            else part
            for n, part in enumerate(parts)
        ]
    reply = ModelResponse(
        message=Message.assistant(*parts), usage=Usage(input_tokens=3, output_tokens=4)
    )
    data = b"".join(events(reply))
    draw = random.Random(seed)
    cuts = [draw.randrange(len(data)) for _ in range(5)]
    theirs, text, finish = official.told(data, cuts)
    ours = streamed(data, cuts)
    assert ours.message.text == text
    assert ours.raw_stop_reason == finish == "STOP"
    results = [ToolResultPart(made.id, made.name, "1") for made in ours.message.calls]
    behind = Message.user(*results, "again")
    request = ModelRequest(messages=(Q, ours.message, behind))
    encoded = json.loads(GeminiClient(MODEL).encode(request).body)
    sent = encoded["contents"][1]["parts"] if encoded["contents"][1]["role"] == "model" else []
    for part in sent:
        if part.get("thoughtSignature") == "skip_thought_signature_validator":
            del part["thoughtSignature"]  # the SDK leaves it to the API to complain
    if not ours.message.text and not ours.message.calls:
        assert sent == []  # nothing was said
    else:
        assert flat(sent) == flat(theirs)


@pytest.mark.parametrize("event", [chunk({"text": "x"}), {"promptFeedback": {"blockReason": "S"}}])
def test_a_message_starts_once(event: dict[str, Any]) -> None:
    """MOD-4: with the first candidate, or with the refusal."""
    gemini = decoder()
    told: list[StreamEvent] = [*gemini.feed(json.dumps(event)), *gemini.feed(json.dumps(event))]
    assert len([e for e in told if isinstance(e, MessageStart)]) == 1
