"""CTX-23: what a user says to a run while it works."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from loopctl import BareLoop, LoopMachine, Message, RunConfig, ToolContext, tool
from loopctl.errors import ConfigError, ContextExceeded, ContextOverflowError, ServerError
from loopctl.events import Event, SteeringDelivered
from loopctl.messages import ImagePart
from loopctl.models.client import ModelRequest
from loopctl.testing import ScriptedClient, assert_valid_conversation, call

pytestmark = pytest.mark.anyio


def texts(request: ModelRequest) -> list[str]:
    return [message.text for message in request.messages]


async def test_it_is_committed_behind_the_complete_set_of_tool_results() -> None:
    """CTX-23, C1, D10: never between a call and its result; delivered once, told when."""
    agent: BareLoop

    @tool
    async def work() -> str:
        """Work."""
        assert agent.steer("look left first") is True
        assert agent.steer(Message.user("then right")) is True
        return "done"

    client = ScriptedClient([call("work"), call("work", id="second")], "I looked.")
    agent = BareLoop(client, [work])
    events: list[Event] = []
    async with agent.stream("go") as stream:
        async for event in stream:
            events.append(event)
    said = [event for event in events if isinstance(event, SteeringDelivered)]
    assert [message.text for event in said for message in event.messages] == [
        "look left first",
        "then right",
    ] * 2
    assert said[0].turn == 1
    assert texts(client.requests[1])[-4:] == ["look left first", "then right"] * 2
    assert_valid_conversation(agent.history)
    assert stream.run is not None
    assert stream.run.output == "I looked."


async def test_what_arrives_during_the_final_answer_makes_another_turn() -> None:
    """CTX-23: the run goes on, and answers it."""
    agent: BareLoop

    def answer(request: ModelRequest) -> str:
        assert agent.steer("and in French?") is True
        return "Hello."

    client = ScriptedClient(answer, "Bonjour.")
    agent = BareLoop(client)
    run = await agent.run("Say hello.")
    assert run.output == "Bonjour."
    assert [turn.text for turn in run.turns] == ["Hello.", "Bonjour."]
    assert [message.text for message in agent.history] == [
        "Say hello.",
        "Hello.",
        "and in French?",
        "Bonjour.",
    ]


async def test_without_a_run_it_is_kept_for_the_next_input() -> None:
    """CTX-23: `False`, and part of the next input."""
    client = ScriptedClient("ok")
    agent = BareLoop(client)
    assert agent.steer("by the way") is False
    run = await agent.run("go")
    assert client.requests[0].messages == (Message.user("by the way", "go"),)
    assert run.output == "ok"


async def test_a_tool_may_steer_its_own_run() -> None:
    """CTX-23, TOL-6: the same from a ToolContext."""

    @tool
    async def nudge(ctx: ToolContext) -> str:
        """Nudge."""
        return str(ctx.steer("from inside"))

    client = ScriptedClient(call("nudge"), "ok")
    await BareLoop(client, [nudge]).run("go")
    assert texts(client.requests[1])[-1] == "from inside"


async def test_a_run_that_is_taken_back_loses_no_word() -> None:
    """CTX-23, ENG-18: the same call is the natural retry, with what was said."""
    agent: BareLoop

    def fail(request: ModelRequest) -> str:
        agent.steer("later word")
        raise ServerError("down")

    client = ScriptedClient(fail, "ok")
    agent = BareLoop(client, retry=None)
    agent.steer("early word")
    with pytest.raises(ServerError):
        await agent.run("go")
    assert agent.history == ()
    await agent.run("go")
    assert client.requests[1].messages == (Message.user("early word", "later word", "go"),)


async def test_an_overflow_hands_it_back_with_the_input() -> None:
    """CTX-33, ENG-18: unfinished_input is the run's input and its steering."""
    agent: BareLoop

    @tool
    async def work() -> str:
        """Work."""
        agent.steer("hurry")
        return "x"

    client = ScriptedClient(call("work"), ContextOverflowError("too long"), "fresh")
    agent = BareLoop(client, [work])
    with pytest.raises(ContextExceeded) as caught:
        await agent.run("go")
    assert caught.value.unfinished_input == (Message.user("go"), Message.user("hurry"))
    await agent.run("again")
    assert texts(client.requests[-1]) == ["again"]


async def test_after_a_cancellation_it_waits_for_the_next_boundary() -> None:
    """CTX-23, ENG-19: said, not yet delivered, the run cancelled: run(None) delivers it."""
    agent: BareLoop

    @tool
    async def stop() -> str:
        """Stop."""
        agent.steer("one more thing")
        agent.cancel()
        await anyio.sleep_forever()
        return "never"

    client = ScriptedClient(call("stop"), "went on")
    agent = BareLoop(client, [stop])
    with pytest.raises(Exception, match="cancelled"):
        await agent.run("go")
    await agent.run(None)
    assert texts(client.requests[1])[-1] == "one more thing"
    assert_valid_conversation(agent.history)


async def test_at_the_turn_limit_it_is_kept() -> None:
    """CTX-23, ENG-3: an answer at the limit, with a word waiting: nothing is lost."""
    agent: BareLoop

    def answer(request: ModelRequest) -> str:
        agent.steer("wait")
        return "final"

    client = ScriptedClient(answer, "ok")
    agent = BareLoop(client)
    with pytest.raises(Exception, match="no answer after 1 turns"):
        await agent.run("go", RunConfig(max_turns=1))
    await agent.run("next")
    assert client.requests[1].messages[-1] == Message.user("wait", "next")


@pytest.mark.parametrize("said", ["", " \n", Message.assistant("x"), Message.user()])
def test_what_says_nothing_is_refused(said: Any) -> None:
    """CTX-23: a typed error, nothing kept."""
    agent = BareLoop(ScriptedClient())
    with pytest.raises(ConfigError, match="steering is text"):
        agent.steer(said)
    assert agent.steer(Message.user(ImagePart("image/png", b"x"))) is False


def test_a_machines_document_carries_what_waits() -> None:
    """CTX-23, ENG-7: waiting and delivered steering survive dump and load."""
    machine = LoopMachine()
    machine.steer(Message.user("early"))
    machine.begin(Message.user("go"))
    machine.steer(Message.user("late"))
    again = LoopMachine.load(machine.dump())
    assert again.steering == (Message.user("late"),)
    assert again.delivered == (Message.user("early"),)
    assert again.deliver() == (Message.user("late"),)
    assert again.conversation[-1] == Message.user("late")
