"""Every hook that a plugin may implement (CTX-24). Mark yours with `@loopctl.hookimpl`.

The engine asks hooks one by one in registration order (`tryfirst`, then plain, then `trylast`),
isolates each from the others, and awaits what is awaitable.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from loopctl.context.contributors import ContributorAnswer, ContributorContext
    from loopctl.events import Event
    from loopctl.tools.decisions import Decision, ToolCallContext

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
    def on_event(self, event: Event) -> None:
        """After each event, sync. A failing one is logged once for each run (CTX-24)."""


HOOKS: dict[str, tuple[str, ...]] = {
    "contribute": ("ctx",),
    "before_tool_call": ("ctx",),
    "on_event": ("event",),
}
"""Every hook and the arguments that it is called with."""
