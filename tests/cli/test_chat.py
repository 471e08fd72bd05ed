"""`loopctl chat`: one session, input after input, from a pipe and from a terminal."""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from loopctl.cli.app import start
from loopctl.cli.chat import PipedLines
from loopctl.errors import AuthError, ContextOverflowError
from loopctl.messages import TextPart
from loopctl.models.client import ModelRequest
from loopctl.testing import (
    ScriptedClient,
    Stall,
    ThreadedByteServer,
    call,
    chat_pieces,
    chat_reply,
    respond_json,
    respond_sse,
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with a file."""
    (tmp_path / "notes.txt").write_text("the code is 42\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(logging.getLogger("loopctl"), "handlers", [])
    monkeypatch.delenv("LOOPCTL_DEBUG", raising=False)
    return tmp_path


@pytest.fixture
def chat(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """A chat whose input comes from a pipe: its exit code and what it printed."""

    def talk(client: ScriptedClient, *lines: str, options: tuple[str, ...] = ()) -> Any:
        text = "".join(f"{line}\n" for line in lines)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        arguments = ["chat", "--model", "scripted:m", *options]
        code = start(arguments, client_for=lambda name: client)
        said = capsys.readouterr()
        return code, said.out, said.err

    return talk


def texts(request: ModelRequest) -> list[str]:
    return [message.text for message in request.messages]


def pinned(request: ModelRequest) -> list[str]:
    return [part.text for part in request.messages[0].parts if isinstance(part, TextPart)]


# -- from a pipe --------------------------------------------------------------------------------


def test_one_session_answers_line_by_line(chat: Any) -> None:
    client = ScriptedClient("It is 42.", "Yes.")
    assert chat(client, "what is it?", "", "sure?") == (0, "It is 42.\nYes.\n", "")
    assert texts(client.requests[1]) == ["what is it?", "It is 42.", "sure?"]


def test_the_options_shape_it_as_they_shape_a_run(chat: Any) -> None:
    client = ScriptedClient("done")
    options = ("--system", "Be brief.", "--attach", "notes.txt", "--todo", "look")
    assert chat(client, "go", options=options)[0] == 0
    (request,) = client.requests
    assert request.system == "Be brief."
    assert pinned(request) == [
        "[file: notes.txt]\nthe code is 42\n",
        "[todo: session]\n- [ ] look",
    ]


def test_a_last_line_without_an_end_and_a_pipe_in_pieces() -> None:
    read, write = os.pipe()
    os.write(write, "one\ntwo\r\nthré".encode())
    os.close(write)

    async def everything() -> list[str | None]:
        with os.fdopen(read) as stdin:
            lines = PipedLines(stdin)
            return [await lines.line() for _ in range(4)]

    assert anyio.run(everything) == ["one", "two\r", "thré", None]


def test_an_error_is_one_line_and_the_chat_goes_on(chat: Any) -> None:
    client = ScriptedClient(AuthError("bad key"), "It is 42.", ValueError("oh"))
    code, out, err = chat(client, "go", "again", "and again")
    assert (code, out) == (1, "It is 42.\n")
    first, second = err.splitlines()
    assert first.startswith("Error: bad key")
    assert second.startswith("Error: unexpected ValueError: oh")
    assert texts(client.requests[1]) == ["again"]


def test_a_file_is_pinned_and_taken_away(chat: Any) -> None:
    client = ScriptedClient("one", "two")
    lines = ["/attach notes.txt", "go", "/detach", "/detach notes.txt", "/detach", "go"]
    code, out, err = chat(client, *lines)
    assert (code, out) == (0, "one\ntwo\n")
    assert pinned(client.requests[0]) == ["[file: notes.txt]\nthe code is 42\n"]
    assert texts(client.requests[1]) == ["go", "one", "go"]
    assert err.splitlines() == [
        "pinned file:notes.txt",
        "    file:notes.txt",
        "took file:notes.txt away",
        "nothing is pinned",
    ]


def test_things_to_do_are_added_and_checked_off(chat: Any) -> None:
    client = ScriptedClient("one", "two")
    lines = ["/todo", "/todo  read it ", "/todo done 1", "go", "/detach todo:session", "/todo"]
    code, _, err = chat(client, *lines, "go", options=("--todo", "look"))
    assert code == 0
    assert pinned(client.requests[0]) == ["[todo: session]\n- [x] look\n- [ ] read it"]
    assert texts(client.requests[1]) == ["go", "one", "go"]
    assert err.splitlines() == [
        "  1 [ ] look",
        "  1 [ ] look",
        "  2 [ ] read it",
        "  1 [x] look",
        "  2 [ ] read it",
        "took todo:session away",
        "there is nothing to do; /todo TEXT adds something",
    ]


def test_explain_shows_the_next_request_of_this_session(chat: Any) -> None:
    """ENG-26: with the conversation so far; the model is not called."""
    client = ScriptedClient("It is 42.")
    code, out, _ = chat(client, "what is it?", "/explain and then", "/explain")
    assert code == 0
    assert len(client.requests) == 1
    answer, *table = out.splitlines()
    assert answer == "It is 42."
    rows = [line.split()[:3] for line in table if line.startswith("conversation")]
    assert (
        rows
        == [
            ["conversation", "conversation", "user"],
            ["conversation", "conversation", "assistant"],
            ["conversation", "input", "user"],
        ]
        * 2
    )
    assert table.count("next: the model is called") == 2


def test_compact_says_what_came_of_it(chat: Any) -> None:
    """CMP-7: a manual pass."""
    client = ScriptedClient(*["word " * 200] * 8)
    inputs = [f"say something, number {number}" for number in range(8)]
    code, _, err = chat(client, "/compact", *inputs, "/compact 1, 2", options=("--window", "3000"))
    assert code == 0
    first, *_, last = err.splitlines()
    assert first.startswith("compaction changed nothing: ")
    assert last.startswith("compacted the conversation: ")


def test_clear_forgets_the_conversation_alone(chat: Any) -> None:
    client = ScriptedClient("one", "two")
    code, _, err = chat(client, "/todo look", "go", "/clear", "again")
    assert code == 0
    assert err.splitlines()[-1] == "the conversation is forgotten"
    assert texts(client.requests[1]) == ["[todo: session]\n- [ ] look", "again"]


def test_help_lists_every_command_and_quit_leaves(chat: Any) -> None:
    client = ScriptedClient()
    code, out, err = chat(client, "/help", "/quit", "never")
    assert (code, out) == (0, "")
    listed = [line.split()[0] for line in err.splitlines() if line.strip().startswith("/")]
    names = ["explain", "compact", "attach", "todo", "detach", "clear", "help", "quit"]
    assert listed == [f"/{name}" for name in names]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("/hepl", "there is no /hepl; did you mean /help?"),
        ("/xyzzy", "there is no /xyzzy; /help lists the commands"),
        ("/", "there is no /; /help lists the commands"),
        ("/attach", "/attach: name a file"),
        ("/attach gone.txt", "/attach gone.txt: No such file or directory"),
        ("/todo done 2", "/todo done 2: there are 0 things to do"),
        ("/detach file:x", "/detach: file:x is not pinned; /detach lists what is pinned"),
        ("/detach file:note.txt", "/detach: file:note.txt is not pinned; did you mean file:notes"),
    ],
)
def test_what_a_command_cannot_do_is_one_line(chat: Any, line: str, says: str) -> None:
    options = ("--attach", "notes.txt") if "note." in line else ()
    code, _, err = chat(ScriptedClient("done"), line, "go", options=options)
    assert code == 0
    assert err.startswith(says)
    assert err.count("\n") == 1


def test_a_line_that_begins_with_a_blank_is_said_to_the_model(chat: Any) -> None:
    client = ScriptedClient("done")
    assert chat(client, " /etc/passwd is what?")[:2] == (0, "done\n")
    assert texts(client.requests[0]) == ["/etc/passwd is what?"]


def test_what_is_too_long_from_a_pipe_ends_its_run_only(chat: Any) -> None:
    """CTX-33: the input is handed back, and not in the conversation."""
    client = ScriptedClient(*[ContextOverflowError("too long")] * 2, "done")
    code, out, err = chat(client, "word " * 100, "short")
    assert (code, out) == (1, "done\n")
    assert "does not fit the model's window" in err
    assert texts(client.requests[-1]) == ["short"]


def test_nothing_of_a_chat_is_left(chat: Any, no_threads_or_sockets_left: None) -> None:
    assert chat(ScriptedClient("done"), "go")[0] == 0


# -- from a terminal ----------------------------------------------------------------------------

PROMPT = "> \r\x1b[2C"
"""An empty one, with the cursor in it."""


def stalled(server: ThreadedByteServer, text: str) -> Stall:
    stall = Stall()
    pieces = chat_pieces(text, delta_chars=6)
    server.play(respond_sse(*pieces[:3], stall, *pieces[3:]))
    return stall


@pytest.fixture
def talk(launch: Any) -> Any:
    """A chat on a terminal, at its first prompt."""
    command = launch(command="chat", terminal=True)
    command.then("Ctrl-D leaves")
    command.then(PROMPT)
    return command


def messages(server: ThreadedByteServer, request: int) -> list[Any]:
    return [each["content"] for each in server.requests[request].json()["messages"]]


def test_a_person_talks_steers_and_leaves(server: ThreadedByteServer, talk: Any) -> None:
    """CTX-23: steering and commands, while the answer is being written."""
    stall = stalled(server, "The answer is forty-two.")
    server.play(chat_reply("Hello."), chat_reply("Bye."))
    talk.type("what is it?\r")
    talk.then("The an")
    talk.type("/todo greet\r")
    talk.then("1 [ ] greet")
    talk.type("/clear\r")
    talk.then("/clear: not while a run works; Ctrl-C stops it")
    talk.type("greet me\r")
    talk.then("> greet me")
    stall.release()
    talk.then(">> greet me")
    talk.then("Hello.")
    talk.then(PROMPT)
    talk.type("/todo done 1\r")
    talk.then("1 [x] greet")
    talk.type("\x1b[A\x1b[A\r")  # what was said before
    talk.then("Bye.")
    talk.then(PROMPT)
    talk.type("\x04")
    assert talk.wait() == 0
    assert messages(server, 1)[0].startswith("[todo: session]\n- [ ] greet\n")
    assert messages(server, 1)[-1] == "greet me"
    assert messages(server, 2)[-1] == "greet me"
    assert talk.modes == talk.modes_before


def test_ctrl_c_stops_the_run_then_the_line_then_the_chat(
    server: ThreadedByteServer, talk: Any
) -> None:
    """ENG-19: each Ctrl-C ends the least that there is."""
    stalled(server, "The answer is")
    server.play(chat_reply("It is 42."))
    talk.type("go\r")
    talk.then("The an")
    talk.type("\x03")
    talk.then("stopped in turn 0, while the model answers")
    talk.then(PROMPT)
    talk.type("again\r")
    talk.then("It is 42.")
    talk.then(PROMPT)
    talk.type("half a line")
    talk.then("> half a line")
    talk.type("\x03")
    talk.then(PROMPT)
    talk.type("\x03")
    assert talk.wait() == 0
    assert "Traceback" not in talk.out
    assert talk.modes == talk.modes_before


def test_an_input_that_was_not_taken_is_in_the_prompt_again(
    server: ThreadedByteServer, talk: Any
) -> None:
    """ENG-18: Enter is the natural retry."""
    error = {"error": {"message": "no such model", "type": "invalid_request_error"}}
    server.play(respond_json(error, status=404), chat_reply("It is 42."))
    talk.type("what is it?\r")
    talk.then("no such model")
    talk.then("> what is it?\r\x1b[13C")
    talk.type("\r")
    talk.then("It is 42.")
    talk.type("/quit\r")
    assert talk.wait() == 0


def test_an_input_that_the_conversation_holds_is_not(server: ThreadedByteServer, talk: Any) -> None:
    """ENG-18: after a complete turn the run's coherent part stays."""
    error = {"error": {"message": "no such model", "type": "invalid_request_error"}}
    server.play(
        chat_reply(call("read_text_file", path="notes.txt")), respond_json(error, status=404)
    )
    talk.type("what is it?\r")
    talk.then("no such model")
    talk.then(PROMPT)
    talk.type("\x04")
    assert talk.wait() == 0


def test_a_command_that_began_while_a_run_worked_is_done_to_its_end(
    server: ThreadedByteServer, talk: Any, folder: Path
) -> None:
    os.mkfifo(folder / "pipe")
    stall = stalled(server, "The answer is 42.")
    talk.type("go\r")
    talk.then("The an")
    talk.type("/attach pipe\r")
    with (folder / "pipe").open("wb") as pipe:  # from here on it is being read
        stall.release()
        talk.then("s 42.")
        talk.then("preparing the next step")
        talk.then("\x1b[2K")  # the run has ended
        pipe.write(b"late")
    talk.then("pinned file:pipe")
    talk.then(PROMPT)
    talk.type("\x04")
    assert talk.wait() == 0


def test_an_input_that_does_not_fit_is_in_the_prompt_again(
    server: ThreadedByteServer, talk: Any
) -> None:
    """CTX-33: `ContextExceeded` gives the input back."""
    error = {"error": {"message": "too long", "code": "context_length_exceeded"}}
    server.play(*[respond_json(error, status=400)] * 2)
    talk.type("word word\r")
    talk.then("does not fit the model's window")
    talk.then("> word word\r\x1b[11C")
    talk.type("\x15\x04")
    assert talk.wait() == 0


def test_quit_stops_a_run(server: ThreadedByteServer, talk: Any) -> None:
    stalled(server, "The answer is")
    talk.type("go\r")
    talk.then("The an")
    talk.type("/quit\r")
    assert talk.wait() == 0
    server.wait_closed()


def test_the_terminal_may_go_away(server: ThreadedByteServer, talk: Any) -> None:
    talk.hang_up()
    talk.process.wait(20)


def test_ctrl_c_ends_a_chat_from_a_pipe(launch: Any) -> None:
    """A read that waits holds nothing up, not even the interpreter's end."""
    read, write = os.pipe()
    command = launch(command="chat", stdin=read)
    os.close(read)
    os.write(write, b"/todo look\n")
    command.wait_for("1 [ ] look")
    command.interrupt()
    assert command.wait() == 130
    os.close(write)
    assert command.err == "  1 [ ] look\n"


def test_a_call_of_a_tool_shows_in_a_chat(chat: Any) -> None:
    client = ScriptedClient(call("read_text_file", path="notes.txt"), "42")
    _, out, err = chat(client, "go")
    assert out == "42\n"
    assert err.startswith("-> read_text_file(path='notes.txt')\n")
