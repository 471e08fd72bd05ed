"""A fault at every event of a reply, through a whole run with a tool (MOD-8, MOD-14, E3)."""

from __future__ import annotations

import gzip
import json
from typing import Any

import anyio
import pytest

from loopctl import BareLoop, RetryPolicy
from loopctl.errors import ContextExceeded, InvalidResponseError, LoopError, ModelError, Refused
from loopctl.events import AttemptReset, TextDelta
from loopctl.messages import Message, ThinkingPart
from loopctl.models.openai_responses import OpenAIResponsesClient
from loopctl.models.openai_responses.messages import REASONING
from loopctl.testing import (
    ByteServer,
    Close,
    ReceivedRequest,
    Reset,
    Script,
    Stall,
    call,
    respond,
    respond_json,
    respond_sse,
    sse,
)
from tests.models.openai_responses.replies import MODEL, begun, body, document, events, reply

pytestmark = pytest.mark.anyio

ITEM = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "S+/="}
SEALED = ThinkingPart(signature=json.dumps(ITEM), provider="openai", kind=REASONING)
CALLING = Message.assistant(SEALED, "Let me add.", call("add", id="c1", a=1))
FRAMES = events(CALLING)


def cut(at: int, *fault: Any) -> Script:
    return respond_sse(*FRAMES[:at], *fault)


