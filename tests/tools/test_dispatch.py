"""Running the calls of one reply."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from loopctl.config import RunConfig, SessionConfig
from loopctl.events import ToolFinished, ToolStarted
from loopctl.messages import ToolCallPart
from loopctl.tools.decisions import Allow, Ask, Decision, Deny
from loopctl.tools.function import tool
from loopctl.tools.results import DONE, EMPTY
from loopctl.tools.types import ToolContext, ToolOutput
from tests.tools.bench import Bench, call

pytestmark = pytest.mark.anyio


@tool
async def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "mode": {"enum": ["fast", "slow"]},
        "size": {"type": ["integer", "null"]},
        "rest": {"anyOf": [{"type": "string"}, {"type": "array"}]},
    },
    "required": ["mode"],
    "additionalProperties": False,
}


class Plain:
    """A tool by protocol, with a schema of its own."""

    name = "plain"
    description = "Plain."
    input_schema = SCHEMA

    async def call(self, arguments: dict[str, Any], ctx: ToolContext[Any]) -> ToolOutput:
        return ToolOutput(f"{arguments} {ctx.call_id}", display_hint="diff", retention="requery")


async def test_a_call_gets_its_result() -> None:
    """TOL-5: value in, content out, under the call's id and name; the events tell it."""
    bench = Bench(add)
    result = await bench.one("add", a=1)
    assert (result.call_id, result.name, result.content) == ("c1", "add", "3")
    assert (result.is_error, result.outcome) == (False, "executed")
    record = bench.finished["c1"]
    assert record.call == call("add", a=1)
    assert record.seconds >= 0
    started, ended = bench.sink.events
    assert started == ToolStarted(run_id="run-1", turn=3, call=record.call)
    assert ended == ToolFinished(run_id="run-1", turn=3, result=result, seconds=record.seconds)


async def test_a_tool_by_protocol_is_called_with_plain_arguments() -> None:
    """TOL-1: classes may be tools; their output's hints are kept."""
    bench = Bench(Plain())
    result = await bench.one("plain", mode="fast", size=None, rest=[1])
    assert result.content == "{'mode': 'fast', 'size': None, 'rest': [1]} c1"
    assert result.retention == "requery"
    ended = bench.sink.events[-1]
    assert isinstance(ended, ToolFinished)
    assert ended.display_hint == "diff"


async def test_nothing_is_told_where_nobody_listens() -> None:
    bench = Bench(add)
    bench.sink.active = False
    await bench.one("add", a=1)
    assert bench.sink.events == []


async def test_nothing_and_blank_are_said_in_words() -> None:
    """TOL-5, C2: None is an explicit done; an empty result is never sent as empty content."""

    @tool
    async def nothing() -> None:
        """Do nothing."""

    @tool
    async def blank() -> str:
        return " \n"

    bench = Bench(nothing, blank)
    first, second = await bench.run(call("nothing"), call("blank", "c2"))
    assert (first.content, second.content) == (DONE, EMPTY)


async def test_arguments_that_do_not_fit_are_quoted_back() -> None:
    """TOL-4, B20: the tool's name, the first problems, the expected fields; it never runs."""
    bench = Bench(add)
    result = await bench.one("add", a="many", c=1)
    assert (result.is_error, result.outcome) == (True, "not_run")
    assert "'add'" in result.text
    assert "a: Input should be a valid integer" in result.text
    assert "c: there is no such field" in result.text
    assert "Expected: a (integer, required), b (integer)." in result.text
    assert bench.sink.kinds() == ["ToolFinished"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "mode: this field is required"),
        ({"mode": "medium"}, 'mode: must be one of "fast", "slow", not "medium"'),
        ({"mode": "fast", "size": 1.5}, "size: must be integer or null, not 1.5"),
        ({"mode": "fast", "size": True}, "size: must be integer or null, not true"),
        ({"mode": "fast", "more": 1}, "more: there is no such field"),
    ],
)
async def test_a_glance_at_a_schema_catches_plain_mistakes(
    arguments: dict[str, Any], words: str
) -> None:
    """TOL-4: tools that bring only a schema are checked at its top level."""
    result = await Bench(Plain()).one("plain", **arguments)
    assert (result.is_error, result.outcome) == (True, "not_run")
    assert words in result.text
    assert 'Expected: mode (one of "fast", "slow", required), size (integer or null)' in result.text


async def test_text_that_is_no_object_is_quoted_back() -> None:
    """TOL-4, B20: unusable arguments name the tool; secrets in them are hidden."""
    broken = ToolCallPart("c1", "add", '{"a": sk-abcdefghijklmnop')
    assert broken.unusable is not None
    (result,) = await Bench(add).run(broken)
    assert (result.is_error, result.outcome) == (True, "not_run")
    assert "'add' was not run" in result.text
    assert "not a JSON object" in result.text
    assert "abcdefghijklmnop" not in result.text


