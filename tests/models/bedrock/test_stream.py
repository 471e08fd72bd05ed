from __future__ import annotations

import base64
import json
import random
from functools import lru_cache
from typing import Any

import botocore.eventstream
import botocore.loaders
import botocore.model
import botocore.parsers
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopctl.errors import (
    AuthError,
    BadRequestError,
    ContextOverflowError,
    InvalidResponseError,
    ModelError,
    OverloadedError,
    RateLimitError,
    ServerError,
    StreamIncomplete,
)
from loopctl.messages import Message, Part, TextPart, ThinkingPart, ToolCallPart
from loopctl.models.bedrock.request import REPLY_TOOL
from loopctl.models.bedrock.stream import REASONING, ConverseDecoder
from loopctl.replies import ModelResponse, StopReason
from loopctl.testing import call
from loopctl.usage import Usage
from loopctl.wire.accumulator import Accumulator
from loopctl.wire.eventstream import EventFrameReader
from loopctl.wire.stream_events import MessageStart, StreamEvent
from tests.models.bedrock.replies import body, document, documents, event, events, exception, pack

Event = tuple[str, dict[str, Any]]


@lru_cache
def operation(name: str) -> Any:
    model = botocore.loaders.Loader().load_service_model("bedrock-runtime", "service-2")
    return botocore.model.ServiceModel(model).operation_model(name)


def decoder(**options: Any) -> ConverseDecoder:
    return ConverseDecoder(provider="bedrock", model="m", request_id="req-1", **options)


def decoded(data: bytes, *cuts: int, **options: Any) -> list[StreamEvent]:
    """The stream events of the bytes of a stream, cut in places."""
    reader, converse = EventFrameReader(), decoder(**options)
    found: list[StreamEvent] = []
    for begin, end in zip((0, *cuts), (*cuts, len(data)), strict=True):
        for frame in reader.feed(data[begin:end]):
            found += converse.frame(frame)
    reader.close()
    return [*found, *converse.finish()]


def gathered(found: list[StreamEvent]) -> ModelResponse:
    accumulator = Accumulator()
    for each in found:
        accumulator.feed(each)
    return accumulator.response()


def read(*given: Event | bytes, **options: Any) -> ModelResponse:
    frames = [each if isinstance(each, bytes) else event(*each) for each in given]
    return gathered(decoded(b"".join(frames), **options))


def whole(given: dict[str, Any] | bytes, **options: Any) -> ModelResponse:
    data = given if isinstance(given, bytes) else json.dumps(given).encode()
    return gathered(decoder(**options).whole(data))


def delta(index: int | None, **fields: Any) -> Event:
    where = {} if index is None else {"contentBlockIndex": index}
    return "contentBlockDelta", {**where, "delta": fields}


def opened(index: int | None, id: str = "t1", name: str = "add", **more: Any) -> Event:
    where = {} if index is None else {"contentBlockIndex": index}
    return "contentBlockStart", {
        **where,
        "start": {"toolUse": {"toolUseId": id, "name": name, **more}},
    }


def stopped(index: int) -> Event:
    return "contentBlockStop", {"contentBlockIndex": index}


def ending(reason: str | None = "end_turn", **counts: int) -> list[Event]:
    stop = {} if reason is None else {"stopReason": reason}
    return [("messageStop", stop), ("metadata", {"usage": counts})]


START: Event = ("messageStart", {"role": "assistant"})


def theirs(frames: bytes) -> dict[str, Any]:
    """The message that the official library's own reading of the frames amounts to."""
    shape = operation("ConverseStream").output_shape.members["stream"]
    parser = botocore.parsers.EventStreamJSONParser()
    buffer = botocore.eventstream.EventStreamBuffer()
    buffer.add_data(frames)
    blocks: dict[int, dict[str, Any]] = {}
    made: dict[str, Any] = {"blocks": blocks}
    for message in buffer:
        parsed = parser.parse(message.to_response_dict(), shape)
        for name, fields in parsed.items():
            if name == "messageStop":
                made["stop"] = fields["stopReason"]
            elif name == "metadata":
                made["usage"] = fields["usage"]
            elif name == "contentBlockStart":
                blocks[fields["contentBlockIndex"]] = {**fields["start"]["toolUse"], "input": ""}
            elif name == "contentBlockDelta":
                block = blocks.setdefault(fields["contentBlockIndex"], {})
                (kind, value), *_ = fields["delta"].items()
                if kind == "text":
                    block["text"] = block.get("text", "") + value
                elif kind == "toolUse":
                    block["input"] += value["input"]
                else:
                    for key, piece in value.items():
                        empty: Any = "" if isinstance(piece, str) else b""
                        block[f"reasoning {key}"] = block.get(f"reasoning {key}", empty) + piece
    return made


