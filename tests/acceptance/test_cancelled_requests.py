"""ENG-19, MOD-8, D2: a run cancelled wherever a request can stand; its connection closes."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator, Callable

import anyio
import pytest

from loopctl import BareLoop, RetryPolicy
from loopctl.errors import RunCancelled
from loopctl.models.limiter import RateLimiter
from loopctl.models.openai_chat.client import OpenAIChatClient
from loopctl.testing import (
    ByteServer,
    Playable,
    Stall,
    assert_valid_conversation,
    chat_reply,
    respond_json,
)

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_left")]

PATIENT = RetryPolicy(max_retry_after=600.0)


def in_headers(stall: Stall) -> Playable:
    return (b"HTTP/1.1 200 OK\r\nContent-", stall)


def in_body(stall: Stall) -> Playable:
    return chat_reply("This is a long answer, of which half comes.", broken_by=stall)


def in_error(stall: Stall) -> Playable:
    return (
        b"HTTP/1.1 503 No\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{",
        stall,
    )


@contextlib.asynccontextmanager
async def cancelled(agent: BareLoop, way: str, shape: str) -> AsyncIterator[None]:
    """Run the agent; cancel it when the block is left; see that it ends as it should."""
    outcome: list[str] = []
    scope = anyio.CancelScope()

    async def run() -> None:
        with scope:
            try:
                if shape == "run":
                    await agent.run("hi")
                else:
                    async with agent.stream("hi") as stream:
                        async for _ in stream:
                            pass
            except RunCancelled:
                outcome.append("RunCancelled")
        if scope.cancelled_caught:
            outcome.append("scope")

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            yield
            if way == "agent":
                assert agent.cancel() is True
            else:
                scope.cancel()
    assert outcome == ["RunCancelled" if way == "agent" else "scope"]
    assert agent.runs[-1].ending == "cancelled"
    assert agent.cancel() is False


async def works_again(agent: BareLoop, server: ByteServer, client: OpenAIChatClient) -> None:
    assert_valid_conversation(agent.history)
    server.play(chat_reply("fine"))
    with anyio.fail_after(10):
        assert (await agent.run("again")).output == "fine"
    await client.aclose()
    await server.wait_closed()


WAYS = pytest.mark.parametrize("way", ["agent", "scope"])
SHAPES = pytest.mark.parametrize("shape", ["run", "stream"])


@WAYS
@SHAPES
@pytest.mark.parametrize("script", [in_headers, in_body, in_error])
async def test_in_the_middle_of_a_response(
    script: Callable[[Stall], Playable], shape: str, way: str
) -> None:
    """ENG-19, D2: the server sees the end of the connection at once."""
    stall = Stall()
    async with ByteServer(script(stall)) as server:
        client = OpenAIChatClient("m", base_url=server.url)
        agent: BareLoop = BareLoop(client)
        async with cancelled(agent, way, shape):
            await server.wait_reached(stall)
        await server.wait_closed()
        await works_again(agent, server, client)


@WAYS
@SHAPES
async def test_in_the_wait_before_a_retry(shape: str, way: str) -> None:
    """ENG-19, MOD-14: a backoff is interrupted."""
    busy = respond_json({"error": {"message": "busy"}}, status=503, headers={"Retry-After": "500"})
    async with ByteServer(busy) as server:
        client = OpenAIChatClient("m", base_url=server.url)
        agent: BareLoop = BareLoop(client, retry=PATIENT)
        async with cancelled(agent, way, shape):
            await server._wait_for(lambda: len(server.requests) == 1, 10)
            await anyio.wait_all_tasks_blocked()
        assert len(server.requests) == 1
        await works_again(agent, server, client)


@WAYS
@SHAPES
async def test_in_the_wait_of_a_rate_limiter(shape: str, way: str) -> None:
    """ENG-19, MOD-17: the place in the queue is given back, nothing is sent."""
    limiter = RateLimiter(1, max_wait=None)
    async with ByteServer(chat_reply("first")) as server:
        client = OpenAIChatClient("m", base_url=server.url, limiter=limiter)
        agent: BareLoop = BareLoop(client)
        await agent.run("first")
        places = dict(limiter._full_at)
        async with cancelled(agent, way, shape):
            await anyio.wait_all_tasks_blocked()
            assert limiter._full_at != places
        assert limiter._full_at == pytest.approx(places)
        assert len(server.requests) == 1
        limiter._full_at.clear()
        await works_again(agent, server, client)


@WAYS
@SHAPES
async def test_while_connecting(shape: str, way: str) -> None:
    """ENG-19: to a server whose queue is full, so that it does not answer."""
    with contextlib.ExitStack() as stack:
        deaf = stack.enter_context(socket.socket())
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(deaf.getsockname())
        client = OpenAIChatClient("m", base_url=f"http://127.0.0.1:{deaf.getsockname()[1]}")
        agent: BareLoop = BareLoop(client)
        async with cancelled(agent, way, shape):
            await anyio.wait_all_tasks_blocked()
        await client.aclose()
    async with ByteServer() as server:
        client = OpenAIChatClient("m", base_url=server.url)
        agent._session.serving = client
        await works_again(agent, server, client)