@pytest.mark.parametrize("arguments", ['{"a":1', '{"a":1}', ""])
async def test_a_call_that_was_cut_off_never_runs(arguments: str) -> None:
    """TOL-4, B16: not even when the cut left complete JSON."""
    cut = ToolCallPart("c1", "add", arguments, truncated=True)
    (result,) = await Bench(add, layers=[_rewriting]).run(cut)
    assert (result.is_error, result.outcome) == (True, "not_run")
    assert "cut off by the output limit" in result.text


async def _rewriting(ctx: Any, next: Any) -> Any:
    raise AssertionError("a cut-off call reached a layer")


@pytest.mark.parametrize("name", ["nope", "", "functions.", "Add"])
async def test_an_unknown_name_lists_the_tools(name: str) -> None:
    """B19: an error result with the available names; the run goes on."""
    (result,) = await Bench(add, Plain()).run(ToolCallPart("c1", name))
    assert (result.name, result.is_error, result.outcome) == (name, True, "not_run")
    assert "Available tools: add, plain." in result.text


@pytest.mark.parametrize("name", [" add\n", "functions.add"])
async def test_known_slips_in_a_name_are_overlooked(name: str) -> None:
    """B19: blanks and prefix are stripped; the result still answers the name as written."""
    (result,) = await Bench(add).run(ToolCallPart("c1", name, {"a": 1}))
    assert (result.content, result.name) == ("3", name)


async def test_one_failing_tool_costs_its_own_result(caplog: pytest.LogCaptureFixture) -> None:
    """TOL-9, F1: the second fails at once, the others end later in reverse; order is kept."""
    gates = {"c1": anyio.Event(), "c3": anyio.Event()}

    @tool(concurrency_safe=True)
    async def slow(ctx: ToolContext) -> str:
        if ctx.call_id == "c2":
            gates["c3"].set()
            raise ValueError("broken, key sk-abcdefghijklmnop")
        await gates[ctx.call_id].wait()
        gates["c1"].set()
        return ctx.call_id

    bench = Bench(slow)
    with anyio.fail_after(5), caplog.at_level(logging.ERROR, "loopctl.tools"):
        results = await bench.run(call("slow", "c1"), call("slow", "c2"), call("slow", "c3"))
    assert list(bench.finished) == ["c2", "c3", "c1"]
    assert [r.call_id for r in results] == ["c1", "c2", "c3"]
    assert [r.is_error for r in results] == [False, True, False]
    assert results[1].text == "ValueError: broken, key sk-***"
    assert results[1].outcome == "executed"
    (record,) = caplog.records
    assert record.exc_info is not None


async def test_a_group_of_one_speaks_for_its_member() -> None:
    """TOL-9: a tool's own task group does not hide the error."""

    @tool
    async def grouped() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(fail)

    async def fail() -> None:
        raise KeyError("inner")

    assert (await Bench(grouped).one("grouped")).text == "KeyError: 'inner'"


INTERRUPTS: list[Callable[[], BaseException]] = [
    KeyboardInterrupt,
    lambda: SystemExit(3),
    lambda: BaseExceptionGroup("g", [KeyboardInterrupt()]),
    lambda: BaseExceptionGroup("g", [ValueError(), BaseExceptionGroup("h", [KeyboardInterrupt()])]),
]


@pytest.mark.parametrize("together", [False, True], ids=["alone", "in a wave"])
@pytest.mark.parametrize("make", INTERRUPTS)
@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_interrupts_come_out_bare(
    kind: str, make: Callable[[], BaseException], together: bool
) -> None:
    """TOL-9, D4: KeyboardInterrupt and SystemExit pass through, never inside a group."""

    @tool(concurrency_safe=True)
    async def interrupt() -> None:
        await anyio.lowlevel.checkpoint()
        raise make()

    @tool(name="interrupt", concurrency_safe=True)
    def interrupt_sync() -> None:
        raise make()

    @tool(concurrency_safe=True)
    async def wait() -> None:
        await anyio.sleep_forever()

    bench = Bench(interrupt if kind == "async" else interrupt_sync, wait, add)
    calls = [call("add", "c0", a=1), call("interrupt")]
    if together:
        calls.append(call("wait", "c2"))
    with anyio.fail_after(5), pytest.raises((KeyboardInterrupt, SystemExit)):
        await bench.run(*calls)
    assert list(bench.finished) == ["c0"]


