"""Which installed plugins the command loads, and with what settings (CTX-25)."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from loopctl.cli.exits import MAX_ERROR
from loopctl.cli.screen import one_line
from loopctl.errors import ConfigError
from loopctl.installed import Found, discover


def found(assignments: Sequence[str] = ()) -> tuple[Found, ...]:
    """What becomes of each plugin, as the environment and the current folder's files say.

    `assignments` are `name.key=value` and win over the files. Raises `ConfigError`.
    """
    settings = _from_files(Path())
    only, block = _filters()
    for text in assignments:
        target, equals, value = text.partition("=")
        name, dot, key = target.strip().rpartition(".")
        if not (equals and dot and name and key):
            raise ConfigError(f"--plugin-set {text}: write name.key=value")
        settings.setdefault(name, {})[key] = _value(value)
    return discover(settings, only=only, block=block)


def left_out(found: Found) -> str:
    """That a plugin is not there, on one line."""
    who = f"plugin {found.name!r} of " if found.name else ""
    what = f"{who}{found.distribution} is left out: {found.error}"
    return f"{one_line(what, MAX_ERROR)}; see loopctl plugins"


def advice(found: Found) -> str:
    """Why a plugin failed, and what to do."""
    off = f", or set LOOPCTL_DISABLE_PLUGINS={found.name}" if found.name else ""
    return f"{found.error}; mend its settings, upgrade or uninstall {found.distribution}{off}"


def _filters() -> tuple[list[str] | None, list[str]]:
    only = os.environ.get("LOOPCTL_PLUGINS", "")
    block = _listed(os.environ.get("LOOPCTL_DISABLE_PLUGINS", ""))
    return _listed(only) if only.strip() else None, block


def _from_files(folder: Path) -> dict[str, dict[str, Any]]:
    """`[tool.loopctl.plugins.<name>]` of pyproject.toml, `[plugins.<name>]` of loopctl.toml."""
    settings: dict[str, dict[str, Any]] = {}
    for file, path in (
        ("pyproject.toml", ("tool", "loopctl", "plugins")),
        ("loopctl.toml", ("plugins",)),
    ):
        try:
            table: Any = tomllib.loads((folder / file).read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise ConfigError(f"{file} cannot be read: {error}") from error
        for key in path:
            table = _table(file, ".".join(path), table).get(key, {})
        for name, given in _table(file, ".".join(path), table).items():
            settings.setdefault(name, {}).update(_table(file, f"{'.'.join(path)}.{name}", given))
    return settings


def _table(file: str, where: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{file}: [{where}] must be a table")
    return cast("dict[str, Any]", value)


def _value(text: str) -> Any:
    """A value in TOML, or the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _listed(text: str) -> list[str]:
    return [name for each in text.split(",") if (name := each.strip())]
