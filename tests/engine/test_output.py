"""ENG-10: typed answers, validated, repaired once; cut-off is told apart from malformed."""

from __future__ import annotations

import datetime
import json
from enum import StrEnum
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from loopctl import BareLoop, Message, RequestOptions, RunConfig, tool
from loopctl.errors import ConfigError, OutputInvalid, Refused
from loopctl.events import RunEnded
from loopctl.models.client import ModelRequest
from loopctl.replies import ModelResponse, StopReason
from loopctl.testing import ScriptedClient, assert_valid_conversation, call

pytestmark = pytest.mark.anyio


class Room(BaseModel):
    name: str
    size: float = Field(gt=0)
    doors: list[str] = []


class Kind(StrEnum):
    OLD = "old"
    NEW = "new"


@tool
async def look() -> str:
    """Look."""
    return "a kitchen of twelve square metres"


KITCHEN = '{"name": "kitchen", "size": 12}'


async def test_the_answer_is_a_validated_value_and_tools_stay_usable_before_it() -> None:
    """ENG-10, F10: the schema rides every request; the run's output is the value."""
    client = ScriptedClient(call("look"), KITCHEN)
    agent = BareLoop(client, [look])
    run = await agent.run("what is there?", output=Room)
    assert run.output == Room(name="kitchen", size=12)
    for request in client.requests:
        assert request.options.response_schema == Room.model_json_schema()
        assert request.tools
    assert agent.history[-1].text == KITCHEN
    assert len(run.turns) == 2


async def test_the_next_run_is_asked_for_text_again() -> None:
    """ENG-10: the type belongs to the run."""
    client = ScriptedClient(KITCHEN, "hello")
    agent = BareLoop(client)
    await agent.run("what is there?", output=Room)
    run = await agent.run("and now?")
    assert run.output == "hello"
    assert client.requests[1].options.response_schema is None


async def test_a_stream_gives_it_too() -> None:
    """ENG-10, ENG-21: events carry the text, the run the value."""
    agent = BareLoop(ScriptedClient(KITCHEN))
    async with agent.stream("what is there?", output=Room) as stream:
        events = [event async for event in stream]
    assert stream.run is not None
    assert stream.run.output == Room(name="kitchen", size=12)
    ended = events[-1]
    assert isinstance(ended, RunEnded)
    assert ended.output == KITCHEN


@pytest.mark.parametrize(
    ("wanted", "answer", "value"),
    [
        (int, '{"value": 3}', 3),
        (int, "3", 3),
        (list[int], '{"value": [1, 2]}', [1, 2]),
        (list[int], "[1, 2]", [1, 2]),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (Kind, '{"value": "old"}', Kind.OLD),
        (Literal["yes", "no"], '{"value": "no"}', "no"),
        (datetime.date, '{"value": "2026-12-01"}', datetime.date(2026, 12, 1)),
        (Room | None, '{"value": null}', None),
        (Room, f"```json\n{KITCHEN}\n```", Room(name="kitchen", size=12)),
        (Room, f"Here it is: {KITCHEN}. Done.", Room(name="kitchen", size=12)),
        (Room, f"\n {KITCHEN}\n", Room(name="kitchen", size=12)),
    ],
)
async def test_any_type_that_pydantic_validates(wanted: Any, answer: str, value: Any) -> None:
    """ENG-10: what is no object rides under `value`; fences and words around it are forgiven."""
    client = ScriptedClient(answer)
    run = await BareLoop(client).run("what?", output=wanted)
    assert run.output == value
    schema = client.requests[0].options.response_schema
    assert schema is not None
    assert schema["type"] == "object"


async def test_a_recursive_type_keeps_its_definitions() -> None:
    """ENG-10: under the wrapper."""

    class Tree(BaseModel):
        name: str
        under: list[Tree] = []

    Tree.model_rebuild(_types_namespace={"Tree": Tree})
    client = ScriptedClient('{"value": {"name": "a", "under": [{"name": "b"}]}}')
    run = await BareLoop(client).run("what?", output=Tree)
    assert run.output is not None
    assert run.output.under[0].name == "b"
    schema = client.requests[0].options.response_schema
    assert schema is not None
    assert "Tree" in schema["$defs"]


async def test_an_answer_that_does_not_fit_is_sent_back_once_with_what_is_wrong() -> None:
    """ENG-10: the repair quotes the validation errors; the turns count."""
    client = ScriptedClient('{"name": "kitchen", "size": -1}', KITCHEN)
    agent = BareLoop(client)
    run = await agent.run("what is there?", output=Room)
    assert run.output == Room(name="kitchen", size=12)
    objection = client.requests[1].messages[-1].text
    assert "size: Input should be greater than 0, not -1" in objection
    assert len(run.turns) == 2
    assert_valid_conversation(agent.history)


