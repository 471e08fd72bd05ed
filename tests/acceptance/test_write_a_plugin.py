"""docs/write-a-plugin.md: its project is built, installed and run as the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.built_distributions import ROOT, Environment, build

PAGE = (ROOT / "docs" / "write-a-plugin.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"```(?:python|toml)\n# (\S+)\n(.*?)```", PAGE, re.DOTALL))
PROJECT = ("pyproject.toml", "loopctl_deadline.py", "test_loopctl_deadline.py")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that somebody has who follows the page."""
    folder = tmp_path_factory.mktemp("page") / "loopctl-deadline"
    folder.mkdir()
    for name in PROJECT:
        (folder / name).write_text(FILES[name], encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def environment(project: Path, loopctl_wheel: Path) -> Environment:
    """Its wheel beside loopctl's."""
    wheels = project.parent / "wheels"
    wheels.mkdir()
    made = Environment(project.parent / "environment")
    made.install([loopctl_wheel, *build([project], wheels)])
    return made


def test_the_page_lists_the_files_of_its_project() -> None:
    (listed,) = re.findall(r"```\nloopctl-deadline/\n(.*?)```", PAGE, re.DOTALL)
    assert tuple(listed.split()) == PROJECT
    assert {*FILES} == {*PROJECT, "loopctl.toml", "app.py"}


def test_the_projects_own_test_passes(project: Path, environment: Environment) -> None:
    quiet = ("-q", "-p", "no:cacheprovider")
    made = environment.run("python", "-m", "pytest", *quiet, folder=project)
    assert made.returncode == 0, made.stdout
    assert "5 passed" in made.stdout  # the async ones on asyncio and on trio


def test_the_command_finds_it_and_its_settings(environment: Environment, tmp_path: Path) -> None:
    """CTX-25: first without them, as the page says."""
    made = environment.run("loopctl", "plugins", folder=tmp_path)
    assert made.stdout.splitlines()[1].split()[-1] == "failed"
    assert "missing 1 required positional argument: 'day'" in made.stdout
    (tmp_path / "loopctl.toml").write_text(FILES["loopctl.toml"], encoding="utf-8")
    made = environment.run("loopctl", "plugins", folder=tmp_path)
    row = ["deadline", "0.1.0", "loopctl-deadline", "contribute", "loaded"]
    assert made.stdout.splitlines()[1].split() == row


def test_an_app_that_asks_for_it_gets_it(environment: Environment, tmp_path: Path) -> None:
    """CTX-25: it contributes in a real run."""
    (tmp_path / "app.py").write_text(FILES["app.py"], encoding="utf-8")
    made = environment.run("python", "app.py", folder=tmp_path)
    assert made.returncode == 0, made.stderr
    assert re.fullmatch(r"The work is due in \d+ days\.\n", made.stdout)
