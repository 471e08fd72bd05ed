"""The local model itself, on the real server, both ways to call tools (MOD-25)."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import anyio
import pytest
from anyio.lowlevel import checkpoint

import loopctl
from loopctl.config import RequestOptions
from loopctl.errors import ConfigError, ContextOverflowError
from loopctl.messages import Message, TextPart, ToolResultPart
from loopctl.models.client import ModelClient, ModelRequest, ToolSchema
from loopctl.models.local import connect_local
from loopctl.models.local.client import LocalClient
from loopctl.models.local.server import LocalServer
from loopctl.replies import ModelResponse, StopReason
from loopctl.wire.accumulator import Accumulator
from loopctl.wire.stream_events import PartDelta, PartStart

pytestmark = pytest.mark.anyio

READ = ToolSchema(
    name="read_text_file",
    description="Read a text file.",
    input_schema={
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
    },
)
QUESTION = Message.user("What is written in hello.txt?")
SHORT = RequestOptions(max_output_tokens=4)


def local(**options: object) -> LocalClient:
    client = connect_local(**options)  # type: ignore[arg-type] # whatever a test says
    assert isinstance(client, LocalClient)
    return client


async def streamed(client: ModelClient, request: ModelRequest) -> ModelResponse:
    reply = Accumulator()
    async with client.stream(request) as events:
        async for event in events:
            reply.feed(event)
    return reply.response()


async def round_trip(client: ModelClient) -> tuple[Message, Message]:
    """A call and the answer after its result, each whole and streamed, which must be equal."""
    request = ModelRequest(messages=(QUESTION,), tools=(READ,))
    first = await client.complete(request)
    (call,) = first.message.calls
    assert first.stop_reason is StopReason.TOOL_CALLS
    again = (await streamed(client, request)).message.calls[0]
    assert (again.name, again.arguments) == (call.name, call.arguments)
    result = Message.user(ToolResultPart(call.id, call.name, "The meeting is on Friday at noon."))
    request = replace(request, messages=(QUESTION, first.message, result))
    answer = await client.complete(request)
    assert answer.stop_reason is StopReason.END
    assert (await streamed(client, request)).message == answer.message
    return first.message, answer.message


async def test_making_a_client_opens_nothing() -> None:
    """MOD-5, MOD-6: the server starts with the first request."""
    client = loopctl.connect("local", threads=1, context_window=300)
    assert isinstance(client, LocalClient)
    assert client.server_pid is None
    assert (client.provider, client.context_window) == ("local", 300)
    client.encode(ModelRequest(messages=(QUESTION,), tools=(READ,)))
    assert client.server_pid is None
    await client.aclose()


async def test_the_model_calls_a_tool_natively_and_answers_from_its_result(
    native_server: LocalServer,
) -> None:
    """MOD-25: native calls, streamed and not, at temperature 0."""
    async with local() as client:
        called, answer = await round_trip(client)
        assert called.calls[0].parse() == {"path": "hello.txt"}
        assert "Friday" in answer.text
        assert client.server_pid == native_server.pid


async def test_the_model_calls_a_tool_by_emulation_and_answers_from_its_result(
    emulating_server: LocalServer,
) -> None:
    """MOD-25: `tools="emulated"`, through a schema of the reply."""
    client = connect_local(tools="emulated")
    called, answer = await round_trip(client)
    assert called.calls[0].name == "read_text_file"
    assert "Friday" in answer.text
    await client.aclose()


async def test_text_is_streamed_and_cached_tokens_are_counted(native_server: LocalServer) -> None:
    """MOD-10: cached tokens are a part of the input's."""
    async with local() as client:
        request = ModelRequest(messages=(Message.user("Good morning!"),), tools=(READ,))
        await client.complete(request)
        pieces: list[str] = []
        async with client.stream(request) as events:
            async for event in events:
                assert not (isinstance(event, PartStart) and event.kind == "tool_call")
                if isinstance(event, PartDelta) and event.kind == "text":
                    pieces.append(event.text)
        usage = (await client.complete(request)).usage
        assert len(pieces) > 1
        assert usage is not None
        assert usage.cached_tokens is not None
        assert usage.input_tokens is not None
        assert 0 < usage.cached_tokens <= usage.input_tokens


async def test_requests_at_once_are_all_answered(native_server: LocalServer) -> None:
    """MOD-5: also more of them than the server answers at the same time."""
    async with local() as client:
        replies: list[ModelResponse] = []

        async def ask(number: int) -> None:
            question = Message.user(f"Say {number}.")
            replies.append(await client.complete(ModelRequest(messages=(question,), options=SHORT)))

        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(ask, number)
        assert len(replies) == 5


