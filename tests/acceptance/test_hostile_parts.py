"""ENG-16, ENG-18, ENG-19, D4, F1: whatever foreign code raises, wherever, the session survives it.

Each part of an app raises each kind of thing once. Afterwards the conversation is valid, the run
has ended once, the error came out bare, and the next run works.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import anyio
import anyio.lowlevel
import pytest
import trio

from loopctl import BareLoop, hookimpl, tool
from loopctl.context.attachments import AttachmentKind
from loopctl.errors import AttachmentError, LoopError, RunCancelled
from loopctl.events import Event, RunEnded, TurnStarted
from loopctl.messages import Role
from loopctl.models.client import ModelRequest
from loopctl.replies import ModelResponse
from loopctl.testing import ScriptedClient, assert_valid_conversation, call
from loopctl.testing.scripted import Answer
from loopctl.tools.decisions import Allow, ApprovalRequest, Ask, ToolCallContext
from loopctl.tools.layers import Next
from loopctl.wire.stream_events import StreamEvent

pytestmark = pytest.mark.anyio

Place = Literal[
    "client", "iterator", "contributor", "render", "listener", "layer", "hook", "approver", "tool",
    "parallel tool", "thread",
]  # fmt: skip
PLACES: tuple[Place, ...] = Place.__args__  # type: ignore[attr-defined]
HARMLESS = {
    "contributor",
    "listener",
    "layer",
    "hook",
    "approver",
    "tool",
    "parallel tool",
    "thread",
}


class Abort(BaseException):
    """A hard stop of somebody's own."""


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("it has no words")


def stray() -> BaseException:
    return asyncio.CancelledError("nobody asked for this")


SOFT: dict[str, Callable[[], BaseException]] = {
    "error": lambda: ValueError("bad"),
    "mute": Mute,
    "group": lambda: ExceptionGroup("g", [ExceptionGroup("h", [ValueError("bad")])]),
    "stray": stray,
    "stray in a group": lambda: BaseExceptionGroup("g", [stray()]),
}
HARD: dict[str, Callable[[], BaseException]] = {
    "abort": lambda: Abort("now"),
    "generator exit": GeneratorExit,
    "abort in a group": lambda: BaseExceptionGroup("g", [ValueError("bad"), Abort("now")]),
    "interrupt": KeyboardInterrupt,
    "system exit": lambda: SystemExit(3),
}


def answer(request: ModelRequest) -> Answer:
    last = [message for message in request.messages if message.role is not Role.SYSTEM][-1]
    if last.text == "go":
        return [call("work"), call("beside"), call("thread")]
    return "done"


class Client(ScriptedClient):
    def __init__(self, strike: Callable[[Place], None]) -> None:
        super().__init__(*[answer] * 6)
        self._strike = strike

    async def complete(self, request: ModelRequest) -> ModelResponse:
        self._strike("client")
        response = await super().complete(request)
        self._strike("iterator")
        return response

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:  # type: ignore[override]
        self._strike("client")
        async with super().stream(request) as events:
            yield self._watched(events)

    async def _watched(self, events: AsyncIterator[StreamEvent]) -> AsyncIterator[StreamEvent]:
        number = 0
        async for event in events:
            yield event
            number += 1
            if number == 2:
                self._strike("iterator")


