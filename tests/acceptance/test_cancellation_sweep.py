"""ENG-16, ENG-18 … ENG-22, CMP-6, D2, D3: cancelled at every step that the event loop takes.

One scene streams, asks a slow contributor, runs an async and a sync tool side by side, one of them
after an approval. Another has a conversation near its window: a turn defers to a pass, a tool
steers, and the provider refuses a prompt, which a salvage mends. Each is first left alone; then
it is played again and again and cancelled at the first step, the second, …, until there is no step
left to cancel at. A step is a callback of the event loop on asyncio, and a task's turn on trio.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio
import anyio.lowlevel
import pytest
import trio

from loopctl import (
    BareLoop,
    CompactionContext,
    EventStream,
    Message,
    RatioTokenCounter,
    SessionConfig,
    ToolContext,
    TruncatingCompactor,
    hookimpl,
    tool,
)
from loopctl.errors import ContextOverflowError, RunCancelled
from loopctl.events import (
    CompactionFailed,
    CompactionFinished,
    CompactionSkipped,
    CompactionStarted,
    Event,
    RunEnded,
    ToolFinished,
)
from loopctl.messages import Role
from loopctl.models.client import ModelRequest
from loopctl.testing import ScriptedClient, assert_valid_conversation, call
from loopctl.testing.scripted import Answer
from loopctl.tools.decisions import Allow, ApprovalRequest, Ask, ToolCallContext

LOG = logging.getLogger(__name__)
"""Says how many steps were swept, for `pytest --log-cli-level=INFO`."""

Way = Literal["agent", "stream", "scope", "group", "native", "shutdown"]
Shape = Literal["run", "stream", "stream in a group"]

WAYS: dict[Shape, tuple[Way, ...]] = {
    "run": ("agent", "scope", "native"),
    "stream": ("agent", "stream", "scope", "native", "shutdown"),
    "stream in a group": ("agent", "stream", "scope", "group", "native", "shutdown"),
}
# asyncio kills what has not begun; anyio has made the coroutine by then and never awaits it
UNAWAITED = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
CASES = [
    pytest.param(
        backend,
        shape,
        way,
        ahead,
        id=f"{backend}-{shape.replace(' ', '-')}-{way}-{'buffered' if ahead else 'in-step'}",
        marks=[UNAWAITED] if way == "shutdown" else [],
    )
    for backend in ("asyncio", "trio")
    for shape, ways in WAYS.items()
    for way in ways
    if backend == "asyncio" or way not in ("native", "shutdown")
    for ahead in ((16,) if shape == "run" else (16, 0))
]
NARROW_CASES = [
    pytest.param(backend, shape, way, id=f"{backend}-{shape}-{way}")
    for backend in ("asyncio", "trio")
    for shape, way in (("run", "agent"), ("run", "scope"), ("stream", "stream"), ("run", "native"))
    if backend == "asyncio" or way != "native"
]
SHAPES = [
    pytest.param(backend, shape, id=f"{backend}-{shape.replace(' ', '-')}")
    for backend in ("asyncio", "trio")
    for shape in ("stream", "stream in a group")
]


# -- counting steps -----------------------------------------------------------------------------


class Steps:
    """Counts the steps that an event loop takes; does something in front of one of them."""

    def __init__(self) -> None:
        self.taken = 0
        self._at: int | None = None
        self._action: Callable[[], object] | None = None

    def arm(self, at: int | None, action: Callable[[], object]) -> None:
        """Start counting at 0; `action` comes in front of the step number `at`."""
        self.taken, self._at, self._action = 0, at, action

    def disarm(self) -> bool:
        """Whether the action came; the steps taken stay."""
        came = self._at is not None and self.taken > self._at
        self._at = self._action = None
        return came

    def step(self) -> None:
        number, self.taken = self.taken, self.taken + 1
        if number == self._at and self._action is not None:
            self._action()


class CountingLoop(asyncio.SelectorEventLoop):
    """An event loop that counts the callbacks it runs, and remembers what it complains of."""

    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self.complaints: list[str] = []
        self._steps = steps
        self.set_exception_handler(lambda _, context: self.complaints.append(str(context)))

    def _counted(self, callback: Callable[..., object], *args: Any) -> None:
        self._steps.step()
        callback(*args)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return super().call_soon(self._counted, callback, *args, context=context)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return super().call_soon_threadsafe(self._counted, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return super().call_at(when, self._counted, callback, *args, context=context)


class CountingInstrument(trio.abc.Instrument):
    """Counts every turn that a task of trio's takes."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._steps.step()


