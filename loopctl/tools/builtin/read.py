"""read_text_file: the one tool that the command offers by itself (TOL-23, its smallest part).

It reads text files below the session's working folder and nothing else. Where a path leads is
settled first (`..` is refused, symbolic links are followed); then the file is opened by a walk
down from the folder that follows no link at all. So a link that is swapped in meanwhile makes the
walk fail, and cannot lead it out. A hard link is the file itself: nothing tells it from one that
was made here, so a folder that holds hard links to files elsewhere shows them.
"""

from __future__ import annotations

import codecs
import difflib
import os
import stat
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

from loopctl.tools.function import tool
from loopctl.tools.types import ToolContext, ToolOutput

MAX_BYTES = 32 * 1024
"""How much of a file is read, in bytes."""

_MAX_LISTED = 20
_MAX_LOOKED_AT = 10_000
_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
_FOLDER = _FLAGS | getattr(os, "O_DIRECTORY", 0)
_FILE = _FLAGS | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_HAS_WALK = os.open in os.supports_dir_fd  # not on Windows, where links need a privilege


class _NotRead(Exception):
    """Why a file is not read, in words for the model."""


@tool(read_only=True, concurrency_safe=True)
def read_text_file(path: str, ctx: ToolContext[Any]) -> ToolOutput:
    """Read a text file.

    Args:
        path: Name of the file, such as notes.txt
        ctx: The call's context.
    """
    root = os.path.realpath(ctx.working_folder)
    try:
        data, size = _read(root, _inside(root, path))
    except _NotRead as reason:
        return ToolOutput(str(reason), is_error=True)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return ToolOutput(f"cannot read {path!r}: {why}", is_error=True)
    if is_binary(data):
        return ToolOutput(f"{path!r} is a binary file; only text can be read", is_error=True)
    if not data:
        return ToolOutput(f"{path!r} is empty")
    text, exact = decoded(data, whole=len(data) >= size)
    notes = [] if exact else ["some bytes are not UTF-8 and are shown as \N{REPLACEMENT CHARACTER}"]
    if len(data) < size:
        notes.append(f"truncated: the first {len(data)} of {size} bytes are shown")
    return ToolOutput("\n".join([text, *(f"[{note}]" for note in notes)]), retention="requery")


def is_binary(data: bytes) -> bool:
    """Whether bytes are no text in any encoding that UTF-8 can stand for: they hold a NUL."""
    return b"\0" in data


def decoded(data: bytes, *, whole: bool = True) -> tuple[str, bool]:
    """The text of UTF-8 bytes, and whether it is exact; what is not UTF-8 becomes U+FFFD.

    A byte order mark is dropped. Unless `whole`, a character that is cut at the end is too.
    """
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return codecs.getincrementaldecoder("utf-8")("strict").decode(data, final=whole), True
    except UnicodeDecodeError:
        return codecs.getincrementaldecoder("utf-8")("replace").decode(data, final=whole), False


def _inside(root: str, path: str) -> str:
    """Where `path` leads, as a path relative to `root`; raises `_NotRead` if that is outside."""
    if not path.strip():
        raise _NotRead("give the path of a file, such as 'notes.txt'")
    if ".." in Path(path).parts:
        raise _NotRead(f"{path!r} has '..' in it; only files below the working folder can be read")
    real = os.path.realpath(os.path.join(root, path))
    try:
        inside = os.path.commonpath([root, real]) == root
    except ValueError:  # another drive
        inside = False
    if not inside:
        raise _NotRead(
            f"{path!r} is outside of the working folder; give a path below it, such as 'notes.txt'"
        )
    return os.path.relpath(real, root)


def _read(root: str, inside: str) -> tuple[bytes, int]:
    """The first `MAX_BYTES` of a file and its size in bytes."""
    with ExitStack() as opened:
        try:
            found = _open(root, inside, opened)
        except (FileNotFoundError, NotADirectoryError):
            raise _NotRead(_missing(root, inside)) from None
        status = os.fstat(found)
        _refuse_special(inside, status)
        with open(found, "rb", closefd=False) as file:
            data = file.read(MAX_BYTES)
        return data, max(status.st_size, len(data))


def _folder(root: str, inside: str, opened: ExitStack) -> int | str:
    """Open a folder by a walk down from `root` that follows no link; its path without a walk."""
    if not _HAS_WALK:
        return os.path.join(root, inside)
    folder = None
    for name in (root, *Path(inside).parts):
        folder = os.open(name, _FOLDER, dir_fd=folder)
        opened.callback(os.close, folder)
    assert folder is not None
    return folder


def _open(root: str, inside: str, opened: ExitStack) -> int:
    parent, name = os.path.split(inside)
    folder = _folder(root, parent, opened)
    if isinstance(folder, str):
        name, at = os.path.join(folder, name), None
    else:
        at = folder
    # Opening a device can do something to it, so it is looked at first, and once more when open.
    status = os.stat(name, dir_fd=at, follow_symlinks=False)
    if stat.S_ISDIR(status.st_mode):
        raise _NotRead(f"{inside!r} is a folder; it holds {_listed(_names(root, inside))}")
    _refuse_special(inside, status)
    descriptor = os.open(name, _FILE, dir_fd=at)
    opened.callback(os.close, descriptor)
    return descriptor


def _refuse_special(inside: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _NotRead(f"{inside!r} is not a regular file; only those can be read")


def _missing(root: str, inside: str) -> str:
    """Say that a file is not there, with names that are near, or all names if none is."""
    parent, name = os.path.split(inside)
    names = _names(root, parent)
    if parent and not names:
        parent, names = "", _names(root, "")
    by_lower = {each.lower(): each for each in names}
    near = difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.5)
    if near:
        paths = (os.path.join(parent, by_lower[each]) for each in near)
        return f"there is no file {inside!r}; did you mean {' or '.join(map(repr, paths))}?"
    where = repr(parent) if parent else "the working folder"
    return f"there is no file {inside!r}; {where} holds {_listed(list(by_lower.values()))}"


def _names(root: str, inside: str) -> list[str]:
    """What a folder holds, sorted; hidden names left out, nothing if it cannot be read."""
    try:
        with ExitStack() as opened:
            entries = opened.enter_context(os.scandir(_folder(root, inside, opened)))
            looked_at = islice(entries, _MAX_LOOKED_AT)
            return sorted(entry.name for entry in looked_at if not entry.name.startswith("."))
    except OSError:
        return []


def _listed(names: list[str]) -> str:
    if not names:
        return "nothing"
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(map(repr, names[:_MAX_LISTED])) + more
