from __future__ import annotations

import json
import random
from contextlib import suppress
from typing import Any

import pytest
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import Message as SdkMessage
from anthropic.types import RawMessageStreamEvent
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from loopctl.errors import (
    AuthError,
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
from loopctl.messages import Message, Part, TextPart, ThinkingPart, ToolCallPart
from loopctl.models.anthropic.request import REPLY_TOOL
from loopctl.models.anthropic.stream import MessagesDecoder, Paused
from loopctl.replies import ModelResponse, StopReason
from loopctl.testing import anthropic_replies as replies
from loopctl.testing import call
from loopctl.usage import Usage
from loopctl.wire.accumulator import Accumulator
from loopctl.wire.sse import EventStreamReader
from loopctl.wire.stream_events import StreamEvent

EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)


def decoder(**options: Any) -> MessagesDecoder:
    return MessagesDecoder(provider="acme", model="m", request_id="req-1", **options)


def decoded(data: bytes, size: int | None = None, **options: Any) -> list[StreamEvent]:
    """The stream events of the bytes of a stream, fed in pieces of `size`."""
    reader, messages = EventStreamReader(), decoder(**options)
    events: list[StreamEvent] = []
    for at in range(0, len(data), size or len(data) or 1):
        for frame in reader.feed(data[at : at + (size or len(data))]):
            events += messages.frame(frame)
    reader.close()
    return [*events, *messages.finish()]


def gathered(events: list[StreamEvent]) -> ModelResponse:
    accumulator = Accumulator()
    for event in events:
        accumulator.feed(event)
    return accumulator.response()


def read(*documents: dict[str, Any] | bytes, **options: Any) -> ModelResponse:
    frames = [d if isinstance(d, bytes) else replies.event(d) for d in documents]
    return gathered(decoded(b"".join(frames), **options))


def whole(document: dict[str, Any], **options: Any) -> ModelResponse:
    return gathered(decoder(**options).whole(json.dumps(document).encode()))


def start(**usage: int) -> dict[str, Any]:
    message = {"id": "msg_1", "model": "m-2026", "content": [], "usage": usage}
    return {"type": "message_start", "message": message}


def opened(index: int | None, **block: Any) -> dict[str, Any]:
    where = {} if index is None else {"index": index}
    return {"type": "content_block_start", **where, "content_block": block}


def delta(index: int | None, kind: str, **fields: Any) -> dict[str, Any]:
    where = {} if index is None else {"index": index}
    return {"type": "content_block_delta", **where, "delta": {"type": kind, **fields}}


def stopped(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def ending(reason: str | None, *, details: Any = None, **usage: int) -> list[dict[str, Any]]:
    said = {"stop_reason": reason, "stop_sequence": None, "stop_details": details}
    return [{"type": "message_delta", "delta": said, "usage": usage}, {"type": "message_stop"}]


def said(text: str, index: int = 0) -> list[dict[str, Any]]:
    return [
        opened(index, type="text", text=""),
        delta(index, "text_delta", text=text),
        stopped(index),
    ]


def used(
    index: int, *pieces: str, id: str = "toolu_1", name: str = "add", stop: bool = True
) -> list[dict[str, Any]]:
    return [
        opened(index, type="tool_use", id=id, name=name, input={}),
        *(delta(index, "input_json_delta", partial_json=piece) for piece in pieces),
        *([stopped(index)] if stop else []),
    ]


def test_a_reply_becomes_a_message_with_its_origin() -> None:
    """MOD-4, A13, MOD-26: thinking byte-exact, in place, with digest and the model asked for."""
    response = read(
        start(),
        opened(0, type="thinking", thinking="", signature=""),
        delta(0, "signature_delta", signature="S1"),
        stopped(0),
        opened(1, type="redacted_thinking", data="D"),
        stopped(1),
        *said("Hi", 2),
        *used(3, '{"a": ', "1}"),
        opened(4, type="thinking", thinking="", signature=""),
        delta(4, "thinking_delta", thinking="hm"),
        delta(4, "signature_delta", signature="S2"),
        stopped(4),
        *ending("tool_use"),
        prefix="digest",
    )
    origin: dict[str, Any] = {"provider": "acme", "model": "m", "prefix": "digest"}
    assert response.message == Message.assistant(
        ThinkingPart("", "S1", kind="thinking", **origin),
        ThinkingPart("", "D", redacted=True, kind="redacted_thinking", **origin),
        "Hi",
        ToolCallPart("toolu_1", "add", '{"a":1}'),
        ThinkingPart("hm", "S2", kind="thinking", **origin),
    )
    assert (response.model, response.response_id) == ("m-2026", "msg_1")
    assert (response.request_id, response.stop_reason) == ("req-1", StopReason.TOOL_CALLS)


@pytest.mark.parametrize("pieces", [(), ("",), ("", " "), ("{}",)])
def test_a_call_without_arguments_is_an_empty_object(pieces: tuple[str, ...]) -> None:
    """B14: no piece at all, blank pieces, an object; whole replies too."""
    response = read(start(), *used(0, *pieces), *ending("tool_use"))
    assert response.message.calls == (ToolCallPart("toolu_1", "add", "{}"),)
    block = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}}
    document = {"content": [block], "stop_reason": "tool_use"}
    assert whole(document).message == response.message


