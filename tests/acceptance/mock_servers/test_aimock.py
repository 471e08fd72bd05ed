"""aimock, a server kept by others, plays conversations with tools over six APIs.

It looks at the conversation that it is sent (the user's last words, how many replies there were,
what the tools gave) and answers by a script; a request that does not fit any line of it fails.

Where aimock is not like the real API:
- it serves Gemini below `v1beta` alone, and labels a reply with calls `FUNCTION_CALL` where the
  real one says `STOP`;
- it takes no cache mark among the tools of Bedrock (500), so the model here is one without;
- it takes each item of Responses for a reply: the lines of the script that count replies are there
  once more, counted like that;
- it counts no tokens on most APIs: nothing about usage is looked at.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx
import pytest

from loopctl import BareLoop, Message, RetryPolicy, Run, RunConfig, connect, tool
from loopctl.errors import BadRequestError, OverloadedError
from loopctl.events import AttemptReset, TextDelta
from loopctl.messages import ThinkingPart
from loopctl.models.client import ModelClient
from loopctl.replies import StopReason
from loopctl.testing import assert_valid_conversation
from tests.acceptance.mock_servers.aimock import installed, served

pytestmark = pytest.mark.timeout(180)  # npm may have to be waited for

APIS = {
    "openai": ("openai:gpt-6-sol", "/v1"),
    "openai-chat": ("openai-chat:gpt-5.4", "/v1"),
    "anthropic": ("anthropic:claude-sonnet-5-5", ""),
    "gemini": ("gemini:gemini-4-argon", ""),
    "bedrock": ("bedrock:meta.llama4-maverick-17b-instruct-v1:0", ""),
    "ollama": ("ollama:qwen4", ""),
}
NOTE = 'quiet – 静か, "top" floor\n\\'
LIMITED = RunConfig(max_turns=5)
PATIENT = RetryPolicy(base_delay=0.05, max_retry_after=0.05)


def call(id: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": id, "name": name, "arguments": arguments}


def line(asked: str, response: dict[str, Any], **match: Any) -> dict[str, Any]:
    return {"match": {"userMessage": asked, **match}, "response": response}


SCRIPT = [
    line(
        "Plan a trip",
        {
            "content": "Two look-ups first.",
            "toolCalls": [
                call("call_a", "get_weather", city="Paris"),
                call("call_b", "get_weather", city="Oslo"),
            ],
        },
        turnIndex=0,
    ),
    line(
        "Plan a trip",
        {"toolCalls": [call("call_c", "book", city="Paris", nights=2, note=NOTE)]},
        turnIndex=1,
        toolResultContains="21 °C in Oslo",  # of two results, the last one
    ),
    line("Plan a trip", {"content": "Booked: Paris."}, turnIndex=2, toolResultContains="room 7"),
    line(
        "And the way back",
        {"toolCalls": [call("call_d", "get_weather", city="Berlin")]},
        hasToolResult=False,
        turnIndex=3,
    ),
    line("And the way back", {"content": "By train."}, toolResultContains="21 °C in Berlin"),
    line("No such city", {"toolCalls": [call("call_e", "get_weather")]}, turnIndex=0),
    line("No such city", {"content": "I am sorry."}, hasToolResult=True),
    {
        **line("Break off", {"content": "Said until it breaks. " * 9}, sequenceIndex=0),
        "latency": 15,  # without, the connection closes before anything is sent
        "truncateAfterChunks": 3,
    },
    line("Break off", {"content": "This is the whole of it."}, sequenceIndex=1),
    line(
        "Think first",
        {
            "reasoning": "One look will do.",
            "content": "Looking.",
            "toolCalls": [call("call_f", "get_weather", city="Rome")],
        },
        turnIndex=0,
    ),
    line("Think first", {"content": "Warm."}, toolResultContains="21 °C in Rome"),
]
ITEMS = {1: 3, 2: 4, 3: 5}
"""How many items there were, for each number of replies that a line of the script counts."""

SCRIPT += [
    {**each, "match": {**each["match"], "model": "gpt-6-sol", "turnIndex": ITEMS[counted]}}
    for each in SCRIPT
    if (counted := each["match"].get("turnIndex"))
]


@pytest.fixture(scope="module")
def aimock(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    assert pytestconfig.cache is not None
    package = installed(pytestconfig.cache.mkdir("aimock"))
    with served(package, SCRIPT, tmp_path_factory.mktemp("aimock")) as address:
        yield address


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("AWS_", "OLLAMA_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("GOOGLE_GENAI_API_VERSION", "beta")


class Session:
    """A conversation with aimock, whole or streamed."""

    def __init__(self, address: str, api: str, stream: bool, test: str, retry: RetryPolicy) -> None:
        spec, path = APIS[api]
        self.api, self.stream = api, stream
        self.done: list[object] = []
        self.said = ""
        self._address = address
        self._test = test
        # what aimock counts, it counts for each test
        headers = {"x-test-id": test}
        self.client: ModelClient = connect(
            spec, api_key="k", base_url=address + path, headers=headers
        )

        @tool
        async def get_weather(city: str) -> str:
            """Get the current weather for a city."""
            self.done.append(city)
            return f"21 °C in {city}"

        @tool
        async def book(city: str, nights: int, note: str) -> str:
            """Book a room."""
            self.done.append((city, nights, note))
            return "room 7"

        self._agent: BareLoop = BareLoop(
            self.client, [get_weather, book], system="Be brief.", retry=retry
        )

    @property
    def conversation(self) -> tuple[Message, ...]:
        return self._agent.conversation

    async def run(self, asked: str) -> Run[Any]:
        self.said = ""
        if not self.stream:
            run: Run[Any] = await self._agent.run(asked, LIMITED)
            return run
        async with self._agent.stream(asked, LIMITED) as events:
            async for event in events:
                if isinstance(event, AttemptReset):
                    self.said = ""
                elif isinstance(event, TextDelta):
                    self.said += event.text
        assert events.run is not None
        assert self.said == "".join(turn.text for turn in events.run.turns)
        return events.run

    async def fail_next(self, status: int, text: str) -> None:
        """The next request of anybody is answered with an error."""
        body = {"status": status, "body": {"message": text, "type": "error"}}
        async with httpx.AsyncClient() as client:
            (await client.post(f"{self._address}/__aimock/error", json=body)).raise_for_status()

    async def statuses(self) -> list[int]:
        """How aimock answered this test, request by request."""
        async with httpx.AsyncClient() as client:
            journal = await client.get(
                f"{self._address}/__aimock/journal", params={"testId": self._test}
            )
        entries = journal.json()
        entries = entries if isinstance(entries, list) else entries["entries"]
        return [entry["response"]["status"] for entry in entries]


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
async def session(
    request: pytest.FixtureRequest, aimock: str, api: str, anyio_backend: str
) -> AsyncIterator[Session]:
    made = Session(aimock, api, request.param, request.node.name, PATIENT)
    async with aclosing(made.client):
        yield made


@pytest.mark.anyio
async def test_a_conversation_of_two_runs_with_tools(session: Session) -> None:
    """MOD-19: two calls at once, one after them with a hard argument, then another question."""
    first = await session.run("Plan a trip, please.")
    assert first.output == "Booked: Paris."
    assert session.done == ["Paris", "Oslo", ("Paris", 2, NOTE)]
    assert [len(turn.calls) for turn in first.turns] == [2, 1, 0]
    assert first.turns[0].text == "Two look-ups first."
    odd = StopReason.UNKNOWN if session.api == "gemini" else StopReason.TOOL_CALLS
    reasons = [turn.stop_reason for turn in first.turns]
    assert reasons == [odd, odd, StopReason.END]
    second = await session.run("And the way back?")
    assert second.output == "By train."
    assert session.done[3:] == ["Berlin"]
    assert_valid_conversation(session.conversation)
    assert await session.statuses() == [200] * 5


@pytest.mark.anyio
async def test_a_call_without_its_argument_is_answered_and_the_model_goes_on(
    session: Session,
) -> None:
    """MOD-9: an empty object of arguments, where one is required."""
    run = await session.run("No such city?")
    assert run.output == "I am sorry."
    assert not session.done
    assert run.turns[0].calls[0].result.is_error


@pytest.mark.anyio
async def test_reasoning_is_kept_with_the_reply_and_sent_again(session: Session) -> None:
    """MOD-20: thinking goes back to where it came from, in the form that it came in."""
    run = await session.run("Think first.")
    assert run.output == "Warm."
    assert session.done == ["Rome"]
    thoughts = [part for message in run.messages for part in message.parts]
    thought = [part.text for part in thoughts if isinstance(part, ThinkingPart)]
    assert thought == ([] if session.api == "ollama" else ["One look will do."])


@pytest.mark.anyio
@pytest.mark.parametrize("status", [429, 500, 503, 529])
async def test_a_passing_error_is_waited_out(session: Session, status: int) -> None:
    """MOD-11, MOD-14: the run has every reply and every call once."""
    await session.fail_next(status, "try again")
    run = await session.run("Plan a trip, please.")
    assert run.output == "Booked: Paris."
    assert session.done == ["Paris", "Oslo", ("Paris", 2, NOTE)]


@pytest.mark.anyio
async def test_what_cannot_pass_is_told(session: Session) -> None:
    """MOD-11: with the words of the server, after one attempt."""
    await session.fail_next(400, "no such thing")
    with pytest.raises(BadRequestError, match="no such thing"):
        await session.run("Plan a trip, please.")


@pytest.mark.anyio
async def test_a_request_that_fits_no_line_is_an_outage(session: Session) -> None:
    """MOD-14: 503 for as long as it is asked; given up on after three retries."""
    with pytest.raises(OverloadedError):
        await session.run("Something else")
    assert await session.statuses() == [503] * 4


@pytest.mark.anyio
async def test_a_stream_that_breaks_off_is_read_again(aimock: str, api: str, request: Any) -> None:
    """MOD-8, MOD-15: three pieces, then the connection is gone."""
    session = Session(aimock, api, True, request.node.name, PATIENT)
    async with aclosing(session.client):
        run = await session.run("Break off?")
    assert run.output == session.said == "This is the whole of it."
    assert len(await session.statuses()) == 2
