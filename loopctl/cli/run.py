"""One run on the terminal, from a session to its answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from loopctl.cli.exits import Stopped
from loopctl.cli.interrupts import Interrupts
from loopctl.cli.screen import Line, Place, untold
from loopctl.cli.terminal import Screen
from loopctl.config import SessionConfig
from loopctl.context.attachments import Attachment
from loopctl.errors import RunCancelled
from loopctl.loop import BareLoop
from loopctl.models.client import ModelClient
from loopctl.presets import GoalReminder
from loopctl.tools.builtin import read_text_file


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """What a session is made of."""

    client: ModelClient | str
    config: SessionConfig = field(default_factory=SessionConfig)
    tools: Sequence[Any] = ()
    system: str | None = None
    attachments: Sequence[Attachment] = ()
    plugins: Sequence[object] = ()
    goal_reminder: int = 0


def session(order: Order) -> BareLoop[None]:
    """The session of an order; `read_text_file` is always among its tools."""
    agent = BareLoop(
        order.client,
        [read_text_file, *order.tools],
        order.config,
        system=order.system,
        plugins=order.plugins,
        attachments=order.attachments,
    )
    if order.goal_reminder:
        agent.add_contributor(GoalReminder(order.goal_reminder))
    return agent


async def carry_out(agent: BareLoop[None], task: str, screen: Screen, last_words: bytes) -> None:
    """Run a task and show what happens. Raises what ended the run; `Stopped` for a Ctrl-C."""
    place = Place()
    stream = agent.stream(task)

    def stop() -> None:
        if stream.cancel():
            screen.say(Line("stopping; Ctrl-C again exits at once", "yellow"))

    try:
        with Interrupts(stop, last_words=last_words):
            async with agent, stream:
                async for event in stream:
                    place = place.after(event)
                    screen.show(event, place)
    except RunCancelled as error:
        raise Stopped(f"stopped {place.words}") from error
    finally:
        screen.close()
        for line in untold(stream.run):
            screen.say(line)
