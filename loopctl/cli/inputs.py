"""What the options of the command name: files to attach, tools to load, the task itself."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Iterable
from typing import Any, TextIO, cast

from loopctl.context.pins import FileAttachment
from loopctl.errors import ConfigError
from loopctl.tools.builtin.read import decoded, is_binary

MAX_ATTACHED = 16 * 1024 * 1024
"""The largest file that is opened to attach its beginning, in bytes."""


def attachment(path: str, asked: str = "--attach") -> FileAttachment:
    """A file's text, to be pinned. Raises `ConfigError` for what has none.

    `asked` is what the user wrote in front of the path.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_ATTACHED + 1)
    except OSError as error:
        raise ConfigError(f"{asked} {path}: {error.strerror or error}") from error
    if len(data) > MAX_ATTACHED:
        raise ConfigError(f"{asked} {path}: larger than {MAX_ATTACHED >> 20} MiB; attach a part")
    if is_binary(data):
        raise ConfigError(f"{asked} {path}: a binary file; only text can be attached")
    return FileAttachment.inline(path, decoded(data)[0])


def tools(reference: str) -> list[Any]:
    """The tools that `module:object` names: one, or a list of them.

    The current folder is searched first. Raises `ConfigError` that names the reference.
    """
    module_name, _, path = reference.partition(":")
    if not module_name or not path:
        raise ConfigError(f"--tools {reference}: write module:object, such as mytools:search")
    found = _import(reference, module_name)
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            near = difflib.get_close_matches(name, dir(found), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(
                f"--tools {reference}: {module_name!r} has no {name!r}{hint}"
            ) from None
    if isinstance(found, (list, tuple, set, frozenset)):
        return list(cast("Iterable[Any]", found))
    return [found]


def task(text: str, stdin: TextIO | None) -> str:
    """The task as given, or from standard input for `-`. Raises `ConfigError` if it is blank."""
    if text == "-":
        text = "" if stdin is None else decoded(stdin.buffer.read())[0]
        if not text.strip():
            raise ConfigError("the task on standard input is empty; write it there, or give it")
    if not text.strip():
        raise ConfigError('the task is empty; say what to do, such as loopctl run "what is 2 + 3?"')
    return text


def _import(reference: str, name: str) -> Any:
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            where = "neither in the current folder nor installed"
            raise ConfigError(f"--tools {reference}: no module {error.name!r}, {where}") from error
        raise _broken(reference, name, error) from error
    except (Exception, SystemExit) as error:
        raise _broken(reference, name, error) from error


def _broken(reference: str, name: str, error: BaseException) -> ConfigError:
    what = f"{type(error).__name__}: {error}"
    return ConfigError(f"--tools {reference}: importing {name!r} failed with {what}")
