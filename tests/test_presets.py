"""CTX-10: the goal reminder; the presets that return arguments of `BareLoop`."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest

from loopctl import BareLoop, Message, SessionConfig, hookimpl, tool
from loopctl.compaction.truncating import TruncatingCompactor
from loopctl.errors import ConfigError
from loopctl.presets import GoalReminder, constrained, frontier
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


async def test_the_constrained_preset_makes_a_session_for_small_windows() -> None:
    """CTX-10, ENG-14: 32,768 tokens, a reminder every 5 turns, strict tools, capped outputs."""
    client = ScriptedClient(*[call("work")] * 6, "done")
    agent = BareLoop(client, [work], **constrained())
    await agent.run("fix the roof")
    options = client.requests[0].options
    assert (options.strict_tools, options.max_output_tokens) == (True, 2_048)
    assert agent.config.context_window == 32_768
    assert agent.config.max_result_chars == 4_096
    reminded = [request.messages[0].text.startswith("Reminder") for request in client.requests]
    assert reminded == [False] * 5 + [True, False]


async def test_a_preset_s_figures_can_be_changed() -> None:
    """Its arguments, and what it returns."""
    preset = constrained(8_192, reminder_every=2, max_output_tokens=512, strict_tools=False)
    seen: list[int] = []
    preset["plugins"].append(_Watching(seen))
    client = ScriptedClient(call("work"), "done")
    agent = BareLoop(client, [work], **preset)
    await agent.run("go")
    assert agent.config.context_window == 8_192
    assert client.requests[0].options.strict_tools is False
    assert seen == [0, 1]
    with pytest.raises(ConfigError, match="max_output_tokens"):
        constrained(max_output_tokens=0)


class _Watching:
    def __init__(self, seen: list[int]) -> None:
        self._seen = seen

    @hookimpl
    def contribute(self, ctx: Any) -> None:
        self._seen.append(ctx.turn)


def test_the_frontier_preset_says_every_default() -> None:
    """ENG-14: equal to a session without settings, and no field is left out."""
    preset = frontier()
    assert preset["config"] == SessionConfig()
    assert preset["plugins"] == []
    assert preset["compactor"] == TruncatingCompactor()
    source = inspect.getsource(frontier)
    for field in dataclasses.fields(SessionConfig):
        assert f"{field.name}=" in source, field.name
