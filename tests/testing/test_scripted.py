"""ScriptedClient and call()."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from loopctl.errors import OverloadedError
from loopctl.messages import ImagePart, Message, TextPart, ThinkingPart, ToolCallPart
from loopctl.models.client import ModelClient, ModelRequest, ToolSchema
from loopctl.replies import ModelResponse, StopReason
from loopctl.testing import ScriptedClient, call, stream_events
from loopctl.usage import Usage
from loopctl.wire.accumulator import Accumulator
from loopctl.wire.stream_events import (
    MessageStop,
    PartDelta,
    PartStart,
    PartStop,
    Stop,
    StreamEvent,
)

pytestmark = pytest.mark.anyio


def ask(text: str = "hello") -> ModelRequest:
    return ModelRequest(messages=(Message.user(text),))


async def events_of(
    client: ScriptedClient, request: ModelRequest | None = None
) -> list[StreamEvent]:
    async with client.stream(request or ask()) as stream:
        return [event async for event in stream]


REPLIES: dict[str, tuple[Any, Message]] = {
    "text": ("hi", Message.assistant("hi")),
    "nothing": ("", Message.assistant()),
    "call": (call("add", id="c1", a=1), Message.assistant(ToolCallPart("c1", "add", '{"a":1}'))),
    "parts": (["hm", call("f", id="c")], Message.assistant("hm", ToolCallPart("c", "f"))),
    "message": (Message.assistant("yes"), Message.assistant("yes")),
    "response": (ModelResponse(message=Message.assistant("r")), Message.assistant("r")),
    "function": (lambda request: request.messages[0].text, Message.assistant("hello")),
}


@pytest.mark.parametrize("kind", REPLIES)
async def test_a_reply_may_be_given_in_many_forms(kind: Any) -> None:
    reply, message = REPLIES[kind]
    client = ScriptedClient(reply)
    assert (await client.complete(ask())).message == message
    assert client.remaining == 0


async def test_a_reply_may_be_an_async_function_of_the_request() -> None:
    async def later(request: ModelRequest) -> str:
        await anyio.lowlevel.checkpoint()
        return request.messages[0].text.upper()

    assert (await ScriptedClient(later).complete(ask())).message.text == "HELLO"


async def test_requests_are_recorded_in_order() -> None:
    client = ScriptedClient("a", "b", model="tiny", provider="lab", context_window=99)
    await client.complete(ask("one"))
    assert client.remaining == 1
    await events_of(client, ask("two"))
    assert [request.messages[0].text for request in client.requests] == ["one", "two"]
    assert (client.model, client.provider, client.context_window) == ("tiny", "lab", 99)
    assert isinstance(client, ModelClient)


@pytest.mark.parametrize(
    "reply", [OverloadedError("busy"), OverloadedError, lambda _: OverloadedError("busy")]
)
async def test_an_exception_is_raised_by_both_ways_to_ask(reply: Any) -> None:
    client = ScriptedClient(reply, reply, "then")
    with pytest.raises(OverloadedError):
        await client.complete(ask())
    async with client.stream(ask()) as stream:
        with pytest.raises(OverloadedError):
            await anext(stream)
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
    assert (await client.complete(ask())).message.text == "then"


async def test_running_out_shows_how_many_were_scripted_and_the_request() -> None:
    client = ScriptedClient("only")
    await client.complete(ask())
    tool = ToolSchema(name="add", description="", input_schema={})
    request = ModelRequest(
        messages=(Message.user("the second question"),), system="be kind", tools=(tool,)
    )
    ways: list[Any] = [client.complete, lambda r: events_of(client, r)]
    for attempt in ways:
        with pytest.raises(AssertionError) as caught:
            await attempt(request)
        for shown in ("has 1 replies", "the second question", "be kind", "add"):
            assert shown in str(caught.value)
    assert client.remaining == 0


async def test_a_stream_cuts_the_reply_into_pieces() -> None:
    """MOD-4: parts are addressed by kind and index, and end with the message's stop."""
    client = ScriptedClient(["abcde", call("f", id="c", x=1)], delta_chars=2)
    events = await events_of(client)
    pieces = [(e.kind, e.text) for e in events if isinstance(e, PartDelta)]
    assert [text for kind, text in pieces if kind == "text"] == ["ab", "cd", "e"]
    assert "".join(text for kind, text in pieces if kind == "tool_call") == '{"x":1}'
    assert PartStart("tool_call", 1, "c", "f") in events
    assert events[-2:] == [Stop(StopReason.TOOL_CALLS), MessageStop()]
    whole = await events_of(ScriptedClient("abcde" * 20, delta_chars=None))
    assert PartDelta("text", 0, "abcde" * 20) in whole


