"""The state of the working folder's git repository, told to the model before every turn."""

from __future__ import annotations

import math
import shutil
from collections import deque
from typing import Any, Literal

import anyio

from loopctl import Contribution, ContributorContext, Message, hookimpl
from loopctl.errors import ConfigError
from loopctl_git.commands import Repository
from loopctl_git.report import commits, report, status

__all__ = ["Git"]


class Git:
    """Contributes the branch, at most `max_files` changed files and the last `max_commits` commits.

    Quiet where there is no repository, no git, or where git takes longer than `timeout` seconds:
    it is ended, and the run is not asked again. `placement` is where the message rides: it
    changes with what the agent does, so at the `"tail"` a provider's prompt cache keeps what
    stands in front of it.

    Raises `ConfigError` for a setting that cannot be used.
    """

    def __init__(
        self,
        max_files: int = 20,
        max_commits: int = 5,
        timeout: float = 1.0,
        placement: Literal["head", "tail"] = "tail",
    ) -> None:
        self._max_files = _count("max_files", max_files)
        self._max_commits = _count("max_commits", max_commits)
        if not _is_number(timeout) or not 0 < timeout < math.inf:
            raise ConfigError(f"timeout={timeout!r}: give seconds, more than 0")
        if placement not in ("head", "tail"):
            raise ConfigError(f"placement={placement!r}: must be 'head' or 'tail'")
        self._timeout = timeout
        self._placement: Literal["head", "tail"] = placement
        self._program = shutil.which("git")
        self._too_slow_for: deque[str] = deque(maxlen=100)  # ids of runs

    @hookimpl
    async def contribute(self, ctx: ContributorContext[Any]) -> Contribution | None:
        """What git says now, or `None`."""
        if self._program is None or ctx.run_id in self._too_slow_for:
            return None
        text: str | None = None
        with anyio.move_on_after(self._timeout) as scope:
            text = await self._told(Repository(self._program, ctx.working_folder))
        if scope.cancelled_caught:
            self._too_slow_for.append(ctx.run_id)
        if text is None:
            return None
        # A user's message, not the system's: names and subjects are other people's words.
        return Contribution(Message.user(text), self._placement)

    async def _told(self, repository: Repository) -> str | None:
        said = await repository.status()
        if said is None:
            return None
        state = status(said)
        last = None
        if self._max_commits and state.commit is not None:
            last = await repository.log(self._max_commits)
        return report(state, () if last is None else commits(last), self._max_files)


def _count(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ConfigError(f"{name}={value!r}: give a whole number, 0 or more")
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
