from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from loopctl.errors import (
    ContextOverflowError,
    InvalidResponseError,
    ModelError,
    OverloadedError,
    QuotaError,
    ServerError,
    StreamIncomplete,
)
from loopctl.messages import Message, ThinkingPart, ToolCallPart
from loopctl.models.openai_chat.stream import ChatDecoder
from loopctl.replies import ModelResponse, StopReason
from loopctl.testing import chat_chunk, chat_completion, chat_pieces
from loopctl.usage import Usage
from loopctl.wire.accumulator import Accumulator
from loopctl.wire.sse import EventStreamReader


def decoder(lenient_end: bool = True) -> ChatDecoder:
    return ChatDecoder(provider="acme", model="m", request_id="req-1", lenient_end=lenient_end)


def read(*data: Any, done: bool = True, lenient_end: bool = True) -> ModelResponse:
    """The reply of which these are the data of the events."""
    chat, accumulator = decoder(lenient_end), Accumulator()
    for item in [*data, *(["[DONE]"] if done else [])]:
        for event in chat.feed(item if isinstance(item, str) else json.dumps(item)):
            accumulator.feed(event)
    for event in chat.finish():
        accumulator.feed(event)
    return accumulator.response()


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def entry(
    arguments: Any = None, *, index: Any = None, id: Any = None, name: Any = None
) -> dict[str, Any]:
    given = {"index": index, "id": id, "function": {"name": name, "arguments": arguments}}
    return {key: value for key, value in given.items() if value is not None}


def calls(*entries: dict[str, Any], finish: str = "tool_calls") -> list[tuple[str, str]]:
    """Names and arguments of the calls that these fragments, one a chunk, make."""
    chunks = [delta(tool_calls=[each]) for each in entries]
    return [(c.name, c.arguments) for c in read(*chunks, delta(finish)).message.calls]


ADD = ("add", '{"a":2}')
WEATHER = ("get_weather", '{"c":"T"}')


def test_parallel_calls_may_share_an_index() -> None:
    """B9: a new id on a used index is a new call."""
    assert calls(
        entry('{"a":2}', index=0, id="A", name="add"),
        entry('{"c":"T"}', index=0, id="B", name="get_weather"),
    ) == [ADD, WEATHER]


def test_a_tail_without_id_under_a_new_index_goes_on_with_the_last_call() -> None:
    """B9: the head of B at index 0, its tail at index 1."""
    assert calls(
        entry('{"a":2}', index=0, id="A", name="add"),
        entry('{"c":', index=0, id="B", name="get_weather"),
        entry('"T"}', index=1),
    ) == [ADD, WEATHER]


def test_interleaved_fragments_follow_their_index_or_id() -> None:
    """B9: a seen id is that call, wherever it stands."""
    assert calls(
        entry("", index=0, id="A", name="add"),
        entry("", index=1, id="B", name="get_weather"),
        entry('{"a":', index=0),
        entry('{"c":', index=1),
        entry("2}", index=0),
        entry('"T"}', index=1, id="B"),
    ) == [ADD, WEATHER]


def test_indices_need_not_be_dense_or_begin_at_nothing() -> None:
    """MOD-9: an index is a name, not a place."""
    assert calls(
        entry('{"a":2}', index=3, id="A", name="add"),
        entry('{"c":"T"}', index=7, id="B", name="get_weather"),
    ) == [ADD, WEATHER]


@pytest.mark.parametrize("index", [None, "0", 1.5])
def test_a_missing_index_is_no_reason_to_drop_a_fragment(index: Any) -> None:
    """B10: no id and no index goes on with the last call."""
    assert calls(
        entry("", index=index, id="A", name="add"),
        entry('{"a":', index=index),
        entry("2}", index=index),
        entry('{"c":"T"}', index=index, id="B", name="get_weather"),
    ) == [ADD, WEATHER]