def as_theirs(response: ModelResponse) -> list[dict[str, Any]]:
    """The parts of our message in the shape that `theirs` gives."""
    made: list[dict[str, Any]] = []
    for part in response.message.parts:
        if isinstance(part, TextPart):
            made.append({"text": part.text})
        elif isinstance(part, ToolCallPart):
            made.append({"toolUseId": part.id, "name": part.name, "input": part.parse()})
        elif isinstance(part, ThinkingPart) and part.redacted:
            sealed = base64.b64decode(part.signature or "")
            made.append({"reasoning redactedContent": sealed})
        elif isinstance(part, ThinkingPart):
            said = {"reasoning text": part.text} if part.text else {}
            made.append(said | ({"reasoning signature": part.signature} if part.signature else {}))
    return made


def thinking(said: str, signature: str | None = None, **rest: Any) -> ThinkingPart:
    given = {"provider": "bedrock", "model": "m", "kind": REASONING, **rest}
    return ThinkingPart(said, signature=signature, **given)


TEXTS = st.text(min_size=1, max_size=40)
PARTS = st.one_of(
    st.builds(TextPart, TEXTS),
    st.builds(thinking, TEXTS, st.one_of(st.none(), TEXTS)),
    st.builds(lambda signature: thinking("", signature), TEXTS),
    st.builds(
        lambda data: thinking("", base64.b64encode(data).decode(), redacted=True),
        st.binary(min_size=1, max_size=20),
    ),
    st.builds(lambda value: ("call", value), st.one_of(st.just({}), st.dictionaries(TEXTS, TEXTS))),
)


@given(parts=st.lists(PARTS, min_size=1, max_size=5), size=st.integers(1, 9), seed=st.integers(0))
def test_any_reply_is_the_same_to_us_and_to_the_official_library(
    parts: list[Any], size: int, seed: int
) -> None:
    """MOD-4, MOD-24, MOD-7: streamed, cut anywhere, and whole."""
    said: list[Part] = [
        ToolCallPart(f"t{at}", "add", part[1]) if isinstance(part, tuple) else part
        for at, part in enumerate(parts)
    ]
    usage = Usage(input_tokens=9, output_tokens=3, cached_tokens=4, cache_write_tokens=2)
    stop = StopReason.TOOL_CALLS if any(isinstance(p, tuple) for p in parts) else StopReason.END
    answer = ModelResponse(message=Message.assistant(*said), stop_reason=stop, usage=usage)
    data = b"".join(events(answer, delta_chars=size))
    cuts = sorted(random.Random(seed).choices(range(len(data)), k=12))
    response = gathered(decoded(data, *cuts))
    assert response == whole(body(answer))
    assert response.message == answer.message
    assert (response.stop_reason, response.usage) == (stop, usage)
    found = theirs(data)
    for block in found["blocks"].values():
        if "input" in block:
            block["input"] = json.loads(block["input"] or "{}")
    assert as_theirs(response) == [found["blocks"][at] for at in sorted(found["blocks"])]
    assert response.raw_stop_reason == found["stop"]
    assert found["usage"]["inputTokens"] == 3


def test_a_whole_reply_is_read_as_the_official_library_reads_it() -> None:
    """MOD-24: the same document, byte for byte."""
    answer = Message.assistant(thinking("hm", "S+/="), "Hello 🙂", call("add", id="t1", a=1))
    parser = botocore.parsers.create_parser("rest-json")
    reply = {"status_code": 200, "headers": {}, "body": body(answer)}
    parsed = parser.parse(reply, operation("Converse").output_shape)
    content = parsed["output"]["message"]["content"]
    response = whole(body(answer))
    assert response.message == answer
    assert response.raw_stop_reason == parsed["stopReason"]
    assert content[0]["reasoningContent"]["reasoningText"] == {"text": "hm", "signature": "S+/="}
    assert [response.message.text, response.message.calls[0].parse()] == [
        content[1]["text"],
        content[2]["toolUse"]["input"],
    ]


