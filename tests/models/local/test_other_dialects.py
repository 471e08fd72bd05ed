"""The local model's server speaks other APIs too: our clients of them, against a real model."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from loopctl import BareLoop, RunConfig
from loopctl.config import RequestOptions
from loopctl.errors import AuthError, ContextOverflowError, MaxTurnsExceeded
from loopctl.events import ToolStarted
from loopctl.messages import Message, ToolCallPart, ToolResultPart
from loopctl.models.anthropic import AnthropicClient
from loopctl.models.client import ModelClient, ModelRequest, ToolSchema
from loopctl.models.local.client import MODEL
from loopctl.models.local.server import LocalServer
from loopctl.models.openai_responses import OpenAIResponsesClient
from loopctl.replies import ModelResponse, StopReason
from loopctl.wire.accumulator import Accumulator

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
ANSWER = {
    "type": "object",
    "properties": {"text": {"type": "string", "enum": ["Good morning.", "Good night."]}},
    "required": ["text"],
}
STEADY = RequestOptions(max_output_tokens=40, temperature=0)


def asked_before() -> list[Message]:
    """Worked examples: without them so small a model finds no call."""
    messages: list[Message] = []
    for id, name in (("one", "a.txt"), ("two", "b.txt"), ("three", "c.txt")):
        call = ToolCallPart(id, "read_text_file", {"path": name})
        messages += [
            Message.user(f"What is written in {name}?"),
            Message.assistant(call),
            Message.user(ToolResultPart(id, call.name, f"the text of {name}")),
            Message.assistant(f"In {name} is written: the text of {name}"),
        ]
    return messages


CALLING = ModelRequest(messages=(*asked_before(), QUESTION), tools=(READ,), options=STEADY)


@asynccontextmanager
async def messages_client(server: LocalServer) -> AsyncGenerator[AnthropicClient]:
    running = server.start()
    client = AnthropicClient(MODEL, base_url=running.address, api_key=running.key, provider="local")
    async with client:
        yield client


@asynccontextmanager
async def responses_client(server: LocalServer) -> AsyncGenerator[OpenAIResponsesClient]:
    running = server.start()
    url = f"{running.address}/v1"
    client = OpenAIResponsesClient(MODEL, base_url=url, api_key=running.key, provider="local")
    async with client:
        yield client


async def streamed(client: ModelClient, request: ModelRequest) -> ModelResponse:
    reply = Accumulator()
    async with client.stream(request) as events:
        async for event in events:
            reply.feed(event)
    return reply.response()


async def test_the_messages_api_calls_a_tool_and_answers_after_its_result(
    native_server: LocalServer,
) -> None:
    """MOD-19, MOD-25, MOD-4: streamed and whole, the same call; its result goes back."""
    async with messages_client(native_server) as client:
        whole, along = await client.complete(CALLING), await streamed(client, CALLING)
        (call,), (other,) = whole.message.calls, along.message.calls
        assert (call.name, call.arguments) == (other.name, other.arguments)
        assert (call.name, call.parse()) == ("read_text_file", {"path": "hello.txt"})
        assert whole.stop_reason is along.stop_reason is StopReason.TOOL_CALLS
        result = Message.user(ToolResultPart(call.id, call.name, "Good morning."))
        more = replace(  # left alone, so small a model writes what its own server cannot read
            CALLING,
            messages=(*CALLING.messages, whole.message, result),
            tools=(),
            options=replace(STEADY, response_schema=ANSWER),
        )
        answer = await client.complete(more)
        assert answer.message.text.startswith('{"text":')
        assert (await streamed(client, more)).message == answer.message


async def test_the_messages_api_tells_what_its_cache_had(native_server: LocalServer) -> None:
    """MOD-10, MOD-22: input counts everything, cached a part of it."""
    async with messages_client(native_server) as client:
        await client.complete(CALLING)
        usage = (await client.complete(CALLING)).usage
        counted = await client.count_tokens(CALLING)
    assert usage is not None
    assert usage.input_tokens == counted
    assert usage.cached_tokens is not None
    assert counted - 5 < usage.cached_tokens < counted


async def test_the_messages_api_lists_its_model(native_server: LocalServer) -> None:
    """MOD-19: llama.cpp tells no limits."""
    async with messages_client(native_server) as client:
        assert [model.id for model in await client.list_models()] == [MODEL]


async def test_a_reply_by_schema_comes_through_a_tool(native_server: LocalServer) -> None:
    """MOD-3: what the model writes fits, streamed and whole."""
    options = replace(STEADY, response_schema=ANSWER)
    request = ModelRequest(messages=(Message.user("Say hello."),), options=options)
    async with messages_client(native_server) as client:
        whole = await client.complete(request)
        assert whole.stop_reason is StopReason.END
        assert whole.message.text.startswith('{"text":"')
        assert (await streamed(client, request)).message == whole.message


async def test_errors_of_the_messages_api_are_typed(native_server: LocalServer) -> None:
    """MOD-11, MOD-12: a prompt that does not fit, with its figures; a key that is none."""
    long = ModelRequest(messages=(Message.user("word " * 9_000),), options=STEADY)
    async with messages_client(native_server) as client:
        for ask in (client.complete(long), streamed(client, long)):
            with pytest.raises(ContextOverflowError) as caught:
                await ask
            used, limit = caught.value.used, caught.value.limit
            assert used
            assert limit == native_server.start().context_window < used
    async with AnthropicClient(MODEL, base_url=native_server.start().address) as stranger:
        with pytest.raises(AuthError):
            await stranger.complete(CALLING)


async def test_a_run_over_the_messages_api_reads_a_file(native_server: LocalServer) -> None:
    """MOD-25: the loop against a real model, streamed; so small a one ends by its turns."""
    read: list[str] = []
    started: list[str] = []

    def read_text_file(path: str) -> str:
        """Read a text file."""
        read.append(path)
        return "Good morning."

    config = RunConfig(max_turns=1, options=STEADY)
    async with messages_client(native_server) as client:
        agent = BareLoop(client, [read_text_file], history=asked_before())
        async with agent.stream("What is written in hello.txt?", config) as along:
            with pytest.raises(MaxTurnsExceeded):
                async for event in along:
                    if isinstance(event, ToolStarted):
                        started.append(event.call.name)
    assert read == ["hello.txt"]
    assert started == ["read_text_file"]


async def test_the_responses_api_calls_a_tool_and_answers_after_its_result(
    native_server: LocalServer,
) -> None:
    """MOD-19, MOD-25, MOD-4: streamed and whole, the same call; its result goes back."""
    async with responses_client(native_server) as client:
        whole, along = await client.complete(CALLING), await streamed(client, CALLING)
        (call,), (other,) = whole.message.calls, along.message.calls
        assert (call.name, call.parse()) == ("read_text_file", {"path": "hello.txt"})
        assert (call.name, call.parse()) == (other.name, other.parse())
        assert whole.stop_reason is along.stop_reason is StopReason.TOOL_CALLS
        assert whole.usage is not None
        assert along.usage is not None
        assert whole.usage.total_tokens == along.usage.total_tokens
        result = Message.user(ToolResultPart(call.id, call.name, "Good morning."))
        more = replace(
            CALLING,
            messages=(*CALLING.messages, whole.message, result),
            tools=(),
            options=replace(STEADY, max_output_tokens=5),
        )
        answer = await client.complete(more)
        assert answer.message.text
        assert (await streamed(client, more)).message == answer.message


async def test_a_forced_tool_is_called_over_the_responses_api(native_server: LocalServer) -> None:
    """MOD-3: the flat choice is understood."""
    forced = replace(CALLING, options=replace(STEADY, tool_choice="read_text_file"))
    async with responses_client(native_server) as client:
        assert [call.name for call in (await client.complete(forced)).message.calls] == [READ.name]


async def test_the_responses_api_counts_tokens_and_lists_its_model(
    native_server: LocalServer,
) -> None:
    """MOD-10, MOD-19, MOD-22: input counts everything, cached a part of it."""
    async with responses_client(native_server) as client:
        await client.complete(CALLING)
        usage = (await client.complete(CALLING)).usage
        assert [model.id for model in await client.list_models()] == [MODEL]
        counted = await client.count_tokens(CALLING)
    assert usage is not None
    assert usage.input_tokens == counted
    assert counted - 5 < (usage.cached_tokens or 0) < counted


async def test_notes_are_taken_wherever_they_stand_by_the_responses_api(
    native_server: LocalServer,
) -> None:
    """CTX-8, MOD-20: in front, in the middle, and at the end."""
    note = Message.system("Be brief.")
    said = Message.user("Hi."), Message.assistant("Hello."), Message.user("Well?")
    request = ModelRequest(
        messages=(note, said[0], note, *said[1:], note),
        system="Be kind.",
        options=replace(STEADY, max_output_tokens=3),
    )
    async with responses_client(native_server) as client:
        assert (await client.complete(request)).stop_reason is StopReason.END


async def test_errors_of_the_responses_api_are_typed(native_server: LocalServer) -> None:
    """MOD-11, MOD-12: a prompt that does not fit, with its figures; a key that is none."""
    long = ModelRequest(messages=(Message.user("word " * 9_000),), options=STEADY)
    async with responses_client(native_server) as client:
        for ask in (client.complete(long), streamed(client, long)):
            with pytest.raises(ContextOverflowError) as caught:
                await ask
            used, limit = caught.value.used, caught.value.limit
            assert used
            assert limit == native_server.start().context_window < used
        url = client.base_url
    async with OpenAIResponsesClient(MODEL, base_url=url) as stranger:
        with pytest.raises(AuthError):
            await stranger.complete(CALLING)


async def test_a_run_over_the_responses_api_reads_a_file(native_server: LocalServer) -> None:
    """MOD-25: the loop against a real model, streamed; so small a one ends by its turns."""
    read: list[str] = []

    def read_text_file(path: str) -> str:
        """Read a text file."""
        read.append(path)
        return "Good morning."

    config = RunConfig(max_turns=1, options=STEADY)
    async with responses_client(native_server) as client:
        agent = BareLoop(client, [read_text_file], history=asked_before())
        async with agent.stream("What is written in hello.txt?", config) as along:
            with pytest.raises(MaxTurnsExceeded):
                async for _ in along:
                    pass
    assert read == ["hello.txt"]