def test_whole_calls_without_ids_and_indices_are_calls_of_their_own() -> None:
    """B10: one list of named entries, and one chunk each."""
    one = entry('{"a":2}', name="add"), entry('{"c":"T"}', name="get_weather")
    assert calls(*one) == [ADD, WEATHER]
    response = read(delta("tool_calls", tool_calls=list(one)))
    assert [(c.name, c.arguments) for c in response.message.calls] == [ADD, WEATHER]
    assert len({c.id for c in response.message.calls}) == 2
    empty = [entry(name="now"), entry(name="here")]
    response = read(delta("tool_calls", tool_calls=empty))
    assert [c.name for c in response.message.calls] == ["now", "here"]


def test_calls_without_ids_may_share_an_index() -> None:
    """B9: another name after whole arguments begins another call."""
    assert calls(
        entry('{"a":2}', index=0, name="add"), entry('{"c":"T"}', index=0, name="get_weather")
    ) == [ADD, WEATHER]


def test_id_and_name_repeated_on_every_chunk_are_not_joined() -> None:
    """B12: read_file, not read_fileread_file."""
    pieces = ['{"path"', ":", '"a"}']
    entries = [entry(piece, index=0, id="c1", name="read_file") for piece in pieces]
    assert calls(*entries) == [("read_file", '{"path":"a"}')]


def test_a_name_in_pieces_is_joined_before_the_arguments_begin() -> None:
    """B12: pieces of a name are appended, a repetition is not; abab stays a name."""
    assert calls(
        entry(index=0, id="c1", name="get_"),
        entry(index=0, name="weather"),
        entry('{"c":"T"}', index=0, name="get_weather"),
    ) == [WEATHER]
    assert calls(entry("{}", index=0, id="c1", name="abab")) == [("abab", "{}")]


def test_an_id_that_comes_late_is_the_id_of_its_call() -> None:
    """B12: the first id that is not empty wins."""
    response = read(
        delta(tool_calls=[entry(index=0, id="", name="add")]),
        delta(tool_calls=[entry('{"a":', index=0)]),
        delta(tool_calls=[entry("2}", index=0, id="c9")]),
        delta("tool_calls"),
    )
    assert response.message.calls == (ToolCallPart("c9", "add", '{"a":2}'),)


def test_a_new_id_on_every_fragment_is_one_call() -> None:
    """B12: a nameless fragment cannot begin a call while another is open at its index."""
    assert calls(entry('{"a":', index=0, id="r1", name="add"), entry("2}", index=0, id="r2")) == [
        ADD
    ]


@pytest.mark.parametrize("arguments", ["", "  ", None, {}])
def test_absent_arguments_are_an_empty_object(arguments: Any) -> None:
    """B14: empty, blank, null and missing."""
    assert calls(entry(arguments, index=0, id="c1", name="now")) == [("now", "{}")]


def test_arguments_may_be_an_object_or_encoded_twice() -> None:
    """MOD-9: servers that do not know that arguments are text."""
    assert calls(entry({"a": 2}, index=0, id="c1", name="add")) == [ADD]
    assert calls(entry('"{\\"a\\":2}"', index=0, id="c1", name="add")) == [ADD]


def test_the_word_null_is_no_id() -> None:
    """MOD-9: an absent id that an SDK spelled out."""
    response = read(delta("tool_calls", tool_calls=[entry("{}", id="null", name="now")]))
    assert response.message.calls[0].id.startswith("call_")


@pytest.mark.parametrize("arguments", ['{"path":"a","content":"hel', '{"path":"a"}', ""])
def test_a_call_that_the_output_limit_cut_is_marked(arguments: str) -> None:
    """B16, MOD-13: the earlier call is whole."""
    response = read(
        delta(tool_calls=[entry('{"a":2}', index=0, id="A", name="add")]),
        delta(tool_calls=[entry(arguments, index=1, id="B", name="write")]),
        delta("length"),
    )
    assert [c.truncated for c in response.message.calls] == [False, True]
    assert response.stop_reason is StopReason.LENGTH