def test_arguments_may_come_at_once_or_as_text() -> None:
    """B14, MOD-9: gateways that put them into the start, or encode them twice."""
    blocks: list[dict[str, Any]] = [
        opened(0, type="tool_use", id="a", name="add", input={"a": 1}),
        opened(1, type="tool_use", id="b", name="add", input='{"a":2}'),
        opened(2, type="tool_use", id="c", name="add", input={"a": 0}),
        delta(2, "input_json_delta", partial_json='"{\\"a\\":3}"'),
    ]
    calls = read(start(), *blocks, *ending("tool_use")).message.calls
    assert [c.arguments for c in calls] == ['{"a":1}', '{"a":2}', '{"a":3}']


def test_blocks_may_share_or_lack_an_index() -> None:
    """B9, B10: a new start is a new block; what has no index goes on with the last."""
    first, second = used(0, '{"a":1}', id="a"), used(0, '{"a":2}', id="b")
    response = read(start(), *first, *second, *ending("tool_use"))
    assert [c.arguments for c in response.message.calls] == ['{"a":1}', '{"a":2}']
    blocks = [
        opened(None, type="tool_use", id="a", name="add"),
        delta(None, "input_json_delta", partial_json='{"a":1}'),
        opened(None, type="tool_use", id="b", name="add"),
        delta(None, "input_json_delta", partial_json='{"a":2}'),
    ]
    assert read(start(), *blocks, *ending("tool_use")).message == response.message
    unopened = read(start(), delta(0, "text_delta", text="Hi"), *ending("end_turn"))
    assert unopened.message.text == "Hi"


def test_calls_of_one_id_get_ids_of_their_own() -> None:
    """B18, B19: other arguments are another call; the same is one; names are stripped."""
    response = read(
        start(),
        *used(0, '{"a":1}', name=" add\n"),
        *used(1, '{"a": 1}'),
        *used(2, '{"a":2}'),
        *ending("tool_use"),
    )
    one, two = response.message.calls
    assert (one.name, one.arguments, two.arguments) == ("add", '{"a":1}', '{"a":2}')
    assert one.id == "toolu_1" != two.id


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded"])
@pytest.mark.parametrize("tail", ['{"path":"a","content":"hel', '{"path":"a"}', "", None])
def test_a_call_that_the_limit_cut_does_not_run(reason: str, tail: str | None) -> None:
    """B16, MOD-13: also where its JSON is complete or empty; earlier ones may run."""
    pieces = () if tail is None else (tail,)
    response = read(
        start(),
        *used(0, '{"a":1}', id="a"),
        *used(1, *pieces, id="b", stop=False),
        *ending(reason),
    )
    first, cut = response.message.calls
    assert (first.truncated, cut.truncated) == (False, True)
    assert response.stop_reason is StopReason.LENGTH


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("end_turn", StopReason.END),
        ("stop_sequence", StopReason.STOP_SEQUENCE),
        ("max_tokens", StopReason.LENGTH),
        ("model_context_window_exceeded", StopReason.LENGTH),
        ("refusal", StopReason.REFUSAL),
        ("pause_turn", StopReason.PAUSE),
        ("brand_new", StopReason.UNKNOWN),
    ],
)
def test_stop_reasons_have_their_meaning(raw: str, reason: StopReason) -> None:
    """MOD-13: one that nobody knows is never success in silence; whole replies agree."""
    response = read(start(), *said("Hi"), *ending(raw))
    assert (response.stop_reason, response.raw_stop_reason) == (reason, raw)
    document = {"content": [{"type": "text", "text": "Hi"}], "stop_reason": raw}
    assert whole(document).stop_reason is reason


