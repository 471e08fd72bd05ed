"""Tests that every model client must pass (MOD-3, MOD-4, MOD-5, MOD-8)."""

from __future__ import annotations

import gc
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import anyio
import anyio.lowlevel
import pytest

from loopctl.config import RequestOptions
from loopctl.errors import ConfigError, ModelError
from loopctl.messages import Message, ToolCallPart
from loopctl.models.client import ModelClient, ModelRequest, ToolSchema
from loopctl.replies import ModelResponse, StopReason
from loopctl.testing.backends import BACKENDS
from loopctl.testing.byte_script import Close, Reset, Stall
from loopctl.testing.byte_server import ThreadedByteServer
from loopctl.testing.scripted import call
from loopctl.wire.accumulator import Accumulator

PATIENCE = 20.0
"""How long one test may take, in seconds."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A reply of which only a first half comes: then silence, a clean close or a reset."""

    message: Message
    by: Stall | Close | Reset


Served: TypeAlias = Message | Broken
"""What the model on the other side is to answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """A client, and the server that it talks to; a client without one has `None`."""

    client: ModelClient
    server: ThreadedByteServer | None = None


REPLIES: dict[str, Message] = {
    "text": Message.assistant("Hello, this is more than one piece of text."),
    "unicode": Message.assistant("你好 🙂\u2028é\n\ttwo lines"),
    "call": Message.assistant(call("get_weather", city="Paris 🙂")),
    "call without arguments": Message.assistant(call("now")),
    "text and parallel calls": Message.assistant(
        "Let me look.", call("add", id="call_1", a=1, b=2), call("add", id="call_2", a=3, b=4)
    ),
}


class ModelClientContract:
    """Inherit from it, say how your client is set up, and pytest runs the tests.

        class TestMyClient(ModelClientContract):
            unsupported = RequestOptions(temperature=1)

            @contextmanager
            def serve(self, *replies):
                with threaded(*map(as_my_server_would_say, replies)) as server:
                    yield Bench(client=MyClient(base_url=server.url), server=server)

    The client needs no retries of its own and a context manager may be asked for several times.
    The tests are sync and run event loops of their own, on asyncio and, if it is installed, on
    trio; so they need no plugin of pytest.
    """

    unsupported: RequestOptions | None = None
    """Options that the client cannot honour; without them that test is skipped."""

    serves_bytes: bool = True
    """Whether there is a server, which can break a reply off in the middle."""

    def serve(self, *replies: Served) -> AbstractContextManager[Bench]:
        """A client whose model answers one request with each of `replies`, in order.

        It must answer in the form that is asked for, streamed or whole. With `serves_bytes` a
        `Broken` reply is begun (at least one event of a stream is sent) and then broken.
        """
        raise NotImplementedError("a contract's subclass says how its client is served")

    def request(self, **options: Any) -> ModelRequest:
        """The request that the tests send; `options` are `RequestOptions`."""
        schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
        names = ("add", "get_weather", "now")
        return ModelRequest(
            messages=(Message.user("Hello"),),
            tools=tuple(ToolSchema(name=n, description=n, input_schema=schema) for n in names),
            options=RequestOptions(**options),
        )

    def test_it_is_a_model_client(self) -> None:
        """MOD-3: it has the protocol's attributes and methods."""
        with self.serve() as bench:
            client = bench.client
            assert isinstance(client, ModelClient), f"{client!r} lacks a part of ModelClient"
            assert isinstance(client.model, str), "model is a string"
            assert isinstance(client.provider, str), "provider is a string"
            window = client.context_window
            assert window is None or window > 0, "context_window is a number of tokens or None"

    @pytest.mark.parametrize("kind", REPLIES)
    @pytest.mark.parametrize("backend", BACKENDS)
    def test_complete_and_stream_give_what_was_said(self, backend: str, kind: str) -> None:
        """MOD-4: both ways give equal messages for equal replies."""
        said = REPLIES[kind]

        async def scenario(bench: Bench) -> None:
            whole = await bench.client.complete(self.request())
            streamed = await _streamed(bench.client, self.request())
            assert whole.message == streamed.message, "complete() and stream() differ"
            assert whole.stop_reason == streamed.stop_reason, "their stop reasons differ"
            assert whole.message.text == said.text
            assert [_essence(c) for c in whole.message.calls] == [_essence(c) for c in said.calls]
            stop = StopReason.TOOL_CALLS if said.calls else StopReason.END
            assert whole.stop_reason is stop

        self._run(backend, scenario, said, said)

    @pytest.mark.parametrize("backend", BACKENDS)
    def test_leaving_a_stream_early_closes_it(self, backend: str) -> None:
        """D2, MOD-3: nothing is left open, and the next call works."""
        said = REPLIES["text"]

        async def scenario(bench: Bench) -> None:
            async with bench.client.stream(self.request()) as events:
                async for _ in events:
                    break
            await _closed(bench)
            assert (await bench.client.complete(self.request())).message == said

        first = Broken(said, Stall()) if self.serves_bytes else said
        self._run(backend, scenario, first, said)

    @pytest.mark.parametrize("way", ["complete", "stream"])
    @pytest.mark.parametrize("backend", BACKENDS)
    def test_a_cancelled_call_closes_its_connection(self, backend: str, way: str) -> None:
        """ENG-18: cancelling works while the model is silent, and the next call works."""
        said, stall = REPLIES["text"], Stall()
        ask = _complete if way == "complete" else _streamed

        async def scenario(bench: Bench) -> None:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask, bench.client, self.request())
                while not stall.reached:
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
            await _closed(bench)
            assert (await ask(bench.client, self.request())).message == said

        self._run(backend, scenario, Broken(said, stall), said)

    @pytest.mark.parametrize("end", [Close(), Reset()], ids=["close", "reset"])
    @pytest.mark.parametrize("way", ["complete", "stream"])
    @pytest.mark.parametrize("backend", BACKENDS)
    def test_half_a_reply_is_no_success(self, backend: str, way: str, end: Close | Reset) -> None:
        """MOD-8, B7: what breaks off is a typed error that another try may mend."""
        said = REPLIES["text and parallel calls"]
        ask = _complete if way == "complete" else _streamed

        async def scenario(bench: Bench) -> None:
            with pytest.raises(ModelError) as caught:
                await ask(bench.client, self.request())
            assert caught.value.recoverable, f"{caught.value!r} is not recoverable"
            again = (await ask(bench.client, self.request())).message
            assert again.text == said.text

        self._run(backend, scenario, Broken(said, end), said)

    @pytest.mark.parametrize("backend", BACKENDS)
    def test_it_can_be_used_again_after_it_was_closed(self, backend: str) -> None:
        """MOD-5: `aclose()` closes what is open; a later call opens it again."""
        said = REPLIES["text"]

        async def scenario(bench: Bench) -> None:
            for _ in range(2):
                assert (await bench.client.complete(self.request())).message == said
                await bench.client.aclose()
                await bench.client.aclose()
                await _closed(bench)
            assert (await _streamed(bench.client, self.request())).message == said

        self._run(backend, scenario, said, said, said)

    @pytest.mark.parametrize("backend", BACKENDS)
    def test_many_calls_at_once_succeed(self, backend: str) -> None:
        """MOD-5: one client serves many sessions at once."""
        said = REPLIES["text"]
        replies: list[Message] = []

        async def scenario(bench: Bench) -> None:
            async def ask(way: Callable[..., Awaitable[ModelResponse]]) -> None:
                replies.append((await way(bench.client, self.request())).message)

            async with anyio.create_task_group() as tasks:
                for _ in range(10):
                    tasks.start_soon(ask, _complete)
                    tasks.start_soon(ask, _streamed)

        self._run(backend, scenario, *[said] * 20)
        assert replies == [said] * 20

    @pytest.mark.parametrize("second", BACKENDS)
    @pytest.mark.parametrize("first", BACKENDS)
    def test_it_serves_one_event_loop_after_another(self, first: str, second: str) -> None:
        """MOD-5, D8: what the first loop left open does not break the second."""
        said = REPLIES["text"]
        with self.serve(said, said, said) as bench:

            async def scenario() -> None:
                with anyio.fail_after(PATIENCE):
                    assert (await bench.client.complete(self.request())).message == said

            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)  # the first loop was just left
                anyio.run(scenario, backend=first)
                anyio.run(scenario, backend=second)

                async def last() -> None:
                    await scenario()
                    await bench.client.aclose()

                anyio.run(last, backend=second)
                gc.collect()

    @pytest.mark.parametrize("backend", BACKENDS)
    def test_an_option_that_it_cannot_honour_is_refused_before_any_byte(self, backend: str) -> None:
        """MOD-3: nothing is dropped in silence."""
        if self.unsupported is None:
            pytest.skip("this client names no option that it cannot honour")
        request = ModelRequest(messages=(Message.user("Hello"),), options=self.unsupported)

        async def scenario(bench: Bench) -> None:
            for ask in (_complete, _streamed):
                with pytest.raises(ConfigError):
                    await ask(bench.client, request)
            if bench.server is not None:
                assert bench.server.requests == [], "a request was sent"

        self._run(backend, scenario)

    def _run(
        self, backend: str, scenario: Callable[[Bench], Awaitable[None]], *replies: Served
    ) -> None:
        with self.serve(*replies) as bench:

            async def bounded() -> None:
                with anyio.fail_after(PATIENCE):
                    async with _closing(bench.client):
                        await scenario(bench)

            anyio.run(bounded, backend=backend)
            if bench.server is not None:
                bench.server.wait_closed()


@asynccontextmanager
async def _closing(client: ModelClient) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await client.aclose()


async def _complete(client: ModelClient, request: ModelRequest) -> ModelResponse:
    return await client.complete(request)


async def _streamed(client: ModelClient, request: ModelRequest) -> ModelResponse:
    accumulator = Accumulator()
    async with client.stream(request) as events:
        async for event in events:
            accumulator.feed(event)
    return accumulator.response()


async def _closed(bench: Bench) -> None:
    """Wait until the server has seen every connection go."""
    while bench.server is not None and bench.server.open_connections:
        await anyio.lowlevel.checkpoint()


def _essence(part: ToolCallPart) -> tuple[str, dict[str, Any]]:
    return part.name, part.parse()