def test_a_call_is_kept_when_the_label_says_stop() -> None:
    """B17: the content decides."""
    assert calls(entry('{"a":2}', index=0, id="A", name="add"), finish="stop") == [ADD]


def test_a_label_without_a_call_is_an_error() -> None:
    """B17: not a silent end."""
    with pytest.raises(InvalidResponseError):
        read(delta("tool_calls", content="Let me see."))


def test_text_is_never_taken_for_a_call() -> None:
    """B23: structured calls only."""
    text = '<tool_call>{"name":"add","arguments":{"a":2}}</tool_call>'
    assert read(delta("stop", content=text)).message == Message.assistant(text)


def test_odd_frames_pass() -> None:
    """B5, B8: empty data, stray comments, no choices, null choices, null delta."""
    response = read(
        "",
        " ",
        ": OPENROUTER PROCESSING",
        {"choices": []},
        {"choices": None},
        {},
        {"choices": [{"index": 0, "delta": None}]},
        {"choices": [{"delta": {"content": "Hi"}, "index": 1}]},
        delta(content="Hello"),
        delta("stop"),
        {"choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": 9}},
    )
    assert response.message.text == "Hello"
    assert response.usage == Usage(input_tokens=20, output_tokens=9)


def test_usage_is_read_wherever_it_stands() -> None:
    """MOD-10: details, Moonshot's choices, Groq's own field, DeepSeek's names, every chunk."""
    response = read(
        delta(content="x") | {"usage": {"prompt_tokens": 5, "completion_tokens": 1}},
        delta("stop")
        | {
            "usage": {
                "prompt_tokens": 5,
                "completion_tokens": 7,
                "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 1},
                "completion_tokens_details": {"reasoning_tokens": 2},
            }
        },
    )
    assert response.usage == Usage(
        input_tokens=5, output_tokens=7, cached_tokens=3, cache_write_tokens=1, thinking_tokens=2
    )
    choice = {"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}
    moonshot = {"choices": [choice | {"usage": {"prompt_tokens": 5, "cached_tokens": 2}}]}
    assert read(moonshot).usage == Usage(input_tokens=5, cached_tokens=2)
    groq = delta("stop", content="x") | {"x_groq": {"usage": {"prompt_tokens": 4}}}
    assert read(groq).usage == Usage(input_tokens=4)
    deepseek = delta("stop", content="x") | {"usage": {"prompt_cache_hit_tokens": 1}}
    assert read(deepseek).usage == Usage(cached_tokens=1)
    assert read(delta("stop", content="x") | {"usage": None}).usage is None


ERRORS: dict[str, tuple[Any, type[ModelError], str]] = {
    "overloaded": (
        {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}},
        OverloadedError,
        "busy",
    ),
    "quota": ({"error": {"message": "quota exceeded"}}, QuotaError, "quota exceeded"),
    "beside empty choices": (
        {"choices": [], "error": {"code": 502, "message": "upstream"}},
        ServerError,
        "upstream",
    ),
    "overflow": (
        {"error": {"code": "context_length_exceeded", "message": "too long"}},
        ContextOverflowError,
        "too long",
    ),
    "bare": (
        {"object": "error", "message": "m", "type": "InternalServerError", "code": 500},
        ServerError,
        "m",
    ),
    "a text": ({"error": "boom"}, ServerError, "boom"),
}


@pytest.mark.parametrize("first", [True, False], ids=["first", "after text"])
@pytest.mark.parametrize("name", ERRORS)
def test_an_error_inside_a_stream_is_that_error(name: str, first: bool) -> None:
    """B6, MOD-8, MOD-12: as the first event and after partial text, even in front of [DONE]."""
    document, kind, text = ERRORS[name]
    before = [] if first else [delta(content="Hel")]
    with pytest.raises(kind) as caught:
        read(*before, document)
    assert type(caught.value) is kind
    assert caught.value.upstream == text
    assert (caught.value.provider, caught.value.request_id) == ("acme", "req-1")


