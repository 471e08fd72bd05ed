"""Decisions about calls: what runs, what does not, and that everything fails closed."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from loopctl.config import SessionConfig
from loopctl.events import ApprovalRequested, ApprovalSettled
from loopctl.tools.decisions import (
    Allow,
    ApprovalRequest,
    Approver,
    Ask,
    Decision,
    Deny,
    Modify,
    ToolCallContext,
)
from loopctl.tools.function import tool
from tests.tools.bench import Bench, call

pytestmark = pytest.mark.anyio

Ctx = ToolCallContext[Any]
Hook = Callable[[Ctx], object]
SHORT = SessionConfig(decision_timeout=0.01, approval_timeout=0.01)


def says(answer: object) -> Hook:
    def hook(ctx: Ctx) -> object:
        return answer

    return hook


def says_later(answer: object) -> Hook:
    async def hook(ctx: Ctx) -> object:
        await anyio.lowlevel.checkpoint()
        return answer

    return hook


def fails(error: BaseException) -> Hook:
    def hook(ctx: Ctx) -> object:
        raise error

    return hook


def fails_later(error: BaseException) -> Hook:
    async def hook(ctx: Ctx) -> object:
        await anyio.lowlevel.checkpoint()
        raise error

    return hook


async def never(ctx: object) -> Any:
    await anyio.sleep_forever()


async def stubborn(ctx: object) -> Allow:
    """Swallows the deadline and allows."""
    with contextlib.suppress(anyio.get_cancelled_exc_class()):
        await anyio.sleep_forever()
    return Allow()


class Recorder:
    """A tool that remembers the texts that it was run with."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    @tool
    async def send(self, text: str) -> str:
        """Send."""
        self.ran.append(text)
        return "sent"


async def approve(request: ApprovalRequest) -> Decision:
    return Allow()


async def refuse(request: ApprovalRequest) -> Decision:
    return Deny("not today")


def run_with(
    *hooks: Hook, approver: Approver | None = None, config: SessionConfig | None = None
) -> tuple[Bench, Recorder]:
    recorder = Recorder()
    return Bench(recorder.send, hooks=hooks, approver=approver, config=config), recorder


@pytest.mark.parametrize(
    "hooks",
    [
        [],
        [says(None)],
        [says(Allow())],
        [says_later(None), says(Allow()), says_later(Allow())],
        [says(Modify({"text": "hello"}))],
    ],
)
async def test_calls_run_when_nobody_objects(hooks: list[Hook]) -> None:
    """TOL-13: `Allow` and `None`, sync and async; a Modify that changes nothing."""
    bench, recorder = run_with(*hooks)
    result = await bench.one("send", text="hello")
    assert (result.content, result.outcome, result.is_error) == ("sent", "executed", False)
    assert recorder.ran == ["hello"]


