"""CTX-10: the goal reminder."""

from __future__ import annotations

from typing import Any

import pytest

from loopctl import BareLoop, Message, SessionConfig, tool
from loopctl.presets import GoalReminder
from loopctl.testing import ScriptedClient, call

pytestmark = pytest.mark.anyio


@tool
async def work() -> str:
    """Work."""
    return "ok"


async def reminded(reminder: GoalReminder, turns: int = 7, **options: Any) -> list[int]:
    """The turns whose requests open with the reminder."""
    client = ScriptedClient(*[call("work")] * (turns - 1), "done")
    agent = BareLoop(client, [work], SessionConfig(strict_plugins=True), **options)
    agent.add_contributor(reminder)
    await agent.run("fix the roof")
    return [
        turn
        for turn, request in enumerate(client.requests)
        if request.messages[0].text.startswith("Reminder: the task is: ")
    ]


@pytest.mark.parametrize(
    ("every_n", "turns"), [(0, []), (1, [1, 2, 3, 4, 5, 6]), (2, [2, 4, 6]), (3, [3, 6]), (9, [])]
)
async def test_it_speaks_at_turns_n_2n_and_never_at_turn_0(every_n: int, turns: list[int]) -> None:
    """CTX-10: turns n, 2n, …; 0 is never."""
    assert await reminded(GoalReminder(every_n)) == turns


async def test_its_source_is_the_conversation_or_the_run() -> None:
    """CTX-10: the first user message of the conversation, or the run's input."""
    history = [Message.user("the first goal"), Message.assistant("ok")]
    for source, text in (("conversation", "the first goal"), ("run", "now this")):
        client = ScriptedClient(call("work"), "done")
        agent = BareLoop(client, [work], history=history)
        agent.add_contributor(GoalReminder(1, source=source))  # type: ignore[arg-type]
        await agent.run("now this")
        assert client.requests[1].messages[0] == Message.system(f"Reminder: the task is: {text}")


async def test_a_blank_or_missing_goal_keeps_it_quiet() -> None:
    """CTX-10: a run that continues has no input to repeat."""
    client = ScriptedClient(call("work"), call("work"), "done")
    agent = BareLoop(client, [work], history=[Message.user("left open")])
    agent.add_contributor(GoalReminder(1, source="run"))
    await agent.run(None)
    assert [len(request.messages) for request in client.requests] == [1, 3, 5]


def test_what_it_cannot_count_is_refused() -> None:
    """CTX-10: negative is a ValueError."""
    with pytest.raises(ValueError, match="every_n=-1"):
        GoalReminder(-1)
    with pytest.raises(ValueError, match="source='goal'"):
        GoalReminder(1, source="goal")  # type: ignore[arg-type]