# -- the scenario -------------------------------------------------------------------------------


def answer(request: ModelRequest) -> Answer:
    """Two calls for the input, words for what follows."""
    last = [message for message in request.messages if message.role is not Role.SYSTEM][-1]
    if last.text == "go":
        return ["Let me look.", call("ask"), call("look")]
    return "This is what there is."


@dataclass
class Scene:
    """One session with everything in it that a cancellation can meet."""

    agent: BareLoop = field(init=False)
    endings: list[str] = field(default_factory=list)
    told: dict[str, str] = field(default_factory=dict)
    """What was told of finished calls, by their ids."""
    go: threading.Event = field(default_factory=threading.Event)
    thread: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.thread.set()

        @tool(concurrency_safe=True)
        async def ask(ctx: ToolContext) -> str:
            """Ask around, after an approval."""
            await ctx.progress("asking")
            self.go.set()
            await anyio.lowlevel.checkpoint()
            return "asked"

        @tool(concurrency_safe=True)
        def look() -> str:
            """Look, in a thread, until the other tool has come so far."""
            self.thread.clear()
            try:
                self.go.wait(5)
                return "looked"
            finally:
                self.thread.set()

        self.agent = BareLoop(
            ScriptedClient(*[answer] * 6, delta_chars=8),
            [ask, look],
            plugins=[self],
            approver=self.approve,
        )
        self.agent.add_contributor(self.contribute_slowly)

    async def contribute_slowly(self, ctx: Any) -> str:
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        return f"turn {ctx.turn}"

    @hookimpl
    def before_tool_call(self, ctx: ToolCallContext[Any]) -> Ask | None:
        return Ask("may it?") if ctx.name == "ask" else None

    async def approve(self, request: ApprovalRequest) -> Allow:
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        return Allow()

    @hookimpl
    def on_event(self, event: Event) -> None:
        if isinstance(event, RunEnded):
            self.endings.append(event.ending)
        if isinstance(event, ToolFinished) and not self.endings:
            self.told[event.result.call_id] = event.result.text

    def verify(self, *, whole: bool) -> None:
        """What else must hold; `whole` says that nothing was cut off."""

    # -- three ways of running it ---------------------------------------------------------------

    async def act(self, shape: Shape, live: Live) -> None:
        if shape == "run":
            await self.agent.run("go")
            return
        if shape == "stream":
            await self._read(self.agent.stream("go"), live)
            return
        async with anyio.create_task_group() as live.group:
            await self._read(self.agent.stream("go", task_group=live.group), live)

    async def _read(self, stream: EventStream, live: Live) -> None:
        live.stream = stream
        try:
            with contextlib.suppress(RunCancelled):
                async with stream:
                    async for _ in stream:
                        live.events += 1
                        if live.events == live.leave_after:
                            break
        finally:
            live.left = stream.run is not None


@dataclass
class NarrowScene(Scene):
    """A conversation near its window: a deferral, steering, a refused prompt and its salvage."""

    passes: list[str] = field(default_factory=list)
    refused: bool = False

    def answer(self, request: ModelRequest) -> Answer | Exception:
        """A call for the input, one refusal of the prompt that follows, and then words."""
        said = [message.text for message in request.messages if message.role is not Role.SYSTEM]
        if said[-1] == "go":
            return call("turn_left")
        if "look left" in said and not self.refused:
            self.refused = True
            return ContextOverflowError("prompt is too long")
        return "This is what there is."

    def __post_init__(self) -> None:
        self.thread.set()

        @tool
        async def turn_left() -> str:
            """Turn, and be told to look."""
            await anyio.lowlevel.checkpoint()
            self.agent.steer("look left")
            return "turned"

        past = [Message.user("the goal")]
        for number in range(8):
            past += [Message.assistant("a" * 300), Message.user(f"more {number} ".ljust(300, "q"))]
        self.agent = BareLoop(
            ScriptedClient(*[self.answer] * 8, delta_chars=8),
            [turn_left],
            SessionConfig(context_window=7_000),
            plugins=[self],
            history=[*past, Message.assistant("yes")],
            compactor=self,
            counter=RatioTokenCounter(1, per_message=0),
            retry=None,
        )
        self.agent.add_contributor(self.contribute_slowly)

    async def contribute_slowly(self, ctx: Any) -> str:
        await anyio.lowlevel.checkpoint()
        return f"turn {ctx.turn} ".ljust(900, "n")

    async def compact(
        self, messages: Sequence[Message], target: int, ctx: CompactionContext
    ) -> Sequence[Message]:
        await anyio.lowlevel.checkpoint()
        made = await TruncatingCompactor().compact(messages, min(target, 600), ctx)
        await anyio.lowlevel.checkpoint()
        return made

    @hookimpl
    def on_event(self, event: Event) -> None:
        super().on_event(event)
        if isinstance(event, CompactionStarted):
            self.passes.append(event.reason)
        if isinstance(event, CompactionFinished | CompactionSkipped | CompactionFailed):
            assert self.passes[-1] == event.reason
            self.passes[-1] += " ended"

    def verify(self, *, whole: bool) -> None:
        assert all(each.endswith("ended") for each in self.passes), self.passes
        if whole:
            assert self.passes == ["deferral ended", "salvage ended"]


