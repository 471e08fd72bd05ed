from __future__ import annotations

import contextlib
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ollama import ChatResponse

from loopctl.errors import (
    ContextOverflowError,
    InvalidResponseError,
    LoopError,
    OverloadedError,
    ServerError,
    StreamIncomplete,
)
from loopctl.messages import Message, TextPart, ThinkingPart, ToolCallPart
from loopctl.models.ollama.stream import OllamaDecoder
from loopctl.replies import ModelResponse, StopReason
from loopctl.testing import call
from loopctl.testing.ollama_replies import body, events
from loopctl.usage import Usage
from loopctl.wire.accumulator import Accumulator
from loopctl.wire.ndjson import NdjsonReader


def decoder() -> OllamaDecoder:
    return OllamaDecoder(provider="acme", model="m")


def read(*lines: Any) -> ModelResponse:
    """The reply of these lines."""
    chat, accumulator = decoder(), Accumulator()
    for line in lines:
        for event in chat.frame(line if isinstance(line, str) else json.dumps(line)):
            accumulator.feed(event)
    for event in chat.finish():
        accumulator.feed(event)
    return accumulator.response()


def said(**message: Any) -> dict[str, Any]:
    return {"model": "m", "message": {"role": "assistant", **message}, "done": False}


def done(reason: Any = "stop", **rest: Any) -> dict[str, Any]:
    return {"model": "m", "message": {"content": ""}, "done": True, "done_reason": reason, **rest}


def tool(name: Any, arguments: Any, id: Any = None) -> dict[str, Any]:
    return {"id": id, "function": {"name": name, "arguments": arguments}}


REPLIES = {
    "text": Message.assistant("Hello there, this is more than one piece."),
    "unicode": Message.assistant("你好 🙂\u2028é\n\ttwo lines \x85"),
    "a call": Message.assistant(call("now", id="call_1")),
    "all": Message.assistant(
        ThinkingPart("Let me think about this."),
        "I will add.",
        call("add", id="call_1", a=1, b="🙂"),
        call("add", id="call_2", a=[1, {"b": None}]),
    ),
}


@pytest.mark.parametrize("name", REPLIES)
def test_a_whole_reply_and_a_stream_of_it_make_the_same_message(name: str) -> None:
    """MOD-4: also thinking, in the part that it came in."""
    answer = REPLIES[name]
    whole, streamed = Accumulator(), Accumulator()
    for event in decoder().whole(body(answer)):
        whole.feed(event)
    chat = decoder()
    for line in events(answer, delta_chars=3):
        for event in chat.frame(line.decode()):
            streamed.feed(event)
    assert whole.response() == streamed.response()
    assert whole.response().message.text == answer.text
    assert whole.response().message.calls == answer.calls


def _in_the_sdk(lines: list[bytes]) -> tuple[str, str, list[tuple[str, dict[str, Any]]]]:
    """Thinking, text and calls as the vendor's own client reads them; it has no accumulator."""
    chunks = [ChatResponse.model_validate_json(line) for line in lines]
    calls = [each for chunk in chunks for each in chunk.message.tool_calls or ()]
    return (
        "".join(chunk.message.thinking or "" for chunk in chunks),
        "".join(chunk.message.content or "" for chunk in chunks),
        [(each.function.name, dict(each.function.arguments)) for each in calls],
    )


PIECE = st.one_of(
    st.builds(TextPart, st.text(min_size=1, max_size=30)),
    st.builds(ThinkingPart, st.text(min_size=1, max_size=30)),
    st.builds(
        call,
        st.sampled_from(["add", "look_up"]),
        a=st.recursive(
            st.none() | st.integers() | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner),
            max_leaves=4,
        ),
    ),
)


@given(st.lists(PIECE, min_size=1, max_size=5), st.integers(1, 9), st.lists(st.integers(1, 60)))
def test_a_stream_cut_anywhere_is_what_the_vendors_client_reads(
    parts: list[Any], size: int, cuts: list[int]
) -> None:
    """MOD-24, MOD-7, B4: the same thinking, text and calls."""
    numbered = [
        ToolCallPart(f"call_{at}", part.name, part.arguments)
        if isinstance(part, ToolCallPart)
        else part
        for at, part in enumerate(parts)
    ]
    lines = events(Message.assistant(*numbered), delta_chars=size)
    data = b"".join(lines)
    ends = [*itertools.accumulate(cuts), len(data)]
    reader, chat, accumulator = NdjsonReader(), decoder(), Accumulator()
    start = 0
    for end in ends:
        for line in reader.feed(data[start:end]):
            for event in chat.frame(line):
                accumulator.feed(event)
        start = max(start, end)
    message = accumulator.response().message
    thought = "".join(part.text for part in message.parts if isinstance(part, ThinkingPart))
    calls = [(part.name, part.parse()) for part in message.calls]
    assert (thought, message.text, calls) == _in_the_sdk(lines)


