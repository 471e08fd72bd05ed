"""Every fault at every event of a stream, with the layer that retries above the client."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from loopctl.errors import InvalidResponseError, ModelError
from loopctl.messages import Message
from loopctl.models.client import ModelRequest
from loopctl.models.openai_chat import OpenAIChatClient
from loopctl.models.resilience import ResilientClient
from loopctl.models.retries import RetryPolicy
from loopctl.testing import (
    ByteServer,
    Close,
    ReceivedRequest,
    Reset,
    Script,
    Stall,
    call,
    chat_pieces,
    respond,
    respond_json,
    respond_sse,
    sse,
)
from loopctl.wire.accumulator import Accumulator
from loopctl.wire.stream_events import AttemptStarted

pytestmark = pytest.mark.anyio

ASK = ModelRequest(messages=(Message.user("hi"),))
PIECES = chat_pieces(["Hello there", call("add", a=1)])
WHOLE = respond_sse(*PIECES)
LIMITED = {"error": {"message": "slow", "code": "rate_limit_exceeded"}}

FAULTS: dict[str, Any] = {
    "reset": Reset(),
    "clean close": Close(),
    "stall": Stall(),
    "error object": sse({"error": {"message": "busy", "type": "overloaded_error"}}),
    "garbage": b"data: {nonsense\n\n",
}


async def read(client: ResilientClient) -> tuple[Message, int]:
    """The message, and how many attempts were announced."""
    accumulator, announced = Accumulator(), 0
    async with client.stream(ASK) as events:
        async for event in events:
            announced += isinstance(event, AttemptStarted)
            accumulator.feed(event)
    return accumulator.response().message, announced


@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_at_any_event_ends_in_one_copy_or_the_right_error(
    name: str, nothing_left: None
) -> None:
    """E3, MOD-8, MOD-14: reset, close, stall, error, garbage, in front of each event."""
    limit = 0.05 if name == "stall" else None
    policy = RetryPolicy(base_delay=0, first_event_timeout=limit, event_timeout=limit)
    places = range(len(PIECES) - 1)
    faulty: list[int] = []  # the place whose fault is still to come

    def play(request: ReceivedRequest) -> Script:
        return respond_sse(*PIECES[: faulty.pop()], FAULTS[name]) if faulty else WHOLE

    async with ByteServer(*[play] * 100) as server:
        client = ResilientClient(OpenAIChatClient("m", base_url=server.url), policy)
        for at in places:
            faulty.append(at)
            with anyio.fail_after(10):
                if name == "garbage":  # permanent: what is no reply now will be none later
                    with pytest.raises(InvalidResponseError):
                        await read(client)
                    continue
                message, announced = await read(client)
            assert (message.text, len(message.calls)) == ("Hello there", 1)
            # A slow machine may take a whole reply for a stall, and try again.
            assert announced == 1 or (name == "stall" and announced > 1)
        await client.aclose()


@pytest.mark.parametrize("after", ["0", "0.01", "-5", "Sat, 01 Jan 2000 00:00:00 GMT"])
async def test_every_form_of_retry_after_is_survived(after: str, nothing_left: None) -> None:
    """E1, E4: rate limits and servers that fail, then the reply."""
    scripts = [
        respond_json(LIMITED, status=429, headers={"Retry-After": after}),
        respond("oops", status=500, headers={"Retry-After": after}),
        respond("", status=529, headers={"Retry-After": after}),
        respond_sse(*PIECES),
    ]
    async with ByteServer(*scripts) as server:
        client = ResilientClient(OpenAIChatClient("m", base_url=server.url))
        with anyio.fail_after(10):
            message, announced = await read(client)
        assert (message.text, announced) == ("Hello there", 3)
        await client.aclose()


async def test_a_call_that_its_own_server_could_not_read_is_made_again(nothing_left: None) -> None:
    """MOD-14: Groq answers 400 when what the model wrote is no call; it may do better next time."""
    said = {"message": "Failed to call a function.", "code": "tool_use_failed"}
    scripts = [
        respond_json({"error": said}, status=400),
        respond_sse(PIECES[0], sse({"error": said}, event="error")),
        respond_sse(*PIECES),
    ]
    async with ByteServer(*scripts) as server:
        groq = OpenAIChatClient("m", base_url=server.url, profile="groq")
        client = ResilientClient(groq, RetryPolicy(base_delay=0))
        message, announced = await read(client)
        assert (message.text, len(message.calls), announced) == ("Hello there", 1, 2)
        await client.aclose()


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 413, 422])
async def test_a_permanent_refusal_is_one_attempt(status: int, nothing_left: None) -> None:
    """MOD-11: no other 4xx is sent twice."""
    async with ByteServer(respond_json({"error": {"message": "no"}}, status=status)) as server:
        client = ResilientClient(OpenAIChatClient("m", base_url=server.url))
        with pytest.raises(ModelError) as caught:
            await read(client)
        assert caught.value.status == status
        await client.aclose()