def test_a_reply_carries_its_origin() -> None:
    """MOD-4, MOD-26: provider, model, request id and the digest that reasoning is bound to."""
    answer = Message.assistant(thinking("hm", "S"), "Hi")
    frames = [event(*each) for each in documents(answer)]
    found = decoded(b"".join(frames), prefix="digest")
    assert found[0] == MessageStart("m", None, "bedrock", "req-1", "digest", "m")
    part = gathered(found).message.parts[0]
    assert part == thinking("hm", "S", prefix="digest")
    assert gathered(found).request_id == "req-1"


def test_blocks_need_no_start_and_may_lack_their_index() -> None:
    """B9, B10: text and reasoning begin with their first delta; a new kind is a new block."""
    response = read(
        delta(0, reasoningContent={"text": "hm"}),
        delta(0, reasoningContent={"signature": "S"}),
        delta(0, text="Hel"),
        delta(None, text="lo"),
        opened(None, "t1"),
        delta(None, toolUse={"input": '{"a":'}),
        delta(None, toolUse={"input": "1}"}),
        opened(None, "t2", "look"),
        *ending("tool_use"),
    )
    assert response.message == Message.assistant(
        thinking("hm", "S"), "Hello", call("add", id="t1", a=1), call("look", id="t2")
    )


def test_a_start_that_does_not_say_of_what_opens_nothing() -> None:
    """B9: the block is what its first delta says; an image's text stays with the image."""
    response = read(
        START,
        ("contentBlockStart", {"contentBlockIndex": 0, "start": {REASONING: {}}}),
        delta(0, reasoningContent={"text": "hm", "signature": "S"}),
        stopped(0),
        ("contentBlockStart", {"contentBlockIndex": 1, "start": {}}),
        delta(1, text="Hello"),
        stopped(1),
        ("contentBlockStart", {"contentBlockIndex": 2, "start": {"image": {"format": "png"}}}),
        delta(2, text="not said"),
        *ending(),
    )
    assert response.message == Message.assistant(thinking("hm", "S"), "Hello")


def test_calls_may_share_an_index() -> None:
    """B9: a new start is a new call."""
    response = read(
        START,
        opened(0, "t1"),
        delta(0, toolUse={"input": '{"a":1}'}),
        opened(0, "t2"),
        delta(0, toolUse={"input": '{"a":2}'}),
        *ending("tool_use"),
    )
    assert response.message == Message.assistant(
        call("add", id="t1", a=1), call("add", id="t2", a=2)
    )


def test_a_call_may_have_no_arguments() -> None:
    """B14: no delta, a blank one, or null in a whole reply."""
    bare = read(START, opened(0), stopped(0), *ending("tool_use"))
    blank = read(START, opened(0), delta(0, toolUse={"input": ""}), *ending("tool_use"))
    given = document(call("add", id="t1"))
    assert bare.message == blank.message == whole(given).message
    assert bare.message.calls[0].arguments == "{}"


def test_a_call_that_the_limit_cut_never_runs() -> None:
    """B16, MOD-13: earlier complete ones may."""
    response = read(
        START,
        opened(0, "t1"),
        delta(0, toolUse={"input": '{"a":1}'}),
        stopped(0),
        opened(1, "t2"),
        delta(1, toolUse={"input": '{"a":'}),
        *ending("max_tokens"),
    )
    first, second = response.message.calls
    assert (first.truncated, second.truncated) == (False, True)
    assert response.stop_reason is StopReason.LENGTH
    left_open = [opened(0), delta(0, toolUse={"input": '{"a":1}'}), delta(1, text="and")]
    (cut,) = read(START, *left_open, *ending("max_tokens")).message.calls
    assert cut.truncated


LABELS: list[tuple[str, bool, StopReason]] = [
    ("end_turn", True, StopReason.TOOL_CALLS),
    ("end_turn", False, StopReason.END),
    ("tool_use", True, StopReason.TOOL_CALLS),
    ("stop_sequence", False, StopReason.STOP_SEQUENCE),
    ("max_tokens", False, StopReason.LENGTH),
    ("model_context_window_exceeded", False, StopReason.LENGTH),
    ("content_filtered", False, StopReason.FILTER),
    ("guardrail_intervened", False, StopReason.FILTER),
    ("something_new", False, StopReason.UNKNOWN),
]


@pytest.mark.parametrize(("label", "calls", "reason"), LABELS)
def test_a_stop_reason_says_how_a_reply_ended(label: str, calls: bool, reason: StopReason) -> None:
    """B17, C8, MOD-13: content decides; what is unknown is no success in silence."""
    frames = [START, delta(0, text="Hm."), stopped(0), *([opened(1)] if calls else [])]
    response = read(*frames, *ending(label))
    assert (response.stop_reason, response.raw_stop_reason) == (reason, label)
    assert response.refusal == ("Hm." if reason is StopReason.FILTER else None)
    given = document("Hm." if not calls else ["Hm.", call("add", id="t1")])
    assert whole({**given, "stopReason": label}).stop_reason is reason


