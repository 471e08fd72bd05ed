"""MOD-18 in a run: another model serves the same turn, and every change is told."""

from __future__ import annotations

import pytest

from loopctl import BareLoop, FallbackChain, Message, RetryPolicy, tool
from loopctl.errors import ContextOverflowError, FallbackExhausted, ServerError
from loopctl.events import AttemptReset, Event, ModelSwitched, TextDelta
from loopctl.replies import ModelResponse
from loopctl.testing import ScriptedClient, call
from loopctl.usage import Usage

pytestmark = pytest.mark.anyio

ONCE = RetryPolicy(retries=0, rate_limit_retries=0)


@tool
async def work() -> str:
    """Work."""
    return "done"


def chain(primary: ScriptedClient, backup: ScriptedClient) -> FallbackChain:
    return FallbackChain(primary, [backup], retry=ONCE)


async def test_the_backup_serves_the_same_turn_and_the_switch_is_told() -> None:
    """MOD-18, E4: in a stream, with the tools of the reply run once."""
    primary = ScriptedClient(ServerError("broken"), "I am back", model="big", provider="one")
    backup = ScriptedClient(call("work"), model="small", provider="two")
    agent = BareLoop(chain(primary, backup), [work])
    events: list[Event] = []
    async with agent.stream("go") as stream:
        async for event in stream:
            events.append(event)
    assert stream.run is not None
    assert stream.run.output == "I am back"
    switched = [e for e in events if isinstance(e, ModelSwitched)]
    assert [(e.turn, e.previous, e.model) for e in switched] == [
        (0, "one:big", "two:small"),
        (1, "two:small", "one:big"),
    ]
    assert "broken" in switched[0].reason
    assert [turn.model for turn in stream.run.turns] == ["small", "big"]
    assert len(stream.run.turns[0].calls) == 1


async def test_run_goes_the_same_way() -> None:
    """MOD-18: without a reader nothing is told, and the session remembers who served."""
    primary = ScriptedClient(ServerError("broken"), model="big", provider="one")
    backup = ScriptedClient("hello", model="small", provider="two")
    agent = BareLoop(chain(primary, backup))
    run = await agent.run("go")
    assert run.output == "hello"
    assert agent._session.asked == "two:small"


async def test_what_a_failed_member_said_before_is_void() -> None:
    """MOD-15, ENG-25: announced before the backup's first event."""
    primary = ScriptedClient(ServerError("broken"), model="big", provider="one")
    backup = ScriptedClient("hello", model="small", provider="two")
    agent = BareLoop(chain(primary, backup))
    async with agent.stream("go") as stream:
        events = [event async for event in stream]
    kinds = [type(e) for e in events if isinstance(e, AttemptReset | ModelSwitched | TextDelta)]
    assert kinds[-1] is TextDelta
    assert ModelSwitched in kinds


async def test_a_spent_chain_ends_the_run_with_what_it_cost() -> None:
    """MOD-18, MOD-15: `FallbackExhausted` with all causes."""
    failed = ServerError("broken")
    failed.usage = Usage(input_tokens=5)
    primary = ScriptedClient(ServerError("down"), model="big", provider="one")
    backup = ScriptedClient(failed, model="small", provider="two")
    agent = BareLoop(chain(primary, backup))
    with pytest.raises(FallbackExhausted) as caught:
        await agent.run("go")
    assert len(caught.value.causes) == 2
    assert caught.value.run is not None
    assert caught.value.run.usage.input_tokens == 5
    assert agent.history == ()


async def test_a_prompt_that_the_primary_finds_too_long_is_salvaged_not_passed_on() -> None:
    """CTX-33, MOD-18: a permanent refusal counts for nothing."""
    past = [Message.user("q" * 4_000), Message.assistant("a" * 4_000)] * 3
    primary = ScriptedClient(
        ContextOverflowError("prompt is too long"),
        ModelResponse(message=Message.assistant("done")),
        model="big",
        provider="one",
    )
    backup = ScriptedClient(model="small", provider="two")
    agent = BareLoop(chain(primary, backup), history=past)
    run = await agent.run("go")
    assert run.output == "done"
    assert backup.requests == []
    assert len(primary.requests[1].messages) < len(primary.requests[0].messages)