def test_content_decides_over_the_label() -> None:
    """B17: a call that ends with end_turn; tool_use without a call."""
    assert read(start(), *used(0, "{}"), *ending("end_turn")).message.calls
    with pytest.raises(InvalidResponseError, match="made none"):
        read(start(), *ending("tool_use"))


def test_a_refusal_says_why() -> None:
    """MOD-13: the explanation, or the category."""
    details: dict[str, Any] = {"category": "cyber", "explanation": "not that"}
    assert read(start(), *ending("refusal", details=details)).refusal == "not that"
    details = {"type": "refusal", "category": "cyber", "explanation": None}
    assert read(start(), *ending("refusal", details=details)).refusal == "cyber"
    document = {"content": [], "stop_reason": "refusal", "stop_details": details}
    assert whole(document).refusal == "cyber"


def test_usage_is_cumulative_and_counts_what_the_caches_had() -> None:
    """J4, MOD-10: the largest of each; absent is not zero."""
    response = read(
        start(input_tokens=25, output_tokens=1, cache_read_input_tokens=100),
        {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 10}},
        *ending("end_turn", output_tokens=15, input_tokens=25, cache_creation_input_tokens=7),
    )
    assert response.usage == Usage(
        input_tokens=132, output_tokens=15, cached_tokens=100, cache_write_tokens=7
    )
    assert read(start(), *said("Hi"), *ending("end_turn")).usage is None
    usage = {"output_tokens": 9, "output_tokens_details": {"thinking_tokens": 4}}
    document = {"content": [], "stop_reason": "end_turn", "usage": usage}
    assert whole(document).usage == Usage(output_tokens=9, thinking_tokens=4)


# -- pauses -----------------------------------------------------------------------------------

SEARCH = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"q": "x"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
CITED = {"type": "web_search_result_location", "url": "u", "cited_text": "c"}


def paused(events: list[StreamEvent]) -> Paused:
    (found,) = [event for event in events if isinstance(event, Paused)]
    return found


def test_a_pause_holds_what_was_said_to_the_letter() -> None:
    """C8: streamed or whole; citations, signatures and the server's own tools included."""
    frames = [
        start(output_tokens=3),
        opened(0, type="thinking", thinking="", signature=""),
        delta(0, "signature_delta", signature="S"),
        stopped(0),
        opened(1, type="text", text="", citations=None),
        delta(1, "text_delta", text="Hi"),
        delta(1, "citations_delta", citation=CITED),
        stopped(1),
        opened(2, **{**SEARCH, "input": {}}),
        delta(2, "input_json_delta", partial_json='{"q": "x"}'),
        *ending("pause_turn", output_tokens=5),
    ]
    pause = paused(decoded(b"".join(map(replies.event, frames))))
    content = (
        {"type": "thinking", "thinking": "", "signature": "S"},
        {"type": "text", "text": "Hi", "citations": [CITED]},
        SEARCH,
    )
    assert pause.content == content
    assert (pause.places, pause.times, pause.usage) == (3, 1, Usage(output_tokens=5))
    document = {"content": [*content, {"type": "text", "text": " "}], "stop_reason": "pause_turn"}
    assert paused(decoder().whole(json.dumps(document).encode())).content == content


