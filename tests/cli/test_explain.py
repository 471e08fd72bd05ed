"""`loopctl explain`: what the next request would hold, without a model (ENG-26)."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest

from loopctl.cli import models
from loopctl.cli.app import start
from loopctl.cli.requests import encoded, show
from loopctl.cli.terminal import Terminal
from loopctl.errors import ConfigError
from loopctl.messages import Message
from loopctl.models.client import HttpRequest, ModelClient, ModelRequest
from loopctl.models.local import is_installed
from loopctl.models.providers import PROVIDERS
from loopctl.testing import ScriptedClient, ThreadedByteServer, chat_reply
from tests.installed_plugins import Site, on_path

NOTED = ["--attach", "notes.txt", "--todo", "look", "--system", "Be brief."]

BROKEN = """
import loopctl

class Plugin:
    @loopctl.hookimpl
    def contribute(self, ctx):
        raise OSError("no git")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with a file, and no key in the environment."""
    here = tmp_path / "here"
    here.mkdir()
    (here / "notes.txt").write_text("the code is 42\n", encoding="utf-8")
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(logging.getLogger("loopctl"), "handlers", [])
    for provider in PROVIDERS.values():
        for name in (*provider.keys, *provider.urls, *provider.headers.values()):
            monkeypatch.delenv(name, raising=False)
    for name in ("LOOPCTL_MODEL", "LOOPCTL_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    return here


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A folder to install plugins into."""
    monkeypatch.delenv("LOOPCTL_PLUGINS", raising=False)
    monkeypatch.setattr(
        "loopctl.installed.distributions", lambda: distributions(path=[str(tmp_path)])
    )
    yield from on_path(tmp_path)


def explain(*options: str, client: ModelClient | None = None, task: str = "go") -> int:
    client = client or ScriptedClient(context_window=8_000)
    arguments = ["explain", "--model", "scripted:m", *options, task]
    return start(arguments, client_for=lambda name: client)


def test_a_table_a_bar_and_a_decision_are_printed(
    capsys: pytest.CaptureFixture[str], site: Site
) -> None:
    """ENG-26: the options shape it as they shape a run; plugins are asked."""
    site.install("clock")
    site.install("git", BROKEN)
    client = ScriptedClient(context_window=8_000)
    assert explain(*NOTED, "--goal-reminder", "3", client=client) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert client.requests == []
    rows = [line.split() for line in out.partition("\n\n")[0].splitlines()]
    assert [row[:3] for row in rows] == [
        ["place", "origin", "name"],
        ["beside", "system", "system"],
        ["beside", "tool", "read_text_file"],
        ["head", "attachment", "file:notes.txt"],
        ["head", "attachment", "todo:session"],
        ["head", "contributor", "Plugin"],
        ["conversation", "input", "user"],
    ]
    assert rows[5][3] == "clock"
    assert "window 8,000" in out
    assert "next: the model is called\n" in out
    assert "  GoalReminder (" in out
    assert "  Plugin of git: OSError: no git" in out
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 80


def test_the_window_of_the_options_decides(capsys: pytest.CaptureFixture[str]) -> None:
    """CTX-31: over the threshold a pass comes first."""
    task = "word " * 100
    assert explain("--window", "200", "--threshold", "60", task=task) == 0
    out = capsys.readouterr().out
    assert "T threshold 120 (60%)" in out
    assert "next: a pass compacts the conversation first" in out
    assert explain(client=ScriptedClient(context_window=None)) == 0
    assert "assumed; --window N sets it" in capsys.readouterr().out


def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert explain(*NOTED, "--json", task="\x9b2J") == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.count("\n") == 1
    assert out.rstrip("\n").isprintable()
    document: dict[str, Any] = json.loads(out)
    origins = [block["origin"] for block in document["blocks"]]
    assert origins == ["system", "tool", "attachment", "attachment", "input"]
    assert document["decision"] == "call"
    assert document["window"]["tokens"] == 8_000
    assert document["blocks"][-1]["message"]["parts"][0]["text"] == "\x9b2J"


