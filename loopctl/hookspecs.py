"""Every hook that a plugin may implement (CTX-24). Mark yours with `@loopctl.hookimpl`.

The engine asks hooks one by one in registration order (`tryfirst`, then plain, then `trylast`),
isolates each from the others, and awaits what is awaitable.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    import click

    from loopctl.compaction.types import CompactionAdvice, CompactionContext
    from loopctl.context.contributors import ContributorAnswer, ContributorContext
    from loopctl.events import Event
    from loopctl.models.connect import ModelFactory
    from loopctl.tools.decisions import Decision, ToolCallContext
    from loopctl.tools.registry import ToolLike

PROJECT = "loopctl"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class HookSpecs:
    """The hooks; each docstring says when it is asked and what its answer means."""

    @hookspec
    def contribute(
        self, ctx: ContributorContext[Any]
    ) -> ContributorAnswer | Awaitable[ContributorAnswer]:
        """Before every turn: one message that rides this request, or `None` (CTX-1)."""

    @hookspec
    def before_tool_call(
        self, ctx: ToolCallContext[Any]
    ) -> Decision | Awaitable[Decision | None] | None:
        """Before a call runs: `Allow`, `Deny`, `Ask`, `Modify` or `None`. Fails closed (TOL-13)."""
        return None

    @hookspec
    def before_compaction(
        self, ctx: CompactionContext
    ) -> CompactionAdvice | Awaitable[CompactionAdvice | None] | None:
        """Before a pass: a veto, other instructions (the last win), more context (CMP-5)."""
        return None

    @hookspec
    def on_event(self, event: Event) -> None:
        """After each event, sync. A failing one is logged once for each run (CTX-24)."""

    @hookspec
    def register_tools(self, register: Callable[[ToolLike], None]) -> None:
        """When the plugin is registered, sync: `register(tool)` adds a tool to the session.

        It is asked for each session, and once more to see whether an installed plugin works.
        """

    @hookspec
    def register_models(self, register: Callable[[str, ModelFactory], None]) -> None:
        """When the plugin is registered, sync: `register(prefix, factory)` adds a prefix.

        `BareLoop("prefix:model", plugins=[…])` then takes `factory("model")` as its client.
        """

    @hookspec
    def register_commands(self, group: click.Group) -> None:
        """When the `loopctl` command looks for commands, sync: add yours to the click `group`.

        Asked of installed plugins only; what is built in cannot be replaced.
        """


HOOKS: dict[str, tuple[str, ...]] = {
    "contribute": ("ctx",),
    "before_tool_call": ("ctx",),
    "before_compaction": ("ctx",),
    "on_event": ("event",),
    "register_tools": ("register",),
    "register_models": ("register",),
    "register_commands": ("group",),
}
"""Every hook and the arguments that it is called with."""

SYNC = frozenset({"on_event", "register_tools", "register_models", "register_commands"})
"""The hooks that are never awaited."""