def zipped(at: int) -> Script:
    packed = gzip.compress(b"".join(FRAMES), mtime=0)
    half = packed[: len(packed) * at // len(FRAMES)]
    return respond_sse(half, headers={"Content-Encoding": "gzip"})


def error(code: str, text: str = "m") -> dict[str, Any]:
    return {"error": {"message": text, "type": "invalid_request_error", "code": code}}


def failed(code: str, text: str = "m") -> bytes:
    response = {**begun(), **error(code, text), "status": "failed"}
    return sse({"type": "response.failed", "response": response}, event="response.failed")


def cancelled() -> bytes:
    """The terminal event of a response that somebody else has stopped."""
    response = {**begun(), "status": "cancelled"}
    return sse({"type": "response.cancelled", "response": response}, event="response.cancelled")


def limited(**headers: str) -> Script:
    renamed = {name.replace("_", "-"): value for name, value in headers.items()}
    return respond_json(error("rate_limit_exceeded"), status=429, headers=renamed)


FULL = "Your input exceeds the context window of this model."

SURVIVED: dict[str, Any] = {
    "reset": lambda at: cut(at, Reset()),
    "close": lambda at: cut(at, Close()),
    "end": cut,
    "half an event": lambda at: cut(at, FRAMES[at][:-9]),
    "[DONE] too early": lambda at: cut(at, sse("[DONE]")),
    "stall": lambda at: cut(at, Stall()),
    "failed": lambda at: cut(at, failed("server_error")),
    "limited": lambda at: cut(at, failed("rate_limit_exceeded")),
    "cancelled": lambda at: cut(at, cancelled()),
    "error event": lambda at: cut(
        at, sse({"type": "error", "code": "server_is_overloaded", "message": "m"}, event="error")
    ),
    "error object": lambda at: cut(at, sse(error("slow_down"))),
    "gzip cut short": zipped,
    "429 with seconds": lambda at: limited(Retry_After="0"),
    "429 with milliseconds": lambda at: limited(Retry_After_Ms="1"),
    "429 with decimals": lambda at: limited(Retry_After="0.01"),
    "429 in the past": lambda at: limited(Retry_After="Sat, 01 Jan 2000 00:00:00 GMT"),
    "429 below nothing": lambda at: limited(Retry_After="-5"),
    "429 with nonsense": lambda at: limited(Retry_After="soon"),
    "500": lambda at: respond("oops", status=500),
    "503": lambda at: respond_json(error("server_is_overloaded"), status=503),
    "529": lambda at: respond("", status=529),
}

FILTERED = {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}
FINAL: dict[str, tuple[Any, type[LoopError]]] = {
    "garbage": (lambda at: cut(at, b"data: {nonsense\n\n"), InvalidResponseError),
    "wrong content type": (
        lambda at: respond("<html>", headers={"Content-Type": "text/html"}),
        InvalidResponseError,
    ),
    "overflow": (lambda at: cut(at, failed("context_length_exceeded", FULL)), ContextExceeded),
    "overflow by status": (
        lambda at: respond_json(error("context_length_exceeded", FULL), status=400),
        ContextExceeded,
    ),
    "bad request": (lambda at: respond_json(error("x"), status=400), ModelError),
    "no money": (lambda at: cut(at, failed("insufficient_quota")), ModelError),
    "blocked": (lambda at: respond_json(error("content_filter"), status=400), Refused),
    "filtered": (
        lambda at: cut(
            at, sse({"type": "response.incomplete", "response": {**begun(), **FILTERED}})
        ),
        Refused,
    ),
    "refused": (lambda at: cut(at, failed("invalid_prompt")), Refused),
}


class Trial:
    """A run against a server that fails once, or always, at one place of its first reply."""

    def __init__(self, fault: Script, *, always: bool) -> None:
        self.added = 0
        self.seen: list[ReceivedRequest] = []
        self._fault = fault
        self._always = always
        self._failed = False

    def play(self, request: ReceivedRequest) -> Script:
        self.seen.append(request)
        if not self._failed or self._always:
            self._failed = True
            return self._fault
        answered = b"function_call_output" in request.body
        return reply("Two." if answered else CALLING)(request)

    def add(self, a: int) -> int:
        """Add one."""
        self.added += 1
        return a + 1

    async def run(self, *, stream: bool) -> tuple[str | None, list[str]]:
        """The answer, and the text of each turn as its last attempt told it."""
        limit = 0.05 if any(isinstance(step, Stall) for step in self._fault) else None
        policy = RetryPolicy(base_delay=0, first_event_timeout=limit, event_timeout=limit)
        told: dict[int, str] = {}
        async with ByteServer(*[self.play] * 100) as server:
            client = OpenAIResponsesClient(MODEL, base_url=server.url, profile="openai")
            agent = BareLoop(client, [self.add], retry=policy)
            try:
                if not stream:
                    return (await agent.run("1 + 1?")).output, []
                async with agent.stream("1 + 1?") as along:
                    async for event in along:
                        if isinstance(event, AttemptReset):
                            told[event.turn] = ""
                        elif isinstance(event, TextDelta):
                            told[event.turn] = told.get(event.turn, "") + event.text
                assert along.run is not None
                return along.run.output, list(told.values())
            finally:
                await client.aclose()


@pytest.mark.parametrize("name", SURVIVED)
async def test_a_fault_at_any_event_leaves_one_copy_and_one_execution(
    name: str, nothing_left: None
) -> None:
    """E1, E3, E4, B7, D7, MOD-14, MOD-15: in front of each event of a streamed reply."""
    for at in range(len(FRAMES)):
        trial = Trial(SURVIVED[name](at), always=False)
        with anyio.fail_after(20):
            answer, told = await trial.run(stream=True)
        assert (answer, told, trial.added) == ("Two.", ["Let me add.", "Two."], 1), at
        assert trial.seen[-1].json()["input"][1] == ITEM


BODY = body(CALLING)
JSON = {"Content-Type": "application/json"}


def half(*fault: Any) -> Script:
    headers = {**JSON, "Content-Length": str(len(BODY))}
    return respond(BODY[: len(BODY) // 2], *fault, headers=headers, framing="length")


WHOLE: dict[str, Script] = {
    "reset": half(Reset()),
    "close": half(Close()),
    "an error in a 200": respond_json(error("server_error")),
    "failed": respond_json({**document(CALLING), **error("server_error"), "status": "failed"}),
    "cancelled": respond_json({**document(CALLING), "status": "cancelled"}),
    "gzip cut short": respond(
        gzip.compress(BODY, mtime=0)[:-20], headers={**JSON, "Content-Encoding": "gzip"}
    ),
    **{name: SURVIVED[name](0) for name in SURVIVED if name[0] in "45"},
}


@pytest.mark.parametrize("name", WHOLE)
async def test_a_fault_of_a_whole_reply_leaves_one_execution(name: str, nothing_left: None) -> None:
    """E1, E4, B6, B7, MOD-14: where nobody reads along."""
    trial = Trial(WHOLE[name], always=False)
    with anyio.fail_after(20):
        answer, _ = await trial.run(stream=False)
    assert (answer, trial.added) == ("Two.", 1)


FINAL_WHOLE: dict[str, tuple[Script, type[LoopError]]] = {
    "garbage": (respond("{nonsense}", headers=JSON), InvalidResponseError),
    "no output": (respond_json({}), InvalidResponseError),
    "overflow": (respond_json(error("context_length_exceeded", FULL)), ContextExceeded),
    "filtered": (respond_json({**document(CALLING), **FILTERED}), Refused),
    **{
        name: (FINAL[name][0](0), FINAL[name][1])
        for name in ("wrong content type", "bad request", "blocked")
    },
}


@pytest.mark.parametrize("name", FINAL)
async def test_what_another_try_cannot_mend_ends_in_its_typed_error(
    name: str, nothing_left: None
) -> None:
    """MOD-11, MOD-12, MOD-13, B6: no tool runs of a reply that was none."""
    fault, kind = FINAL[name]
    for at in range(len(FRAMES)):
        trial = Trial(fault(at), always=True)
        with anyio.fail_after(20), pytest.raises(kind):
            await trial.run(stream=True)
        assert trial.added == 0, at


@pytest.mark.parametrize("name", FINAL_WHOLE)
async def test_so_does_a_whole_reply(name: str, nothing_left: None) -> None:
    """MOD-11, MOD-12, MOD-13: where nobody reads along."""
    fault, kind = FINAL_WHOLE[name]
    trial = Trial(fault, always=True)
    with anyio.fail_after(20), pytest.raises(kind):
        await trial.run(stream=False)
    assert trial.added == 0