def test_what_continues_a_pause_is_the_same_message() -> None:
    """C8, MOD-4, MOD-10: its parts follow, its costs add up, and it may pause again."""
    first = [start(input_tokens=10, output_tokens=5), *said("Let me see."), opened(1, **SEARCH)]
    events = decoded(b"".join(map(replies.event, [*first, *ending("pause_turn")])))
    rest = [start(input_tokens=20, output_tokens=2), opened(0, **FOUND), *said("Found.", 1)]
    ended = [*rest, *ending("end_turn", output_tokens=7)]
    events[-2:] = decoded(b"".join(map(replies.event, ended)), after=paused(events))
    response = gathered(events)
    texts = [part.text for part in response.message.parts if isinstance(part, TextPart)]
    kinds = [part.kind for part in response.message.parts if isinstance(part, ThinkingPart)]
    assert (texts, kinds) == (["Let me see.", "Found."], ["block", "block"])
    assert response.usage == Usage(input_tokens=30, output_tokens=12)
    assert response.response_id == "msg_1"
    again = [*rest, *ending("pause_turn")]
    second = paused(decoded(b"".join(map(replies.event, again)), after=Paused(StopReason.PAUSE)))
    assert second.times == 1


def test_a_pause_beside_calls_of_ours_is_a_turn_with_calls() -> None:
    """C8, B17: their results come first; the open use goes back with them."""
    events = [start(), opened(0, **SEARCH), *used(1, "{}"), *ending("pause_turn")]
    response = read(*events)
    assert response.stop_reason is StopReason.TOOL_CALLS
    assert [type(part) for part in response.message.parts] == [ThinkingPart, ToolCallPart]


# -- structured replies by a tool -------------------------------------------------------------


def test_the_reply_tools_arguments_are_the_text() -> None:
    """MOD-3: streamed and whole; other calls stay calls."""
    frames = [start(), *used(0, '{"name": ', '"Ann"}', name=REPLY_TOOL)]
    response = read(*frames, *ending("tool_use"), reply_tool=True)
    assert response.message == Message.assistant('{"name":"Ann"}')
    assert response.stop_reason is StopReason.END
    block = {"type": "tool_use", "id": "t", "name": REPLY_TOOL, "input": {"name": "Ann"}}
    document = {"content": [block], "stop_reason": "tool_use"}
    assert whole(document, reply_tool=True).message == response.message
    both = read(*frames, *used(1, "{}"), *ending("tool_use"), reply_tool=True)
    assert (len(both.message.calls), both.stop_reason) == (1, StopReason.TOOL_CALLS)
    assert len(read(*frames, *ending("tool_use")).message.calls) == 1


def test_a_structured_reply_that_was_cut_is_no_empty_object() -> None:
    """B16, F18: truncated is not malformed, and not complete either."""
    frames = [start(), *used(0, '{"name": "An', name=REPLY_TOOL, stop=False)]
    response = read(*frames, *ending("max_tokens"), reply_tool=True)
    assert (response.message.text, response.stop_reason) == ('{"name": "An', StopReason.LENGTH)
    block = {"type": "tool_use", "id": "t", "name": REPLY_TOOL, "input": {}}
    document = {"content": [block], "stop_reason": "max_tokens"}
    assert whole(document, reply_tool=True).message == Message.assistant()


# -- what goes wrong --------------------------------------------------------------------------


def failed(type: str, message: str = "m", **fields: Any) -> dict[str, Any]:
    return {"type": "error", "error": {"type": type, "message": message, **fields}}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (failed("overloaded_error", "Overloaded"), OverloadedError),
        (failed("api_error"), ServerError),
        (failed("timeout_error"), ServerError),
        (failed("rate_limit_error"), RateLimitError),
        (
            failed("rate_limit_error", details={"error_code": "enforced_spend_limit_reached"}),
            QuotaError,
        ),
        (failed("billing_error"), QuotaError),
        (failed("authentication_error"), AuthError),
        (failed("permission_error"), AuthError),
        (failed("invalid_request_error"), BadRequestError),
        (failed("request_too_large"), BadRequestError),
        (
            failed("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
            ContextOverflowError,
        ),
    ],
)
@pytest.mark.parametrize("at", [0, 1, 3])
def test_an_error_inside_a_stream_is_that_error(
    error: dict[str, Any], kind: type[ModelError], at: int
) -> None:
    """B6, MOD-8, MOD-12: as the first event and after text; with its own words."""
    frames = [start(output_tokens=2), *said("Hi")][:at]
    with pytest.raises(kind) as caught:
        read(*frames, error)
    assert type(caught.value) is kind
    assert error["error"]["message"] in str(caught.value)
    assert (caught.value.provider, caught.value.request_id) == ("acme", "req-1")
    assert caught.value.usage == (Usage(output_tokens=2) if at else None)
    with pytest.raises(kind):
        whole(error)


