"""MOD-22: what a prompt cache needs, in whole runs over every dialect.

A cache holds the beginning of a request up to the first change. So the beginning must stay as it
is from turn to turn, to the byte; what the server is told of it must say where it ends; and what
came from the cache must be seen in the run.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from loopctl import (
    BareLoop,
    Contribution,
    ContributorContext,
    FileAttachment,
    Message,
    SessionConfig,
    tool,
)
from loopctl.testing import ByteServer, ReceivedRequest, call
from tests.acceptance.six_dialects import DIALECTS, Dialect, names
from tests.models.anthropic import test_request as anthropic
from tests.models.bedrock import test_request as bedrock

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("dialect", DIALECTS, ids=names)]

TAIL = SessionConfig(attachment_placement="tail")
MARKED, KEYED = {"anthropic", "bedrock"}, {"openai_responses"}


@tool
async def look(at: str) -> str:
    """Look at something."""
    return f"SEEN {at}"


@tool
async def smell() -> str:
    """Smell."""
    return "nothing"


def clock(ctx: ContributorContext) -> Contribution:
    return Contribution(Message.user(f"NOW {ctx.turn}/{len(ctx.conversation)}"), placement="tail")


def note() -> FileAttachment:
    return FileAttachment.inline("note.txt", "STEADY")


@asynccontextmanager
async def played(
    dialect: Dialect, make: Callable[..., BareLoop]
) -> AsyncGenerator[tuple[BareLoop, list[ReceivedRequest]]]:
    """A session that has had two runs, of three turns and of one, and its requests.

    Both runs know how much came from the cache.
    """
    scripts = [
        dialect.says("one", call("look", id="c1", at="door")),
        dialect.says("two", call("look", id="c2", at="window")),
        dialect.says("three", "A room."),
        dialect.says("four", "Yes."),
    ]
    async with ByteServer(*scripts) as server:
        client = dialect.connect(server.url)
        agent = make(client)
        runs = [await agent.run(asked) for asked in ("What is there?", "Sure?")]
        await client.aclose()
        yield agent, server.requests
    told = (None, None) if dialect.name == "ollama" else (3 * 7, 7)  # Ollama does not tell
    assert tuple(run.usage.cached_tokens for run in runs) == told


def unmarked(dialect: Dialect, request: ReceivedRequest) -> str:
    """The body without the marks, which move on with every request and are no part of it."""
    body = request.json()
    if dialect.name == "anthropic":
        body = anthropic.unmarked(body)
    elif dialect.name == "bedrock":
        body = bedrock.unmarked(body)
    return json.dumps(body, ensure_ascii=False)


def common(dialect: Dialect, requests: list[ReceivedRequest]) -> list[str]:
    """What each request has in common with the one before it, from the beginning on."""
    bodies = [unmarked(dialect, request) for request in requests]
    return [_beginning(*pair) for pair in itertools.pairwise(bodies)]


def _beginning(one: str, other: str) -> str:
    """What both begin with."""
    alike = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return "".join(letter for letter, _ in alike)


SAID = ("What is there?", "SEEN door", "SEEN window", "A room.")
"""What is new at the end of the conversation in each request."""


async def test_behind_a_steady_head_nothing_is_read_twice(dialect: Dialect) -> None:
    """MOD-22, CTX-20: each request begins with all of the one before, reasoning included."""

    def make(client: Any) -> BareLoop:
        return BareLoop(client, [look, smell], system="Be brief.", attachments=[note()])

    async with played(dialect, make) as (_, requests):
        for shared, said in zip(common(dialect, requests), SAID[:3], strict=True):
            assert said in shared
            assert "STEADY" in shared
        bodies = [unmarked(dialect, request) for request in requests]
        for name in ("tools", "system", "instructions", "systemInstruction", "toolConfig"):
            assert len({json.dumps(json.loads(body).get(name)) for body in bodies}) == 1


async def test_what_changes_at_the_tail_spoils_nothing_in_front_of_it(dialect: Dialect) -> None:
    """MOD-22, CTX-7: up to the end of the conversation, where reasoning is not bound."""

    def make(client: Any) -> BareLoop:
        agent = BareLoop(client, [look], TAIL, system="Be brief.", attachments=[note()])
        agent.add_contributor(clock)
        return agent

    async with played(dialect, make) as (_, requests):
        for shared, said in zip(common(dialect, requests), SAID[:3], strict=True):
            assert said in shared
            assert "STEADY" not in shared


async def test_the_marks_stand_where_the_next_request_still_agrees(dialect: Dialect) -> None:
    """MOD-22, C5: at the last tool, the system prompt, and the last message that comes again."""

    def make(client: Any) -> BareLoop:
        agent = BareLoop(client, [look, smell], system="Be brief.")
        agent.add_contributor(clock)
        return agent

    async with played(dialect, make) as (_, requests):
        for number, request in enumerate(requests):
            text = request.body.decode()
            marks = [found.start() for found in re.finditer("cache_control|cachePoint", text)]
            if dialect.name not in MARKED:
                assert marks == []
                continue
            assert 3 <= len(marks) <= 4
            in_messages = text.index('"messages":')
            end = min([at for at in _starts(text) if at > in_messages], default=len(text))
            last = max(mark for mark in marks if in_messages < mark < end)
            assert SAID[number] in text[in_messages:last]
            assert f"NOW {number % 3}" in text[last:]
            assert "NOW" not in text[:last]
            assert _marked_last(request.json()) == ("smell", "Be brief.")


def _starts(text: str) -> list[int]:
    """Where the fields behind the messages begin."""
    return [at for name in ("tools", "toolConfig") if (at := text.find(f'"{name}":')) >= 0]


def _marked_last(body: dict[str, Any]) -> tuple[str, str]:
    """The name of the tool and the system text that bear a mark."""
    if "toolConfig" in body:
        *_, spec, point = body["toolConfig"]["tools"]
        assert "cachePoint" in point
        system, behind = body["system"][:2]
        assert "cachePoint" in behind
        return spec["toolSpec"]["name"], system["text"]
    last, system = body["tools"][-1], body["system"][0]
    assert "cache_control" in last
    assert "cache_control" in system
    return last["name"], system["text"]


async def test_one_key_stands_for_all_that_begins_alike(dialect: Dialect) -> None:
    """MOD-22: the same in every turn and session with these tools and this prompt."""

    def make(client: Any) -> BareLoop:
        return BareLoop(client, [look, smell], system="Be brief.")

    def other(client: Any) -> BareLoop:
        return BareLoop(client, [look], system="Be brief.")

    keys: list[set[Any]] = []
    for each in (make, make, other):
        async with played(dialect, each) as (_, requests):
            keys.append({request.json().get("prompt_cache_key") for request in requests})
    if dialect.name in KEYED:
        assert keys[0] == keys[1] != keys[2]
        assert [len(each) for each in keys] == [1, 1, 1]
        assert None not in keys[0] | keys[2]
    else:
        assert keys == [{None}] * 3