CLOSED: dict[str, tuple[list[Hook], str]] = {
    "deny": ([says(Deny("no"))], "no"),
    "deny later": ([says_later(Deny("no"))], "no"),
    "deny without reason": ([says(Deny())], "none given"),
    "deny after allow": ([says(Allow()), says(Deny("no"))], "no"),
    "deny before allow": ([says(Deny("no")), says(Allow())], "no"),
    "deny beats ask": ([says(Ask("?")), says(Deny("no"))], "no"),
    "deny before ask": ([says(Deny("no")), says(Ask("?"))], "no"),
    "deny after modify": ([says(Modify({"text": "b"})), says(Deny("no"))], "no"),
    "raises": ([fails(ValueError("broken"))], "ValueError: broken"),
    "raises later": ([fails_later(ValueError("broken"))], "ValueError: broken"),
    "raises a group": ([fails(ExceptionGroup("g", [ValueError("broken")]))], "ValueError: broken"),
    "raises after allow": ([says(Allow()), fails(KeyError("k"))], "KeyError"),
    "raises under ask": ([says(Ask("?")), fails(KeyError("k"))], "KeyError"),
    "stray cancellation": ([fails(asyncio.CancelledError())], "CancelledError"),
    "stray cancellation later": ([fails_later(asyncio.CancelledError())], "CancelledError"),
    "stray in a group": (
        [fails(BaseExceptionGroup("g", [asyncio.CancelledError(), KeyError("k")]))],
        "BaseExceptionGroup",
    ),
    "futures' cancellation": ([fails(concurrent.futures.CancelledError())], "CancelledError"),
    "times out": ([never], "did not answer within 0.01 s"),
    "swallows its deadline": ([stubborn], "did not answer within 0.01 s"),
    "true": ([says(True)], "bool instead of a decision"),
    "false": ([says(False)], "bool instead of a decision"),
    "text": ([says("allow")], "str instead of a decision"),
    "the class": ([says(Allow)], "type instead of a decision"),
    "a mapping": ([says({"text": "b"})], "dict instead of a decision"),
    "later true": ([says_later(True)], "bool instead of a decision"),
    "modify to misfits": ([says(Modify({"text": [1]}))], "do not fit"),
    "modify drops a field": ([says(Modify({}))], "do not fit"),
    "modify adds a field": ([says(Modify({"text": "b", "more": 1}))], "do not fit"),
    "modify with no mapping": ([says(Modify("text"))], "no mapping"),  # type: ignore[arg-type]
    "ask without approver": ([says(Ask("?"))], "nobody is there"),
}


@pytest.mark.parametrize("backend_hooks", CLOSED.values(), ids=CLOSED)
async def test_everything_but_an_agreement_fails_closed(
    backend_hooks: tuple[list[Hook], str],
) -> None:
    """TOL-13, TOL-14: each of these is a soft, typed denial and the tool never runs."""
    hooks, words = backend_hooks
    bench, recorder = run_with(*hooks, config=SHORT)
    result = await bench.one("send", text="a")
    assert recorder.ran == []
    assert (result.outcome, result.is_error) == ("denied", True)
    assert result.text.startswith("Not executed: the call of 'send' was denied. Reason: ")
    assert words in result.text
    assert "ToolStarted" not in bench.sink.kinds()
    assert bench.sink.kinds()[-1] == "ToolFinished"


async def _approver_true(request: ApprovalRequest) -> Any:
    return True


async def _approver_none(request: ApprovalRequest) -> Any:
    return None


async def _approver_ask(request: ApprovalRequest) -> Decision:
    return Ask("again?")


async def _approver_misfit(request: ApprovalRequest) -> Decision:
    return Modify({"text": 5, "more": 1})


async def _approver_fails(request: ApprovalRequest) -> Decision:
    raise OSError("terminal gone")


async def _approver_strays(request: ApprovalRequest) -> Decision:
    raise asyncio.CancelledError


APPROVERS: dict[str, tuple[Approver, str]] = {
    "refuses": (refuse, "not today"),
    "true": (_approver_true, "bool instead of a decision"),
    "none": (_approver_none, "NoneType instead of a decision"),
    "asks back": (_approver_ask, "Ask instead of a decision"),
    "modifies to misfits": (_approver_misfit, "do not fit"),
    "fails": (_approver_fails, "OSError: terminal gone"),
    "stray cancellation": (_approver_strays, "CancelledError"),
    "times out": (never, "did not answer within 0.01 s"),
    "swallows its deadline": (stubborn, "did not answer within 0.01 s"),
}


@pytest.mark.parametrize("approver_words", APPROVERS.values(), ids=APPROVERS)
async def test_an_approver_that_does_not_agree_denies(
    approver_words: tuple[Approver, str],
) -> None:
    """TOL-14: a failing, late or unclear approver is a denial, and the events say so."""
    approver, words = approver_words
    bench, recorder = run_with(says(Ask("send it?")), approver=approver, config=SHORT)
    result = await bench.one("send", text="a")
    assert recorder.ran == []
    assert (result.outcome, result.is_error) == ("denied", True)
    assert words in result.text
    assert bench.sink.kinds() == ["ApprovalRequested", "ApprovalSettled", "ToolFinished"]
    settled = bench.sink.events[1]
    assert isinstance(settled, ApprovalSettled)
    assert not settled.approved
    assert words in settled.reason


