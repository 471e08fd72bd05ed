"""Ready-made contributors (CTX-10)."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

from loopctl.context.contributors import ContributorContext
from loopctl.errors import ConfigError
from loopctl.messages import Message, Role

GoalSource: TypeAlias = Literal["conversation", "run"]


class GoalReminder:
    """Re-sends the goal as a system message, to keep a small model on its task.

    It speaks at turns `every_n`, 2 × `every_n`, … and never at turn 0; 0 is never. The goal is
    the text of the conversation's first user message, or of the run's input with `source="run"`.
    Blank or missing: it stays quiet. Raises `ConfigError` (a `ValueError`) for a negative
    `every_n` or another source.
    """

    def __init__(self, every_n: int, source: GoalSource = "conversation") -> None:
        if every_n < 0:
            raise ConfigError(f"GoalReminder.every_n={every_n!r}: must be ≥ 0; 0 is never")
        if source not in get_args(GoalSource):
            raise ConfigError(f"GoalReminder.source={source!r}: must be 'conversation' or 'run'")
        self.every_n = every_n
        self.source = source

    def contribute(self, ctx: ContributorContext[Any]) -> Message | None:
        """The reminder, at the turns where it is due."""
        if not self.every_n or ctx.turn == 0 or ctx.turn % self.every_n:
            return None
        goal = self._goal(ctx)
        if goal is None or not goal.text.strip():
            return None
        return Message.system(f"Reminder: the task is: {goal.text}")

    def _goal(self, ctx: ContributorContext[Any]) -> Message | None:
        if self.source == "run":
            return ctx.run_input
        users = (m for m in ctx.conversation if m.role is Role.USER and not m.results)
        return next(users, None)