def test_an_error_event_needs_no_error_object() -> None:
    """B6: event: error with a message at the top."""
    with pytest.raises(ContextOverflowError):
        decoder().feed('{"message": "prompt is greater than the context length"}', "error")


@pytest.mark.parametrize("done", [True, False])
def test_a_cut_call_is_never_a_reply(done: bool) -> None:
    """B7: half of the arguments, then a clean end, with or without [DONE]."""
    chunk = delta(tool_calls=[entry('{"path":"a.t', index=0, id="c1", name="read")])
    with pytest.raises(StreamIncomplete):
        read(chunk, done=done)


def test_text_without_a_finish_reason_needs_done_and_a_lenient_server() -> None:
    """B7, MOD-8: local servers leave the reason out; OpenAI does not."""
    assert read(delta(content="Hi")).message.text == "Hi"
    for arguments in ({"done": False}, {"lenient_end": False}):
        with pytest.raises(StreamIncomplete):
            read(delta(content="Hi"), **arguments)
    with pytest.raises(StreamIncomplete):
        read()


def test_a_finish_reason_without_done_is_enough() -> None:
    """B7: a server that closes instead of saying [DONE]."""
    assert read(delta("stop", content="Hi"), done=False).message.text == "Hi"


@pytest.mark.parametrize("finish", ["error", "abort"])
def test_a_stop_by_fault_is_a_fault(finish: str) -> None:
    """MOD-13: the server gave up."""
    with pytest.raises(ServerError):
        read(delta(finish, content="Hel"))


def test_refusals_and_filters_say_so() -> None:
    """MOD-13: never an ordinary answer."""
    refused = read(delta(refusal="I can"), delta("stop", refusal="not."))
    assert (refused.stop_reason, refused.refusal) == (StopReason.REFUSAL, "I cannot.")
    assert read(delta("content_filter")).stop_reason is StopReason.FILTER
    blocked = read({"error": {"code": "content_filter", "message": "no"}}, done=False)
    assert (blocked.stop_reason, blocked.refusal) == (StopReason.FILTER, "no")


def test_an_unknown_stop_reason_is_told() -> None:
    """MOD-13: the provider's own word is kept."""
    response = read(delta("strange", content="x"))
    assert (response.stop_reason, response.raw_stop_reason) == (StopReason.UNKNOWN, "strange")


@pytest.mark.parametrize("data", ["{", "[1]", "nonsense", '{"a":' * 5000])
def test_what_is_no_json_object_is_a_typed_error(data: str) -> None:
    """MOD-8: garbage inside a stream."""
    with pytest.raises(InvalidResponseError):
        decoder().feed(data)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_becomes_a_thinking_part(field: str) -> None:
    """MOD-20: marked with its provider and with the field that it came in."""
    response = read(delta(**{field: "hm"}), delta("stop", content="x"))
    thought = ThinkingPart("hm", provider="acme", model="m", kind=field)
    assert response.message == Message.assistant(thought, "x")


def test_reasoning_under_two_names_is_read_once() -> None:
    """MOD-20: some builds send both."""
    response = read(delta(reasoning="hm", reasoning_content="hm"), delta("stop", content="x"))
    assert response.message.parts[0] == ThinkingPart(
        "hm", provider="acme", model="m", kind="reasoning_content"
    )


def test_reasoning_details_are_joined_and_kept_whole() -> None:
    """A13: the pieces join by type and index; the signature comes in a piece of its own."""
    first = {"type": "reasoning.text", "text": "h", "index": 0, "format": "f"}
    response = read(
        delta(reasoning="h", reasoning_details=[first]),
        delta(reasoning="m", reasoning_details=[first | {"text": "m"}]),
        delta(reasoning_details=[{"type": "reasoning.text", "index": 0, "signature": "S"}]),
        delta(reasoning_details=[{"type": "reasoning.encrypted", "index": 1, "data": "B"}]),
        delta("stop", content="x"),
    )
    thought = response.message.parts[0]
    assert isinstance(thought, ThinkingPart)
    assert (thought.text, thought.kind) == ("hm", "reasoning_details")
    assert json.loads(thought.signature or "") == [
        first | {"text": "hm", "signature": "S"},
        {"type": "reasoning.encrypted", "index": 1, "data": "B"},
    ]


