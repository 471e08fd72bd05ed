"""One run on the terminal, from a session to its answer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio

from loopctl._failures import unwrapped
from loopctl.cli.exits import Stopped
from loopctl.cli.interrupts import Interrupts
from loopctl.cli.keyboard import Keyboard
from loopctl.cli.screen import Line, Place, one_line, untold
from loopctl.cli.terminal import Screen
from loopctl.config import SessionConfig
from loopctl.context.attachments import Attachment
from loopctl.engine.stream import EventStream
from loopctl.errors import RunCancelled
from loopctl.events import Event, SteeringDelivered
from loopctl.loop import BareLoop
from loopctl.models.client import ModelClient
from loopctl.presets import GoalReminder
from loopctl.tools.builtin import read_text_file

STOPPING = Line("stopping; Ctrl-C again exits at once", "yellow")


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


async def carry_out(
    agent: BareLoop[None],
    task: str,
    screen: Screen,
    last_words: bytes,
    keyboard: Keyboard | None = None,
) -> None:
    """Run a task and show what happens; what is typed meanwhile steers it (CTX-23).

    Raises what ended the run; `Stopped` for a Ctrl-C.
    """
    stream = agent.stream(task)
    waiting: list[str] = []

    async def steer() -> None:
        while keyboard is not None and keyboard.open:
            said = await keyboard.line()
            if said is not None and said.strip():
                waiting.append(said)
                agent.steer(said)

    def seen(event: Event) -> None:
        if isinstance(event, SteeringDelivered):
            del waiting[: len(event.messages)]

    def stop() -> None:
        if stream.cancel():
            screen.say(STOPPING)

    restore = None if keyboard is None else keyboard.restore
    with keyboard or contextlib.nullcontext():
        try:
            with Interrupts(stop, last_words=last_words, restore=restore):
                async with agent:
                    await watch(stream, screen, seen, None if keyboard is None else steer)
        finally:
            for text in waiting:
                screen.say(Line(f"not delivered: {one_line(text)}", "yellow"))


async def watch(
    stream: EventStream,
    screen: Screen,
    seen: Callable[[Event], None] | None = None,
    listen: Callable[[], Coroutine[Any, Any, None]] | None = None,
) -> None:
    """Show a run while it happens; `listen` goes on beside it and is cancelled with its end.

    Raises what ended the run; `Stopped`, which says where it was, when it was cancelled.
    """
    place = Place()
    failure: Exception | None = None
    try:
        async with stream, anyio.create_task_group() as group:
            if listen is not None:
                group.start_soon(listen)
            try:
                async for event in stream:
                    place = place.after(event)
                    screen.show(event, place)
                    if seen is not None:
                        seen(event)
            except Exception as error:  # it leaves the group by itself, bare
                failure = error
            group.cancel_scope.cancel()
    except BaseExceptionGroup as several:
        raise unwrapped(several) from None
    finally:
        screen.close()
        for line in untold(stream.run):
            screen.say(line)
    if isinstance(failure, RunCancelled):
        raise Stopped(f"stopped {place.words}") from failure
    if failure is not None:
        raise failure
