"""MOD-18: each dialect's model fails in the middle of a run, and each other's goes on with it."""

from __future__ import annotations

import itertools

import pytest

from loopctl import BareLoop, FallbackChain, RetryPolicy, tool
from loopctl.events import ModelSwitched
from loopctl.messages import ThinkingPart
from loopctl.testing import ByteServer, assert_valid_conversation, call, respond_json
from tests.acceptance.six_dialects import DIALECTS, Dialect, texts_of

pytestmark = pytest.mark.anyio

ONCE = RetryPolicy(retries=0, rate_limit_retries=0)
FAILS = respond_json({"error": {"message": "busy"}}, status=503)
APART = {"anthropic", "bedrock", "openai_responses"}
"""Where an id may not come again, in whatever turn."""
PAIRS = [
    pytest.param(primary, backup, id=f"{primary.name}-{backup.name}")
    for primary, backup in itertools.permutations(DIALECTS, 2)
]


@pytest.mark.parametrize("way", ["run", "stream"])
@pytest.mark.parametrize(("primary", "backup"), PAIRS)
async def test_a_run_goes_on_at_another_provider_and_comes_back(
    primary: Dialect, backup: Dialect, way: str
) -> None:
    """MOD-18, MOD-20, MOD-26: every request is one that its vendor takes, no vendor is sent what
    another one's model thought, ids that come again are told apart, and each tool runs once."""
    looked: list[str] = []

    @tool
    async def look(at: str) -> str:
        """Look at something."""
        looked.append(at)
        return f"seen: {at}"

    scripts = [
        primary.says("thought one", "Let me see.", call("look", id="call_1", at="door")),
        FAILS,
        backup.says("thought two", call("look", id="call_1", at="window")),
        primary.says("thought three", call("look", id="call_1", at="floor")),
        FAILS,
        backup.says("thought four", "A room."),
        primary.says("thought five", "Yes."),
    ]
    async with ByteServer(*scripts) as server:
        first, second = primary.connect(server.url), backup.connect(server.url)
        chain = FallbackChain(first, [second], retry=ONCE)
        agent = BareLoop(chain, [look], system="Be brief.")
        switches: list[ModelSwitched] = []
        outputs: list[str | None] = []
        for said in ("What is there?", "Sure?"):
            if way == "run":
                outputs.append((await agent.run(said)).output)
                continue
            async with agent.stream(said) as stream:
                async for event in stream:
                    if isinstance(event, ModelSwitched):
                        switches.append(event)
            assert stream.run is not None
            outputs.append(stream.run.output)
        await chain.aclose()
        await server.wait_closed()
    assert outputs == ["A room.", "Yes."]
    assert looked == ["door", "window", "floor"]
    if way == "stream":
        to = [(event.previous.split(":")[0], event.model.split(":")[0]) for event in switches]
        there, back = (first.provider, second.provider), (second.provider, first.provider)
        assert to == [there, back, there, back]
    assert_valid_conversation(agent.history)
    thinking = [part for m in agent.history for part in m.parts if isinstance(part, ThinkingPart)]
    assert [part.provider for part in thinking if part.kind != "phase"] == [
        first.provider,
        second.provider,
        first.provider,
        second.provider,
        first.provider,
    ]
    of_primary = (0, 1, 3, 4, 6)
    for number, request in enumerate(server.requests):
        asked = primary if number in of_primary else backup
        if way == "run":
            asked.validate(request)
        body = texts_of(request.body).replace(" ", "")
        foreign = ("two", "four") if number in of_primary else ("one", "three", "five")
        assert [name for name in foreign if f"thought{name}" in body] == []
        assert asked.name not in APART or body.count('"call_1"') <= 2  # a call and its result
    last = texts_of(server.requests[-1].body)
    for said in ("Let me see.", "seen: door", "seen: window", "seen: floor", "A room.", "Sure?"):
        assert last.count(said) == 1
    assert "thoughtone" in last.replace(" ", "")
    assert "thoughtthree" in last.replace(" ", "")
