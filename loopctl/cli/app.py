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

from loopctl import _json
from loopctl.cli import inputs, models, plugins, requests
from loopctl.cli.chat import Chat
from loopctl.cli.commands import Commands, with_commands
from loopctl.cli.exits import MAX_ERROR, MEANING, Exit, PipeClosed, exit_for, explain
from loopctl.cli.explained import decision, show_explanation
from loopctl.cli.keyboard import keyboard
from loopctl.cli.options import Asked, shaping
from loopctl.cli.run import Order, carry_out, session
from loopctl.cli.screen import Line, one_line
from loopctl.cli.terminal import (
    JsonLines,
    Screen,
    Terminal,
    complain,
    json_line,
    last_words,
)
from loopctl.config import RunConfig, SessionConfig
from loopctl.context.attachments import Attachment
from loopctl.context.explanation import Explanation
from loopctl.context.pins import TodoAttachment, TodoItem
from loopctl.installed import usable
from loopctl.loop import BareLoop
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
@shaping
@click.option("--json", "as_json", is_flag=True, help="Print the run's events as JSON lines.")
@click.pass_obj
def run(client_for: ClientFor | None, task: str, as_json: bool, asked: Asked) -> None:
    """Do TASK and print the answer.

    With - as TASK it is read from standard input. The model may read text files below the
    current folder. What you type on the terminal while it works is said to it. Ctrl-C stops the
    run and says where it was; a second Ctrl-C exits at once.
    """
    out, err = sys.stdout, sys.stderr
    screen = JsonLines(out, err) if as_json else Terminal(out, err)
    with _orderly(screen):
        text = inputs.task(task, sys.stdin)
        agent = _session(asked, client_for or str, screen)
        keys = keyboard(sys.stdin, err, screen) if isinstance(screen, Terminal) else None
        anyio.run(carry_out, agent, text, screen, last_words(err), keys)


@loopctl.command("explain")
@click.argument("task")
@shaping
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option(
    "--request",
    "as_request",
    is_flag=True,
    help="Print the body that would be sent, to the byte; what goes with it to standard error.",
)
@click.pass_obj
def explain_task(
    client_for: ClientFor | None, task: str, as_json: bool, as_request: bool, asked: Asked
) -> None:
    """Show what the first request of TASK would hold.

    With - as TASK it is read from standard input. Each part with where it comes from and what
    it costs, and where the whole stands in the model's window. Plugins are asked as for a run;
    no model is called and no key is needed.
    """
    if as_json and as_request:
        raise click.UsageError("--json and --request print two different things; give one")
    out, err = sys.stdout, sys.stderr
    screen = Terminal(out, err)
    with _orderly(screen):
        text = inputs.task(task, sys.stdin)
        agent = _session(asked, client_for or models.uncalled, screen)
        explanation = anyio.run(_explanation, agent, text)
        if as_json:
            out.write(json_line(_json.dumps(explanation.to_json())))
        elif as_request:
            if explanation.decision != "call":
                screen.say(Line(f"not yet: {decision(explanation)}", "yellow"))
            requests.show(requests.encoded(agent.client, explanation.request), out, screen)
        else:
            show_explanation(agent, explanation, out)
        out.flush()


@loopctl.command("chat")
@shaping
@click.pass_obj
def chat(client_for: ClientFor | None, asked: Asked) -> int:
    """Talk with a model, input after input.

    One session; /help lists what can be done beside talking. What you type while it works is
    said to it. Ctrl-C stops a run, and leaves at an empty prompt. From a pipe each line is an
    input.
    """
    out, err = sys.stdout, sys.stderr
    screen = Terminal(out, err)
    with _orderly(screen):
        conversation = Chat(
            _session(asked, client_for or str, screen),
            screen,
            out,
            stdin=sys.stdin,
            keyboard=keyboard(sys.stdin, err, screen),
            todo=asked.todo,
            last_words=last_words(err),
        )
        return anyio.run(conversation.talk)


@loopctl.command("plugins")
def list_plugins() -> None:
    """List the installed plugins, and what is wrong with them."""
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


def _session(asked: Asked, client_for: ClientFor, screen: Screen) -> BareLoop[None]:
    """The session that the options ask for."""
    pinned: list[Attachment] = [inputs.attachment(path) for path in asked.attach]
    if asked.todo:
        pinned.append(TodoAttachment([TodoItem(text) for text in asked.todo]))
    order = Order(
        client=client_for(models.choose(asked.model)),
        config=SessionConfig(
            context_window=asked.window,
            compact_threshold=asked.threshold,
            run=RunConfig(max_turns=asked.max_turns),
        ),
        tools=[tool for reference in asked.tools for tool in inputs.tools(reference)],
        system=asked.system,
        attachments=pinned,
        plugins=() if asked.no_plugins else _plugins(asked.plugin_set, screen.say),
        goal_reminder=asked.goal_reminder,
    )
    return session(order)


async def _explanation(agent: BareLoop[None], task: str) -> Explanation:
    async with agent:
        return await agent.explain(task)


def _plugins(assignments: Sequence[str], say: Callable[[Line], None]) -> tuple[object, ...]:
    """The plugins of a session; each that is left out is told of."""
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
def _orderly(screen: Screen) -> Generator[None]:
    """What tools and libraries print or warn of stays out of the answer."""
    try:
        with contextlib.redirect_stdout(sys.stderr), _warnings_as_lines(screen.say):
            yield
    except BrokenPipeError as error:
        raise PipeClosed from error


@contextlib.contextmanager
def _warnings_as_lines(say: Callable[[Line], None]) -> Generator[None]:
    def show(message: Warning | str, *_: object, **__: object) -> None:
        say(Line(one_line(str(message)), "yellow"))

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
