from __future__ import annotations

import pytest

from loopctl.errors import InvalidResponseError, StreamIncomplete
from loopctl.messages import Message, TextPart, ThinkingPart, ToolCallPart
from loopctl.replies import ModelResponse, StopReason
from loopctl.usage import Usage
from loopctl.wire.accumulator import Accumulator
from loopctl.wire.stream_events import (
    MessageStart,
    MessageStop,
    PartDelta,
    PartStart,
    PartStop,
    Stop,
    StreamEvent,
    UsageReport,
)

START = MessageStart("m", "r1", "acme", "req")


def reply(
    *events: StreamEvent, reason: StopReason = StopReason.END, raw: str | None = None
) -> ModelResponse:
    accumulator = Accumulator()
    for event in (START, *events, Stop(reason, raw), MessageStop()):
        accumulator.feed(event)
    return accumulator.response()


def made_call(index: int, id: str | None, name: str, arguments: str) -> list[StreamEvent]:
    return [PartStart("tool_call", index, id, name), PartDelta("tool_call", index, arguments)]


def test_pieces_join_into_parts_in_the_order_of_their_index() -> None:
    """MOD-4: the message does not depend on which part came first."""
    response = reply(
        PartStart("tool_call", 2, "c1", "add"),
        PartDelta("text", 1, "Hel"),
        PartDelta("thinking", 0, "hm"),
        PartDelta("tool_call", 2, '{"a":'),
        PartDelta("text", 1, "lo"),
        PartDelta("tool_call", 2, "1}"),
    )
    assert response.message == Message.assistant(
        ThinkingPart("hm", provider="acme", model="m"),
        "Hello",
        ToolCallPart("c1", "add", '{"a":1}'),
    )
    assert (response.model, response.response_id, response.request_id) == ("m", "r1", "req")


def test_nothing_is_a_reply_before_the_terminal_signal() -> None:
    """MOD-8, B7: half a reply raises, and what it cost can still be read."""
    accumulator = Accumulator()
    accumulator.feed(START)
    accumulator.feed(PartDelta("text", 0, "Hel"))
    accumulator.feed(UsageReport(Usage(input_tokens=5)))
    accumulator.feed(Stop(StopReason.END))
    with pytest.raises(StreamIncomplete) as caught:
        accumulator.response()
    assert (caught.value.provider, caught.value.request_id) == ("acme", "req")
    assert accumulator.usage == Usage(input_tokens=5)


def test_usage_reports_of_one_reply_are_merged_by_their_maximum() -> None:
    """MOD-10, J4: cumulative counts are not summed; absent ones stay None."""
    response = reply(
        UsageReport(Usage(input_tokens=25, output_tokens=1)),
        UsageReport(Usage(input_tokens=25, output_tokens=15, cached_tokens=3)),
        PartDelta("text", 0, "x"),
    )
    assert response.usage == Usage(input_tokens=25, output_tokens=15, cached_tokens=3)
    assert reply(PartDelta("text", 0, "x")).usage is None


def test_a_repeated_id_with_other_arguments_becomes_an_id_of_ours() -> None:
    """MOD-9, B18: two calls under one id are two calls; the ids are the same in every process."""
    events = [*made_call(0, "c1", "add", '{"a":1}'), *made_call(1, "c1", "add", '{"a":2}')]
    first, second = reply(*events).message.calls
    assert (first.id, first.arguments, second.arguments) == ("c1", '{"a":1}', '{"a":2}')
    assert second.id.startswith("call_")
    assert reply(*events).message.calls == (first, second)


def test_the_same_call_twice_is_one_call() -> None:
    """B18: same id, name and arguments."""
    events = [*made_call(0, "c1", "add", '{"a":1}'), *made_call(1, "c1", "add", '{"a":1}')]
    assert len(reply(*events).message.calls) == 1


def test_a_missing_id_is_made() -> None:
    """MOD-9: equal calls without ids are two calls, with ids that every provider takes."""
    events = [*made_call(0, None, "add", "{}"), *made_call(1, "", "add", "{}")]
    first, second = reply(*events).message.calls
    assert first.id != second.id
    assert all(id.isascii() and len(id) <= 40 for id in (first.id, second.id))


def test_names_are_stripped_of_blanks() -> None:
    """B19: a name with a line end is that name."""
    (call,) = reply(*made_call(0, "c1", " get_weather\n", "{}")).message.calls
    assert call.name == "get_weather"


