"""The command as people and scripts use it: a process, pipes, a terminal, real signals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loopctl.events import RunEnded, from_json
from loopctl.testing import (
    Close,
    Stall,
    ThreadedByteServer,
    call,
    chat_chunk,
    chat_pieces,
    chat_reply,
    respond_json,
    respond_sse,
    sse,
)

TOOLS = '''
import sys
import threading

import anyio


async def wait() -> str:
    """Wait."""
    await anyio.sleep_forever()
    return "never"


def wait_in_a_thread() -> str:
    """Wait."""
    threading.Event().wait()
    return "never"


async def hold_on() -> str:
    """Wait, and take no notice of being cancelled."""
    with anyio.CancelScope(shield=True):
        await anyio.sleep_forever()
    return "never"


async def block() -> str:
    """Stop the event loop."""
    print("the event loop stands still", file=sys.stderr, flush=True)
    threading.Event().wait()
    return "never"


every = [wait, wait_in_a_thread, hold_on, block]
'''


@pytest.fixture(autouse=True)
def tools(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(TOOLS, encoding="utf-8")
    (tmp_path / "notes.txt").write_text("the code is 42\n", encoding="utf-8")


def test_a_pipe_gets_the_answer(server: ThreadedByteServer, launch: Any) -> None:
    server.play(chat_reply(call("read_text_file", path="notes.txt")), chat_reply("It is 42.\n"))
    command = launch("what is the code?")
    assert command.wait() == 0
    assert command.out == "It is 42.\n"
    assert command.err.startswith("-> read_text_file(path='notes.txt')\n<- read_text_file: the")
    assert "\x1b" not in command.out + command.err
    assert server.requests[1].json()["messages"][-1]["content"] == "the code is 42\n"


def test_a_terminal_shows_text_before_the_reply_is_complete(
    server: ThreadedByteServer, launch: Any
) -> None:
    stall = Stall()
    pieces = chat_pieces("The answer is forty-two.", delta_chars=6)
    server.play(respond_sse(*pieces[:3], stall, *pieces[3:]))
    command = launch("go", terminal=True)
    command.wait_for("The an")
    assert "forty" not in command.out
    stall.release()
    assert command.wait() == 0
    assert "The answer is forty-two.\n" in command.out
    assert "waiting for the model" in command.out
    assert command.out.rindex("\x1b[?25h") > command.out.rindex("\x1b[?25l")


def test_a_terminal_is_told_that_a_broken_reply_is_void(
    server: ThreadedByteServer, launch: Any
) -> None:
    """ENG-25, E3: the failed attempt is void; a pipe holds one copy of the text."""
    broken = chat_reply("It is forty-three, I think.", broken_by=Close())
    server.play(broken, chat_reply("It is 42."), broken, chat_reply("It is 42."))
    command = launch("go", terminal=True)
    assert command.wait() == 0
    before, void, after = command.out.partition("attempt 1 failed, what it said is void")
    assert "It is forty" in before
    assert void
    assert "It is 42.\n" in after
    command = launch("go")
    assert command.wait() == 0
    assert command.out == "It is 42.\n"


def test_nothing_a_model_says_steers_the_terminal(server: ThreadedByteServer, launch: Any) -> None:
    evil = "\x1b]0;owned\x07\x9b31m[bold]x[/bold]"
    server.play(chat_reply([evil, call(evil, path=evil)]), chat_reply(evil))
    command = launch("go", terminal=True)
    assert command.wait() == 0
    assert "owned\\x07\\x9b31m[bold]x[/bold]" in command.out
    for steering in ("\x1b]", "\x07", "\x9b"):
        assert steering not in command.out


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_no_character_is_too_much_for_an_encoding(
    server: ThreadedByteServer, launch: Any, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H4: a lone surrogate, U+2028 and characters that the terminal lacks."""
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    chunks = [
        chat_chunk({"content": "⚙ é \ud83d \u2028 end"}),
        chat_chunk({}, finish_reason="stop"),
    ]
    answer = respond_sse(*(sse(json.dumps(chunk)) for chunk in chunks), sse("[DONE]"))
    server.play(answer, answer)
    task = os.fsdecode("⚙ caf".encode() + b"\xe9")
    for terminal in (False, True):
        command = launch(task, terminal=terminal)
        assert command.wait() == 0
        raw = command.raw
        assert b"end" in raw
        assert (b"\\u2699" in raw) is (encoding != "utf-8")
        assert b"\\ud83d" in raw
        assert b"Traceback" not in raw


def test_json_lines_load_as_events(server: ThreadedByteServer, launch: Any) -> None:
    """ENG-24: events.to_json, one line each, and nothing else on standard output."""
    server.play(chat_reply(call("read_text_file", path="notes.txt")), chat_reply("ü ⚙"))
    command = launch("go", "--json")
    assert command.wait() == 0
    events = [from_json(line) for line in command.out.splitlines()]
    assert isinstance(events[-1], RunEnded)
    assert events[-1].output == "ü ⚙"
    assert command.err == ""