def test_tool_use_without_a_call_is_no_reply() -> None:
    """B17: it would end the run in silence."""
    with pytest.raises(InvalidResponseError):
        read(START, delta(0, text="Hm."), *ending("tool_use"))
    with pytest.raises(InvalidResponseError):
        read(START, *ending(None))


@pytest.mark.parametrize("label", ["malformed_model_output", "malformed_tool_use"])
def test_rubbish_of_the_model_may_be_tried_again(label: str) -> None:
    """MOD-11, MOD-15: with what it cost."""
    with pytest.raises(ServerError, match=label) as caught:
        read(START, delta(0, text="{"), *ending(label, inputTokens=5, outputTokens=2))
    assert caught.value.usage == Usage(input_tokens=5, output_tokens=2)
    assert (caught.value.code, caught.value.recoverable) == (label, True)
    with pytest.raises(ServerError, match=label):
        whole({**document("x"), "stopReason": label})


def test_usage_comes_behind_the_end_and_counts_the_cache() -> None:
    """MOD-10, J4: absent is None; a body that ends without it is complete."""
    counts = {"inputTokens": 3, "outputTokens": 2, "cacheReadInputTokens": 10}
    assert read(START, delta(0, text="a"), *ending("end_turn", **counts)).usage == Usage(
        input_tokens=13, output_tokens=2, cached_tokens=10
    )
    bare = read(START, delta(0, text="a"), ending()[0])
    assert (bare.message.text, bare.usage) == ("a", None)
    early = read(("metadata", {"usage": counts}), START, delta(0, text="a"), *ending())
    assert early.usage == Usage(input_tokens=13, output_tokens=2, cached_tokens=10)
    assert read(START, delta(0, text="a"), *ending(inputTokens=-1)).usage is None


def test_what_follows_the_usage_is_not_read() -> None:
    """MOD-8: the reply is there."""
    response = read(START, delta(0, text="a"), *ending(), delta(0, text="b"), exception("x", {}))
    assert response.message.text == "a"


def test_unknown_events_and_empty_payloads_are_passed_over() -> None:
    """B5: control frames, paddings, blocks that loopctl has no name for."""
    response = read(
        ("initial-response", {}),
        event("ping", b""),
        START,
        delta(0, image={"source": {}}),
        delta(0, citation={"title": "t"}),
        delta(0, text="a"),
        stopped(7),
        *ending(),
    )
    assert response.message == Message.assistant("a")


def test_what_a_tool_of_the_servers_did_is_left_out() -> None:
    """MOD-20: it is no call of ours, streamed or whole."""
    used = {"toolUseId": "s1", "name": "nova_code_interpreter", "type": "server_tool_use"}
    result = {"toolResult": {"toolUseId": "s1", "content": [{"json": {}}], "type": "x"}}
    streamed = read(
        START,
        opened(0, "s1", "nova_code_interpreter", type="server_tool_use"),
        delta(0, toolUse={"input": "{}"}),
        stopped(0),
        ("contentBlockStart", {"contentBlockIndex": 1, "start": result}),
        delta(1, toolResult=[{"json": {}}]),
        stopped(1),
        delta(2, text="42"),
        *ending(),
    )
    given = document("42")
    content = given["output"]["message"]["content"]
    given["output"]["message"]["content"] = [{"toolUse": {**used, "input": {}}}, result, *content]
    assert streamed.message == whole(given).message == Message.assistant("42")


def test_cited_text_is_text() -> None:
    """MOD-4: the same streamed and whole."""
    cited = {"content": [{"text": "It "}, {"text": "is."}], "citations": [{"title": "t"}]}
    given = document("x")
    given["output"]["message"]["content"] = [{"citationsContent": cited}]
    streamed = read(
        START, delta(0, text="It "), delta(0, citation={}), delta(0, text="is."), *ending()
    )
    assert whole(given).message == streamed.message == Message.assistant("It is.")