def test_content_may_be_a_list_of_parts() -> None:
    """MOD-9: Mistral's chunks, thinking among them."""
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    response = read(
        delta(content=[thinking]),
        delta(content=[{"type": "text", "text": "Hel"}]),
        delta("stop", content="lo"),
    )
    thought = ThinkingPart("hm", provider="acme", model="m", kind="thinking")
    assert response.message == Message.assistant(thought, "Hello")


REPLIES: dict[str, ModelResponse] = {
    "text": ModelResponse(message=Message.assistant("Hello 你好🙂 \u2028 there")),
    "call": ModelResponse(
        message=Message.assistant(ToolCallPart("c1", "add", '{"a": 1}')),
        stop_reason=StopReason.TOOL_CALLS,
    ),
    "everything": ModelResponse(
        message=Message.assistant(
            ThinkingPart("hm, let me see"),
            "I shall add and look.",
            ToolCallPart("c1", "add", '{"a": 1, "text": "é\\n"}'),
            ToolCallPart("c2", "look", "{}"),
        ),
        stop_reason=StopReason.TOOL_CALLS,
        usage=Usage(input_tokens=9, output_tokens=7, cached_tokens=2, thinking_tokens=3),
    ),
    "cut": ModelResponse(
        message=Message.assistant("x", ToolCallPart("c1", "add", '{"a', truncated=True)),
        stop_reason=StopReason.LENGTH,
    ),
    "refusal": ModelResponse(
        message=Message.assistant(), stop_reason=StopReason.REFUSAL, refusal="No."
    ),
}


def streamed(body: bytes, cuts: list[int]) -> ModelResponse:
    reader, chat, accumulator = EventStreamReader(), decoder(), Accumulator()
    edges = [0, *sorted(cut for cut in cuts if cut <= len(body)), len(body)]
    for start, end in itertools.pairwise(edges):
        for sent in reader.feed(body[start:end]):
            for event in chat.feed(sent.data, sent.event):
                accumulator.feed(event)
    reader.close()
    for event in chat.finish():
        accumulator.feed(event)
    return accumulator.response()


@pytest.mark.parametrize("name", REPLIES)
def test_whole_and_streamed_replies_make_equal_messages(name: str) -> None:
    """MOD-4: one set of rules; cut at every byte the stream says the same (MOD-7)."""
    chat, accumulator = decoder(), Accumulator()
    for event in chat.whole(json.dumps(chat_completion(REPLIES[name])).encode()):
        accumulator.feed(event)
    whole = accumulator.response()
    body = b"".join(chat_pieces(REPLIES[name], delta_chars=5))
    for cut in range(0, len(body), 1 if len(body) < 2500 else 3):
        assert streamed(body, [cut]) == whole
    assert whole.stop_reason is REPLIES[name].stop_reason


@pytest.mark.parametrize(
    "body", ["null", "{}", '{"choices": null, "created": null}', '{"choices": []}']
)
def test_a_whole_reply_without_choices_is_incomplete(body: str) -> None:
    """B8, MOD-8: seen with status 200."""
    kind = InvalidResponseError if body == "null" else StreamIncomplete
    with pytest.raises(kind):
        decoder().whole(body.encode())


def test_an_error_may_be_the_body_of_a_good_status() -> None:
    """B6: the error object in a 200."""
    with pytest.raises(OverloadedError):
        decoder().whole(b'\n\n{"error": {"code": 529, "message": "busy"}}')


texts = st.text(st.characters(codec="utf-8"), max_size=20)
made_calls = st.lists(
    st.builds(
        lambda name, arguments: (name, json.dumps(arguments)),
        st.sampled_from(["add", "get_weather", "abab"]),
        st.dictionaries(texts, st.integers() | texts | st.none(), max_size=3),
    ),
    max_size=3,
)


