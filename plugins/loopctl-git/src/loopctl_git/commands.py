"""Running git: bounded output, nothing left behind, and no program that a repository names.

A repository's own configuration may name programs: filters, a file system monitor, hooks, a
pager, transports. Whoever unpacks a foreign one has not agreed to them, so all are switched off.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL

import anyio
from anyio.abc import Process

MAX_BYTES = 64 * 1024
"""How much of git's output is read; then it is ended."""

GRACE = 1.0
"""How many seconds a killed process is waited for."""

SAFE = (
    "--no-pager",
    "--no-optional-locks",
    "--literal-pathspecs",
    *("-c", "core.fsmonitor=false"),
    *("-c", f"core.hooksPath={os.devnull}"),
    *("-c", "submodule.recurse=false"),
    *("-c", "log.showSignature=false"),
)

STATUS = (
    "status",
    "--porcelain=v2",
    "--branch",
    "-z",
    "--untracked-files=no",
    "--ignore-submodules=all",
    "--no-ahead-behind",
    "--no-renames",
)

LOG = (
    "log",
    "-z",
    "--format=%h %s",
    "--encoding=UTF-8",
    "--no-color",
    "--no-decorate",
    "--no-notes",
    "--no-patch",
    "--no-show-signature",
)

KEPT = frozenset(
    {
        "GIT_CEILING_DIRECTORIES",
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_NOSYSTEM",
        "GIT_CONFIG_SYSTEM",
        "GIT_DISCOVERY_ACROSS_FILESYSTEM",
        "GIT_EXEC_PATH",
    }
)
"""Variables of git's that stay; the others may point at another repository, as inside a hook."""


@dataclass(frozen=True, slots=True)
class Said:
    """What git printed: records that end with NUL; the last one is cut where `cut`."""

    records: tuple[bytes, ...]
    cut: bool


@dataclass(frozen=True, slots=True)
class Repository:
    """The repository that a folder is in, if it is in one."""

    program: str
    folder: Path

    async def status(self) -> Said | None:
        """Branch and changed tracked files; `None` where git has nothing to say."""
        without_filters = await self._without_filters()
        if without_filters is None:
            return None
        return await self._ask(*without_filters, *STATUS)

    async def log(self, count: int) -> Said | None:
        """The last commits, abbreviated id and subject."""
        return await self._ask(*LOG, f"-{count}")

    async def _without_filters(self) -> list[str] | None:
        """Options that switch off every filter that is configured; `None` if that is impossible.

        git runs them to tell whether a file has changed, and takes them only by name.
        """
        said = await self._ask(
            "config", "-z", "--name-only", "--get-regexp", r"^filter\.", ok=(0, 1)
        )
        if said is None or said.cut:
            return None
        options: list[str] = []
        for name in {record.rpartition(b".")[0] for record in said.records}:
            if b"=" in name:
                return None
            for key, value in (("clean", ""), ("process", ""), ("required", "false")):
                options += ["-c", f"{os.fsdecode(name)}.{key}={value}"]
        return options

    async def _ask(self, *arguments: str, ok: Sequence[int] = (0,)) -> Said | None:
        try:
            process = await anyio.open_process(
                [self.program, *SAFE, *arguments],
                cwd=self.folder,
                env=_environment(),
                stdin=DEVNULL,
                stderr=DEVNULL,
                start_new_session=True,
            )
        except OSError:  # no such folder, no such program
            return None
        out, cut, code = bytearray(), False, None
        try:
            assert process.stdout is not None
            async for chunk in process.stdout:
                out += chunk
                if len(out) > MAX_BYTES:
                    cut = True
                    break
            else:
                code = await process.wait()
        finally:
            await _end(process)
        if not cut and code not in ok:
            return None
        records = bytes(out[:MAX_BYTES]).split(b"\0")
        if not records[-1]:
            del records[-1]
        return Said(tuple(records), cut)


async def _end(process: Process) -> None:
    """Kill a process and what it started, and wait for it a bounded time."""
    if process.returncode is None:
        with contextlib.suppress(OSError):
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
    with anyio.move_on_after(GRACE, shield=True):
        assert process.stdout is not None
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for _ in process.stdout:  # what is left in the pipe keeps it open
                pass
        await process.aclose()


def _environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("GIT_") or k in KEPT}
    return kept | {
        "GIT_ALLOW_PROTOCOL": "none",  # a missing object is not fetched
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
    }