@dataclass
class Live:
    """What can be taken hold of while a scene is played."""

    scope: anyio.CancelScope
    task: asyncio.Task[None] | None = None
    stream: EventStream | None = None
    group: anyio.abc.TaskGroup | None = None
    leave_after: int | None = None
    events: int = 0
    left: bool | None = None
    """Whether the stream had its run when the block was left."""


def canceller(way: Way, scene: Scene, live: Live) -> Callable[[], object]:
    def shut_down() -> None:
        for task in asyncio.all_tasks():
            if task is not MAIN[0]:
                task.cancel()

    def cancel_group() -> None:
        if live.group is not None:
            live.group.cancel_scope.cancel()

    match way:
        case "agent":
            return scene.agent.cancel
        case "stream":
            return lambda: live.stream is not None and live.stream.cancel()
        case "scope":
            return live.scope.cancel
        case "group":
            return cancel_group
        case "native":
            return lambda: live.task is not None and live.task.cancel()
        case "shutdown":
            return shut_down


MAIN: list[Any] = [None]


async def play(shape: Shape, scene: Scene, live: Live) -> str:
    """Play a scene in a task of its own, as an app would; say how it came out."""
    outcome = "cancelled before it began"

    async def body() -> None:
        nonlocal outcome
        outcome = "lost"
        try:
            with live.scope:
                await scene.act(shape, live)
            outcome = "cancelled by a scope" if live.scope.cancelled_caught else "completed"
        except RunCancelled:
            outcome = "RunCancelled"
        except asyncio.CancelledError:
            outcome = "cancelled natively"
            raise

    try:
        if trio.lowlevel.in_trio_run():
            await body()
        else:
            live.task = asyncio.get_running_loop().create_task(body())
            await asyncio.wait([live.task])
            assert live.task.cancelled() or live.task.exception() is None, live.task.exception()
    finally:
        scene.go.set()
    return outcome


# -- what must hold afterwards ------------------------------------------------------------------


async def check(scene: Scene, live: Live, way: Way | None, outcome: str, number: int) -> None:
    agent, where = scene.agent, f"{way} at step {number}: {outcome}"
    assert scene.thread.wait(5), where
    assert outcome != "lost", where
    scene.verify(whole=scene.endings == ["completed"] and live.leave_after is None)
    runs = agent.runs
    assert len(runs) <= 1, where
    assert [run.ending for run in runs] == scene.endings, where
    assert scene.endings in ([], ["completed"], ["cancelled"]), where
    if way in ("agent", "stream") or way is None:
        assert len(runs) == 1, where
    if live.events:
        assert len(runs) == 1, where
    if live.left is not None and runs:
        assert live.left, f"{where}: stream.run was not set"
    if live.leave_after is not None and live.events < live.leave_after:
        assert scene.endings == ["completed"], where
    if outcome == "RunCancelled":
        assert scene.endings == ["cancelled"], where
    assert agent.cancel() is False, where
    assert agent.conversation == agent.history, where
    assert_valid_conversation(agent.history)
    kept = {result.call_id: result.text for m in agent.history for result in m.results}
    assert scene.told.items() <= kept.items(), where
    await no_task_left(where)
    if agent.unfinished and number % 2:
        run = await agent.run(None)
        assert run.output == "This is what there is.", where
    run = await agent.run("and now?")
    assert run.output == "This is what there is.", where
    assert_valid_conversation(agent.history)
    assert not agent.unfinished, where


