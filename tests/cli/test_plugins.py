"""CTX-25: the installed plugins of the command."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

import pytest

from loopctl.cli.app import start
from loopctl.testing import ScriptedClient
from tests.installed_plugins import Site, on_path


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Two installed plugins, and an empty current folder."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(logging.getLogger("loopctl"), "handlers", [])
    for name in ("LOOPCTL_PLUGINS", "LOOPCTL_DISABLE_PLUGINS", "LOOPCTL_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(
        "loopctl.installed.distributions", lambda: distributions(path=[str(tmp_path)])
    )
    for site in on_path(tmp_path):
        site.install("clock")
        site.install("git")
        yield site


def contributed(*options: str) -> list[str]:
    client = ScriptedClient("done")
    code = start(["run", "--model", "scripted:m", *options, "go"], client_for=lambda name: client)
    assert code == 0
    return [message.text for message in client.requests[0].messages][:-1]


def test_installed_plugins_are_loaded_unless_the_environment_says_otherwise(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CTX-25: what is not loaded is not imported."""
    assert contributed("--no-plugins") == []
    assert site.imported() == set()
    monkeypatch.setenv("LOOPCTL_PLUGINS", " git, ")
    assert contributed() == ["git"]
    monkeypatch.setenv("LOOPCTL_PLUGINS", "")
    monkeypatch.setenv("LOOPCTL_DISABLE_PLUGINS", "clock,gone")
    assert contributed() == ["git"]
    assert site.imported() == {"git"}
    monkeypatch.delenv("LOOPCTL_DISABLE_PLUGINS")
    assert contributed() == ["clock", "git"]


def test_settings_come_from_pyproject_then_loopctl_toml_then_options() -> None:
    """CTX-25: the later wins."""
    Path("pyproject.toml").write_text(
        '[tool.loopctl.plugins.clock]\ntext = "a"\n[tool.loopctl.plugins.git]\ntext = "b"\n',
        encoding="utf-8",
    )
    assert contributed() == ["a", "b"]
    Path("loopctl.toml").write_text('[plugins.git]\ntext = "c"\n', encoding="utf-8")
    assert contributed() == ["a", "c"]
    assert contributed("--plugin-set", 'clock.text="1=2"') == ["1=2", "c"]
    assert contributed("--plugin-set", "git.text=plain words") == ["a", "plain words"]


@pytest.mark.parametrize(
    ("file", "option", "says"),
    [
        ("plugins = 3", "git.text=x", "loopctl.toml: [plugins] must be a table"),
        ("plugins.git = 3", "git.text=x", "loopctl.toml: [plugins.git] must be a table"),
        ("[plugins", "git.text=x", "loopctl.toml cannot be read"),
        ("", "text=x", "--plugin-set text=x: write name.key=value"),
        ("", "gitt.text=x", "did you mean 'git'?"),
    ],
)
def test_settings_that_cannot_be_used_are_an_error(
    file: str, option: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("loopctl.toml").write_text(file, encoding="utf-8")
    options = ["run", "--model", "scripted:m", "--plugin-set", option, "go"]
    assert start(options, client_for=lambda name: ScriptedClient("done")) == 2
    assert says in capsys.readouterr().err


def test_the_list_shows_each_plugin_and_what_to_do_about_a_broken_one(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CTX-26: name, version, distribution, hooks and state."""
    site.install("bad", "raise ValueError('at import')")
    monkeypatch.setenv("LOOPCTL_DISABLE_PLUGINS", "git")
    assert start(["plugins"]) == 0
    table, trouble = capsys.readouterr().out.split("\n\n")
    assert [line.split() for line in table.splitlines()] == [
        ["name", "version", "distribution", "hooks", "state"],
        ["bad", "1.0", "bad", "-", "failed"],
        ["clock", "1.0", "clock", "contribute", "loaded"],
        ["git", "1.0", "git", "-", "blocked"],
    ]
    assert trouble.startswith("bad: ValueError: at import; ")
    assert "LOOPCTL_DISABLE_PLUGINS=bad" in trouble
