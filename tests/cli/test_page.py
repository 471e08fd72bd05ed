"""docs/cli.md says what the command does."""

from __future__ import annotations

import io
import logging
import re
import shlex
import sys
from pathlib import Path

import click
import pytest

from loopctl.cli import app
from loopctl.cli.exits import MEANING

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "cli.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-unused")
    monkeypatch.setattr(logging.getLogger("loopctl"), "handlers", [])


def options(command: click.Command) -> list[str]:
    return [each.opts[0] for each in command.params if isinstance(each, click.Option)]


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


def example(command: str) -> str:
    """What the page says that a command prints."""
    shown = re.search(rf"```sh\n{re.escape(command)}\n```\n\n```\n(.*?)```", PAGE, re.DOTALL)
    assert shown is not None
    return shown[1]


def test_the_page_lists_each_option_and_no_other() -> None:
    listed = re.findall(r"^\| `(--[a-z-]+)", PAGE, re.MULTILINE)
    assert listed == options(app.run)
    assert [*options(app.chat), "--json"] == options(app.run)
    own = set(options(app.explain_task)) ^ set(options(app.run))
    assert own == {"--request"}
    assert "`--request` prints" in section("What the model would see")


def test_the_page_shows_what_explain_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """ENG-26: the example is the real output."""
    monkeypatch.chdir(DOCS)
    monkeypatch.setenv("LOOPCTL_MODEL", "openai-chat:m")
    (command,) = re.findall(r"^loopctl (explain --window .*)$", PAGE, re.MULTILINE)
    assert app.start(shlex.split(command)) == 0
    assert capsys.readouterr().out == example(f"loopctl {command}")


def test_the_page_lists_the_commands_of_a_chat(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"/help\n")))
    assert app.start(["chat", "--model", "openai-chat:m"]) == 0
    said = [line.strip() for line in capsys.readouterr().err.splitlines()]
    listed = [line for line in section("A conversation").splitlines() if line.startswith("/")]
    assert [line for line in said if line.startswith("/")] == listed
    assert said[-1][1:] in section("A conversation")


def test_the_page_names_the_defaults() -> None:
    for option in app.run.params:
        if isinstance(option, click.Option) and option.show_default:
            assert re.search(rf"^\| `{option.opts[0]}.*\| {option.default} \|$", PAGE, re.MULTILINE)


def test_the_page_lists_each_exit_code_with_its_meaning() -> None:
    listed = dict(re.findall(r"^\| (\d+) \| (.*) \|$", PAGE, re.MULTILINE))
    meant = {str(int(code)): text for code, text in MEANING.items()}
    assert {code: text.replace("`", "") for code, text in listed.items()} == {
        code: text.replace("`", "") for code, text in meant.items()
    }
