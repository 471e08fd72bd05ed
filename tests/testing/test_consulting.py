"""consult(): a contributor asked as a session asks it."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import anyio
import pytest

from loopctl import hookimpl
from loopctl.context.contributors import Contribution
from loopctl.errors import ConfigError, ContributorError
from loopctl.messages import Message
from loopctl.testing import FixedClock, consult

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_left")]


class Clocked:
    @hookimpl
    def contribute(self, ctx: Any) -> str:
        return f"turn {ctx.turn} at {ctx.now:%Y-%m-%d}"


class Plain:
    async def contribute(self, ctx: Any) -> Message:
        await anyio.lowlevel.checkpoint()
        return Message.user(f"{ctx.deps} {len(ctx.conversation)}")


async def test_a_plugin_an_object_and_a_function_can_be_asked() -> None:
    """CTX-1: sync or async, marked or not, a method or a function."""
    assert await consult(Clocked(), turn=3) == Message.system("turn 3 at 2026-01-01")
    conversation = [Message.user("a"), Message.assistant("b")]
    assert await consult(Plain(), conversation=conversation, deps="D") == Message.user("D 2")
    tail = Contribution(Message.user("x"), placement="tail")
    assert await consult(lambda ctx: tail) == Message.user("x")


async def test_quiet_and_blank_answers_are_none() -> None:
    """CTX-8: only blank text counts as nothing."""
    assert await consult(lambda ctx: None) is None
    assert await consult(lambda ctx: " \n") is None


async def test_the_context_shows_what_was_given() -> None:
    """CTX-2: run, session, folder, input and time."""

    def contribute(ctx: Any) -> str:
        moment = ctx.now.isoformat()
        return f"{ctx.run_id} {ctx.session_id} {ctx.run_input.text} {ctx.working_folder} {moment}"

    clock = FixedClock(datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC))
    given: dict[str, Any] = {"run_id": "r", "session_id": "s", "working_folder": "/w"}
    said = await consult(contribute, run_input="hi", clock=clock, **given)
    assert said == Message.system("r s hi /w 2030-01-01T00:00:00+00:00")
    folder = await consult(lambda ctx: str(ctx.working_folder.is_absolute()))
    assert folder == Message.system("True")


async def test_a_failure_is_raised() -> None:
    """CTX-9: as a strict session does."""

    def boom(ctx: Any) -> str:
        raise LookupError("no clock")

    async def slow(ctx: Any) -> str:
        await anyio.sleep_forever()
        return ""

    with pytest.raises(ContributorError, match="no clock"):
        await consult(boom)
    with pytest.raises(ContributorError, match="assistant"):
        await consult(lambda ctx: Message.assistant("x"))
    with pytest.raises(ContributorError, match="no answer within"):
        await consult(slow, timeout=0.001)


async def test_what_no_session_would_take_is_refused() -> None:
    class Typo:
        @hookimpl
        def contribut(self, ctx: Any) -> None: ...

    class Silent:
        @hookimpl
        def on_event(self, event: Any) -> None: ...

    for wrong in (Typo(), Silent(), 3):
        with pytest.raises(ConfigError):
            await consult(wrong)


async def test_a_contributor_that_asks_for_a_thread_gets_one() -> None:
    class Reader:
        offload = True

        def contribute(self, ctx: Any) -> str:
            return Path(__file__).read_text(encoding="utf-8")[:5]

    assert await consult(Reader()) == Message.system('"""co')
