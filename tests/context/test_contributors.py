"""CTX-1 … CTX-9: contributors, asked one by one and kept apart from each other."""

from __future__ import annotations

import copy
import logging
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from loopctl import Contribution, ContributorContext, Message, TextPart, ToolResultPart
from loopctl._threads import Threads
from loopctl.context.contributors import Consultation, Contributions, consult
from loopctl.errors import ConfigError, ContributorError
from loopctl.machine import LoopMachine
from loopctl.messages import ImagePart
from loopctl.plugins import PluginRegistry
from loopctl.testing import FixedClock

pytestmark = pytest.mark.anyio

CONVERSATION = (Message.user("the goal"), Message.assistant("hm"))


def consultation(turn: int = 0, deps: Any = None) -> Consultation[Any]:
    return Consultation(
        turn=turn,
        conversation_of=LoopMachine(CONVERSATION),
        deps=deps,
        run_input=Message.user("the goal"),
        run_id="run-1",
        session_id="session-1",
        working_folder=Path("here"),
        now=FixedClock().now,
    )


async def ask(
    *contributors: Any, timeout: float | None = 10, strict: bool = False
) -> Contributions:
    registry = PluginRegistry()
    for contributor in contributors:
        registry.add_contributor(contributor)
    return await consult(
        registry.contributors, consultation(), timeout=timeout, threads=Threads(), strict=strict
    )


class Says:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def contribute(self, ctx: ContributorContext[Any]) -> Any:
        return self.answer

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Says)

    def __hash__(self) -> int:
        return 1


async def test_objects_functions_and_async_ones_are_asked_in_registration_order() -> None:
    """CTX-1, CTX-3: mixed sync and async, objects and plain functions, in one order."""

    async def slow(ctx: ContributorContext[Any]) -> str:
        await anyio.lowlevel.checkpoint()
        return "two"

    class AsyncObject:
        async def contribute(self, ctx: ContributorContext[Any]) -> Message:
            return Message.user("four")

    given = await ask(Says("one"), slow, lambda anything: "three", AsyncObject())
    assert [message.text for message in given.head] == ["one", "two", "three", "four"]
    assert [message.role.value for message in given.head] == ["system"] * 3 + ["user"]


async def test_the_next_is_asked_when_the_previous_has_answered() -> None:
    """CTX-3: one after the other, never side by side."""
    log: list[str] = []

    def named(name: str) -> Callable[[Any], Any]:
        async def contribute(ctx: Any) -> None:
            log.append(f"{name} asked")
            await anyio.lowlevel.checkpoint()
            log.append(f"{name} answered")

        return contribute

    await ask(named("a"), named("b"))
    assert log == ["a asked", "a answered", "b asked", "b answered"]


async def test_equal_objects_and_the_same_object_twice_are_separate_contributors() -> None:
    """CTX-4: adapters are compared by identity."""
    same = Says("x")
    given = await ask(same, same, Says("y"))
    assert [message.text for message in given.head] == ["x", "x", "y"]


async def test_placement_puts_a_message_behind_the_conversation() -> None:
    """CTX-7: head is the default, tail is asked for; registration order holds in each."""
    given = await ask(
        Says(Contribution(Message.system("tail 1"), placement="tail")),
        Says("head"),
        Says(Contribution(Message.user("tail 2"), "tail")),
    )
    assert [message.text for message in given.head] == ["head"]
    assert [message.text for message in given.tail] == ["tail 1", "tail 2"]
    with pytest.raises(ConfigError, match="'head' or 'tail'"):
        Contribution(Message.user("x"), "middle")  # type: ignore[arg-type]


async def test_the_context_says_what_is_about_to_run() -> None:
    """CTX-2: every field of the context."""
    seen: list[Any] = []

    def look(ctx: ContributorContext[Any]) -> None:
        seen.append((ctx.turn, ctx.conversation, ctx.run_input, ctx.run_id, ctx.session_id))
        seen.append((ctx.working_folder, ctx.deps, ctx.now))
        assert "turn 0" in repr(ctx)

    await ask(look)
    assert seen[0] == (0, CONVERSATION, Message.user("the goal"), "run-1", "session-1")
    assert seen[1][:2] == (Path("here"), None)
    assert seen[1][2] == FixedClock().now()


async def test_a_context_cannot_be_kept_copied_or_pickled() -> None:
    """CTX-2: reading it afterwards raises, its repr never does."""
    kept: list[ContributorContext[Any]] = []

    def stash(ctx: ContributorContext[Any]) -> None:
        kept.append(ctx)
        for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="cannot be"):
                attempt(ctx)

    given = await ask(stash)
    assert given.failures == []
    (ctx,) = kept
    assert repr(ctx) == "<ContributorContext: over>"
    for name in ("turn", "conversation", "deps", "run_input", "run_id", "session_id", "now"):
        with pytest.raises(RuntimeError, match="lives for one consultation"):
            getattr(ctx, name)
    with pytest.raises(RuntimeError):
        _ = ctx.working_folder