async def test_a_stream_is_followed_by_further_requests_on_the_same_client(
    native_server: LocalServer,
) -> None:
    """The server drops kept connections after a stream; nothing of it is seen."""
    options = RequestOptions(max_output_tokens=1)
    async with local() as client:
        for _ in range(15):
            await streamed(client, ModelRequest(messages=(QUESTION,), options=options))


@pytest.mark.parametrize("choice", ["required", "read_text_file"])
async def test_a_call_can_be_forced(native_server: LocalServer, choice: str) -> None:
    options = RequestOptions(tool_choice=choice)
    async with local() as client:
        request = ModelRequest(messages=(Message.user("Hello!"),), tools=(READ,), options=options)
        assert (await client.complete(request)).message.calls


async def test_a_tool_may_leave_the_type_of_a_property_open(native_server: LocalServer) -> None:
    """MOD-25: an enum, a union and a list of types; the template shows a word for them."""
    properties = {
        "one": {"enum": ["a", "b"]},
        "two": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "three": {"type": ["string", "null"]},
    }
    shape = {"type": "object", "properties": properties, "required": list(properties)}
    pick = ToolSchema(name="pick", description="Pick.", input_schema=shape)
    request = ModelRequest(messages=(Message.user("Pick a."),), tools=(pick,), options=SHORT)
    async with local() as client:
        assert (await client.complete(request)).stop_reason is StopReason.LENGTH


async def test_calls_can_be_forbidden(native_server: LocalServer) -> None:
    options = RequestOptions(tool_choice="none", max_output_tokens=4)
    async with local() as client:
        request = ModelRequest(messages=(QUESTION,), tools=(READ,), options=options)
        assert not (await client.complete(request)).message.calls


@pytest.mark.parametrize(
    ("tool", "options", "named"),
    [
        (READ, RequestOptions(tool_choice="other"), "tool_choice"),
        (READ, RequestOptions(response_schema={"type": "object"}), "response_schema"),
        (READ, RequestOptions(model="bigger"), "model"),
        (replace(READ, name="reply"), RequestOptions(), "reply"),
    ],
)
async def test_what_the_model_cannot_do_is_refused_before_it_starts(
    tool: ToolSchema, options: RequestOptions, named: str
) -> None:
    """MOD-3: `ConfigError` before any byte is sent."""
    client = local(context_window=301)
    with pytest.raises(ConfigError, match=named):
        await client.complete(ModelRequest(messages=(QUESTION,), tools=(tool,), options=options))
    assert client.server_pid is None


async def test_equal_clients_share_a_server_and_the_last_one_stops_it() -> None:
    first, second = local(context_window=302), local(context_window=302)
    request = ModelRequest(messages=(QUESTION,), options=SHORT)
    await first.complete(request)
    await second.complete(request)
    pid = first.server_pid
    assert pid is not None
    assert second.server_pid == pid
    await first.aclose()
    await second.complete(request)
    await second.aclose()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert second.server_pid is None


async def test_the_window_is_the_servers_and_a_longer_prompt_overflows_it() -> None:
    """MOD-11: `ContextOverflowError`, with the window that the server has."""
    async with local(context_window=300) as client:
        long = Message.user("word " * 900)
        with pytest.raises(ContextOverflowError):
            await client.complete(ModelRequest(messages=(long,), options=SHORT))
        # The server rounds it up to a multiple of 256.
        assert client.context_window == 512


async def test_a_server_that_died_is_replaced() -> None:
    async with local(context_window=303) as client:
        request = ModelRequest(messages=(QUESTION,), options=SHORT)
        await client.complete(request)
        pid = client.server_pid
        server = client._server
        assert pid is not None
        assert server is not None
        os.kill(pid, signal.SIGKILL)
        with anyio.fail_after(10):
            while server.running:
                await checkpoint()
        await client.complete(request)
        assert client.server_pid != pid


async def test_a_closed_client_may_be_used_again(nothing_left: None) -> None:
    client = local(context_window=304)
    request = ModelRequest(messages=(QUESTION,), options=SHORT)
    for _ in range(2):
        assert (await client.complete(request)).message.parts
        await client.aclose()


def test_one_client_serves_event_loops_one_after_the_other(native_server: LocalServer) -> None:
    """MOD-5: a second event loop, and a second backend."""
    client = local()

    async def ask() -> str:
        request = ModelRequest(messages=(QUESTION,), options=SHORT)
        return (await client.complete(request)).message.text

    assert anyio.run(ask) == anyio.run(ask, backend="trio") == anyio.run(ask)
    anyio.run(client.aclose)


def test_an_assistants_text_is_kept_in_the_history_that_is_sent() -> None:
    """MOD-25: what is sent is the true conversation; examples are the template's."""
    messages = (QUESTION, Message.assistant(TextPart("It says hello.")), Message.user("Thanks"))
    body = local().encode(ModelRequest(messages=messages, tools=(READ,))).body
    assert b"It says hello." in body
    assert b"letter.md" not in body
