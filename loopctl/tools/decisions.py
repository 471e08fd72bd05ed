"""Decisions about tool calls: what may run, and what must not (TOL-13, TOL-14).

These are the words; `verdicts` says how they are asked for. All of it fails closed: a hook or an
approver that raises, runs out of time, raises a cancellation that nobody asked for, or answers
something else than a decision, has denied the call. Real cancellation, `KeyboardInterrupt` and
`SystemExit` pass through untouched.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, cast

from loopctl.messages import ToolCallPart
from loopctl.tools.types import Tool, ToolServices

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    D_co = TypeVar("D_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    D_co = TypeVar("D_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Allow:
    """The call may run, as far as this hook is concerned. `None` says the same."""


@dataclass(frozen=True, slots=True)
class Deny:
    """The call must not run. The model is told the reason."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Ask:
    """Somebody must approve the call first; `prompt` is what they are asked."""

    prompt: str = ""


@dataclass(frozen=True, slots=True)
class Modify:
    """The call may run with these arguments instead."""

    arguments: Mapping[str, Any]


Decision: TypeAlias = Allow | Deny | Ask | Modify
"""What `before_tool_call` may answer, besides `None` for no opinion."""


@dataclass(frozen=True, kw_only=True)  # with slots, ToolCallContext[D](…) fails on Python 3.11
class ToolCallContext(Generic[D_co]):
    """A call that is about to run, as hooks and layers see it. Nothing in it can be changed.

    `tool` is `None` when no tool has the call's name.
    """

    call: ToolCallPart
    tool: Tool | None
    run_id: str
    turn: int
    services: ToolServices

    @property
    def name(self) -> str:
        """The name of the tool that is called."""
        return self.call.name

    @property
    def arguments(self) -> dict[str, Any]:
        """The call's arguments, decoded afresh at each reading: changing them changes nothing."""
        return self.call.parse()

    @property
    def read_only(self) -> bool:
        """Whether the tool says that it changes nothing."""
        return bool(getattr(self.tool, "read_only", False))

    @property
    def deps(self) -> D_co:
        """The object that the app gave to the session for its tools."""
        return cast("D_co", self.services.deps)

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self.services.session_id

    @property
    def working_folder(self) -> Path:
        """The folder that relative paths start from."""
        return self.services.working_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionHook:
    """One plugin's `before_tool_call`, with the name and distribution to blame."""

    name: str
    distribution: str | None = None
    ask: Callable[[ToolCallContext[Any]], object | Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """What an approver is asked: may this call run?"""

    call: ToolCallPart
    prompt: str
    ctx: ToolCallContext[Any]


Approver: TypeAlias = Callable[[ApprovalRequest], Awaitable[Decision]]
"""Answers an `Ask`: `Allow`, `Deny`, or `Modify` to approve with other arguments.

Anything else, a bare `True` included, is a denial.
"""