async def no_task_left(where: str) -> None:
    """All tasks but the present one end, within some turns of the event loop."""
    others: list[str] = []
    for _ in range(10):
        others = other_tasks()
        if not others:
            return
        await anyio.lowlevel.checkpoint()
    raise AssertionError(f"{where}: tasks are left: {others}")


def other_tasks() -> list[str]:
    own = anyio.get_current_task().id
    tasks = [task for task in anyio.get_running_tasks() if task.id != own]
    return [str(task.name) for task in tasks if task.name not in TRIOS_OWN]


TRIOS_OWN = ("<init>", "<TrioToken.run_sync_soon task>")


# -- the sweeps ---------------------------------------------------------------------------------


async def sweep(steps: Steps, shape: Shape, way: Way, make: type[Scene] = Scene) -> int:
    """Cancel at step 0, 1, 2, … until the scene is over before it is cancelled; how many."""
    MAIN[0] = None if trio.lowlevel.in_trio_run() else asyncio.current_task()
    number = 0
    while True:
        scene, live = make(), Live(anyio.CancelScope())
        steps.arm(number, canceller(way, scene, live))
        outcome = await play(shape, scene, live)
        came = steps.disarm()
        await check(scene, live, way if came else None, outcome, number)
        if not came:
            assert outcome == "completed", outcome
            return number
        number += 1


async def sweep_leaving(steps: Steps, shape: Shape) -> int:
    """Leave the stream after the first event, the second, …; how many events there are."""
    number = 1
    while True:
        scene, live = Scene(), Live(anyio.CancelScope(), leave_after=number)
        outcome = await play(shape, scene, live)
        assert outcome == "completed", outcome
        await check(scene, live, None, outcome, number)
        if live.events < number:
            return live.events
        number += 1


def start(backend: str, main: Callable[..., Any], *args: object) -> tuple[Any, Steps]:
    """Run `main(steps, *args)` in an event loop whose steps are counted."""
    steps = Steps()
    if backend == "trio":
        options: dict[str, Any] = {"instruments": [CountingInstrument(steps)]}
        return anyio.run(main, steps, *args, backend="trio", backend_options=options), steps
    loops: list[CountingLoop] = []

    def loop_factory() -> CountingLoop:
        loops.append(CountingLoop(steps))
        return loops[-1]

    options = {"loop_factory": loop_factory}
    result = anyio.run(main, steps, *args, backend="asyncio", backend_options=options)
    assert [complaint for loop in loops for complaint in loop.complaints] == []
    return result, steps


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Trio takes its steps in an order that is the same in every run of the tests."""
    monkeypatch.setattr("trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING", True)
    trio._core._run._r.seed(0)
    yield
    gc.collect()  # what nobody closed is a warning, and warnings are errors


@pytest.mark.usefixtures("steady", "no_threads_or_sockets_left")
@pytest.mark.parametrize(("backend", "shape", "way", "ahead"), CASES)
def test_a_run_cancelled_at_any_step_leaves_a_session_that_works(
    backend: str,
    shape: Shape,
    way: Way,
    ahead: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ENG-18, ENG-19: by every way of cancelling; with a reader that is behind, and one in step."""
    monkeypatch.setattr("loopctl.engine.stream.BUFFERED_EVENTS", ahead)
    count, _ = start(backend, sweep, shape, way)
    LOG.info("%s, %s, by %s: cancelled at each of %d steps", backend, shape, way, count)
    assert count > 10


@pytest.mark.usefixtures("steady", "no_threads_or_sockets_left")
@pytest.mark.parametrize(("backend", "shape"), SHAPES)
def test_a_stream_left_after_any_event_leaves_a_session_that_works(
    backend: str, shape: Shape
) -> None:
    """ENG-21, D2: a break after every event; nothing is raised and `stream.run` is there."""
    count, _ = start(backend, sweep_leaving, shape)
    LOG.info("%s, %s: left after each of %d events", backend, shape, count)
    assert count > 15


@pytest.mark.usefixtures("steady", "no_threads_or_sockets_left")
@pytest.mark.parametrize(("backend", "shape", "way"), NARROW_CASES)
def test_a_run_near_its_window_cancelled_at_any_step_leaves_a_session_that_works(
    backend: str, shape: Shape, way: Way
) -> None:
    """CMP-6, CTX-23, CTX-31, CTX-33, ENG-18, ENG-19: deferral, pass, steering, salvage."""
    count, _ = start(backend, sweep, shape, way, NarrowScene)
    LOG.info("%s, %s, by %s, near the window: %d steps", backend, shape, way, count)
    assert count > 10
