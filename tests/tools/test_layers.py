"""Layers around calls."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from loopctl.errors import ToolRecoveryExhausted
from loopctl.tools.decisions import Allow, Ask, Decision, Deny, ToolCallContext
from loopctl.tools.function import tool
from loopctl.tools.layers import CallOutput, Next, rewritten
from loopctl.tools.types import ToolOutput
from tests.tools.bench import Bench, call

pytestmark = pytest.mark.anyio

Ctx = ToolCallContext[Any]


@tool
async def echo(text: str) -> str:
    """Echo."""
    if text == "fail":
        raise ValueError("failed")
    return text


@tool
async def shout(text: str) -> str:
    """Shout."""
    return text.upper()


def note(name: str, log: list[str]) -> Any:
    async def layer(ctx: Ctx, next: Next) -> object:
        log.append(f"{name} in")
        output = await next(ctx)
        log.append(f"{name} out")
        return dataclasses.replace(output, content=f"{name}({output.content})")

    return layer


async def test_the_first_layer_is_the_outermost() -> None:
    """TOL-12: in order of giving, from the outside in."""
    log: list[str] = []
    bench = Bench(echo, layers=[note("a", log), note("b", log)])
    assert (await bench.one("echo", text="x")).content == "a(b(x))"
    assert log == ["a in", "b in", "b out", "a out"]


async def test_a_layer_may_rewrite_the_call() -> None:
    """TOL-12: other arguments, another tool; the result answers the model's own call."""

    async def redirect(ctx: Ctx, next: Next) -> object:
        return await next(rewritten(ctx, name="shout", arguments={"text": "y"}))

    seen: list[Ctx] = []
    bench = Bench(echo, shout, layers=[redirect], hooks=[seen.append])
    result = await bench.one("echo", text="x")
    assert (result.call_id, result.name, result.content) == ("c1", "echo", "Y")
    assert bench.finished["c1"].call == call("echo", text="x")
    assert seen[0].name == "shout"
    assert seen[0].tool is bench.registry.get("shout")


async def test_decisions_are_taken_on_the_rewritten_call() -> None:
    """TOL-13: no layer can go around a decision."""

    async def redirect(ctx: Ctx, next: Next) -> object:
        return await next(rewritten(ctx, name="shout"))

    def guard(ctx: Ctx) -> Decision:
        return Deny("no shouting") if ctx.name == "shout" else Allow()

    bench = Bench(echo, shout, layers=[redirect], hooks=[guard])
    result = await bench.one("echo", text="x")
    assert (result.outcome, result.is_error) == ("denied", True)
    assert "no shouting" in result.text


@pytest.mark.parametrize("changes", [{"name": "nope"}, {"arguments": {"text": 1, "more": 2}}])
async def test_what_a_layer_makes_of_a_call_is_checked_again(changes: dict[str, Any]) -> None:
    """TOL-12, B19: an unknown name or misfit arguments are soft errors."""

    async def rewrite(ctx: Ctx, next: Next) -> object:
        return await next(rewritten(ctx, **changes))

    result = await Bench(echo, layers=[rewrite]).one("echo", text="x")
    assert (result.outcome, result.is_error, result.name) == ("not_run", True, "echo")


async def test_a_layer_may_answer_an_unknown_name() -> None:
    """TOL-12: layers see the call before its name is looked up."""

    async def guess(ctx: Ctx, next: Next) -> object:
        return await next(rewritten(ctx, name="echo") if ctx.tool is None else ctx)

    result = await Bench(echo, layers=[guess]).one("ecco", text="x")
    assert (result.content, result.outcome, result.name) == ("x", "executed", "ecco")


@pytest.mark.parametrize(
    ("answer", "content", "is_error"),
    [
        ("cached", "cached", False),
        (ToolOutput("bad", is_error=True), "bad", True),
        ({"a": 1}, '{"a":1}', False),
        (CallOutput(content="x", outcome="denied"), "x", False),
        (CallOutput(content=" "), "(The tool returned an empty result.)", False),
    ],
)
async def test_a_layer_may_answer_the_call_itself(
    answer: object, content: str, is_error: bool
) -> None:
    """TOL-12: without running it; the outcome is the engine's to say."""

    async def answering(ctx: Ctx, next: Next) -> object:
        return answer

    result = await Bench(echo, layers=[answering]).one("echo", text="x")
    assert (result.content, result.is_error, result.outcome) == (content, is_error, "executed")
    assert (result.call_id, result.name) == ("c1", "echo")


