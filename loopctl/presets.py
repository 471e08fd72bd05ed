"""Ready-made contributors and settings (CTX-10).

A preset is a plain function that returns arguments of `BareLoop`: read it, print it, change it.

    agent = BareLoop("openai-chat:gpt-5.4", tools, **constrained())
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, TypedDict, get_args

from loopctl.compaction.truncating import TruncatingCompactor
from loopctl.compaction.types import Compactor
from loopctl.config import RequestOptions, RunConfig, SessionConfig
from loopctl.context.contributors import ContributorContext
from loopctl.errors import ConfigError
from loopctl.hookspecs import hookimpl
from loopctl.messages import Message, Role


class Preset(TypedDict):
    """Arguments of `BareLoop`: settings, plugins and the compactor."""

    config: SessionConfig
    plugins: list[object]
    compactor: Compactor


def constrained(
    context_window: int | None = 32_768,
    *,
    reminder_every: int = 5,
    max_output_tokens: int = 2_048,
    strict_tools: bool = True,
) -> Preset:
    """Settings for models with a small window that lose their thread.

    The window is 32,768 tokens (`None`: what the client knows of its model) and is compacted at
    70 % of it, with fewer recent messages kept; the goal is repeated every 5 turns; arguments of
    tools must fit their schema; replies are capped at 2,048 tokens and results of tools at 4,096
    characters; one entry of memory rides. Raises `ConfigError` for values that cannot work. A
    client that has no strict tools says so at the first request: `strict_tools=False` is for it.
    """
    options = RequestOptions(strict_tools=strict_tools, max_output_tokens=max_output_tokens)
    return Preset(
        config=SessionConfig(
            context_window=context_window,
            compact_threshold=70,
            max_result_chars=4_096,
            run=RunConfig(memory_top_k=1, options=options),
        ),
        plugins=[GoalReminder(reminder_every)],
        compactor=TruncatingCompactor(preserve_recent=2, min_messages=4),
    )


def frontier(context_window: int | None = None) -> Preset:
    """Settings for large models: the defaults, each said explicitly.

    `context_window` is `None`: what the client knows of its model.
    """
    return Preset(
        config=SessionConfig(
            context_window=context_window,
            compact_threshold=80,
            auto_compact=True,
            compaction_timeout=120,
            attachment_placement="head",
            memory_placement="head",
            contributor_timeout=10,
            decision_timeout=10,
            approval_timeout=None,
            tool_timeout=120,
            max_result_chars=16_384,
            strict_plugins=False,
            keep_runs=100,
            working_folder=None,
            run=RunConfig(
                max_turns=200,
                memory_top_k=3,
                parallel_tools=True,
                max_concurrency=8,
                options=RequestOptions(),
            ),
        ),
        plugins=[],
        compactor=TruncatingCompactor(preserve_recent=4, min_messages=6),
    )


GoalSource: TypeAlias = Literal["conversation", "run"]


class GoalReminder:
    """Re-sends the goal as a system message, to keep a small model on its task.

    Give it to `add_contributor` or among `plugins`.

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

    @hookimpl
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