async def test_an_interrupt_during_cancellation_comes_out_bare() -> None:
    """TOL-9, ENG-16: the interrupt is not lost in the cancellation that it meets."""
    waiting = anyio.Event()

    @tool(concurrency_safe=True)
    async def stubborn() -> None:
        waiting.set()
        try:
            await anyio.sleep_forever()
        finally:
            raise KeyboardInterrupt

    raised: list[type[BaseException]] = []
    bench = Bench(stubborn, tool(name="wait", concurrency_safe=True)(_sleep_forever))

    async def run() -> None:
        try:
            await bench.run(call("stubborn"), call("wait", "c2"))
        except BaseException as error:
            raised.append(type(error))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await waiting.wait()
            group.cancel_scope.cancel()
    assert raised == [KeyboardInterrupt]


async def test_a_stray_cancellation_is_the_tools_own_error() -> None:
    """TOL-9, D4: nobody asked for it, so the run goes on."""

    @tool
    async def stray() -> None:
        raise asyncio.CancelledError

    @tool
    def stray_sync() -> None:
        raise asyncio.CancelledError

    bench = Bench(stray, stray_sync)
    first, second = await bench.run(call("stray"), call("stray_sync", "c2"))
    assert first.text == second.text == "CancelledError"
    assert first.is_error
    assert second.is_error


@pytest.mark.parametrize("count", [1, 2])
async def test_cancellation_passes_through_and_keeps_what_is_done(count: int) -> None:
    """TOL-9, D3: real results for what is done; nothing is made up for the rest."""
    waiting = anyio.Event()

    @tool(concurrency_safe=True)
    async def wait() -> None:
        waiting.set()
        await anyio.sleep_forever()

    bench = Bench(add, wait)
    waits = [call("wait", f"w{number}") for number in range(count)]
    ended = False
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:

            async def run() -> None:
                nonlocal ended
                await bench.run(call("add", a=1), *waits)
                ended = True

            group.start_soon(run)
            await waiting.wait()
            group.cancel_scope.cancel()
    assert not ended
    assert list(bench.finished) == ["c1"]


async def test_a_tool_that_swallows_the_cancellation_does_not_start_the_next() -> None:
    """TOL-9, D4: cancellation is looked for again before each wave."""
    waiting = anyio.Event()

    @tool
    async def swallow() -> str:
        waiting.set()
        with contextlib.suppress(anyio.get_cancelled_exc_class()):
            await anyio.sleep_forever()
        return "swallowed"

    bench = Bench(add, swallow)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(bench.run, call("swallow"), call("add", "c2", a=1))
            await waiting.wait()
            group.cancel_scope.cancel()
    assert [record.result.content for record in bench.finished.values()] == ["swallowed"]


async def test_a_native_cancellation_that_a_tool_swallows_still_counts(
    anyio_backend_name: str,
) -> None:
    """D4: asyncio's own Task.cancel() as well."""
    if anyio_backend_name != "asyncio":
        pytest.skip("trio has only scopes")
    waiting = anyio.Event()

    @tool
    async def swallow() -> str:
        waiting.set()
        with contextlib.suppress(asyncio.CancelledError):
            await anyio.sleep_forever()
        return "swallowed"

    bench = Bench(add, swallow)
    task = asyncio.create_task(bench.run(call("swallow"), call("add", "c2", a=1)))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert list(bench.finished) == ["c1"]


async def _sleep_forever() -> None:
    await anyio.sleep_forever()


async def _swallow_the_deadline() -> str:
    with contextlib.suppress(anyio.get_cancelled_exc_class()):
        await anyio.sleep_forever()
    return "partial"


async def _fail_at_the_deadline() -> None:
    try:
        await anyio.sleep_forever()
    finally:
        raise OSError("cleanup failed")


@pytest.mark.parametrize("function", [_sleep_forever, _swallow_the_deadline, _fail_at_the_deadline])
async def test_a_deadline_ends_the_call_with_an_error_that_names_it(
    function: Callable[[], Awaitable[object]],
) -> None:
    """TOL-10: the tool's own deadline, whatever the tool makes of it."""
    slow = tool(name="slow", timeout=0.02)(function)
    with anyio.fail_after(5):
        result = await Bench(slow).one("slow")
    assert (result.is_error, result.outcome) == (True, "interrupted")
    assert "'slow' did not finish within its deadline of 0.02 s" in result.text


async def test_the_sessions_deadline_holds_for_tools_without_their_own() -> None:
    """TOL-10: else the session's."""
    slow = tool(name="slow")(_sleep_forever)
    with anyio.fail_after(5):
        result = await Bench(slow, config=SessionConfig(tool_timeout=0.02)).one("slow")
    assert "deadline of 0.02 s" in result.text


