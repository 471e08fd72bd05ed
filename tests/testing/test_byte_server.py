"""ByteServer, its scripts, and its twin in a thread."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from typing import Any

import anyio
import httpx
import openai
import pytest

from loopctl.messages import ThinkingPart
from loopctl.replies import ModelResponse, StopReason
from loopctl.testing import (
    ByteServer,
    Close,
    Reset,
    Stall,
    call,
    chat_completion,
    chat_pieces,
    chat_reply,
    respond,
    respond_json,
    respond_sse,
    sse,
    threaded,
)
from loopctl.testing.scripted import prepare
from loopctl.usage import Usage

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_threads_or_sockets_left")]


def client() -> httpx.AsyncClient:
    return httpx.AsyncClient(trust_env=False, timeout=10)


async def test_it_answers_with_its_scripts_in_order_and_records_the_requests() -> None:
    async with (
        ByteServer(respond("one"), respond_json({"n": 2}, status=404, headers={"X-A": "b"})) as it,
        client() as http,
    ):
        first = await http.post(f"{it.url}/v1/x?y=1", json={"q": "ü"}, headers={"X-Key": "k"})
        second = await http.get(f"{it.url}/z")
    assert (first.status_code, first.text) == (200, "one")
    assert (second.status_code, second.json(), second.headers["x-a"]) == (404, {"n": 2}, "b")
    assert [(r.method, r.path) for r in it.requests] == [("POST", "/v1/x?y=1"), ("GET", "/z")]
    assert it.requests[0].json() == {"q": "ü"}
    assert it.requests[0].headers["x-key"] == "k"
    assert (it.connections, it.open_connections) == (1, 0)
    assert it.url.startswith("http://127.0.0.1:")


async def test_a_script_may_be_a_function_of_the_request() -> None:
    async with ByteServer(lambda request: respond(request.body)) as it, client() as http:
        assert (await http.post(it.url, content=b"echo")).text == "echo"


async def test_a_request_sent_in_chunks_is_read_whole() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"a" * 70_000
        yield b"b"

    async with ByteServer(respond("ok")) as it, client() as http:
        await http.post(it.url, content=pieces())
    assert it.requests[0].body == b"a" * 70_000 + b"b"


async def test_each_piece_reaches_the_client_as_a_piece() -> None:
    pieces = [sse({"n": 1}), b"da", b"ta: \xe2", b"\x80\xa8\n", b"\n"]
    async with (
        ByteServer(respond_sse(*pieces)) as it,
        client() as http,
        http.stream("GET", it.url) as response,
    ):
        assert response.headers["content-type"] == "text/event-stream"
        assert [piece async for piece in response.aiter_raw()] == pieces


@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
async def test_every_framing_carries_the_body(framing: Any) -> None:
    async with ByteServer(respond("ab", b"", "cd", framing=framing)) as it, client() as http:
        response = await http.get(it.url)
        assert response.text == "abcd"
        if framing == "close":
            await it.wait_closed()


async def test_a_stall_waits_until_it_is_released() -> None:
    stall = Stall()
    async with (
        ByteServer(respond("a", stall, "b")) as it,
        client() as http,
        http.stream("GET", it.url) as response,
    ):
        pieces: list[bytes] = []
        async for piece in response.aiter_raw():
            pieces.append(piece)
            if not stall.released:
                await it.wait_reached(stall)
                stall.release()
        assert pieces == [b"a", b"b"]


async def test_a_stall_may_be_released_from_another_thread() -> None:
    stall = Stall()
    async with (
        ByteServer(respond("a", stall, "b")) as it,
        client() as http,
        http.stream("GET", it.url) as response,
    ):
        await it.wait_reached(stall)
        threading.Thread(target=stall.release).start()
        assert await response.aread() == b"ab"


async def test_a_released_stall_stops_nobody() -> None:
    stall = Stall()
    stall.release()
    async with ByteServer(respond("a", stall, "b")) as it, client() as http:
        assert (await http.get(it.url)).text == "ab"


async def test_a_client_that_leaves_during_a_stall_is_noticed() -> None:
    stall = Stall()
    async with ByteServer(respond("a", stall)) as it, client() as http:
        async with http.stream("GET", it.url):
            assert it.open_connections == 1
            await it.wait_reached(stall)
        await it.wait_closed()
    assert not stall.released


async def test_a_server_closes_with_a_stall_unreleased() -> None:
    stall = Stall()
    async with client() as http, ByteServer(respond("a", stall)) as it, http.stream("GET", it.url):
        await it.wait_reached(stall)
    stall.release()


async def test_a_wait_is_bounded() -> None:
    async with ByteServer() as it:
        with pytest.raises(TimeoutError):
            await it.wait_reached(Stall(), timeout=0)


async def test_a_close_in_the_middle_is_an_early_end() -> None:
    async with ByteServer(respond("half", Close())) as it, client() as http:
        with pytest.raises(httpx.RemoteProtocolError, match="incomplete"):
            await http.get(it.url)


async def test_a_reset_is_a_reset() -> None:
    async with ByteServer(respond("half", Reset()), (Reset(),)) as it, client() as http:
        for _ in range(2):
            with pytest.raises(httpx.ReadError):
                await http.get(it.url)


async def test_raw_steps_may_be_no_http_at_all() -> None:
    async with ByteServer((b"SSH-2.0-x\r\n", Close())) as it, client() as http:
        with pytest.raises(httpx.RemoteProtocolError):
            await http.get(it.url)


async def test_what_a_test_raises_comes_out_as_it_is() -> None:
    with pytest.raises(LookupError, match="mine"):
        async with ByteServer():
            raise LookupError("mine")


async def test_a_function_that_fails_to_give_a_script_fails_the_test() -> None:
    it = ByteServer(lambda request: respond_json(request.json()))
    async with client() as http:
        await it.__aenter__()
        with pytest.raises(httpx.RemoteProtocolError):
            await http.get(it.url)
    with pytest.raises(ValueError, match="Expecting value"):
        await it.__aexit__(None, None, None)


async def test_a_cancelled_test_ends_the_server() -> None:
    stall = Stall()
    it = ByteServer(respond(stall))
    with anyio.CancelScope() as scope:
        async with it, client() as http, anyio.create_task_group() as tasks:
            tasks.start_soon(http.get, it.url)
            await it.wait_reached(stall)
            scope.cancel()
    assert scope.cancelled_caught
    assert it.open_connections == 0


async def test_a_request_that_nothing_is_scripted_for_fails_the_test() -> None:
    it = ByteServer(respond("ok"))
    async with client() as http:
        await it.__aenter__()
        assert (await http.get(f"{it.url}/one")).status_code == 200
        assert (await http.get(f"{it.url}/two")).status_code == 500
    with pytest.raises(AssertionError, match=r"1 scripts, but 2 requests.*GET /two"):
        await it.__aexit__(None, None, None)


async def test_many_connections_at_once() -> None:
    stall = Stall()
    async with (
        ByteServer(*[respond("a", stall, "b")] * 100) as it,
        client() as http,
        anyio.create_task_group() as tasks,
    ):
        for _ in range(100):
            tasks.start_soon(http.get, it.url)
        while it.open_connections < 100:
            await anyio.lowlevel.checkpoint()
        await it.wait_reached(stall)
        stall.release()
    assert it.connections == 100


def test_a_server_in_a_thread_serves_sync_code_and_several_loops() -> None:
    stall = Stall()
    with threaded(respond("one"), respond("two")) as it:
        with httpx.Client(trust_env=False) as http:
            assert http.get(it.url).text == "one"

            async def ask() -> str:
                async with client() as http:
                    return (await http.get(it.url)).text

            assert anyio.run(ask, backend="trio") == "two"
            it.play(respond("three", stall, "!"))
            with http.stream("GET", it.url) as response:
                it.wait_reached(stall)
                assert it.open_connections == 1
                stall.release()
                assert response.read() == b"three!"
        it.wait_closed()
        assert (len(it.requests), it.connections, it.open_connections) == (3, 2, 0)
        with pytest.raises(TimeoutError):
            it.wait_reached(Stall(), timeout=0)


def test_a_server_in_a_thread_reports_what_was_not_scripted() -> None:
    with pytest.raises(AssertionError, match="nothing was scripted for: GET /"), threaded() as it:
        httpx.get(it.url, trust_env=False)


def test_an_event_keeps_text_as_it_is_and_splits_its_lines() -> None:
    assert sse("a\nb", event="e", id="1") == b"event: e\nid: 1\ndata: a\ndata: b\n\n"
    assert sse({"t": "\u2028"}) == 'data: {"t":"\u2028"}\n\n'.encode()
    assert sse("[DONE]") == b"data: [DONE]\n\n"


ANSWERS: dict[str, Any] = {
    "text": "Hello, world, this is longer than a piece",
    "call": ["let me see", call("add", a=1, b=2), call("now")],
    "thinking": [ThinkingPart("hm"), "so"],
    "cut": ModelResponse(
        message=prepare("half", "m").message,  # type: ignore[union-attr]
        stop_reason=StopReason.LENGTH,
        usage=Usage(input_tokens=7, output_tokens=3, cached_tokens=2, thinking_tokens=1),
    ),
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_a_chat_completions_server_can_be_faked(kind: str) -> None:
    """MOD-24: the vendor's own SDK reads the fake's replies, streamed or not, as the same."""
    answer = ANSWERS[kind]
    said = prepare(answer, "scripted")
    assert isinstance(said, ModelResponse)
    with threaded(chat_reply(answer), chat_reply(answer)) as it:
        asked: Any = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        with openai.OpenAI(api_key="k", base_url=f"{it.url}/v1") as sdk:
            whole = sdk.chat.completions.create(**asked)
            with sdk.chat.completions.stream(**asked) as stream:
                stream.until_done()
                streamed = stream.current_completion_snapshot
    for completion in (whole, streamed):
        choice: Any = completion.choices[0]
        assert (choice.message.content or "") == said.message.text
        assert choice.finish_reason == {"call": "tool_calls", "cut": "length"}.get(kind, "stop")
        calls = [
            (c.id, c.function.name, c.function.arguments) for c in choice.message.tool_calls or ()
        ]
        assert calls == [(c.id, c.name, c.arguments) for c in said.message.calls]
        if kind == "thinking":
            assert choice.message.reasoning_content == "hm"
        if said.usage is not None:
            assert completion.usage is not None
            assert completion.usage.prompt_tokens == 7


def test_a_faked_server_cannot_raise() -> None:
    with pytest.raises(TypeError, match="status"):
        chat_reply(RuntimeError("x"))


def test_a_refusal_is_told_in_both_forms() -> None:
    refused = ModelResponse(message=prepare("", "m").message, refusal="no")  # type: ignore[union-attr]
    assert chat_completion(refused)["choices"][0]["message"]["refusal"] == "no"
    assert any(b'"refusal":"no"' in piece for piece in chat_pieces(refused))