async def test_leaving_a_stream_early_uses_up_its_reply() -> None:
    client = ScriptedClient("abcdef", "next", delta_chars=1)
    async with client.stream(ask()) as stream:
        async for _ in stream:
            break
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    assert (await client.complete(ask())).message.text == "next"


async def test_a_call_that_was_cut_stays_open_and_the_reply_ends_by_length() -> None:
    cut = ToolCallPart("c", "f", '{"a":', truncated=True)
    client = ScriptedClient(["so", cut], ["so", cut])
    assert (await client.complete(ask())).stop_reason is StopReason.LENGTH
    events = await events_of(client)
    assert PartDelta("tool_call", 1, '{"a":') in events
    assert PartStop("tool_call", 1) not in events
    assert Stop(StopReason.LENGTH) in events


def test_thinking_and_usage_are_streamed_too() -> None:
    thinking = ThinkingPart("hm", signature="S1", kind="reasoning")
    response = ModelResponse(message=Message.assistant(thinking), usage=Usage(input_tokens=3))
    kinds = [type(event).__name__ for event in stream_events(response)]
    assert kinds == [
        "MessageStart",
        "PartStart",
        "PartDelta",
        "PartDelta",
        "PartStop",
        "UsageReport",
        "Stop",
        "MessageStop",
    ]


def test_ids_of_calls_are_the_same_in_every_process() -> None:
    assert call("add", a=1, b=2).id == call("add", a=1, b=2).id == "call_15cf7ca9"
    assert call("add", a=1).id != call("add", a=2).id != call("sub", a=2).id
    assert call("add", id="mine", a=1) == ToolCallPart("mine", "add", {"a": 1})
    assert call("add", name="x").parse() == {"name": "x"}


@pytest.mark.parametrize("wrong", [3, int, [3], None])
def test_what_no_model_could_say_is_refused_when_scripted(wrong: Any) -> None:
    with pytest.raises(TypeError):
        ScriptedClient(wrong)


def test_a_message_of_another_role_and_useless_cuts_are_refused() -> None:
    with pytest.raises(ValueError, match="assistant"):
        ScriptedClient(Message.user("x"))
    with pytest.raises(ValueError, match="delta_chars"):
        ScriptedClient("x", delta_chars=0)
    with pytest.raises(TypeError):
        ScriptedClient([TextPart(3)])  # type: ignore[arg-type]


BOUND = ThinkingPart("hm", signature="S1", provider="lab", model="m", kind="reasoning")
RESPONSES = [
    ModelResponse(message=Message.assistant("plain"), model="m"),
    ModelResponse(
        message=Message.assistant(BOUND, "so", call("f", x="é" * 40), "and", call("g")),
        stop_reason=StopReason.TOOL_CALLS,
        raw_stop_reason="tool_use",
        usage=Usage(input_tokens=3, output_tokens=4),
        model="m",
        response_id="r-1",
        request_id="q-1",
    ),
    ModelResponse(
        message=Message.assistant("no"),
        stop_reason=StopReason.REFUSAL,
        refusal="not that",
    ),
    ModelResponse(
        message=Message.assistant("x", ToolCallPart("c", "f", '{"a":', truncated=True)),
        stop_reason=StopReason.LENGTH,
    ),
    ModelResponse(
        message=Message.assistant(ToolCallPart("c", "f", "not json")),
        stop_reason=StopReason.TOOL_CALLS,
    ),
    ModelResponse(message=Message.assistant()),
]


@pytest.mark.parametrize("number", range(len(RESPONSES)))
@pytest.mark.parametrize("delta_chars", [1, 7, None])
async def test_a_stream_builds_the_very_response_that_complete_gives(
    number: int, delta_chars: int | None
) -> None:
    """MOD-4: equal replies give equal responses."""
    response = RESPONSES[number]
    client = ScriptedClient(response, response, delta_chars=delta_chars)
    accumulator = Accumulator()
    for event in await events_of(client):
        accumulator.feed(event)
    assert accumulator.response() == await client.complete(ask()) == response


def test_a_stream_cannot_carry_an_image() -> None:
    response = ModelResponse(message=Message.assistant(ImagePart("image/png", b"x")))
    with pytest.raises(ValueError, match="ImagePart"):
        list(stream_events(response))
