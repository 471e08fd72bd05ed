"""CTX-23: the keys of a terminal, and its settings."""

from __future__ import annotations

import io
import os
import pty
import signal
import termios
from collections.abc import Iterator
from typing import Any, TextIO

import anyio
import anyio.lowlevel
import pytest

from loopctl.cli import keyboard as module
from loopctl.cli.keyboard import Keyboard, keyboard
from loopctl.cli.line_editor import View
from loopctl.cli.screen import Line
from loopctl.cli.terminal import Terminal

pytestmark = pytest.mark.anyio


class Screen(Terminal):
    """Remembers what it was told to show."""

    def __init__(self) -> None:
        super().__init__(io.StringIO(), io.StringIO())
        self.typed: list[View | None] = []
        self.said: list[str] = []

    def under(self, typed: View | None) -> None:
        self.typed.append(typed)

    def say(self, line: Line) -> None:
        self.said.append(line.text)


class Desk:
    """A terminal: `keys` is the person's end, `stdin` and `err` the command's."""

    def __init__(self) -> None:
        self.keys, theirs = pty.openpty()
        self.stdin: TextIO = os.fdopen(theirs)
        self.err: TextIO = os.fdopen(os.dup(theirs), "w")
        self.screen = Screen()

    def press(self, keys: str) -> None:
        os.write(self.keys, keys.encode())

    def is_raw(self) -> bool:
        modes: list[Any] = termios.tcgetattr(self.stdin.fileno())
        assert modes[3] & termios.ISIG, "Ctrl-C is a signal"
        return not modes[3] & (termios.ECHO | termios.ICANON)

    def keyboard(self) -> Keyboard:
        found = keyboard(self.stdin, self.err, self.screen)
        assert found is not None
        return found

    def hang_up(self) -> None:
        os.close(self.keys)
        self.keys = -1

    def close(self) -> None:
        if self.keys >= 0:
            self.hang_up()
        self.stdin.close()
        self.err.close()


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.close()


async def test_lines_come_as_they_are_entered(desk: Desk) -> None:
    with desk.keyboard() as keys, anyio.fail_after(10):
        desk.press("one\rtwo\r\r\x04thr")
        assert [await keys.line() for _ in range(4)] == ["one", "two", "", None]
        assert keys.open
    assert desk.screen.said == ["> one", "> two"]


async def test_what_is_typed_when_the_wait_ends_is_kept(desk: Desk) -> None:
    with desk.keyboard() as keys, anyio.fail_after(10):
        desk.press("hal")

        async with anyio.create_task_group() as group:
            group.start_soon(keys.line)
            while View("hal", 3) not in desk.screen.typed:
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        assert desk.screen.typed[-1] is None
        desk.press("f\r")
        assert await keys.line() == "half"


async def test_an_empty_prompt_shows_only_where_one_is_waited_for(desk: Desk) -> None:
    with desk.keyboard() as keys, anyio.fail_after(10):
        desk.press("\r\r")
        await keys.line()
        assert desk.screen.typed == [None, None]
        desk.screen.typed.clear()
        await keys.line(idle=True)
        desk.press("\r")
        await keys.line(idle=True)
        assert View("", 0) in desk.screen.typed


async def test_a_terminal_that_goes_away_ends_the_lines(desk: Desk) -> None:
    with desk.keyboard() as keys, anyio.fail_after(10):
        desk.hang_up()
        assert await keys.line() is None
        assert not keys.open


async def test_text_is_cleared_once(desk: Desk) -> None:
    with desk.keyboard() as keys:
        keys.put("again")
        assert keys.clear()
        assert not keys.clear()


async def test_the_settings_are_its_own_only_while_it_is_entered(desk: Desk) -> None:
    """Also after the shell has had the terminal, as for Ctrl-Z."""
    before = termios.tcgetattr(desk.keys)
    continued = signal.getsignal(signal.SIGCONT)
    with desk.keyboard() as keys:
        assert desk.is_raw()
        keys.restore()
        assert termios.tcgetattr(desk.keys) == before
        os.kill(os.getpid(), signal.SIGCONT)
        assert desk.is_raw()
    assert termios.tcgetattr(desk.keys) == before
    assert signal.getsignal(signal.SIGCONT) == continued


async def test_in_the_background_nothing_is_read_or_changed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either would stop the process."""
    ours = False
    monkeypatch.setattr(module, "_is_ours", lambda fd: ours)
    monkeypatch.setattr(module, "_IN_THE_BACKGROUND", 0)
    assert keyboard(desk.stdin, desk.err, desk.screen) is None
    ours = True
    with desk.keyboard() as keys, anyio.fail_after(10):
        keys.restore()
        ours = False
        desk.press("on\r")
        os.kill(os.getpid(), signal.SIGCONT)

        async def come_back() -> None:
            nonlocal ours
            for _ in range(10):
                await anyio.lowlevel.checkpoint()
            assert not desk.is_raw()
            ours = True

        async with anyio.create_task_group() as group:
            group.start_soon(come_back)
            assert await keys.line() == "on"
        assert desk.is_raw()
        ours = False
        keys.restore()
        assert desk.is_raw()


@pytest.mark.parametrize("missing", ["stdin", "tty", "err"])
async def test_there_is_none_without_a_person(desk: Desk, missing: str) -> None:
    pipe = io.StringIO()
    stdin = {"stdin": None, "tty": pipe, "err": desk.stdin}[missing]
    err = pipe if missing == "err" else desk.err
    assert keyboard(stdin, err, desk.screen) is None