def test_json_and_request_are_not_asked_for_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert explain("--json", "--request") == 2
    assert "give one" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", ["openai", "openai-chat", "anthropic", "gemini", "ollama", "mistral", "xai"]
)
def test_the_request_is_shown_to_the_byte_without_a_key(
    name: str, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """ENG-26: the dialect's own bytes; nothing stands for the key that is not there."""
    assert start(["explain", "--model", f"{name}:m", *NOTED, "--request", "wie spät?"]) == 0
    out, err = capfdbinary.readouterr()
    document: dict[str, Any] = json.loads(out)
    assert not out.endswith(b"\n")
    assert "wie spät?" in str(document)
    assert "the code is 42" in str(document)
    method, *headers = err.decode().splitlines()
    assert method.startswith("POST http")
    assert "content-type: application/json" in headers
    assert b"not-needed" not in out + err
    variable = PROVIDERS[name].keys[0]
    monkeypatch.setenv(variable, "sk-secret-of-mine-1234")
    assert start(["explain", "--model", f"{name}:m", *NOTED, "--request", "wie spät?"]) == 0
    assert capfdbinary.readouterr() == (out, err)


def test_the_request_is_what_a_run_sends(
    server: ThreadedByteServer, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: Any
) -> None:
    """ENG-26: exactly what the next request would hold."""
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
    server.play(chat_reply("done"))
    options = ["--model", "openai-chat:m", "--window", "9000", *NOTED, "go"]
    assert start(["explain", "--request", *options]) == 0
    body, err = capfdbinary.readouterr()
    assert server.requests == []
    assert start(["run", *options]) == 0
    (sent,) = server.requests
    assert sent.body == body
    assert err.decode().splitlines()[0] == f"POST {server.url}/v1/chat/completions"


def test_a_request_that_would_not_be_sent_yet_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--model", "openai-chat:m", "--window", "200", "--request"]
    assert start(["explain", *options, "word " * 200]) == 0
    first, *_ = capsys.readouterr().err.splitlines()
    assert first.startswith("not yet: a pass compacts the conversation first")


def test_a_client_that_shows_no_requests_is_an_error_of_usage(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert explain("--request") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "Error: --request: the client of scripted:scripted cannot show its requests\n"


@pytest.mark.skipif(not is_installed(), reason="the local model is not installed")
def test_the_local_model_is_not_started(
    capsys: pytest.CaptureFixture[str], no_threads_or_sockets_left: None
) -> None:
    """MOD-25: encoding is pure."""
    assert start(["explain", "--model", "local", "--request", "go"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert document["stream"] is True
    assert start(["explain", "--model", "local", "go"]) == 0
    assert "window 8,192" in capsys.readouterr().out


@pytest.mark.parametrize("prefix", PROVIDERS)
def test_every_built_in_provider_encodes_without_its_key(
    prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://r.openai.azure.com")
    given = models.uncalled(f"{prefix}:m")
    if isinstance(given, str):
        assert PROVIDERS[prefix].keyless
        return
    request = encoded(given, ModelRequest(messages=(Message.user("go"),)))
    shown = f"{request.url} {dict(request.headers)} {request.body!r}"
    assert "not-needed" not in shown


def test_a_name_that_cannot_work_says_so_all_the_same() -> None:
    with pytest.raises(ConfigError, match="names no model"):
        models.uncalled("openai-chat:")
    assert start(["explain", "--model", "opena:m", "go"]) == 2


def test_the_task_may_come_from_standard_input_and_must_say_something(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert explain(task=" ") == 2
    assert "the task is empty" in capsys.readouterr().err


class Seen(io.StringIO):
    """A stream that a person looks at."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_a_request_on_a_terminal_cannot_steer_it() -> None:
    out, err = Seen(), io.StringIO()
    body = '{"a": "\x9b2J ü"}'.encode()
    request = HttpRequest(method="POST", url="https://x/\x1b[2J", headers={"a": "\x9b"}, body=body)
    show(request, out, Terminal(out, err))
    assert out.getvalue() == '{"a": "\\x9b2J ü"}\n'
    assert err.getvalue() == "POST https://x/\\x1b[2J\na: \\x9b\n"
