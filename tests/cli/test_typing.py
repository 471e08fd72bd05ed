"""CTX-23: what is typed on a real terminal while a run works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loopctl.testing import (
    Stall,
    ThreadedByteServer,
    call,
    chat_pieces,
    chat_reply,
    respond_sse,
)

TOOLS = '''
import anyio


async def hold_on() -> str:
    """Wait, and take no notice of being cancelled."""
    with anyio.CancelScope(shield=True):
        await anyio.sleep_forever()
    return "never"
'''


@pytest.fixture(autouse=True)
def tools(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(TOOLS, encoding="utf-8")


def said_last(server: ThreadedByteServer, request: int) -> Any:
    return server.requests[request].json()["messages"][-1]


def stalled(server: ThreadedByteServer, text: str, then: str) -> Stall:
    """A reply that stops in its middle, and another one."""
    stall = Stall()
    pieces = chat_pieces(text, delta_chars=6)
    server.play(respond_sse(*pieces[:3], stall, *pieces[3:]), chat_reply(then))
    return stall


def test_a_typed_line_steers_the_run(server: ThreadedByteServer, launch: Any) -> None:
    """CTX-23: it comes while the model writes its answer, so there is another turn."""
    stall = stalled(server, "The answer is forty-two.", "And hello.")
    command = launch("go", terminal=True)
    command.wait_for("The an")
    command.type("say hellp\x7fo t")
    command.wait_for("> say hello t")
    command.type("oo\r")
    command.wait_for("> say hello too")
    stall.release()
    command.wait_for(">> say hello too")
    assert command.wait() == 0
    assert said_last(server, 1) == {"role": "user", "content": "say hello too"}
    assert "not delivered" not in command.out
    assert command.out.index(">> say hello too") < command.out.index("And hello.")
    assert command.modes == command.modes_before


def test_a_line_that_was_not_entered_is_not_said(server: ThreadedByteServer, launch: Any) -> None:
    stall = stalled(server, "The answer is forty-two.", "never")
    command = launch("go", terminal=True)
    command.wait_for("The an")
    command.type("\r  \rbut")
    command.wait_for("> but")
    stall.release()
    assert command.wait() == 0
    assert len(server.requests) == 1
    assert "not delivered" not in command.out


def test_the_prompt_shows_only_once_something_is_typed(
    server: ThreadedByteServer, launch: Any
) -> None:
    server.play(chat_reply("It is 42."))
    command = launch("go", terminal=True)
    assert command.wait() == 0
    assert "> " not in command.out.replace("-> ", "")
    assert "(type to steer)" in command.out


def test_ctrl_c_is_a_signal_all_the_same_and_what_was_not_delivered_is_said(
    server: ThreadedByteServer, launch: Any
) -> None:
    """ENG-19: a key of the terminal, while somebody types."""
    stalled(server, "The answer is", "never")
    command = launch("go", terminal=True)
    command.wait_for("The an")
    command.type("be\x1b[200~ quick\rplease\x1b[201~\r")
    command.wait_for("please")
    command.type("and\x03")
    assert command.wait() == 130
    assert "not delivered: be quick please\n" in command.out
    assert "stopped in turn 0, while the model answers\n" in command.out
    assert command.modes == command.modes_before


def test_a_second_ctrl_c_leaves_the_terminal_as_it_was(
    server: ThreadedByteServer, launch: Any
) -> None:
    server.play(chat_reply(call("hold_on")))
    command = launch("go", "--tools", "mine:hold_on", terminal=True)
    command.wait_for("-> hold_on()")
    command.type("x\x03")
    command.wait_for("stopping; Ctrl-C again exits at once")
    command.type("\x03")
    assert command.wait() == 130
    assert command.out.endswith("stopped at once\n")
    assert command.modes == command.modes_before


def test_a_run_in_the_background_leaves_the_terminal_alone(
    server: ThreadedByteServer, launch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To change the settings of a terminal from there would stop the process."""
    monkeypatch.setenv("IN_THE_BACKGROUND", "1")
    server.play(chat_reply("It is 42."))
    command = launch("go", terminal=True)
    assert command.wait() == 0
    assert "It is 42." in command.out
    assert "type to steer" not in command.out


def test_json_takes_no_keys(server: ThreadedByteServer, launch: Any) -> None:
    stall = stalled(server, "The answer is forty-two.", "never")
    command = launch("go", "--json", terminal=True)
    command.wait_for("The an")
    assert command.modes == command.modes_before
    stall.release()
    assert command.wait() == 0
