"""The commands that installed plugins add to the built-in ones (CTX-24, CTX-26).

They are looked for only where they are asked for: by `--help`, and by a name that is not built in.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Container, Iterable
from dataclasses import replace
from typing import cast

import click

from loopctl._failures import error_text
from loopctl.cli import plugins
from loopctl.cli.terminal import complain
from loopctl.errors import ConfigError
from loopctl.installed import Found
from loopctl.offers import ask
from loopctl.plugins import hook_of

_ADDED = "loopctl.plugins"


class Commands(click.Group):
    """The built-in commands first, then those of plugins; a built-in one cannot be replaced."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, for `--help`."""
        return [*super().list_commands(ctx), *sorted(self._added(ctx))]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name; plugins are loaded only for what is not built in."""
        return super().get_command(ctx, cmd_name) or self._added(ctx).get(cmd_name)

    def _added(self, ctx: click.Context) -> dict[str, click.Command]:
        added = cast("dict[str, click.Command] | None", ctx.meta.get(_ADDED))
        if added is None:
            added = ctx.meta[_ADDED] = self._look()
        return added

    def _look(self) -> dict[str, click.Command]:
        """Load the plugins; what is wrong with one is said and keeps nobody from anything."""
        with contextlib.redirect_stdout(sys.stderr):
            try:
                found, added = with_commands(plugins.found(), self.commands)
            except ConfigError as error:
                complain(sys.stderr, f"no plugin is loaded: {error}", error=False)
                return {}
            for each in found:
                if each.state == "failed":
                    complain(sys.stderr, plugins.left_out(each), error=False)
        return added


def with_commands(
    found: Iterable[Found], built_in: Container[str]
) -> tuple[tuple[Found, ...], dict[str, click.Command]]:
    """What became of each plugin after it was asked for its commands, and all commands."""
    outcomes: list[Found] = []
    added: dict[str, click.Command] = {}
    for each in found:
        if each.state == "loaded" and "register_commands" in each.hooks:
            try:
                ours = _commands_of(each)
                for name in ours:
                    if name in built_in:
                        raise ConfigError(f"the command {name!r} is loopctl's own")
                    if name in added:
                        raise ConfigError(f"there is a command {name!r} already")
            except ConfigError as error:
                each = _failed(each, str(error))
            except (Exception, SystemExit) as error:
                each = _failed(each, error_text(error))
            else:
                added |= ours
        outcomes.append(each)
    return tuple(outcomes), added


def _commands_of(found: Found) -> dict[str, click.Command]:
    """What a plugin adds to a group of its own: it can touch nobody else's."""
    group = click.Group("loopctl")
    hook = hook_of(found.plugin, "register_commands")
    ask(hook, "register_commands", type(found.plugin).__qualname__, group)
    for name, command in group.commands.items():
        if not isinstance(command, click.Command):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"{name!r}: {command!r} is no command of click's")
        command.get_short_help_str()  # what `--help` will ask each of them
    return dict(group.commands)


def _failed(found: Found, error: str) -> Found:
    return replace(found, state="failed", error=error, hooks=(), plugin=None)
