"""What the tests of tools share: a session's services without a session, and a dispatcher."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from loopctl._deadline import Deadline
from loopctl.config import RunConfig, SessionConfig
from loopctl.events import Event
from loopctl.messages import ToolCallPart, ToolResultPart
from loopctl.runs import CallRecord
from loopctl.tools.decisions import Approver, DecisionHook
from loopctl.tools.dispatch import Dispatcher
from loopctl.tools.layers import Layer
from loopctl.tools.registry import ToolLike, ToolRegistry


class Services:
    """The services of a session that has pinned nothing yet."""

    def __init__(self, deps: Any = None) -> None:
        self.deps = deps
        self.session_id = "session-1"
        self.working_folder = Path("/work")
        self.folders_made = 0
        self.pinned: dict[str, Any] = {}
        self.said: list[Any] = []

    def temporary_folder(self) -> Path:
        self.folders_made += 1
        return Path("/private")

    async def set_attachment(self, attachment: Any, /) -> None:
        self.pinned[attachment.id] = attachment

    async def detach_attachment(self, attachment_id: str, /) -> bool:
        return self.pinned.pop(attachment_id, None) is not None

    def steer(self, said: Any, /) -> bool:
        self.said.append(said)
        return True

    def attachment_ids(self) -> tuple[str, ...]:
        return tuple(self.pinned)


class Sink:
    """Keeps every event; inactive when told so."""

    def __init__(self, *, active: bool = True) -> None:
        self.active = active
        self.events: list[Event] = []
        self.deadlines: list[Deadline | None] = []

    async def send(self, event: Event, deadline: Deadline | None = None) -> None:
        self.events.append(event)
        self.deadlines.append(deadline)

    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.events]


class Bench:
    """One dispatcher and all that it is given and gives."""

    def __init__(
        self,
        *tools: ToolLike,
        hooks: Sequence[Callable[[Any], object]] = (),
        layers: Sequence[Layer] = (),
        approver: Approver | None = None,
        config: SessionConfig | None = None,
        deps: Any = None,
    ) -> None:
        self.services = Services(deps)
        self.registry = ToolRegistry(tools)
        self.sink = Sink()
        self.finished: dict[str, CallRecord] = {}
        self.dispatcher = Dispatcher(
            self.registry,
            services=self.services,
            config=config or SessionConfig(),
            layers=layers,
            approver=approver,
        )
        self.dispatcher.hooks = tuple(
            DecisionHook(name=getattr(hook, "__name__", f"hook{number}"), ask=hook)
            for number, hook in enumerate(hooks)
        )

    async def run(
        self, *calls: ToolCallPart, run_config: RunConfig | None = None
    ) -> list[ToolResultPart]:
        """Run the calls of one reply; the results in the order of the calls."""
        await self.dispatcher.run(
            calls,
            run_id="run-1",
            turn=3,
            run_config=run_config or RunConfig(),
            sink=self.sink,
            finished=self.finished,
        )
        return [self.finished[call.id].result for call in calls]

    async def one(self, name: str, **arguments: Any) -> ToolResultPart:
        """Run one call."""
        return (await self.run(call(name, **arguments)))[0]


def call(name: str, id: str = "c1", /, **arguments: Any) -> ToolCallPart:
    """A call of a tool with arguments."""
    return ToolCallPart(id, name, arguments)
