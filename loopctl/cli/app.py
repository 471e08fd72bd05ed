"""The commands and their options."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Generator, Sequence
from importlib.metadata import version
from io import TextIOWrapper
from typing import TextIO, TypeAlias

import anyio
import click

from loopctl.cli import inputs, models, plugins
from loopctl.cli.commands import Commands, with_commands
from loopctl.cli.exits import MAX_ERROR, MEANING, Exit, PipeClosed, exit_for, explain
from loopctl.cli.run import MAX_TURNS, Order, carry_out, session
from loopctl.cli.screen import Line, one_line
from loopctl.cli.terminal import JsonLines, Terminal, complain, last_words
from loopctl.context.attachments import Attachment
from loopctl.context.pins import TodoAttachment, TodoItem
from loopctl.installed import usable
from loopctl.models.client import ModelClient

ClientFor: TypeAlias = Callable[[str], ModelClient | str]
"""What makes a client of a model's name; a session does it itself when it is given the name."""

EXIT_CODES = "\b\nExit codes:\n" + "\n".join(f"  {code:>3}  {MEANING[code]}" for code in Exit)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("loopctl"), message="loopctl %(version)s")
def loopctl() -> None:
    """An agent loop with context that you control."""


@loopctl.command(epilog=EXIT_CODES)
@click.argument("task")
@click.option("--model", metavar="PROVIDER:MODEL", help="The model; LOOPCTL_MODEL is the default.")
@click.option("--system", metavar="TEXT", help="The system prompt.")
@click.option(
    "--attach",
    metavar="FILE",
    multiple=True,
    help="Pin a text file: its first 8 KiB ride every request. Repeatable.",
)
@click.option(
    "--todo",
    metavar="TEXT",
    multiple=True,
    help="Pin a thing to do; all of them ride every request as one list. Repeatable.",
)
@click.option(
    "--goal-reminder",
    metavar="N",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Repeat the task to the model every N turns; 0 is never.",
)
@click.option(
    "--max-turns",
    metavar="N",
    type=click.IntRange(min=1),
    default=MAX_TURNS,
    show_default=True,
    help="How many model calls the run may take.",
)
@click.option(
    "--tools",
    metavar="MODULE:OBJECT",
    multiple=True,
    help="Offer a tool, a function or a list of them, beside read_text_file; modules of the"
    " current folder are found. Repeatable.",
)
@click.option("--no-plugins", is_flag=True, help="Load no installed plugin.")
@click.option(
    "--plugin-set",
    metavar="NAME.KEY=VALUE",
    multiple=True,
    help="A setting of an installed plugin; the value in TOML, or text. Repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the run's events as JSON lines.")
@click.pass_obj
def run(
    client_for: ClientFor | None,
    task: str,
    model: str | None,
    system: str | None,
    attach: tuple[str, ...],
    todo: tuple[str, ...],
    goal_reminder: int,
    max_turns: int,
    tools: tuple[str, ...],
    no_plugins: bool,
    plugin_set: tuple[str, ...],
    as_json: bool,
) -> None:
    """Do TASK and print the answer; with - as TASK, read it from standard input.

    The model may read text files below the current folder. Ctrl-C stops the run and says where
    it was; a second Ctrl-C exits at once.
    """
    out, err = sys.stdout, sys.stderr
    screen = JsonLines(out, err) if as_json else Terminal(out, err)
    try:
        # What tools and libraries print must not end up in the answer.
        with contextlib.redirect_stdout(err), _warnings_as_lines(screen.say):
            name = models.choose(model)
            pinned: list[Attachment] = [inputs.attachment(path) for path in attach]
            if todo:
                pinned.append(TodoAttachment([TodoItem(text) for text in todo]))
            order = Order(
                task=inputs.task(task, sys.stdin),
                client=name if client_for is None else client_for(name),
                tools=[tool for reference in tools for tool in inputs.tools(reference)],
                system=system,
                attachments=pinned,
                plugins=() if no_plugins else _plugins(plugin_set, screen.say),
                goal_reminder=goal_reminder,
                max_turns=max_turns,
            )
            agent = session(order)
            anyio.run(carry_out, agent, order.task, screen, last_words(err))
    except BrokenPipeError as error:
        raise PipeClosed from error


@loopctl.command("plugins")
def list_plugins() -> None:
    """List the installed plugins, and what is wrong with those that are broken."""
    with contextlib.redirect_stdout(sys.stderr):
        found, _ = with_commands(plugins.found(), loopctl.commands)
    if not found:
        click.echo("no plugin is installed")
        return
    rows = [("name", "version", "distribution", "hooks", "state")]
    for each in found:
        hooks = ", ".join(each.hooks)
        rows.append((each.name, each.version, each.distribution, hooks, each.state))
    cells = [[one_line(cell) or "-" for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo(line.rstrip())
    for each in found:
        if each.error is not None:
            name = each.name or each.distribution
            click.echo(f"\n{one_line(name)}: {one_line(plugins.advice(each), MAX_ERROR)}")


def _plugins(assignments: Sequence[str], say: Callable[[Line], None]) -> tuple[object, ...]:
    """The plugins of a run; each that is left out is told of."""
    found, _ = with_commands(plugins.found(assignments), loopctl.commands)
    for each in found:
        if each.state == "failed":
            say(Line(plugins.left_out(each), "yellow"))
    return usable(found)


def start(arguments: Sequence[str] | None = None, client_for: ClientFor | None = None) -> int:
    """Run the command; whatever goes wrong becomes one line on standard error and an exit code."""
    debug = os.environ.get("LOOPCTL_DEBUG", "").strip().lower() not in ("", "0", "false")
    _prepare(sys.stdout)
    _prepare(sys.stderr)
    logging.getLogger("loopctl").addHandler(
        logging.StreamHandler() if debug else logging.NullHandler()
    )
    try:
        code = loopctl.main(arguments, prog_name="loopctl", standalone_mode=False, obj=client_for)
        return code if isinstance(code, int) else Exit.COMPLETED
    except click.Abort:
        return _fail(KeyboardInterrupt(), debug)
    except click.ClickException as error:
        error.show()
        return Exit.USAGE
    except Exception as error:
        return _fail(error, debug)


def _fail(error: BaseException, debug: bool) -> Exit:
    if debug:
        traceback.print_exception(error)
    code = exit_for(error)
    if code is Exit.PIPE_CLOSED:
        _let_go(sys.stdout)
    else:
        with contextlib.suppress(BrokenPipeError):
            complain(sys.stderr, explain(error), error=code is not Exit.CANCELLED)
    return code


def _prepare(stream: TextIO) -> None:
    """Have what the stream's encoding lacks written out as an escape, instead of failing."""
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")


def _let_go(stream: TextIO) -> None:
    """Point a broken stream nowhere, so that its last flush at exit does not complain."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


@contextlib.contextmanager
def _warnings_as_lines(say: Callable[[Line], None]) -> Generator[None]:
    def show(message: Warning | str, *_: object, **__: object) -> None:
        say(Line(one_line(str(message)), "yellow"))

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