def test_ctrl_c_stops_a_model_call_and_says_where(server: ThreadedByteServer, launch: Any) -> None:
    """ENG-19: immediate, orderly, the connection is closed."""
    stall = Stall()
    server.play(respond_sse(*chat_pieces("The answer is")[:3], stall))
    command = launch("go", terminal=True)
    command.wait_for("The answer")
    command.interrupt()
    assert command.wait() == 130
    assert "stopped in turn 0, while the model answers\n" in command.out
    assert "Traceback" not in command.out
    server.wait_closed()


@pytest.mark.parametrize("name", ["wait", "wait_in_a_thread"])
def test_ctrl_c_stops_a_tool_and_names_it(
    server: ThreadedByteServer, launch: Any, name: str
) -> None:
    """ENG-19, TOL-7: also a sync tool that nothing can stop does not hold the process."""
    server.play(chat_reply(call(name)))
    command = launch("go", "--tools", "mine:every", "--json")
    command.wait_for('"type":"ToolStarted"')
    command.interrupt()
    assert command.wait() == 130
    last = from_json(command.out.splitlines()[-1])
    assert isinstance(last, RunEnded)
    assert last.ending == "cancelled"
    first, second = command.err.splitlines()
    assert first == "stopping; Ctrl-C again exits at once"
    assert second == f"stopped in turn 0, while running {name}"


@pytest.mark.parametrize("terminal", [False, True])
def test_ctrl_c_twice_exits_at_once(
    server: ThreadedByteServer, launch: Any, terminal: bool
) -> None:
    server.play(chat_reply(call("hold_on")))
    command = launch("go", "--tools", "mine:every", terminal=terminal)
    command.wait_for("-> hold_on()")
    command.interrupt()
    command.wait_for("stopping; Ctrl-C again exits at once")
    assert command.process.poll() is None
    command.interrupt()
    assert command.wait() == 130
    said = command.out if terminal else command.err
    assert said.endswith("stopped at once\n")
    if terminal:
        assert said.rindex("\x1b[?25h") > said.rindex("\x1b[?25l")


def test_ctrl_c_twice_exits_even_when_the_event_loop_stands_still(
    server: ThreadedByteServer, launch: Any
) -> None:
    server.play(chat_reply(call("block")))
    command = launch("go", "--tools", "mine:every")
    command.wait_for("the event loop stands still")
    for _ in range(200):  # signals that come together are one
        command.interrupt()
        try:
            command.process.wait(0.1)
            break
        except subprocess.TimeoutExpired:
            continue
    assert command.wait() == 130
    assert command.err.endswith("stopped at once\n")


def test_ctrl_c_before_the_run_is_quiet_too(
    server: ThreadedByteServer, launch: Any, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    command = launch("go", "--attach", "pipe")
    with (tmp_path / "pipe").open("wb"):  # from here on it waits for what is written
        command.interrupt()
        assert command.wait() == 130
    assert command.err.strip() == "stopped before the run began"


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_reader_that_leaves_ends_it_quietly(
    server: ThreadedByteServer, launch: Any, options: tuple[str, ...]
) -> None:
    stall = Stall()
    pieces = chat_pieces("one\n" * 100)
    server.play(respond_sse(*pieces[:5], stall, *pieces[5:]))
    command = launch("go", *options)
    server.wait_reached(stall)
    command.stop_listening()
    stall.release()
    assert command.wait() == 141
    assert command.err == ""


def test_a_failure_of_the_server_is_one_line(server: ThreadedByteServer, launch: Any) -> None:
    error = {"error": {"message": "no such model", "type": "invalid_request_error"}}
    server.play(respond_json(error, status=404))
    command = launch("go")
    assert command.wait() == 1
    assert command.out == ""
    assert command.err.startswith("Error: openai-chat:m: no such model (status 404")
    assert command.err.count("\n") == 1


def test_a_file_too_large_for_one_request_says_what_is_shown(
    server: ThreadedByteServer, launch: Any, tmp_path: Path
) -> None:
    """CTX-13: what was cut is said to the model."""
    (tmp_path / "big.txt").write_text("x" * 10_000, encoding="utf-8")
    server.play(chat_reply("done"))
    assert launch("go", "--attach", "big.txt").wait() == 0
    sent = str(server.requests[0].json()["messages"])
    assert "[truncated: 8192 of 10000 bytes shown]" in sent


@pytest.mark.parametrize("lacking", ["click", "rich"])
def test_without_its_extra_the_command_names_it(tmp_path: Path, lacking: str) -> None:
    code = f"import sys; sys.modules[{lacking!r}] = None;"
    code += "from loopctl.cli import main; sys.exit(main())"
    made = subprocess.run(
        [sys.executable, "-c", code, "run", "go"],
        capture_output=True,
        check=False,
        text=True,
        cwd=tmp_path,
    )
    assert made.returncode == 2
    assert made.stderr == 'the loopctl command needs: pip install "loopctl[cli]"\n'
    assert made.stdout == ""


def test_the_console_script_is_there(tmp_path: Path) -> None:
    script = Path(sys.executable).with_name("loopctl")
    made = subprocess.run(
        [script, "--version"], capture_output=True, check=True, text=True, cwd=tmp_path
    )
    assert made.stdout.startswith("loopctl ")
