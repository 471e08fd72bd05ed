"""The options that shape a request, the same for every command that makes one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import click

MAX_TURNS = 30
"""How many turns the command allows: somebody waits for it, and small models repeat themselves."""

R = TypeVar("R")


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What the options say; nothing of it has been read or made yet."""

    model: str | None
    system: str | None
    attach: tuple[str, ...]
    todo: tuple[str, ...]
    goal_reminder: int
    max_turns: int
    window: int | None
    threshold: float
    tools: tuple[str, ...]
    no_plugins: bool
    plugin_set: tuple[str, ...]


_OPTIONS = (
    click.option(
        "--model", metavar="PROVIDER:MODEL", help="The model; LOOPCTL_MODEL is the default."
    ),
    click.option("--system", metavar="TEXT", help="The system prompt."),
    click.option(
        "--attach",
        metavar="FILE",
        multiple=True,
        help="Pin a text file: its first 8 KiB ride every request. Repeatable.",
    ),
    click.option(
        "--todo",
        metavar="TEXT",
        multiple=True,
        help="Pin a thing to do; all of them ride every request as one list. Repeatable.",
    ),
    click.option(
        "--goal-reminder",
        metavar="N",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help="Repeat the task to the model every N turns; 0 is never.",
    ),
    click.option(
        "--max-turns",
        metavar="N",
        type=click.IntRange(min=1),
        default=MAX_TURNS,
        show_default=True,
        help="How many model calls a run may take.",
    ),
    click.option(
        "--window",
        metavar="N",
        type=click.IntRange(min=0),
        help="The model's window in tokens, if it is not known or not right; 0 compacts nothing"
        " before the model refuses.",
    ),
    click.option(
        "--threshold",
        metavar="PERCENT",
        type=click.FloatRange(1, 100),
        default=80,
        show_default=True,
        help="How full the window may be before the conversation is compacted.",
    ),
    click.option(
        "--tools",
        metavar="MODULE:OBJECT",
        multiple=True,
        help="Offer a tool, a function or a list of them, beside read_text_file; modules of the"
        " current folder are found. Repeatable.",
    ),
    click.option("--no-plugins", is_flag=True, help="Load no installed plugin."),
    click.option(
        "--plugin-set",
        metavar="NAME.KEY=VALUE",
        multiple=True,
        help="A setting of an installed plugin; the value in TOML, or text. Repeatable.",
    ),
)


def shaping(command: Callable[..., R]) -> Callable[..., R]:
    """Give a command these options; it gets them as one argument, `asked`."""

    @functools.wraps(command)
    def gathered(*arguments: Any, **given: Any) -> R:
        asked = Asked(**{field.name: given.pop(field.name) for field in fields(Asked)})
        return command(*arguments, asked=asked, **given)

    for option in reversed(_OPTIONS):
        gathered = option(gathered)
    return gathered
