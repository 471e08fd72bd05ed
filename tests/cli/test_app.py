"""The command in this process, with a scripted model."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loopctl.cli.app import start
from loopctl.errors import AuthError
from loopctl.events import RunEnded, from_json
from loopctl.messages import Message, TextPart
from loopctl.replies import ModelResponse, StopReason
from loopctl.testing import ScriptedClient, call

MINE = """
import loopctl

@loopctl.tool
def add(a: int, b: int) -> int:
    \"\"\"Add two numbers.\"\"\"
    print("a tool prints this")
    return a + b

def fail() -> str:
    \"\"\"Fail.\"\"\"
    raise RuntimeError("it broke")

def read_text_file(path: str) -> str:
    \"\"\"Read another way.\"\"\"
    return "mine"

several = [add, fail]
nothing = 3
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current folder with a few files; what the command does to its process is undone."""
    (tmp_path / "notes.txt").write_text("the code is 42\n", encoding="utf-8")
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(logging.getLogger("loopctl"), "handlers", [])
    monkeypatch.delenv("LOOPCTL_DEBUG", raising=False)
    yield tmp_path
    sys.modules.pop("mine", None)


def run(client: ScriptedClient, *options: str, task: str = "go") -> int:
    arguments = ["run", "--model", "scripted:m", *options, task]
    return start(arguments, client_for=lambda name: client)


def test_the_answer_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(ScriptedClient("It is 42.")) == 0
    assert capsys.readouterr() == ("It is 42.\n", "")


def test_the_model_that_was_chosen_is_connected() -> None:
    asked: list[str] = []

    def client_for(name: str) -> ScriptedClient:
        asked.append(name)
        return ScriptedClient("done")

    assert start(["run", "go", "--model", "some:model"], client_for=client_for) == 0
    assert asked == ["some:model"]


def test_the_request_holds_what_the_options_say(folder: Path) -> None:
    client = ScriptedClient("done")
    options = ["--system", "Be brief.", "--attach", "notes.txt", "--attach", "mine.py"]
    options += ["--todo", "look", "--todo", "answer", "--tools", "mine:several"]
    assert run(client, *options, task="the task") == 0
    (request,) = client.requests
    assert request.system == "Be brief."
    assert [tool.name for tool in request.tools] == ["read_text_file", "add", "fail"]
    pinned, task = request.messages
    assert [part.text for part in pinned.parts if isinstance(part, TextPart)] == [
        "[file: notes.txt]\nthe code is 42\n",
        f"[file: mine.py]\n{MINE}",
        "[todo: session]\n- [ ] look\n- [ ] answer",
    ]
    assert task.text == "the task"


def test_without_options_the_request_is_bare_but_for_the_safe_tool() -> None:
    client = ScriptedClient("done")
    assert run(client) == 0
    (request,) = client.requests
    assert request.system is None
    assert [message.text for message in request.messages] == ["go"]
    assert [tool.name for tool in request.tools] == ["read_text_file"]


def test_the_default_tool_reads_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    client = ScriptedClient(["Let me look.", call("read_text_file", path="notes.txt")], "42")
    assert run(client) == 0
    assert client.requests[1].messages[-1].results[0].text == "the code is 42\n"
    out, err = capsys.readouterr()
    assert out == "42\n"
    asked, answered = err.splitlines()
    assert asked == "-> read_text_file(path='notes.txt')"
    assert answered.startswith("<- read_text_file: the code is 42 (")


def test_the_task_comes_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("wie spät?".encode())))
    client = ScriptedClient("done")
    assert run(client, task="-") == 0
    assert client.requests[0].messages[0].text == "wie spät?"


def test_the_goal_is_repeated_every_so_many_turns() -> None:
    add = call("add", a=1, b=2)
    client = ScriptedClient(add, add, add, "done")
    options = ["--tools", "mine:add", "--goal-reminder", "2"]
    assert run(client, *options, task="sum it up") == 0
    reminded = [
        any(m.role.value == "system" and "sum it up" in m.text for m in request.messages)
        for request in client.requests
    ]
    assert reminded == [False, False, True, False]


def test_the_window_and_its_threshold_are_what_the_options_say(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """CTX-30, CTX-31: the soft line is so many per cent of the window."""
    task = "word " * 100
    assert run(ScriptedClient("done"), "--window", "200", "--threshold", "99", task=task) == 0
    assert capsys.readouterr().err == ""
    assert run(ScriptedClient("done"), "--window", "200", "--threshold", "70", task=task) == 0
    assert "compacted the conversation: " in capsys.readouterr().err


def test_a_window_that_is_a_guess_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    """CTX-30: 128,000 with one warning; 0 switches the lines off, and the warning."""
    arguments = ["run", "--model", "scripted:m", "go"]
    client = ScriptedClient("done", "done", context_window=None)
    assert start(arguments, client_for=lambda name: client) == 0
    out, err = capsys.readouterr()
    assert out == "done\n"
    guess = "the window of scripted is unknown, 128000 tokens are assumed; --window N sets it\n"
    assert err == guess
    assert run(client, "--window", "0", task="word " * 200_000) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("as_json", [False, True])
def test_what_an_event_has_told_is_not_told_again_as_a_warning(
    capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    cut = ModelResponse(message=Message.assistant("It is 4"), stop_reason=StopReason.LENGTH)
    assert run(ScriptedClient(cut), *["--json"] * as_json) == 0
    assert capsys.readouterr().err == ("" if as_json else "the output limit cut the reply\n")


def test_too_many_turns_have_an_exit_code_of_their_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    add = call("add", a=1, b=2)
    assert run(ScriptedClient(add, add), "--tools", "mine:add", "--max-turns", "2") == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1] == "Error: no answer after 2 turns; --max-turns allows more"


def test_a_refusal_has_an_exit_code_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    refusal = ModelResponse(
        message=Message.assistant(""), stop_reason=StopReason.REFUSAL, refusal="I would rather not"
    )
    assert run(ScriptedClient(refusal)) == 4
    assert "I would rather not" in capsys.readouterr().err


def test_a_failed_call_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    client = ScriptedClient(AuthError("bad\nkey", provider="scripted", status=401))
    assert run(client) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "Error: scripted: bad key (status 401); check the key and what it may use\n"


def test_a_fault_of_ours_is_one_line_unless_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(ScriptedClient(ZeroDivisionError("oh"))) == 1
    said = "Error: unexpected ZeroDivisionError: oh; LOOPCTL_DEBUG=1 shows where\n"
    assert capsys.readouterr().err == said
    monkeypatch.setenv("LOOPCTL_DEBUG", "1")
    assert run(ScriptedClient(ZeroDivisionError("oh"))) == 1
    err = capsys.readouterr().err
    assert err.startswith("Traceback")
    assert err.endswith(said)


def test_a_tool_that_fails_shows_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    """TOL-9: one failing tool costs its own result."""
    assert run(ScriptedClient(call("fail"), "done"), "--tools", "mine:fail") == 0
    out, err = capsys.readouterr()
    assert out == "done\n"
    assert "<- fail failed: RuntimeError: it broke" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("as_json", [False, True])
def test_what_tools_print_stays_out_of_the_answer(
    capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    options = ["--tools", "mine:add", *["--json"] * as_json]
    assert run(ScriptedClient(call("add", a=1, b=2), "3"), *options) == 0
    out, err = capsys.readouterr()
    assert "a tool prints this" not in out
    assert "a tool prints this" in err


def test_json_prints_every_event_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    """ENG-24: each line loads as the event that it was made of."""
    assert run(ScriptedClient(call("read_text_file", path="notes.txt"), "42"), "--json") == 0
    out, err = capsys.readouterr()
    events = [from_json(line) for line in out.splitlines()]
    names = [type(event).__name__ for event in events]
    assert names[0] == "RunStarted"
    assert {"TurnStarted", "ToolStarted", "ToolFinished", "TextDelta"} <= set(names)
    assert isinstance(events[-1], RunEnded)
    assert events[-1].output == "42"
    assert err == ""


def test_json_tells_of_a_run_that_failed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(ScriptedClient(AuthError("bad key")), "--json") == 1
    out, err = capsys.readouterr()
    last = from_json(out.splitlines()[-1])
    assert isinstance(last, RunEnded)
    assert (last.ending, last.output) == ("failed", None)
    assert err.count("\n") == 1


@pytest.mark.filterwarnings("default")
def test_a_tool_may_take_the_default_ones_place_and_it_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    client = ScriptedClient(call("read_text_file", path="x"), "done")
    assert run(client, "--tools", "mine:read_text_file") == 0
    assert client.requests[1].messages[-1].results[0].text == "mine"
    first, *_ = capsys.readouterr().err.splitlines()
    assert "read_text_file" in first
    assert "mine.py" not in first


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--attach", "gone.txt"], "--attach gone.txt: No such file"),
        (["--tools", "gone:x"], "--tools gone:x: no module 'gone'"),
        (["--tools", "mine:nothing"], "3"),
        (["--max-turns", "0"], "0 is not in the range"),
        (["--goal-reminder", "-1"], "-1 is not in the range"),
        (["--window", "-1"], "-1 is not in the range"),
        (["--threshold", "0"], "0.0 is not in the range"),
        (["--max-turns", "few"], "'few' is not a valid integer"),
        (["--no-such-option"], "No such option"),
    ],
)
def test_a_command_that_cannot_work_says_so_before_anything_is_sent(
    capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    client = ScriptedClient("done")
    assert run(client, *options) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert client.requests == []
    assert said in err.splitlines()[-1]


def test_a_blank_task_and_a_missing_one_are_errors_of_usage(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(ScriptedClient(), task=" ") == 2
    assert "the task is empty" in capsys.readouterr().err
    assert start(["run"]) == 2
    assert "Missing argument 'TASK'" in capsys.readouterr().err


def test_an_unknown_provider_is_an_error_of_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """MOD-6: the known ones and the nearest match."""
    assert start(["run", "go", "--model", "openai-chad:m"]) == 2
    err = capsys.readouterr().err
    assert "did you mean 'openai-chat'" in err
    assert err.count("\n") == 1


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert start(["--version"]) == 0
    assert capsys.readouterr().out.startswith("loopctl ")
    assert start(["run", "--help"]) == 0
    text = capsys.readouterr().out
    assert "130  stopped by Ctrl-C" in text
    assert start(["--help"]) == 0
    assert "run " in capsys.readouterr().out


def test_nothing_of_a_run_is_left(no_threads_or_sockets_left: None) -> None:
    assert run(ScriptedClient(call("add", a=1, b=2), "3"), "--tools", "mine:add") == 0
