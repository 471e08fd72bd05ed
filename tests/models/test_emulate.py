from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from loopctl.config import RequestOptions
from loopctl.errors import ConfigError
from loopctl.messages import (
    ImagePart,
    Message,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from loopctl.models.client import ModelRequest, ToolSchema
from loopctl.models.emulate import EmulatedTools
from loopctl.replies import ModelResponse, StopReason
from loopctl.testing import ScriptedClient
from loopctl.wire.accumulator import Accumulator

pytestmark = pytest.mark.anyio

READ = ToolSchema(
    name="read",
    description="Read a file.",
    input_schema={
        "type": "object",
        "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}},
        "required": ["path"],
    },
)
NOW = ToolSchema(name="now", description="The time.", input_schema={"type": "object"})
QUESTION = Message.user("What is in a.txt?")
REQUEST = ModelRequest(messages=(QUESTION,), tools=(READ, NOW), system="Be brief.")
CALL = '{"tool": "read", "arguments": {"path": "a.txt"}}'


async def both(reply: Any, request: ModelRequest = REQUEST) -> tuple[ModelResponse, ModelRequest]:
    """The reply, which must be equal whole and streamed, and the request that the model saw."""
    script = ScriptedClient(reply, reply)
    client = EmulatedTools(script)
    whole = await client.complete(request)
    collected = Accumulator()
    async with client.stream(request) as events:
        async for event in events:
            collected.feed(event)
    streamed = collected.response()
    assert (streamed.message, streamed.stop_reason) == (whole.message, whole.stop_reason)
    return whole, script.requests[0]


@pytest.mark.parametrize(
    "text",
    [
        CALL,
        f"```json\n{CALL}\n```",
        f"Let me look.\n```json\n{CALL}\n```\nThat should do.",
        f"Sure! {CALL}",
        CALL.replace("}}", "},}"),
        json.dumps(CALL),
    ],
)
async def test_json_of_the_agreed_shape_becomes_a_call(text: str) -> None:
    """MOD-25: also when the model fences or decorates it."""
    reply, _ = await both(text)
    (call,) = reply.message.parts
    assert isinstance(call, ToolCallPart)
    assert (call.name, call.parse()) == ("read", {"path": "a.txt"})
    assert reply.stop_reason is StopReason.TOOL_CALLS


@pytest.mark.parametrize(
    "text",
    [
        "Just text.",
        '{"tool": "delete", "arguments": {}}',
        '{"tool": "read", "arguments": "a.txt"}',
        '{"tool": "read", "arguments": {}, "why": "because"}',
        '{"name": "read", "parameters": {"path": "a.txt"}}',
        '{"path": "a.txt"}',
        f"Either\n```\n{CALL}\n```\nor\n```\n{CALL}\n```",
        CALL[:-4],
        "",
    ],
)
async def test_json_of_another_shape_is_text(text: str) -> None:
    """B23: only what was agreed is a call."""
    reply, _ = await both(text)
    assert not reply.message.calls
    assert reply.message.text == text
    assert reply.stop_reason is StopReason.END


async def test_an_answer_is_taken_out_of_its_json() -> None:
    reply, _ = await both('{"answer": "It says \\"hello\\"."}')
    assert reply.message == Message.assistant('It says "hello".')
    assert reply.stop_reason is StopReason.END


async def test_tools_are_told_in_words_and_never_sent() -> None:
    """MOD-25: the reply is held to a schema: one shape for each tool, one for the answer."""
    _, seen = await both(CALL)
    assert seen.tools == ()
    assert seen.system is not None
    assert seen.system.startswith("Be brief.\n\n")
    assert "read: Read a file." in seen.system
    schema = cast("Mapping[str, Any]", seen.options.response_schema)
    read, now, answer = schema["anyOf"]
    assert read["properties"]["tool"] == {"const": "read"}
    assert read["properties"]["arguments"]["required"] == ["path"]
    assert now["properties"]["tool"] == {"const": "now"}
    assert answer["properties"] == {"answer": {"type": "string"}}


async def test_the_history_becomes_text_on_the_outgoing_copy_only() -> None:
    call = ToolCallPart("c1", "read", {"path": "a.txt"})
    image = ImagePart("image/png", b"x")
    thinking = ThinkingPart("hm")
    said = Message.assistant(thinking, TextPart("One moment."), call)
    result = ToolResultPart("c1", "read", (TextPart("hello"), image), is_error=True)
    answered = Message.user(result, TextPart("And?"))
    request = replace(REQUEST, messages=(QUESTION, said, answered))
    _, seen = await both(CALL, request)
    assert request.messages == (QUESTION, said, answered)
    assert seen.messages[0] is QUESTION
    assert seen.messages[1] == Message.assistant(
        thinking,
        TextPart("One moment."),
        TextPart('{"tool":"read","arguments":{"path":"a.txt"}}'),
    )
    assert seen.messages[2] == Message(
        Role.USER, (TextPart("Error of read:\nhello"), image, TextPart("And?"))
    )


async def test_a_messages_text_is_made_once() -> None:
    """MOD-23: what was made for an old message is used again."""
    old = Message.assistant(ToolCallPart("c1", "read", {"path": "a.txt"}))
    request = replace(REQUEST, messages=(QUESTION, old))
    script = ScriptedClient("a", "b")
    client = EmulatedTools(script)
    await client.complete(request)
    await client.complete(request)
    first, second = script.requests
    assert first.messages[1] is second.messages[1]
    assert first.system == second.system


async def test_the_same_call_gets_the_same_id_and_later_ones_get_others() -> None:
    """MOD-9: ids are ours, equal in every process, unique in a conversation."""
    first, _ = await both(CALL)
    again, _ = await both(CALL)
    later, _ = await both(CALL, replace(REQUEST, messages=(QUESTION, first.message, QUESTION)))
    assert first.message.calls[0].id == again.message.calls[0].id
    assert first.message.calls[0].id != later.message.calls[0].id


async def test_a_forced_call_leaves_no_room_for_an_answer() -> None:
    request = replace(REQUEST, options=RequestOptions(tool_choice="now"))
    _, seen = await both('{"tool": "now", "arguments": {}}', request)
    schema = cast("Mapping[str, Any]", seen.options.response_schema)
    assert schema["properties"]["tool"] == {"const": "now"}
    assert seen.options.tool_choice is None
    request = replace(REQUEST, options=RequestOptions(tool_choice="required"))
    _, seen = await both(CALL, request)
    schema = cast("Mapping[str, Any]", seen.options.response_schema)
    assert len(schema["anyOf"]) == 2


async def test_a_choice_that_is_no_tool_is_refused() -> None:
    """MOD-3: before anything is sent."""
    script = ScriptedClient("x")
    request = replace(REQUEST, options=RequestOptions(tool_choice="delete"))
    with pytest.raises(ConfigError, match="delete"):
        await EmulatedTools(script).complete(request)
    assert not script.requests


async def test_without_tools_a_reply_passes_as_it_is() -> None:
    for request in (
        replace(REQUEST, tools=()),
        replace(REQUEST, options=RequestOptions(tool_choice="none")),
    ):
        reply, seen = await both('{"answer": "x"}', request)
        assert reply.message.text == '{"answer": "x"}'
        assert (seen.system, seen.options.response_schema) == ("Be brief.", None)


async def test_a_schema_for_the_reply_holds_for_the_answer() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    request = replace(REQUEST, options=RequestOptions(response_schema=schema))
    reply, seen = await both('{"answer": {"n": 1}}', request)
    assert json.loads(reply.message.text) == {"n": 1}
    sent = cast("Mapping[str, Any]", seen.options.response_schema)
    assert sent["anyOf"][-1]["properties"]["answer"] == schema


async def test_a_client_that_takes_no_schema_is_asked_without_one() -> None:
    """MOD-25: a model that is not held to the schema may still write what was agreed."""

    class Refusing(ScriptedClient):
        async def complete(self, request: ModelRequest) -> ModelResponse:
            self.check(request)
            return await super().complete(request)

        def stream(self, request: ModelRequest) -> Any:
            self.check(request)
            return super().stream(request)

        def check(self, request: ModelRequest) -> None:
            if request.options.response_schema is not None:
                raise ConfigError("RequestOptions.response_schema: not here")

    client = EmulatedTools(Refusing(CALL, CALL))
    assert (await client.complete(REQUEST)).message.calls
    collected = Accumulator()
    async with client.stream(REQUEST) as events:
        async for event in events:
            collected.feed(event)
    assert collected.response().message.calls
