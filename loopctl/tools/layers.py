"""Layers: functions around a tool call (TOL-12). Here are their types; the dispatcher joins them.

A layer is `async (ctx, next) -> result`. It may pass the call on as it is (`await next(ctx)`),
rewritten (`await next(rewritten(ctx, arguments={…}))`), several times, or not at all, and it may
change what comes back. Decisions are taken inside all layers, on the call that would really run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from loopctl.messages import ImagePart, Retention, TextPart, ToolCallPart, ToolOutcome
from loopctl.tools.decisions import ToolCallContext


@dataclass(frozen=True, kw_only=True, slots=True)
class CallOutput:
    """What came of a call: its output and the engine's word on what became of it.

    A layer may return one with other content; the engine goes by its own record of `outcome`.
    """

    content: str | tuple[TextPart | ImagePart, ...]
    is_error: bool = False
    display_hint: str | None = None
    retention: Retention | None = None
    outcome: ToolOutcome = "executed"


Next: TypeAlias = Callable[[ToolCallContext[Any]], Awaitable[CallOutput]]
"""The rest of the way: the inner layers, the decisions, the tool. It raises no tool's errors."""

Layer: TypeAlias = Callable[[ToolCallContext[Any], Next], Awaitable[object]]
"""A function around a call; it returns a `CallOutput`, or anything that a tool may return."""


def rewritten(
    ctx: ToolCallContext[Any],
    *,
    name: str | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> ToolCallContext[Any]:
    """The same call with another tool's name or other arguments."""
    call = ToolCallPart(
        ctx.call.id,
        ctx.call.name if name is None else name,
        ctx.call.arguments if arguments is None else arguments,
    )
    tool = ctx.tool if call.name == ctx.call.name else None
    return dataclasses.replace(ctx, call=call, tool=tool)