async def test_no_layer_can_turn_a_denial_into_a_success() -> None:
    """TOL-12, TOL-14: the engine goes by its own record."""

    async def pretend(ctx: Ctx, next: Next) -> object:
        await next(ctx)
        return CallOutput(content="all fine", outcome="executed")

    bench = Bench(echo, layers=[pretend], hooks=[lambda ctx: Deny("no")])
    result = await bench.one("echo", text="x")
    assert (result.outcome, result.is_error) == ("denied", True)


async def test_no_layer_can_break_pairing() -> None:
    """TOL-12: ids are stamped afterwards, in the events too."""

    async def forge(ctx: Ctx, next: Next) -> object:
        forged = dataclasses.replace(ctx, call=call("echo", "forged", text="y"))
        return await next(forged)

    bench = Bench(echo, layers=[forge])
    result = await bench.one("echo", text="x")
    assert (result.call_id, result.content) == ("c1", "y")
    assert bench.sink.events[0].call.id == "c1"  # type: ignore[attr-defined]


async def test_a_failing_layer_costs_one_result() -> None:
    """TOL-9: a layer's error, and a cancellation that it makes up, are soft."""

    async def broken(ctx: Ctx, next: Next) -> object:
        raise ValueError("layer broken")

    async def strays(ctx: Ctx, next: Next) -> object:
        raise asyncio.CancelledError

    async def misuse(ctx: Ctx, next: Next) -> object:
        return await next(ctx.call)  # type: ignore[arg-type]

    for layer, words in ((broken, "layer broken"), (strays, "Cancelled"), (misuse, "Attribute")):
        result = await Bench(echo, layers=[layer]).one("echo", text="x")
        assert result.is_error
        assert words in result.text


async def test_layers_see_failures_as_outputs() -> None:
    """TOL-12: `next` raises no tool's error, so that a layer can judge it and try again."""
    seen: list[CallOutput] = []

    async def retry(ctx: Ctx, next: Next) -> object:
        seen.append(await next(ctx))
        return await next(rewritten(ctx, arguments={"text": "fixed"}))

    bench = Bench(echo, layers=[retry])
    result = await bench.one("echo", text="fail")
    assert (result.content, result.is_error) == ("fixed", False)
    assert (seen[0].content, seen[0].is_error) == ("ValueError: failed", True)
    assert bench.sink.kinds() == ["ToolStarted", "ToolStarted", "ToolFinished"]


@pytest.mark.parametrize("count", [1, 2])
async def test_a_run_error_of_a_layer_ends_the_batch_bare(count: int) -> None:
    """TOL-18, ENG-16: recovery that is exhausted is a hard failure."""

    async def exhausted(ctx: Ctx, next: Next) -> object:
        raise ToolRecoveryExhausted("echo", 5)

    together = tool(name="together", concurrency_safe=True)(_nothing)
    bench = Bench(together, layers=[exhausted])
    with pytest.raises(ToolRecoveryExhausted):
        await bench.run(*[call("together", f"c{number}") for number in range(count)])


async def _nothing() -> None: ...


async def test_a_run_error_of_a_tool_is_soft() -> None:
    """TOL-9: a tool that runs another agent may fail like any tool."""

    @tool
    async def agent() -> None:
        raise ToolRecoveryExhausted("inner", 5)

    assert (await Bench(agent).one("agent")).is_error


async def test_rewriting_keeps_what_it_is_not_given() -> None:
    ctx = ToolCallContext[Any](
        call=call("echo", text="x"), tool=echo, run_id="r", turn=0, services=Bench().services
    )
    assert rewritten(ctx) == ctx
    assert rewritten(ctx, arguments={}).tool is echo
    assert rewritten(ctx, name="shout").call.arguments == ctx.call.arguments


async def test_an_approval_inside_a_layer_is_asked_each_time() -> None:
    """TOL-13: a layer that tries twice is decided about twice."""
    asked: list[str] = []

    async def approver(request: Any) -> Decision:
        asked.append(request.prompt)
        return Allow()

    async def twice(ctx: Ctx, next: Next) -> object:
        await next(ctx)
        return await next(ctx)

    bench = Bench(echo, layers=[twice], hooks=[lambda ctx: Ask("?")], approver=approver)
    await bench.one("echo", text="x")
    assert asked == ["?", "?"]
