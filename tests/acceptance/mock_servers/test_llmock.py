"""llmock, a server kept by others, breaks each dialect and grades what the client makes of it.

It sees every attempt and its timing. `assert_resilient` fails a client that retries before
Retry-After, retries what cannot succeed, storms, or takes half a stream for an answer;
`strict=True` also one that gives up on a passing fault, never backs off, or sits through a stall.

Where llmock is not like the real API:
- it serves Gemini below `v1beta` alone;
- it knows no `output_config` of Anthropic, so it makes no typed answer there;
- it cannot see that a client stopped reading at a chunk that is no JSON, and warns all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from llmock.pytest_plugin import LLMock
from llmock.testing import LLMockServer
from pydantic import BaseModel

from loopctl import BareLoop, RetryPolicy, Run, connect, tool
from loopctl.errors import (
    AuthError,
    BadRequestError,
    ContextExceeded,
    InvalidResponseError,
    LoopError,
    ModelError,
    NotFoundError,
    OutputInvalid,
    RateLimitError,
    ServerError,
    StreamIncomplete,
)
from loopctl.events import AttemptReset, TextDelta
from loopctl.testing import assert_valid_conversation

SPECS = {
    "openai": "openai:gpt-6-sol",
    "openai-chat": "openai-chat:gpt-5.4",
    "anthropic": "anthropic:claude-sonnet-5-5",
    "gemini": "gemini:gemini-4-argon",
}
PATIENT = RetryPolicy(base_delay=0.05)
HASTY = RetryPolicy(base_delay=0.05, event_timeout=0.3, first_event_timeout=0.3)
BEYOND = 1_000_000  # chunks, and no stream is that long
ASKED = "What is the weather in Paris?"


@pytest.fixture(scope="module")
def llmock_server() -> Iterator[LLMockServer]:
    """llmock's own fixture, but the server ends with this module."""
    with LLMockServer() as server:
        yield server


@pytest.fixture(autouse=True)
def gemini_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_GENAI_API_VERSION", "beta")


class Weather:
    """A session with one tool, run to its end in an event loop of its own."""

    def __init__(
        self, dialect: str, stream: bool, backend: str, retry: RetryPolicy | None = PATIENT
    ) -> None:
        self.asked: list[str] = []
        self.said = ""
        self.dialect, self._stream, self._backend, self._retry = dialect, stream, backend, retry

    def run(self, **options: Any) -> Run[Any]:
        run: Run[Any] = anyio.run(self._run, options, backend=self._backend)
        return run

    async def _run(self, options: dict[str, Any]) -> Run[Any]:
        @tool
        async def get_weather(city: str) -> str:
            """Get the current weather for a city."""
            self.asked.append(city)
            return f"21 °C in {city}"

        # address and key come from the environment that llmock sets
        client = connect(SPECS[self.dialect])
        agent = BareLoop(client, [get_weather], retry=self._retry)
        try:
            if not self._stream:
                run: Run[Any] = await agent.run(ASKED, **options)
                return run
            async with agent.stream(ASKED, **options) as events:
                async for event in events:
                    if isinstance(event, AttemptReset):
                        self.said = ""
                    elif isinstance(event, TextDelta):
                        self.said += event.text
            assert events.run is not None
            return events.run
        finally:
            await client.aclose()

    def completes(self) -> Run[Any]:
        """The call was executed once, and the answer is there once."""
        run = self.run()
        assert run.ending == "completed"
        assert len(self.asked) == 1
        assert [len(turn.calls) for turn in run.turns] == [1, 0]
        assert run.turns[-1].text
        if self._stream:
            assert self.said == "".join(turn.text for turn in run.turns)
        assert_valid_conversation(run.messages)
        return run

    def ends_in(self, kind: type[LoopError], **options: Any) -> LoopError:
        with pytest.raises(kind) as caught:
            self.run(**options)
        return caught.value


