"""docs/cli.md says what the command does."""

from __future__ import annotations

import re
from pathlib import Path

import click

from loopctl.cli import app
from loopctl.cli.exits import MEANING

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")


def test_the_page_lists_each_option_and_no_other() -> None:
    listed = re.findall(r"^\| `(--[a-z-]+)", PAGE, re.MULTILINE)
    options = [each for each in app.run.params if isinstance(each, click.Option)]
    assert listed == [option.opts[0] for option in options]


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