@pytest.mark.parametrize(
    "quiet",
    [
        None,
        "",
        " \n\t",
        Message.system(" "),
        Message.user("", "\n"),
        Message.user(),
        Contribution(Message.system("")),
    ],
)
async def test_blank_text_counts_as_quiet(quiet: Any) -> None:
    """CTX-8, C2: only blank text counts as None."""
    given = await ask(Says(quiet))
    assert (given.head, given.tail, given.failures) == ([], [], [])


async def test_images_ride_and_blank_parts_beside_them_do_not() -> None:
    """CTX-8: user messages of text and images."""
    image = ImagePart("image/png", b"x")
    given = await ask(Says(Message.user(" ", image)))
    assert given.head == [Message.user(image)]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (7, "TypeError: returned int"),
        (Message.assistant("I"), "ValueError: returned an assistant message"),
        (Message.user(ToolResultPart("c", "t", "r")), "ValueError: returned a ToolResultPart"),
        (["text"], "TypeError: returned list"),
        (Contribution("text"), "TypeError: a Contribution holds a Message"),  # type: ignore[arg-type]
    ],
)
async def test_anything_else_is_a_failure_of_that_contributor_alone(
    answer: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """CTX-8, CTX-9: it loses its message, the others keep theirs, the log names it."""
    with caplog.at_level(logging.WARNING, "loopctl.plugins"):
        given = await ask(Says("a"), Says(answer), Says("b"))
    assert [message.text for message in given.head] == ["a", "b"]
    (failure,) = given.failures
    assert failure.contributor == "Says"
    assert failure.reason.startswith(reason)
    assert "contributor Says failed" in caplog.text


async def test_one_that_raises_or_outlasts_its_time_loses_its_message() -> None:
    """CTX-9: raising, and an async one over contributor_timeout."""

    def broken(ctx: Any) -> str:
        raise ZeroDivisionError("oops")

    async def forever(ctx: Any) -> str:
        await anyio.sleep_forever()
        return "never"

    given = await ask(broken, forever, Says("still here"), timeout=0.01)
    assert [message.text for message in given.head] == ["still here"]
    assert [failure.reason for failure in given.failures] == [
        "ZeroDivisionError: oops",
        "no answer within 0.01 s",
    ]


async def test_strict_plugins_end_it_with_an_error_that_names_the_contributor() -> None:
    """CTX-9: ContributorError with its cause."""
    cause = ZeroDivisionError("oops")

    def broken(ctx: Any) -> str:
        raise cause

    with pytest.raises(ContributorError, match="broken failed: ZeroDivisionError: oops") as caught:
        await ask(broken, strict=True)
    assert caught.value.__cause__ is cause


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
async def test_interrupts_pass_through(interrupt: type[BaseException]) -> None:
    """CTX-9, D4: KeyboardInterrupt and SystemExit are nobody's failure."""

    def contribute(ctx: Any) -> str:
        raise interrupt

    with pytest.raises(interrupt):
        await ask(contribute)


async def test_cancellation_passes_through_and_a_stray_one_is_a_failure() -> None:
    """CTX-9, D4: real cancellation is not swallowed; one that nobody asked for is a failure."""
    with anyio.CancelScope() as scope:

        async def cancelled(ctx: Any) -> str:
            scope.cancel()
            await anyio.lowlevel.checkpoint()
            return "not reached"

        await ask(cancelled)
        pytest.fail("the cancellation was swallowed")
    assert scope.cancelled_caught


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_stray_cancellation_is_a_failure(anyio_backend: str) -> None:
    """CTX-9: only asyncio lets a contributor raise a cancellation of its own."""

    async def stray(ctx: Any) -> str:
        raise anyio.get_cancelled_exc_class()

    given = await ask(stray, Says("next"))
    assert [message.text for message in given.head] == ["next"]
    assert "nobody asked for" in given.failures[0].reason


async def test_offload_runs_a_sync_contributor_in_a_thread() -> None:
    """CTX-3: `offload = True` on it keeps the event loop free."""

    class Heavy:
        offload = True

        def contribute(self, ctx: ContributorContext[Any]) -> str:
            return f"{ctx.turn} {threading.current_thread() is threading.main_thread()}"

    given = await ask(Heavy())
    assert given.head == [Message.system("0 False")]


@pytest.mark.parametrize(
    "useless",
    [object(), 7, Says, lambda: "no argument", lambda a, b: "two", "text", TextPart("x")],
)
def test_what_is_no_contributor_is_refused_at_registration(useless: Any) -> None:
    """CTX-1: an object with contribute(ctx), or a function of ctx."""
    with pytest.raises(ConfigError):
        PluginRegistry().add_contributor(useless)