class Hostile:
    """A session of which one part strikes once, in its first run."""

    def __init__(self, place: Place, make: Callable[[], BaseException]) -> None:
        self.endings: list[str] = []
        self._place: Place | None = None
        self._make = make

        @tool(concurrency_safe=place == "parallel tool")
        async def work() -> str:
            """Work."""
            await anyio.lowlevel.checkpoint()
            self.strike("tool")
            self.strike("parallel tool")
            return "worked"

        @tool(concurrency_safe=True)
        async def beside() -> str:
            """Work beside it."""
            for _ in range(3):
                await anyio.lowlevel.checkpoint()
            return "worked too"

        @tool
        def thread() -> str:
            """Work in a thread."""
            self.strike("thread")
            return "worked in a thread"

        strike = self.strike

        class Pinned:
            id, kind = "memory:note", AttachmentKind.MEMORY

            def render(self) -> str:
                strike("render")
                return "note"

        async def layer(ctx: ToolCallContext[Any], next: Next) -> object:
            strike("layer")
            return await next(ctx)

        self.agent: BareLoop = BareLoop(
            Client(strike),
            [work, beside, thread],
            plugins=[self],
            attachments=[Pinned()],
            layers=[layer],
            approver=self.approve,
            retry=None,
        )
        self.agent.add_contributor(self.add)
        self._place = place

    def strike(self, place: Place) -> None:
        if place == self._place:
            self._place = None
            raise self._make()

    async def add(self, ctx: Any) -> str:
        await anyio.lowlevel.checkpoint()
        self.strike("contributor")
        return "context"

    @hookimpl
    def before_tool_call(self, ctx: ToolCallContext[Any]) -> Ask | None:
        self.strike("hook")
        return Ask("may it?") if ctx.name == "work" else None

    async def approve(self, request: ApprovalRequest) -> Allow:
        self.strike("approver")
        return Allow()

    @hookimpl
    def on_event(self, event: Event) -> None:
        if isinstance(event, RunEnded):
            self.endings.append(event.ending)
        if isinstance(event, TurnStarted):
            self.strike("listener")

    async def act(self, shape: str) -> None:
        if shape == "run":
            await self.agent.run("go")
            return
        async with self.agent.stream("go") as stream:
            async for _ in stream:
                pass

    async def check(self, ending: str) -> None:
        assert self._place is None, "it did not strike"
        assert self.endings == [ending]
        assert [run.ending for run in self.agent.runs] == [ending]
        assert self.agent.cancel() is False
        assert_valid_conversation(self.agent.history)
        assert (await self.agent.run("again")).output == "done"
        assert_valid_conversation(self.agent.history)


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("shape", ["run", "stream"])
@pytest.mark.parametrize("kind", SOFT)
@pytest.mark.parametrize("place", PLACES)
async def test_an_error_costs_its_own_part_or_ends_the_run_bare(
    place: Place, kind: str, shape: str
) -> None:
    """ENG-16, CTX-5, TOL-9, TOL-13: soft where a part can be done without, else raised bare."""
    hostile = Hostile(place, SOFT[kind])
    if place in HARMLESS:
        await hostile.act(shape)
        await hostile.check("completed")
        return
    wanted: type[Exception] = Mute if kind == "mute" else ValueError
    if "stray" in kind:
        wanted = LoopError
    elif place == "render":
        wanted = AttachmentError
    with pytest.raises(wanted) as caught:
        await hostile.act(shape)
    assert not isinstance(caught.value, RunCancelled)
    assert not isinstance(caught.value, ExceptionGroup)
    assert hostile.agent.history == ()
    await hostile.check("failed")


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("shape", ["run", "stream"])
@pytest.mark.parametrize("kind", HARD)
@pytest.mark.parametrize("place", PLACES)
async def test_an_interrupt_goes_through_everything_bare(
    place: Place, kind: str, shape: str
) -> None:
    """ENG-16, ENG-19, D4: KeyboardInterrupt and its like end the run and nothing else."""
    made = HARD[kind]()
    bare = Abort if "abort" in kind else type(made)
    if shape == "stream" and bare in (KeyboardInterrupt, SystemExit) and not _in_trio():
        return  # asyncio lets an interrupt of a task end the whole event loop
    hostile = Hostile(place, HARD[kind])
    with pytest.raises(bare) as caught:
        await hostile.act(shape)
    assert not isinstance(caught.value, BaseExceptionGroup)
    await hostile.check("cancelled")


def _in_trio() -> bool:
    return trio.lowlevel.in_trio_run()