def test_a_reply_tells_who_thought_and_what_it_cost() -> None:
    """MOD-10, A13: usage comes with the last line; thinking is marked with its origin."""
    reply = read(
        said(content="", thinking="Hm"),
        said(content="", thinking="m."),
        said(content="Yes."),
        done(prompt_eval_count=20, eval_count=9),
    )
    thought = ThinkingPart("Hmm.", provider="acme", model="m", kind="thinking")
    assert reply.message == Message.assistant(thought, "Yes.")
    assert reply.usage == Usage(input_tokens=20, output_tokens=9)
    assert (reply.stop_reason, reply.raw_stop_reason) == (StopReason.END, "stop")


def test_absent_usage_is_none_and_not_zero() -> None:
    """MOD-10: a server that reports nothing."""
    assert read(said(content="Hi"), done()).usage is None


def test_calls_decide_and_not_the_label() -> None:
    """B17: `stop` with calls is a stop for calls; several in one line or in several."""
    reply = read(
        said(content="", tool_calls=[tool("a", {"x": 1}, "c1"), tool("b", {}, "c2")]),
        said(content="", tool_calls=[tool("c", {}, "c3")]),
        done(),
    )
    assert [part.id for part in reply.message.calls] == ["c1", "c2", "c3"]
    assert reply.stop_reason is StopReason.TOOL_CALLS


def test_calls_without_ids_or_with_one_id_get_ids_of_their_own() -> None:
    """MOD-9, B18: the same id twice with other arguments is two calls."""
    reply = read(
        said(tool_calls=[tool("a", {}), tool("a", {})]),
        said(tool_calls=[tool("a", {"x": 1}, "c"), tool("a", {"x": 2}, "c")]),
        done(),
    )
    calls = reply.message.calls
    assert len(calls) == 4
    assert len({part.id for part in calls}) == 4


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [({}, "{}"), (None, "{}"), ("", "{}"), ('{"a":1}', '{"a":1}'), ({"a": "é"}, '{"a":"é"}')],
)
def test_arguments_may_be_an_object_or_a_text_or_missing(arguments: Any, kept: str) -> None:
    """B14: what other servers of this API send."""
    (made,) = read(said(tool_calls=[tool("a", arguments, "c")]), done()).message.calls
    assert (made.arguments, made.unusable) == (kept, None)


def test_a_malformed_call_is_still_a_call() -> None:
    """B19: no name, no function: an error result will answer it; what is no object is nothing."""
    reply = read(said(tool_calls=[tool(None, {}), {"name": "b", "arguments": {}}, "x"]), done())
    assert [part.name for part in reply.message.calls] == ["", "b"]


def test_a_reply_cut_by_the_output_limit_marks_its_last_call() -> None:
    """B16, MOD-13: the earlier call is complete."""
    reply = read(said(tool_calls=[tool("a", {}, "c1"), tool("b", {}, "c2")]), done("length"))
    assert reply.stop_reason is StopReason.LENGTH
    assert [part.truncated for part in reply.message.calls] == [False, True]


ENDS: dict[str, tuple[list[Any], type[LoopError], str]] = {
    "nothing": ([], StreamIncomplete, "before it was said"),
    "no last line": ([said(content="Hi")], StreamIncomplete, "before it was said"),
    "a call and no last line": ([said(tool_calls=[tool("a", {})])], StreamIncomplete, "before"),
    "no reason": ([said(content="Hi"), done("")], StreamIncomplete, "without a reason"),
    "a missing reason": ([said(content="Hi"), done(None)], StreamIncomplete, "without a reason"),
    "loaded only": ([done("load")], InvalidResponseError, "load"),
    "garbage": (["{nonsense"], InvalidResponseError, "nonsense"),
    "no object": (["[1]"], InvalidResponseError, r"\[1\]"),
    "an error": ([{"error": "the runner died"}], ServerError, "the runner died"),
    "an error after text": ([said(content="Hi"), {"error": "x"}], ServerError, "x"),
    "an error object": ([{"error": {"message": "overloaded"}}], OverloadedError, "overloaded"),
    "overflow": (
        [{"error": "the prompt is longer than the context length currently available"}],
        ContextOverflowError,
        "longer",
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_what_is_no_reply_is_a_typed_error(name: str) -> None:
    """MOD-8, MOD-12, B6, B7: an error in a 200 stream, and a stream without its last line."""
    lines, kind, words = ENDS[name]
    with pytest.raises(kind, match=words) as caught:
        read(*lines)
    assert type(caught.value) is kind
    assert (getattr(caught.value, "provider", None), getattr(caught.value, "model", None)) == (
        "acme",
        "m",
    )


def test_an_unknown_reason_is_told_as_such() -> None:
    """C8, MOD-13: never success in silence."""
    reply = read(said(content="Hi"), done("tired"))
    assert (reply.stop_reason, reply.raw_stop_reason) == (StopReason.UNKNOWN, "tired")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    "message content tool_calls function done done_reason error arguments name"
                    " thinking model eval_count id".split()
                ),
                inner,
            )
        ),
        max_leaves=12,
    )
)
def test_no_line_raises_what_is_not_typed(document: Any) -> None:
    """MOD-11: whatever JSON comes."""
    with contextlib.suppress(LoopError):
        read(document, done())