@given(texts, made_calls, st.integers(1, 9), st.integers())
def test_the_official_sdk_puts_the_same_message_together(
    text: str, made: list[tuple[str, str]], size: int, seed: int
) -> None:
    """MOD-24: generated streams, cut at random, in the SDK's accumulator and in ours."""
    parts = [ToolCallPart(f"c{n}", name, given) for n, (name, given) in enumerate(made)]
    reason = StopReason.TOOL_CALLS if parts else StopReason.END
    reply = ModelResponse(
        message=Message.assistant(text, *parts),
        stop_reason=reason,
        usage=Usage(input_tokens=3, output_tokens=4),
    )
    pieces = chat_pieces(reply, delta_chars=size)
    state = ChatCompletionStreamState()
    for piece in pieces[:-1]:
        document = json.loads(piece.removeprefix(b"data: "))
        state.handle_chunk(ChatCompletionChunk.model_validate(document))
    theirs = state.current_completion_snapshot.choices[0]
    body = b"".join(pieces)
    draw = random.Random(seed)
    ours = streamed(body, [draw.randrange(len(body)) for _ in range(5)])
    assert ours.message.text == (theirs.message.content or "")
    assert [(c.id, c.name, c.arguments) for c in ours.message.calls] == [
        (c.id, c.function.name, c.function.arguments) for c in theirs.message.tool_calls or []
    ]
    assert ours.raw_stop_reason == theirs.finish_reason


@given(texts, st.none() | texts.filter(bool), made_calls, st.integers(0, 9))
def test_a_whole_reply_is_what_the_official_sdk_reads(
    text: str, refusal: str | None, made: list[tuple[str, str]], cached: int
) -> None:
    """MOD-24, MOD-10: message, calls, refusal and usage; streamed the same."""
    parts = [ToolCallPart(f"c{n}", name, given) for n, (name, given) in enumerate(made)]
    reply = ModelResponse(
        message=Message.assistant(text, *parts),
        stop_reason=StopReason.TOOL_CALLS if parts else StopReason.END,
        refusal=refusal,
        usage=Usage(input_tokens=9, output_tokens=4, cached_tokens=cached, thinking_tokens=1),
    )
    document = chat_completion(reply)
    theirs = ChatCompletion.model_validate(document)
    accumulator = Accumulator()
    for event in decoder().whole(json.dumps(document).encode()):
        accumulator.feed(event)
    ours, said = accumulator.response(), theirs.choices[0].message
    assert (ours.message.text, ours.refusal) == (said.content or "", said.refusal)
    assert [(c.id, c.name, c.arguments) for c in ours.message.calls] == [
        (c.id, c.function.name, c.function.arguments)
        for c in said.tool_calls or []
        if c.type == "function"
    ]
    assert theirs.usage is not None
    assert theirs.usage.prompt_tokens_details is not None
    assert theirs.usage.completion_tokens_details is not None
    assert ours.usage == Usage(
        input_tokens=theirs.usage.prompt_tokens,
        output_tokens=theirs.usage.completion_tokens,
        cached_tokens=theirs.usage.prompt_tokens_details.cached_tokens,
        thinking_tokens=theirs.usage.completion_tokens_details.reasoning_tokens,
    )
    state = ChatCompletionStreamState()
    pieces = chat_pieces(reply)
    for piece in pieces[:-1]:
        chunk = json.loads(piece.removeprefix(b"data: "))
        state.handle_chunk(ChatCompletionChunk.model_validate(chunk))
    snapshot = state.current_completion_snapshot
    again = streamed(b"".join(pieces), [])
    assert (again.message, again.refusal) == (ours.message, ours.refusal)
    assert snapshot.choices[0].message.refusal == again.refusal
    assert snapshot.usage == theirs.usage


def test_chunks_of_the_testing_kit_are_chunks_of_the_sdk() -> None:
    """MOD-24: what our tests stream is what the API streams."""
    ChatCompletionChunk.model_validate(chat_chunk({"content": "x"}, finish_reason="stop"))