def test_errors_come_in_other_shapes_too() -> None:
    """B6: named by the event alone, an object under error, a bare message."""
    for frame in (
        b'event: error\ndata: {"message": "server overloaded"}\n\n',
        b'data: {"error": {"message": "server overloaded"}}\n\n',
        b'event: error\ndata: {"type": "overloaded_error", "message": "m"}\n\n',
    ):
        with pytest.raises(OverloadedError):
            read(start(), frame)


def test_nothing_is_a_reply_before_message_stop() -> None:
    """B7, MOD-8: an end at every event is incomplete, and so is one without a stop reason."""
    frames = [start(), *said("Hi"), *used(1, '{"path":"a.t'), *ending("tool_use")]
    for at in range(len(frames)):
        with pytest.raises(StreamIncomplete):
            read(*frames[:at])
    for reason in (None, ""):
        with pytest.raises(StreamIncomplete, match="without a stop reason"):
            read(start(), *said("Hi"), *ending(reason))
        with pytest.raises(StreamIncomplete):
            whole({"content": [], "stop_reason": reason})


def test_keep_alives_comments_and_news_are_passed_over() -> None:
    """B5: pings, comments, control frames, empty data, events and deltas that nobody knows."""
    frames: list[dict[str, Any] | bytes] = [
        start(),
        {"type": "ping"},
        b": comment\n\n",
        b"retry: 3000\n\n",
        b"id: 7\n\n",
        b"event: ping\n\n",
        b"data:\n\n",
        b"data: : PROCESSING\n\n",
        {"type": "brand_new", "index": 0},
        opened(0, type="text", text=""),
        delta(0, "brand_new_delta", text="?"),
        delta(9, "brand_new_delta", text="?"),
        delta(0, "text_delta", text="Hi"),
        stopped(8),
        stopped(0),
        *ending("end_turn"),
        b"data: [DONE]\n\n",
    ]
    assert read(*frames).message == Message.assistant("Hi")


def test_the_name_of_an_event_will_do() -> None:
    """MOD-7: gateways that leave the type out of the data."""
    frames: list[bytes] = []
    for document in (start(), *said("Hi"), *ending("end_turn")):
        data = json.dumps({key: value for key, value in document.items() if key != "type"})
        frames.append(f"event: {document['type']}\ndata: {data}\n\n".encode())
    assert read(*frames).message == Message.assistant("Hi")


@pytest.mark.parametrize("data", ["{", "[]", '"x"', "nonsense", "null"])
def test_what_is_no_object_is_no_reply(data: str) -> None:
    """MOD-11: neither as an event nor as a whole reply."""
    with pytest.raises(InvalidResponseError):
        read(start(), f"data: {data}\n\n".encode())
    with pytest.raises(InvalidResponseError):
        decoder().whole(data.encode())


def test_another_apis_reply_is_none_of_this_one() -> None:
    """MOD-11: a wrong address is not tried again."""
    with pytest.raises(InvalidResponseError, match="without content"):
        whole({"choices": [{"message": {"content": "Hi"}}]})


def test_an_empty_reply_is_one() -> None:
    """C2: models say nothing after some results; blank text is kept as it is."""
    assert read(start(), *ending("end_turn")).message == Message.assistant()
    assert whole({"content": [], "stop_reason": "end_turn"}).message == Message.assistant()


# -- the SDK ----------------------------------------------------------------------------------

TEXTS = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from("\u2028\x85🙂\r\n"), max_size=40
)
VALUES = st.dictionaries(
    TEXTS, TEXTS | st.integers(-9, 9) | st.lists(TEXTS, max_size=2), max_size=3
)


@st.composite
def parts(draw: st.DrawFn) -> list[Part]:
    made: list[Part] = []
    for at, kind in enumerate(draw(st.lists(st.sampled_from("tTrc"), max_size=5))):
        if kind == "t":
            made.append(TextPart(draw(TEXTS)))
        elif kind == "T":
            made.append(ThinkingPart(draw(TEXTS), draw(st.text("abc=/", min_size=1))))
        elif kind == "r":
            made.append(ThinkingPart("", draw(st.text("abc=/", min_size=1)), redacted=True))
        else:
            name = draw(st.sampled_from(["add", "look"]))
            made.append(ToolCallPart(f"toolu_{at}", name, draw(VALUES)))
    return made