async def test_a_timed_out_tool_disturbs_nobody_in_its_wave() -> None:
    """TOL-9, TOL-10: one deadline is one call's."""
    slow = tool(name="slow", timeout=0.02, concurrency_safe=True)(_sleep_forever)
    quick = tool(name="quick", concurrency_safe=True)(_done)
    with anyio.fail_after(5):
        first, second = await Bench(slow, quick).run(call("slow"), call("quick", "c2"))
    assert first.is_error
    assert second.content == "done"


async def _done() -> str:
    return "done"


async def test_approval_does_not_use_up_the_deadline() -> None:
    """TOL-10: the clock of a tool starts when it may run."""
    deadlines: list[float] = []

    async def approver(request: object) -> Decision:
        deadlines.append(anyio.current_effective_deadline())
        return Allow()

    @tool(timeout=7)
    async def look(ctx: ToolContext) -> None:
        assert ctx._deadline is not None
        deadlines.append(ctx._deadline.when)

    await Bench(look, hooks=[lambda ctx: Ask("?")], approver=approver).one("look")
    assert deadlines[0] == math.inf
    assert deadlines[1] < anyio.current_time() + 7


async def test_every_result_is_capped_in_one_place() -> None:
    """TOL-11, F10: values, outputs, errors and denials alike."""

    @tool
    async def flood(how: str) -> Any:
        if how == "raise":
            raise ValueError("x" * 5_000)
        return {"output": ToolOutput("x" * 5_000), "value": ["x" * 5_000], "text": "x" * 5_000}[how]

    config = SessionConfig(max_result_chars=300)
    for how in ("raise", "output", "value", "text"):
        result = await Bench(flood, config=config).one("flood", how=how)
        assert len(result.text) <= 300
        assert "characters left out" in result.text
    denied = Bench(flood, config=config, hooks=[lambda ctx: Deny("x" * 5_000)])
    assert len((await denied.one("flood", how="text")).text) <= 300
    unknown = await Bench(flood, config=config).one("n" * 5_000)
    assert len(unknown.text) <= 300


def _together(**options: Any) -> tuple[Any, list[int]]:
    """A tool that notes how many of its calls run at once."""
    running = 0
    seen: list[int] = []

    @tool(name="work", **options)
    async def work(key: str = "") -> str:
        nonlocal running
        running += 1
        seen.append(running)
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        running -= 1
        return key

    return work, seen


@pytest.mark.parametrize(
    ("options", "config", "most"),
    [
        ({"concurrency_safe": True}, RunConfig(), 6),
        ({"concurrency_safe": True}, RunConfig(max_concurrency=2), 2),
        ({"concurrency_safe": True}, RunConfig(parallel_tools=False), 1),
        ({}, RunConfig(), 1),
        ({"concurrency_safe": True, "resource": "disk"}, RunConfig(), 1),
        ({"concurrency_safe": True, "resource": lambda a: a["key"]}, RunConfig(), 3),
        ({"concurrency_safe": True, "resource": lambda a: None}, RunConfig(), 6),
        ({"concurrency_safe": True, "resource": lambda a: a["nope"]}, RunConfig(), 1),
    ],
)
async def test_only_what_may_run_together_does(
    options: dict[str, Any], config: RunConfig, most: int
) -> None:
    """TOL-8: safe calls together up to the limit, one resource at a time, unsafe ones alone."""
    work, seen = _together(**options)
    calls = [call("work", f"c{number}", key=key) for number, key in enumerate("abcabc")]
    results = await Bench(work).run(*calls, run_config=config)
    assert [result.content for result in results] == list("abcabc")
    assert max(seen) == most


async def test_a_record_is_there_before_it_is_told() -> None:
    """D3: what is told is never lost."""
    bench = Bench(add)
    seen: list[bool] = []
    send = bench.sink.send

    async def sending(event: Any, deadline: Any = None) -> None:
        if isinstance(event, ToolFinished):
            seen.append(event.result.call_id in bench.finished)
        await send(event, deadline)

    bench.sink.send = sending  # type: ignore[method-assign]
    await bench.one("add", a=1)
    assert seen == [True]


async def test_a_denial_cannot_be_imitated() -> None:
    """TOL-14: a tool may say the words; only the engine sets the outcome."""

    @tool
    async def fake() -> ToolOutput:
        return ToolOutput("Not executed: the call of 'fake' was denied.", is_error=True)

    assert (await Bench(fake).one("fake")).outcome == "executed"


async def test_one_call_costs_no_task() -> None:
    """The common case runs in the caller's own task, on its own thread."""
    seen: list[object] = []

    @tool
    async def where() -> None:
        seen.append((anyio.get_current_task().id, threading.get_ident()))

    await Bench(where).one("where")
    assert seen == [(anyio.get_current_task().id, threading.get_ident())]
