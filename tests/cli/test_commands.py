"""CTX-24, CTX-26: the commands that installed plugins add."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

import pytest

from loopctl.cli import app
from loopctl.cli.app import start
from loopctl.testing import ScriptedClient
from tests.installed_plugins import Site, on_path

ADDING = """
import click
import loopctl

class Plugin:
    @loopctl.hookimpl
    def register_commands(self, group):
        {body}

    @loopctl.hookimpl
    def contribute(self, ctx):
        return "here"
"""

GREET = """@group.command()
        @click.argument("name")
        def {name}(name):
            '''Greet somebody.'''
            click.echo("hello " + name)"""


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """An empty place for plugins, and an empty current folder."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(logging.getLogger("loopctl"), "handlers", [])
    monkeypatch.delenv("LOOPCTL_PLUGINS", raising=False)
    monkeypatch.setattr(
        "loopctl.installed.distributions", lambda: distributions(path=[str(tmp_path)])
    )
    yield from on_path(tmp_path)


def add(site: Site, distribution: str, body: str) -> None:
    site.install(distribution, ADDING.format(body=body))


def greeting(name: str) -> str:
    return GREET.format(name=name)


def test_a_plugin_adds_a_command(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """CTX-24: it is in the help and it runs."""
    add(site, "greeter", greeting("greet"))
    assert start(["--help"]) == 0
    assert "greet    Greet somebody." in capsys.readouterr().out
    assert start(["greet", "Ada"]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == ("hello Ada\n", "")


def test_what_is_built_in_loads_no_plugin_for_its_commands(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """CTX-25: nothing is imported where it is not needed."""
    add(site, "greeter", greeting("greet"))
    assert start(["--version"]) == 0
    assert start(["run", "--help"]) == 0
    options = ["run", "--model", "scripted:m", "--no-plugins", "go"]
    assert start(options, client_for=lambda name: ScriptedClient("done")) == 0
    assert site.imported() == set()


BROKEN = {
    "b1": ("raise OSError('no disk')", "register_commands failed: OSError: no disk"),
    "b2": ("raise SystemExit(3)", "SystemExit: 3"),
    "b3": (greeting("greet1") + "\n        1 / 0", "ZeroDivisionError"),
    "b4": (greeting("run"), "the command 'run' is loopctl's own"),
    "b5": (greeting("greet"), "there is a command 'greet' already"),
    "b6": ("group.commands['odd'] = 3", "'odd': 3 is no command of click's"),
    "b7": ("group.add_command(click.Command('odd', help=3))", "plugin 'b7' of b7 is left out"),
    "b8": ("return self.later()\n    async def later(self): ...", "it is sync"),
}


def test_broken_ones_are_reported_and_disturb_no_other(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """CTX-26: nothing of them stays, and the help is whole."""
    add(site, "a-greeter", greeting("greet"))
    for name, (body, _) in BROKEN.items():
        add(site, name, body)
    add(site, "z-greeter", greeting("salute"))
    assert start(["--help"]) == 0
    said = capsys.readouterr()
    listed = said.out.split("Commands:\n")[1].splitlines()
    assert [line.split()[0] for line in listed] == [
        *sorted(app.loopctl.commands),
        "greet",
        "salute",
    ]
    lines = said.err.splitlines()
    assert len(lines) == len(BROKEN)
    for line, (name, (_, says)) in zip(lines, BROKEN.items(), strict=True):
        assert f"plugin {name!r} of {name} is left out: " in line
        assert says in line
        assert line.endswith("; see loopctl plugins")

    assert start(["greet1", "x"]) == 2
    assert "No such command 'greet1'" in capsys.readouterr().err
    assert start(["salute", "Ada"]) == 0
    assert capsys.readouterr().out == "hello Ada\n"

    assert start(["plugins"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.split("\n\n")[0].splitlines()[1:]]
    states = {row[0]: row[-1] for row in rows}
    assert states == dict.fromkeys(BROKEN, "failed") | {
        "a-greeter": "loaded",
        "z-greeter": "loaded",
    }


def test_a_run_leaves_a_broken_one_out_and_says_so(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """CTX-26: nothing of it stays registered, its other hooks neither."""
    add(site, "bad", "raise OSError('no disk')")
    site.install("good")
    client = ScriptedClient("done")
    assert start(["run", "--model", "scripted:m", "go"], client_for=lambda name: client) == 0
    assert [message.text for message in client.requests[0].messages] == ["good", "go"]
    assert "plugin 'bad' of bad is left out" in capsys.readouterr().err


def test_the_environment_says_whose_commands_there_are(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """CTX-25: what is not loaded is not imported."""
    add(site, "greeter", greeting("greet"))
    add(site, "other", greeting("salute"))
    monkeypatch.setenv("LOOPCTL_DISABLE_PLUGINS", "greeter")
    assert start(["greet", "Ada"]) == 2
    monkeypatch.setenv("LOOPCTL_PLUGINS", "other")
    monkeypatch.delenv("LOOPCTL_DISABLE_PLUGINS")
    assert start(["salute", "Ada"]) == 0
    assert site.imported() == {"other"}


def test_settings_that_cannot_be_used_keep_nobody_from_the_help(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """CTX-26: the built-in commands are there all the same."""
    add(site, "greeter", greeting("greet"))
    Path("loopctl.toml").write_text("[plugins", encoding="utf-8")
    assert start(["--help"]) == 0
    said = capsys.readouterr()
    assert "plugins" in said.out
    assert said.err.startswith("no plugin is loaded: loopctl.toml cannot be read")


def test_a_model_of_a_plugin_answers_a_run(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """CTX-24: `--model prefix:name`."""
    source = """
    import loopctl
    from loopctl.testing import ScriptedClient

    class Plugin:
        @loopctl.hookimpl
        def register_models(self, register):
            register("acme", lambda model: ScriptedClient("I am " + model))
    """
    site.install("acme", source.replace("\n    ", "\n"))
    assert start(["run", "--model", "acme:small", "go"]) == 0
    assert capsys.readouterr().out == "I am small\n"
    assert start(["run", "--model", "acme:small", "--no-plugins", "go"]) == 2
    assert "there is no provider 'acme'" in capsys.readouterr().err
