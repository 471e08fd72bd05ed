"""The context that a running call is given."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from loopctl.events import ToolProgress
from loopctl.tools.function import tool
from loopctl.tools.types import ToolContext
from tests.tools.bench import Bench, Services, Sink, call

pytestmark = pytest.mark.anyio


class Pinned:
    def __init__(self, id: str) -> None:
        self.id = id


async def test_a_context_tells_where_its_call_stands() -> None:
    """TOL-6: deps, ids, turn, folders."""

    @tool
    async def look(ctx: ToolContext[dict[str, int]]) -> list[object]:
        ctx.deps["seen"] = 1
        return [ctx.session_id, ctx.run_id, ctx.turn, ctx.call_id, ctx.name, ctx.working_folder]

    deps: dict[str, int] = {}
    bench = Bench(look, deps=deps)
    result = await bench.one("look")
    assert result.content == '["session-1","run-1",3,"c1","look","/work"]'
    assert deps == {"seen": 1}


async def test_the_temporary_folder_is_made_when_first_asked_for() -> None:
    """TOL-6: a session whose tools need none has none."""

    @tool
    async def use(ctx: ToolContext, folder: bool) -> str:
        return str(ctx.temporary_folder) if folder else "no"

    bench = Bench(use)
    await bench.one("use", folder=False)
    assert bench.services.folders_made == 0
    assert (await bench.one("use", folder=True)).content == "/private"
    assert bench.services.folders_made == 1


async def test_attachments_can_be_changed_by_a_tool() -> None:
    """TOL-6: set, detach, list."""

    @tool
    async def pin(ctx: ToolContext) -> list[object]:
        await ctx.set_attachment(Pinned("todo:a"))
        before = ctx.attachment_ids()
        return [before, await ctx.detach_attachment("todo:a"), await ctx.detach_attachment("x")]

    assert (await Bench(pin).one("pin")).content == '[["todo:a"],true,false]'


async def test_progress_is_an_event_that_pauses_the_deadline() -> None:
    """TOL-6, ENG-22: the sink is given the deadline that the tool works under."""

    @tool(timeout=7)
    async def work(ctx: ToolContext) -> None:
        await ctx.progress("begun")
        await ctx.progress("half way", 0.5)

    bench = Bench(work)
    await bench.one("work")
    assert bench.sink.events[1:3] == [
        ToolProgress(run_id="run-1", turn=3, call_id="c1", name="work", text="begun"),
        ToolProgress(
            run_id="run-1", turn=3, call_id="c1", name="work", text="half way", fraction=0.5
        ),
    ]
    deadline = bench.sink.deadlines[1]
    assert deadline is not None
    assert deadline.seconds == 7


async def test_a_context_that_outlives_its_call_is_quiet() -> None:
    """TOL-6: no progress after the result; the session's things go on working."""
    kept: list[ToolContext] = []

    @tool
    async def keep(ctx: ToolContext) -> bool:
        kept.append(ctx)
        return ctx.cancelled

    bench = Bench(keep)
    assert (await bench.one("keep")).content == "false"
    (ctx,) = kept
    assert ctx.cancelled
    await ctx.progress("late")
    assert bench.sink.kinds() == ["ToolStarted", "ToolFinished"]
    await ctx.set_attachment(Pinned("todo:late"))
    assert ctx.attachment_ids() == ("todo:late",)


async def test_progress_without_listeners_costs_nothing() -> None:
    sink = Sink(active=False)
    ctx: ToolContext = ToolContext(Services(), run_id="r", turn=0, call_id="c", name="n", sink=sink)
    await ctx.progress("unheard")
    await ToolContext(Services(), run_id="r", turn=0, call_id="c", name="n").progress("unheard")
    assert sink.events == []


async def test_a_tool_can_see_that_it_is_cancelled() -> None:
    """TOL-6: by its own deadline, and from outside."""
    seen: list[bool] = []
    waiting = anyio.Event()

    @tool
    async def wait(ctx: ToolContext) -> None:
        seen.append(ctx.cancelled)
        waiting.set()
        try:
            await anyio.sleep_forever()
        finally:
            seen.append(ctx.cancelled)

    bench = Bench(wait)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(bench.run, call("wait"))
            await waiting.wait()
            group.cancel_scope.cancel()
    assert seen == [False, True]

    wait.timeout = 0.02
    seen.clear()
    with anyio.fail_after(5):
        await Bench(wait).one("wait")
    assert seen == [False, True]


async def test_a_function_tool_can_be_called_without_a_session() -> None:
    """TOL-1: as a Tool, and as the function that it was."""

    @tool
    def add(ctx: ToolContext, a: int, b: int = 1) -> int:
        return a + b

    ctx: ToolContext = ToolContext(Services(), run_id="r", turn=0, call_id="c", name="add")
    assert (await add.call({"a": "2"}, ctx)).content == "3"
    assert add(ctx, 1, b=4) == 5
    assert repr(add) == "<tool add>"