async def test_tools_may_be_used_in_the_repair() -> None:
    """ENG-10: it is a turn like any other."""
    client = ScriptedClient("no idea", call("look"), KITCHEN)
    run = await BareLoop(client, [look]).run("what is there?", output=Room)
    assert run.output == Room(name="kitchen", size=12)


async def test_a_second_answer_that_does_not_fit_ends_the_run() -> None:
    """ENG-10, ENG-16, ENG-18: typed, with the text and the problems; the run can be continued."""
    client = ScriptedClient("no idea", "still none", KITCHEN)
    agent = BareLoop(client)
    with pytest.raises(OutputInvalid) as caught:
        await agent.run("what is there?", output=Room)
    error = caught.value
    assert (error.text, error.cut_off) == ("still none", False)
    assert "not JSON" in error.problems[0]
    assert error.run is not None
    assert error.run.ending == "failed"
    assert_valid_conversation(agent.history)
    run = await agent.run(None, output=Room)
    assert run.output == Room(name="kitchen", size=12)


async def test_a_cut_answer_is_not_a_malformed_one() -> None:
    """ENG-10, F11: it is not sent back, the limit is what to change."""
    cut = ModelResponse(message=Message.assistant('{"name": "kit'), stop_reason=StopReason.LENGTH)
    client = ScriptedClient(cut)
    agent = BareLoop(client)
    with pytest.raises(OutputInvalid, match="max_output_tokens") as caught:
        await agent.run("what is there?", output=Room)
    assert caught.value.cut_off
    assert agent.history == ()
    assert len(client.requests) == 1


async def test_a_refusal_is_a_refusal() -> None:
    """MOD-13: whatever type was asked for."""
    message = Message.assistant("I will not.")
    refused = ModelResponse(message=message, stop_reason=StopReason.REFUSAL)
    with pytest.raises(Refused):
        await BareLoop(ScriptedClient(refused)).run("what?", output=Room)


async def test_steering_in_the_middle_asks_for_the_value_again() -> None:
    """CTX-23, ENG-10: the last answer counts."""
    agent: BareLoop

    def first(request: ModelRequest) -> str:
        agent.steer("no, the hall")
        return KITCHEN

    agent = BareLoop(ScriptedClient(first, '{"name": "hall", "size": 4}'))
    run = await agent.run("what is there?", output=Room)
    assert run.output == Room(name="hall", size=4)


class Choosy(ScriptedClient):
    """A client that takes no schema for the reply."""

    async def complete(self, request: ModelRequest) -> ModelResponse:
        if request.options.response_schema is not None:
            raise ConfigError("RequestOptions.response_schema={…}: choosy takes none")
        return await super().complete(request)


async def test_a_client_that_takes_no_schema_is_asked_in_words() -> None:
    """ENG-10, MOD-3: prompted, in a system prompt that stays the same for the run's turns."""
    client = Choosy(call("look"), f"```\n{KITCHEN}\n```")
    run = await BareLoop(client, [look], system="be brief").run("what is there?", output=Room)
    assert run.output == Room(name="kitchen", size=12)
    first, second = [request.system for request in client.requests]
    assert first is second
    assert first is not None
    assert first.startswith("be brief\n\n")
    assert json.dumps(Room.model_json_schema(), separators=(",", ":")) in first


async def test_other_options_that_cannot_be_honoured_stay_errors() -> None:
    """MOD-3."""

    class Refusing(ScriptedClient):
        async def complete(self, request: ModelRequest) -> ModelResponse:
            raise ConfigError("RequestOptions.temperature=1: not here")

    with pytest.raises(ConfigError, match="temperature"):
        await BareLoop(Refusing()).run("what?", output=Room)


async def test_what_cannot_be_a_schema_is_refused_before_anything_happens() -> None:
    """ENG-10: and two schemas at once."""

    class Odd:
        pass

    agent = BareLoop(ScriptedClient())
    with pytest.raises(ConfigError, match="no schema can be made"):
        await agent.run("what?", output=Odd)
    options = RequestOptions(response_schema={"type": "object"})
    with pytest.raises(ConfigError, match="not both"):
        await agent.run("what?", RunConfig(options=options), output=Room)
    assert agent.runs == ()


def test_scripts_have_it_too() -> None:
    """ENG-10: `run_sync`."""
    assert BareLoop(ScriptedClient("7")).run_sync("what?", output=int).output == 7
