"""ENG-23: the web application of docs/runs.md on a real server; its clients go in the middle."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import pytest
import uvicorn
from anyio.abc import TaskGroup, TaskStatus
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware

from loopctl import BareLoop, hookimpl
from loopctl.events import Event, RunEnded, TextDelta
from loopctl.models.client import ModelRequest
from loopctl.testing import ScriptedClient, assert_valid_conversation
from loopctl.wire.stream_events import MessageStart, PartDelta, PartStart, StreamEvent

TIMES = 50
PAGE = Path(__file__).parents[2] / "docs" / "runs.md"
EXAMPLE = re.search(
    r"(?ms)^## In a web application$.*?^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8")
)


class Endless(ScriptedClient):
    """Says some words, and then nothing more; answers at once when it is not streamed."""

    def __init__(self, text: str) -> None:
        super().__init__(text)

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:  # type: ignore[override]
        yield self._speak()

    async def _speak(self) -> AsyncIterator[StreamEvent]:
        yield MessageStart("endless")
        yield PartStart("text", 0)
        yield PartDelta("text", 0, "Hello ")
        await anyio.sleep_forever()


class Talkative(Endless):
    """Says more than any connection holds, so that the reader is waited for."""

    async def _speak(self) -> AsyncIterator[StreamEvent]:
        yield MessageStart("talkative")
        yield PartStart("text", 0)
        while True:
            await anyio.lowlevel.checkpoint()
            yield PartDelta("text", 0, "Hello " * 10_000)


class Through(BaseHTTPMiddleware):
    """Middleware that changes nothing, but hands the response on through a stream of its own."""

    async def dispatch(self, request: Any, call_next: Any) -> Any:
        return await call_next(request)


class Site:
    """The example, served in an event loop of its own; remembers the sessions that it makes."""

    def __init__(
        self,
        portal: anyio.from_thread.BlockingPortal,
        client: Callable[[str], ScriptedClient],
        *,
        middleware: bool = False,
        example: str | None = None,
    ) -> None:
        self.portal = portal
        self.agents: list[BareLoop] = []
        self.ended = threading.Semaphore(0)
        self._client = client
        assert EXAMPLE is not None
        self.names: dict[str, Any] = {
            "BareLoop": self._session,
            "ScriptedClient": client,
            "TextDelta": TextDelta,
        }
        exec(example or EXAMPLE[1], self.names)  # noqa: S102  # the page's own code
        app: Starlette = self.names["app"]
        if middleware:
            app.add_middleware(Through)
        config = uvicorn.Config(app, host="127.0.0.1", port=0, lifespan="off", log_level="error")
        self.server = uvicorn.Server(config)

    def _session(self, client: ScriptedClient) -> BareLoop:
        agent: BareLoop = BareLoop(client, plugins=[self])
        self.agents.append(agent)
        return agent

    @hookimpl
    def on_event(self, event: Event) -> None:
        if isinstance(event, RunEnded):
            self.ended.release()

    def ask(self) -> bytes:
        """Ask, read the first words, and go away."""
        port = self.server.servers[0].sockets[0].getsockname()[1]
        with closing(socket.create_connection(("127.0.0.1", port), timeout=10)) as connection:
            connection.sendall(b"GET /?q=hi HTTP/1.1\r\nHost: localhost\r\n\r\n")
            received = b""
            while b"Hello" not in received:
                piece = connection.recv(4096)
                assert piece, received
                received += piece
        return received


@pytest.fixture
def serve(
    no_threads_or_sockets_left: None, caplog: pytest.LogCaptureFixture
) -> Iterator[Callable[..., Any]]:
    """Makes sites; nothing may be left of them, and nobody may have complained."""
    caplog.set_level(logging.WARNING)
    with anyio.from_thread.start_blocking_portal("asyncio") as portal:
        sites: list[tuple[Site, Any]] = []

        def start(client: Callable[[str], ScriptedClient], **options: Any) -> Site:
            site = Site(portal, client, **options)
            before = portal.call(tasks)
            sites.append((site, portal.start_task_soon(site.server.serve)))
            portal.call(until, lambda: site.server.started)
            assert portal.call(tasks) >= before
            return site

        yield start
        for site, serving in sites:
            portal.call(until, lambda site=site: not site.server.server_state.tasks)
            site.server.should_exit = True
            serving.result(timeout=10)
            site.agents.clear()
        gc.collect()
        portal.call(until, lambda: tasks() <= 2)


def tasks() -> int:
    return len(asyncio.all_tasks())


async def until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(10):
        while not holds():
            await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("middleware", [False, True], ids=["plain", "middleware"])
@pytest.mark.parametrize("client", [ScriptedClient, Endless, Talkative])
def test_clients_that_go_away_leave_nothing_and_the_next_message_works(
    client: Callable[[str], ScriptedClient],
    middleware: bool,
    serve: Callable[..., Site],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """ENG-23: the example of the page, 50 times; in the middle of an answer, or at its end."""
    site = serve(client, middleware=middleware)
    site.ask()
    assert site.ended.acquire(timeout=10)
    site.portal.call(until, lambda: not site.server.server_state.tasks)
    before = site.portal.call(tasks)
    for _ in range(TIMES):
        site.ask()
        assert site.ended.acquire(timeout=10)
    site.portal.call(until, lambda: not site.server.server_state.connections)
    site.portal.call(until, lambda: tasks() <= before)
    endings = {agent.runs[0].ending for agent in site.agents}
    assert endings <= (
        {"cancelled"} if client is not ScriptedClient else {"cancelled", "completed"}
    )
    for agent in site.agents:
        assert len(agent.runs) == 1
        agent.client.complete = ScriptedClient("Here again.").complete  # type: ignore[method-assign]
        assert site.portal.call(agent.run, "and now?").output == "Here again."
        assert_valid_conversation(agent.history)
    assert [record.getMessage() for record in caplog.records] == []


def test_with_a_group_that_outlives_the_request_a_dropped_generator_harms_nobody(
    serve: Callable[..., Site], caplog: pytest.LogCaptureFixture
) -> None:
    """ENG-21, ENG-23, D1: some middleware has Python close the generator, in another task."""
    assert EXAMPLE is not None
    example = EXAMPLE[1].replace("return Words(", "return StreamingResponse(")
    example = example.replace('.query_params["q"])', '.query_params["q"], task_group=group)')
    site = serve(Talkative, middleware=True, example=example)
    hosting, site.names["group"] = site.portal.start_task(host)
    for _ in range(10):
        site.ask()
        site.portal.call(until, lambda: not site.server.server_state.tasks)
        site.portal.call(gc.collect)
        assert site.ended.acquire(timeout=10)
    for agent in site.agents:
        assert [run.ending for run in agent.runs] == ["cancelled"]
        agent.client.complete = ScriptedClient("Here again.").complete  # type: ignore[method-assign]
        assert site.portal.call(agent.run, "and now?").output == "Here again."
    hosting.cancel()
    assert [record.getMessage() for record in caplog.records] == []


async def host(*, task_status: TaskStatus[TaskGroup]) -> None:
    async with anyio.create_task_group() as group:
        task_status.started(group)
        await anyio.sleep_forever()