async def test_an_approved_call_runs() -> None:
    """TOL-14: the approver sees call, prompt and context; every question is in the prompt."""
    seen: list[ApprovalRequest] = []

    async def approver(request: ApprovalRequest) -> Decision:
        seen.append(request)
        return Allow()

    hooks = [says(Ask("first?")), says(Allow()), says(Ask("second?")), says(Ask("first?"))]
    bench, recorder = run_with(*hooks, approver=approver)
    result = await bench.one("send", text="a")
    assert (result.outcome, recorder.ran) == ("executed", ["a"])
    (request,) = seen
    assert request.prompt == "first?\nsecond?"
    assert request.call.arguments == '{"text":"a"}'
    assert request.ctx.arguments == {"text": "a"}
    asked = bench.sink.events[0]
    assert isinstance(asked, ApprovalRequested)
    assert asked.prompt == request.prompt
    assert bench.sink.kinds() == [
        "ApprovalRequested",
        "ApprovalSettled",
        "ToolStarted",
        "ToolFinished",
    ]


async def test_an_approver_may_change_the_arguments_before_all_hooks_again() -> None:
    """TOL-13, TOL-14: nobody can approve past a hook that denies the changed call."""

    async def approver(request: ApprovalRequest) -> Decision:
        return Modify({"text": "safer"})

    asked: list[str] = []

    def ask(ctx: Ctx) -> Decision:
        asked.append(ctx.arguments["text"])
        return Ask("?")

    bench, recorder = run_with(ask, approver=approver)
    assert (await bench.one("send", text="a")).outcome == "executed"
    assert recorder.ran == ["safer"]
    assert asked == ["a", "safer"]

    def guard(ctx: Ctx) -> Decision:
        return Deny("never safer") if ctx.arguments["text"] == "safer" else Ask("?")

    bench, recorder = run_with(guard, approver=approver)
    result = await bench.one("send", text="a")
    assert (result.outcome, recorder.ran) == ("denied", [])
    assert "never safer" in result.text


async def test_a_modification_feeds_the_next_hook_and_is_shown_to_the_earlier_ones() -> None:
    """TOL-13: each Modify feeds the next hook; earlier hooks are asked once more."""
    seen: list[tuple[str, str]] = []

    def first(ctx: Ctx) -> None:
        seen.append(("first", ctx.arguments["text"]))

    def second(ctx: Ctx) -> Decision:
        seen.append(("second", ctx.arguments["text"]))
        return Modify({"text": "b"})

    def third(ctx: Ctx) -> None:
        seen.append(("third", ctx.arguments["text"]))

    bench, recorder = run_with(first, second, third)
    assert (await bench.one("send", text="a")).outcome == "executed"
    assert seen == [("first", "a"), ("second", "a"), ("third", "b"), ("first", "b")]
    assert recorder.ran == ["b"]


async def test_an_earlier_hook_may_deny_what_a_later_one_made_of_the_call() -> None:
    """TOL-13: a modification cannot slip past a hook that has already agreed."""

    def guard(ctx: Ctx) -> Decision:
        return Deny("b is bad") if ctx.arguments["text"] == "b" else Allow()

    bench, recorder = run_with(guard, says(Modify({"text": "b"})))
    result = await bench.one("send", text="a")
    assert (result.outcome, recorder.ran) == ("denied", [])
    assert "b is bad" in result.text


async def test_hooks_that_never_agree_on_the_arguments_deny_the_call() -> None:
    """TOL-13: the second round is the last one."""
    bench, recorder = run_with(says(Modify({"text": "b"})), says(Modify({"text": "c"})))
    result = await bench.one("send", text="a")
    assert (result.outcome, recorder.ran) == ("denied", [])
    assert "would change the arguments again" in result.text