@pytest.fixture(params=SPECS)
def dialect(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def weather(request: pytest.FixtureRequest, dialect: str, anyio_backend: str) -> Weather:
    return Weather(dialect, request.param, anyio_backend)


@pytest.fixture
def streamed(dialect: str, anyio_backend: str) -> Weather:
    return Weather(dialect, True, anyio_backend)


def test_an_agent_runs_its_tool_and_ends(weather: Weather, llmock: LLMock) -> None:
    """MOD-19: llmock plays a model that calls a tool and answers when the result is there."""
    weather.completes()
    assert len(llmock.requests) == 2
    llmock.assert_resilient(strict=True)


def test_rate_limits_are_waited_out_as_long_as_asked(weather: Weather, llmock: LLMock) -> None:
    """MOD-14: two refusals in a row, each with its Retry-After."""
    llmock.rate_limit(times=2, retry_after=0.2)
    weather.completes()
    assert [record.status for record in llmock.requests] == [429, 429, 200, 200]
    llmock.assert_resilient(strict=True)


def test_a_quota_that_refills_by_and_by_says_how_long(
    dialect: str, anyio_backend: str, llmock: LLMock
) -> None:
    """MOD-11: one request a minute, and the second at once; the wait is on the error."""
    llmock.limits(rpm=1)
    error = Weather(dialect, False, anyio_backend, retry=None).ends_in(RateLimitError)
    assert isinstance(error, RateLimitError)
    assert 0 < (error.retry_after or 0) <= 60
    assert [record.status for record in llmock.requests] == [200, 429]


@pytest.mark.parametrize("status", [500, 502, 503, 504, 529])
def test_a_passing_fault_is_retried(status: int, weather: Weather, llmock: LLMock) -> None:
    """MOD-11: every 5xx is worth another attempt."""
    llmock.fail(status, retry_after=0.1)
    weather.completes()
    llmock.assert_resilient(strict=True)


def test_an_outage_is_given_up_on_after_a_bounded_number_of_attempts(
    weather: Weather, llmock: LLMock
) -> None:
    """MOD-14: at most three retries."""
    llmock.outage(status=500)
    weather.ends_in(ServerError)
    assert len(llmock.requests) == 4
    llmock.assert_resilient()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, BadRequestError),
        (401, AuthError),
        (403, AuthError),
        (404, NotFoundError),
        (422, BadRequestError),
    ],
)
def test_what_no_retry_can_fix_is_asked_once(
    status: int, kind: type[ModelError], weather: Weather, llmock: LLMock
) -> None:
    """MOD-11: every other 4xx is permanent."""
    llmock.fail(status, times=None)
    error = weather.ends_in(kind)
    assert isinstance(error, ModelError)
    assert error.status == status
    assert len(llmock.requests) == 1
    llmock.assert_resilient(strict=True)


def test_a_prompt_that_is_too_long_is_told_as_such(weather: Weather, llmock: LLMock) -> None:
    """MOD-12: in each provider's own words."""
    llmock.limits(context_window=5)
    weather.ends_in(ContextExceeded)
    assert {record.status for record in llmock.requests} == {400}
    llmock.assert_resilient(strict=True)


@pytest.mark.parametrize("fault", ["truncate", "disconnect"])
def test_a_stream_that_breaks_anywhere_is_read_again(
    fault: str, dialect: str, anyio_backend: str, llmock: LLMock
) -> None:
    """MOD-8, MOD-15: cut in front of each chunk in turn, of the call and of the answer.

    B7: Chat Completions is whole with its finish reason; llmock wants what follows it too.
    """
    Weather(dialect, True, anyio_backend).completes()
    call, answer = (record.chunks_sent for record in llmock.requests)
    for number, length in enumerate((call, answer)):
        for after in range(length):
            llmock.reset()
            for place in (BEYOND,) * number + (after,):  # each request takes one fault
                getattr(llmock, fault)(after_chunks=place)
            Weather(dialect, True, anyio_backend).completes()
            whole = dialect == "openai-chat" and fault == "truncate" and after >= length - 2
            assert len(llmock.requests) == (2 if whole else 3)
            if not whole:
                llmock.assert_resilient(strict=True)


def test_half_an_answer_is_an_error_where_nothing_is_retried(
    dialect: str, anyio_backend: str, llmock: LLMock
) -> None:
    """MOD-8: a clean close before the end; SDKs raise nothing here."""
    llmock.truncate(after_chunks=0, times=None)
    Weather(dialect, True, anyio_backend, retry=None).ends_in(StreamIncomplete)
    (finding,) = llmock.verdict().findings  # llmock sees no retry and cannot know of the error
    assert finding.code == "truncated_stream_accepted"


def test_a_chunk_that_is_no_json_is_an_error(streamed: Weather, llmock: LLMock) -> None:
    """MOD-11: a server that writes rubbish is told of, not retried."""
    llmock.corrupt(after_chunks=0)
    streamed.ends_in(InvalidResponseError)
    assert not streamed.asked
    llmock.assert_resilient()


def test_a_stall_is_not_sat_through(dialect: str, anyio_backend: str, llmock: LLMock) -> None:
    """MOD-14: a stream that stops sending is given up on and asked for again."""
    llmock.stall(after_chunks=1 if dialect != "gemini" else 0, seconds=30)
    Weather(dialect, True, anyio_backend, HASTY).completes()
    assert any(record.stall_waited is not None for record in llmock.requests)
    llmock.assert_resilient(strict=True)


@pytest.mark.parametrize("kind", ["malformed_arguments", "unknown_tool"])
def test_a_broken_call_is_answered_and_the_run_goes_on(
    kind: str, weather: Weather, llmock: LLMock
) -> None:
    """MOD-9: the model reads what was wrong with its call."""
    llmock.break_tool_call(kind)
    run = weather.run()
    assert run.ending == "completed"
    assert not weather.asked
    (record,) = run.turns[0].calls
    assert record.result.is_error
    assert_valid_conversation(run.messages)
    llmock.assert_resilient(strict=True)


class Report(BaseModel):
    """What is asked for."""

    city: str
    degrees: int
    kind: str | None = None


def test_a_typed_answer_comes_as_llmock_makes_it_from_the_schema(
    weather: Weather, llmock: LLMock
) -> None:
    """MOD-19: the schema of the answer is where the API looks for it."""
    if weather.dialect == "anthropic":
        weather.ends_in(OutputInvalid, output=Report)
        return
    run = weather.run(output=Report)
    assert isinstance(run.output, Report)
    llmock.assert_resilient(strict=True)