@pytest.mark.parametrize("arguments", ["", " \n", "{}"])
def test_absent_arguments_are_an_empty_object(arguments: str) -> None:
    """B14: a tool without parameters."""
    (call,) = reply(*made_call(0, "c1", "now", arguments)).message.calls
    assert (call.arguments, call.unusable) == ("{}", None)


def test_arguments_that_are_no_object_are_kept_aside() -> None:
    """B20: replay sends a valid object, the error names the model's own text."""
    (call,) = reply(*made_call(0, "c1", "add", "[1,")).message.calls
    assert (call.arguments, call.unusable) == ("{}", "[1,")


@pytest.mark.parametrize("arguments", ['{"path":"a","content":"hel', '{"a":1}', ""])
def test_the_output_limit_cuts_the_last_call(arguments: str) -> None:
    """B16, MOD-13: also where its JSON happens to be complete; the calls before it may run."""
    events = [*made_call(0, "c1", "add", '{"a":1}'), *made_call(1, "c2", "write", arguments)]
    first, last = reply(*events, reason=StopReason.LENGTH).message.calls
    assert (first.truncated, last.truncated) == (False, True)


def test_a_closed_call_in_front_of_cut_text_is_whole() -> None:
    """MOD-13: the limit cut what came last."""
    events = [*made_call(0, "c1", "add", "{}"), PartStop("tool_call", 0), PartDelta("text", 1, "x")]
    (call,) = reply(*events, reason=StopReason.LENGTH).message.calls
    assert not call.truncated


def test_an_empty_signed_thought_is_kept_to_the_byte() -> None:
    """A13: a block with a signature and no text is valid; one with neither is nothing."""
    response = reply(
        PartStart("thinking", 0, field="thinking"),
        PartDelta("thinking", 0, signature="S"),
        PartDelta("thinking", 0, signature="1"),
        PartStart("thinking", 1),
        PartStart("thinking", 2, redacted=True),
        PartDelta("thinking", 2, signature="blob"),
        PartDelta("text", 3, "x"),
    )
    first, second, _ = response.message.parts
    thought = ThinkingPart(signature="S1", provider="acme", model="m", kind="thinking")
    assert first == thought
    assert second == ThinkingPart(signature="blob", redacted=True, provider="acme", model="m")


def test_a_stop_for_calls_without_a_call_is_an_error() -> None:
    """B17: the label must not end a run in silence."""
    with pytest.raises(InvalidResponseError, match="made none"):
        reply(PartDelta("text", 0, "I shall call"), reason=StopReason.TOOL_CALLS)


def test_calls_are_kept_whatever_the_label_says() -> None:
    """B17: the content decides."""
    response = reply(*made_call(0, "c1", "add", "{}"), reason=StopReason.END, raw="stop")
    assert response.message.calls
    assert response.raw_stop_reason == "stop"


def test_an_unknown_stop_reason_without_content_is_an_error() -> None:
    """MOD-13: never success in silence; with content it is told."""
    with pytest.raises(InvalidResponseError, match="strange"):
        reply(reason=StopReason.UNKNOWN, raw="strange")
    response = reply(PartDelta("text", 0, "x"), reason=StopReason.UNKNOWN, raw="strange")
    assert response.stop_reason is StopReason.UNKNOWN


def test_a_stop_in_the_middle_does_not_end_the_reply() -> None:
    """B17: the last reason counts."""
    response = reply(PartDelta("text", 0, "a"), Stop(StopReason.END), PartDelta("text", 0, "b"))
    assert response.message.parts == (TextPart("ab"),)


def test_a_thousand_pieces_join_to_the_letter() -> None:
    """MOD-4: pieces are joined as they came, halves of a character included."""
    events: list[StreamEvent] = [PartDelta("text", 0, "ab") for _ in range(1000)]
    events += [PartDelta("text", 0, "\ud83d"), PartDelta("text", 0, "\ude42")]
    assert reply(*events).message.text == "ab" * 1000 + "🙂"


def test_arguments_that_are_an_object_on_the_wire_are_written_one_way() -> None:
    """MOD-4: a stream's spaces and escapes are not the model's; what is no object stays."""

    def written(text: str) -> list[ToolCallPart]:
        start = PartStart("tool_call", 0, "c1", "add", as_object=True)
        return list(reply(start, PartDelta("tool_call", 0, text)).message.calls)

    assert written('{"a": "\\u00e9",\n "b": 1}') == [ToolCallPart("c1", "add", '{"a":"é","b":1}')]
    assert written("") == [ToolCallPart("c1", "add", "{}")]
    assert written('{"a": ') == [ToolCallPart("c1", "add", '{"a": ')]