async def test_hooks_that_agree_in_the_second_round_let_the_call_run() -> None:
    """TOL-13: a hook that normalises says the same about what it has normalised."""

    def trim(ctx: Ctx) -> Decision:
        return Modify({"text": ctx.arguments["text"].strip()})

    def lower(ctx: Ctx) -> Decision:
        return Modify({"text": ctx.arguments["text"].lower()})

    bench, recorder = run_with(trim, lower)
    assert (await bench.one("send", text=" A ")).outcome == "executed"
    assert recorder.ran == ["a"]


async def test_a_question_stays_when_the_arguments_change_afterwards() -> None:
    """TOL-13: `Ask` beats `Allow`, also the asker's own second answer."""

    def ask_about_a(ctx: Ctx) -> Decision:
        return Ask("a?") if ctx.arguments["text"] == "a" else Allow()

    bench, recorder = run_with(ask_about_a, says(Modify({"text": "b"})))
    assert (await bench.one("send", text="a")).outcome == "denied"
    assert recorder.ran == []


async def test_a_false_that_becomes_a_zero_is_a_change() -> None:
    """TOL-13: JSON tells apart what Python calls equal."""

    @tool
    async def set_flag(value: Any) -> str:
        return repr(value)

    bench = Bench(set_flag, hooks=[says(Modify({"value": 0}))])
    assert (await bench.one("set_flag", value=False)).content == "0"


async def test_hooks_cannot_change_the_call_by_changing_what_they_are_shown() -> None:
    """G9: the arguments are decoded afresh at each reading."""

    def tamper(ctx: Ctx) -> None:
        ctx.arguments["text"] = "tampered"
        with pytest.raises(AttributeError):
            ctx.turn = 9  # type: ignore[misc]

    bench, recorder = run_with(tamper)
    await bench.one("send", text="a")
    assert recorder.ran == ["a"]


async def test_hooks_see_what_the_call_is_about() -> None:
    """TOL-13: the hook's context."""
    seen: list[Ctx] = []
    recorder = Recorder()
    bench = Bench(recorder.send, hooks=[seen.append], deps="deps")
    await bench.one("send", text="a")
    (ctx,) = seen
    assert ctx.name == "send"
    assert ctx.tool is bench.registry.get("send")
    assert (ctx.deps, ctx.session_id, ctx.run_id, ctx.turn) == ("deps", "session-1", "run-1", 3)
    assert not ctx.read_only
    assert str(ctx.working_folder) == "/work"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)], ids=repr)
@pytest.mark.parametrize("make", [fails, fails_later])
async def test_interrupts_raised_by_a_hook_pass_through(
    make: Callable[[BaseException], Hook], error: BaseException
) -> None:
    """TOL-9, TOL-13: an interrupt is nobody's decision."""
    bench, recorder = run_with(make(error))
    with pytest.raises(type(error)):
        await bench.one("send", text="a")
    assert recorder.ran == []


@pytest.mark.parametrize("where", ["hook", "approver"])
async def test_real_cancellation_passes_through_a_decision(where: str) -> None:
    """TOL-13: a cancelled run is cancelled, not denied."""
    waiting = anyio.Event()

    async def wait(ctx: object) -> Any:
        waiting.set()
        await anyio.sleep_forever()

    if where == "hook":
        bench, recorder = run_with(wait)
    else:
        bench, recorder = run_with(says(Ask("?")), approver=wait)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(bench.run, call("send", text="a"))
            await waiting.wait()
            group.cancel_scope.cancel()
    assert recorder.ran == []
    assert bench.finished == {}


async def test_a_hook_that_swallows_the_cancellation_does_not_let_the_tool_run() -> None:
    """D4, TOL-13: cancellation is looked for again before the tool runs."""
    waiting = anyio.Event()

    async def swallow(ctx: Ctx) -> Decision:
        waiting.set()
        with contextlib.suppress(anyio.get_cancelled_exc_class()):
            await anyio.sleep_forever()
        return Allow()

    bench, recorder = run_with(swallow)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(bench.run, call("send", text="a"))
            await waiting.wait()
            group.cancel_scope.cancel()
    assert recorder.ran == []
    assert bench.finished == {}