def test_sealed_reasoning_in_pieces_is_put_together() -> None:
    """MOD-20: one piece to the letter; several as one seal."""
    pieces = [base64.b64encode(piece).decode() for piece in (b"a", b"bc")]
    one = read(START, delta(0, reasoningContent={"redactedContent": pieces[0]}), *ending())
    assert one.message == Message.assistant(thinking("", pieces[0], redacted=True))
    two = [delta(0, reasoningContent={"redactedContent": piece}) for piece in pieces]
    (part,) = read(START, *two, *ending()).message.parts
    assert part == thinking("", base64.b64encode(b"abc").decode(), redacted=True)
    odd = [delta(0, reasoningContent={"redactedContent": piece}) for piece in ("?", "!")]
    (part,) = read(START, *odd, *ending()).message.parts
    assert part == thinking("", "?!", redacted=True)


def test_the_arguments_of_the_reply_tool_are_the_reply() -> None:
    """MOD-21: streamed and whole the same; beside calls they do not hide those."""
    answer = call(REPLY_TOOL, id="t1", name="Ada")
    streamed = gathered(decoded(b"".join(events(answer)), reply_tool=True))
    assert streamed == whole(body(answer), reply_tool=True)
    assert (streamed.message, streamed.stop_reason) == (
        Message.assistant('{"name":"Ada"}'),
        StopReason.END,
    )
    assert gathered(decoded(b"".join(events(answer)))).message.calls
    both = [call("add", id="t2", a=1), answer]
    response = whole(body(both), reply_tool=True)
    assert (len(response.message.calls), response.stop_reason) == (1, StopReason.TOOL_CALLS)
    cut = read(
        START,
        opened(0, "t1", REPLY_TOOL),
        delta(0, toolUse={"input": '{"name":"A'}),
        *ending("max_tokens"),
        reply_tool=True,
    )
    assert (cut.message.text, cut.stop_reason) == ('{"name":"A', StopReason.LENGTH)


EXCEPTIONS: list[tuple[str, str, type[ModelError]]] = [
    ("throttlingException", "slow down", RateLimitError),
    ("serviceUnavailableException", "m", OverloadedError),
    ("internalServerException", "m", ServerError),
    ("modelStreamErrorException", "m", ServerError),
    ("validationException", "bad", BadRequestError),
    ("validationException", "Input is too long for requested model.", ContextOverflowError),
    ("accessDeniedException", "m", AuthError),
    ("somethingNewException", "m", ServerError),
]


@pytest.mark.parametrize(("name", "text", "kind"), EXCEPTIONS)
@pytest.mark.parametrize("before", [[], [START, delta(0, text="Hel")]])
def test_an_exception_in_a_stream_is_that_error(
    name: str, text: str, kind: type[ModelError], before: list[Event]
) -> None:
    """B6, MOD-8, MOD-12: as the first frame and after text, with its own words."""
    for payload in ({"message": text}, text.encode()):
        with pytest.raises(kind) as caught:
            read(*before, exception(name, payload))
        assert type(caught.value) is kind
        assert (caught.value.upstream, caught.value.code) == (text, name.lower())
        assert caught.value.request_id == "req-1"


def test_an_error_frame_is_that_error() -> None:
    """B6: the kind of frame that no event model describes."""
    frame = pack(b"", message_type="error", error_code="throttlingException", error_message="slow")
    with pytest.raises(RateLimitError, match="slow"):
        read(START, frame)


FRAMES = events(["Let me look.", call("add", id="t1", a=1)])


def test_a_stream_that_ends_too_early_is_incomplete() -> None:
    """B7, MOD-8: at every frame in front of the terminal one; never a call from half a JSON."""
    for at in range(len(FRAMES) - 2):
        with pytest.raises(StreamIncomplete):
            read(*FRAMES[:at])
        with pytest.raises(StreamIncomplete):
            read(*FRAMES[:at], FRAMES[at][:-1])
    assert read(*FRAMES[:-1]).message.calls


@pytest.mark.parametrize("data", [b"[]", b"{", b"\xff", b'"text"'])
def test_what_is_no_document_is_no_reply(data: bytes) -> None:
    """MOD-11: in a frame or whole."""
    with pytest.raises(InvalidResponseError):
        read(START, event("contentBlockDelta", data))
    with pytest.raises(InvalidResponseError):
        whole(data)


def test_a_whole_reply_that_is_none_is_a_typed_error() -> None:
    """B6, B7: an error in a 200, no content, no stop reason."""
    with pytest.raises(RateLimitError, match="slow"):
        whole({"__type": "aws#ThrottlingException", "message": "slow"})
    with pytest.raises(InvalidResponseError):
        whole({"output": {}})
    with pytest.raises(StreamIncomplete):
        whole({**document("x"), "stopReason": None})