def essence(message: Message) -> list[Any]:
    """What the SDK knows of a message too."""
    return [
        (part.text, part.signature, part.redacted)
        if isinstance(part, ThinkingPart)
        else (part.id, part.name, part.parse())
        if isinstance(part, ToolCallPart)
        else part
        for part in message.parts
    ]


def sdk_essence(message: SdkMessage) -> list[Any]:
    found: list[Any] = []
    for block in message.content:
        if block.type == "thinking":
            found.append((block.thinking, block.signature, False))
        elif block.type == "redacted_thinking":
            found.append(("", block.data, True))
        elif block.type == "tool_use":
            found.append((block.id, block.name, block.input))
        elif block.type == "text" and block.text:
            found.append(TextPart(block.text))
    return found


def sdk_message(data: bytes) -> SdkMessage:
    snapshot: Any = None
    buffers: dict[int, bytes] = {}
    for frame in EventStreamReader().feed(data):
        event = EVENT.validate_python(json.loads(frame.data))
        snapshot = accumulate_event(event=event, current_snapshot=snapshot, json_bufs=buffers)
    found: SdkMessage = snapshot
    return found


@given(parts(), st.integers(1, 30), st.integers(1, 12))
def test_a_stream_gives_the_message_that_the_sdk_gives(
    said_parts: list[Part], size: int, chars: int
) -> None:
    """MOD-24, MOD-7, B1, B2, B4: cut anywhere; a whole reply gives the same message."""
    answer = ModelResponse(
        message=Message.assistant(*said_parts),
        usage=Usage(input_tokens=9, output_tokens=8, cached_tokens=3, cache_write_tokens=2),
    )
    data = b"".join(replies.events(answer, delta_chars=chars))
    response = gathered(decoded(data, size))
    sdk = sdk_message(data)
    assert essence(response.message) == sdk_essence(sdk)
    assert response.raw_stop_reason == sdk.stop_reason
    assert response.usage == answer.usage
    assert sdk.usage.input_tokens == 4
    document = SdkMessage.model_validate_json(replies.body(answer))
    assert sdk_essence(document) == sdk_essence(sdk)
    alone = gathered(decoder().whole(replies.body(answer)))
    assert alone.message == response.message
    assert (alone.usage, alone.stop_reason) == (response.usage, response.stop_reason)


def test_every_cut_and_every_line_end_gives_the_same_reply() -> None:
    """B1, B2, B4: LF, CRLF and CR; one byte at a time."""
    data = b"".join(replies.events(["你好🙂\u2028\x85", call("add", city="Ålesund 🙂")]))
    expected = gathered(decoded(data))
    for end in (b"\n", b"\r\n", b"\r"):
        for size in (1, 2, 3, 7):
            assert gathered(decoded(data.replace(b"\n", end), size)) == expected


def test_garbage_gives_typed_errors_only() -> None:
    """MOD-11: whatever comes, no other exception leaves the decoder."""
    rng = random.Random(7)
    values: list[Any] = [None, 1, "x", [], {}, [1], {"type": 3}, True, -1, 1.5]
    keys = ["type", "index", "delta", "content_block", "message", "usage", "error", "content"]
    kinds = ["message_start", "content_block_start", "content_block_delta", "content_block_stop"]
    kinds += ["message_delta", "message_stop", "error", "x"]
    for _ in range(3_000):
        frames: list[dict[str, Any] | bytes] = []
        for _ in range(rng.randint(1, 5)):
            document = {key: rng.choice(values) for key in rng.sample(keys, rng.randint(0, 4))}
            block = {"type": rng.choice(["text", "tool_use", "thinking", "x", None])}
            block |= {rng.choice(["input", "text", "thinking", "id", "data"]): rng.choice(values)}
            document["content_block"] = rng.choice([block, *values])
            document["type"] = rng.choice(kinds)
            frames.append(f"data: {json.dumps(document)}\n\n".encode())
        with suppress(ModelError):
            read(*frames, *ending("end_turn"))
        with suppress(ModelError):
            whole({key: rng.choice(values) for key in rng.sample(keys, 4)})
