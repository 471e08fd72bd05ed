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
from loopctl.models.gemini import GeminiClient
from loopctl.models.gemini.messages import OF_CALL
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
from tests.models.gemini.replies import MODEL, body, chunk, events, reply

pytestmark = pytest.mark.anyio

SIGNED = ThinkingPart(signature="S", kind=OF_CALL, provider="gemini", model=MODEL)
CALLING = Message.assistant("Let me add.", SIGNED, call("add", id="x1", a=1))
FRAMES = events(CALLING)


def cut(at: int, *fault: Any) -> Script:
    return respond_sse(*FRAMES[:at], *fault)


def zipped(at: int) -> Script:
    packed = gzip.compress(b"".join(FRAMES), mtime=0)
    half = packed[: len(packed) * at // len(FRAMES)]
    return respond_sse(half, headers={"Content-Encoding": "gzip"})


def failed(code: int, status: str, *details: Any) -> dict[str, Any]:
    said = {"code": code, "message": "m", "status": status, "details": list(details)}
    return {"error": said}


def limited(**headers: str) -> Script:
    renamed = {name.replace("_", "-"): value for name, value in headers.items()}
    return respond_json(failed(429, "RESOURCE_EXHAUSTED"), status=429, headers=renamed)


BUSY = failed(503, "UNAVAILABLE")
SOON = failed(429, "RESOURCE_EXHAUSTED", {"retryDelay": "0.01s"})
OVERFLOW = failed(400, "INVALID_ARGUMENT")
OVERFLOW["error"]["message"] = (
    "The input token count (9) exceeds the maximum number of tokens allowed (8)."
)

SURVIVED: dict[str, Any] = {
    "reset": lambda at: cut(at, Reset()),
    "close": lambda at: cut(at, Close()),
    "end": cut,
    "half an event": lambda at: cut(at, FRAMES[at][:-9]),
    "stall": lambda at: cut(at, Stall()),
    "error event": lambda at: cut(at, sse(BUSY)),
    "bare error": lambda at: cut(at, json.dumps(BUSY, indent=2) + "\n"),
    "error in a list": lambda at: cut(at, sse([SOON])),
    "a malformed call": lambda at: cut(at, sse(chunk(finish="MALFORMED_FUNCTION_CALL"))),
    "gzip cut short": zipped,
    "429 with seconds": lambda at: limited(Retry_After="0"),
    "429 with decimals": lambda at: limited(Retry_After="0.01"),
    "429 in the past": lambda at: limited(Retry_After="Sat, 01 Jan 2000 00:00:00 GMT"),
    "429 below nothing": lambda at: limited(Retry_After="-5"),
    "429 with nonsense": lambda at: limited(Retry_After="soon"),
    "429 with details": lambda at: respond_json(SOON, status=429),
    "500": lambda at: respond("oops", status=500),
    "503": lambda at: respond_json([BUSY], status=503),
    "529": lambda at: respond("", status=529),
}

FINAL: dict[str, tuple[Any, type[LoopError]]] = {
    "garbage": (lambda at: cut(at, b"data: {nonsense\n\n"), InvalidResponseError),
    "wrong content type": (
        lambda at: respond("<html>", headers={"Content-Type": "text/html"}),
        InvalidResponseError,
    ),
    "overflow": (lambda at: cut(at, sse(OVERFLOW)), ContextExceeded),
    "overflow by status": (lambda at: respond_json(OVERFLOW, status=400), ContextExceeded),
    "bad request": (lambda at: respond_json(failed(400, "X"), status=400), ModelError),
    "missing signature": (
        lambda at: cut(at, sse(chunk(finish="MISSING_THOUGHT_SIGNATURE"))),
        ModelError,
    ),
    "blocked": (lambda at: cut(at, sse({"promptFeedback": {"blockReason": "SAFETY"}})), Refused),
    "filtered": (lambda at: cut(at, sse(chunk(finish="SAFETY"))), Refused),
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
        answered = b"functionResponse" in request.body
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
            client = GeminiClient(MODEL, base_url=server.url)
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
        said = trial.seen[-1].json()["contents"][1]["parts"]
        assert [part.get("thoughtSignature") for part in said] == [None, "S"]


BODY = body(CALLING)
JSON = {"Content-Type": "application/json"}


def half(*fault: Any) -> Script:
    headers = {**JSON, "Content-Length": str(len(BODY))}
    return respond(BODY[: len(BODY) // 2], *fault, headers=headers, framing="length")


WHOLE: dict[str, Script] = {
    "reset": half(Reset()),
    "close": half(Close()),
    "an error in a 200": respond_json(BUSY),
    "an error in a list": respond_json([SOON]),
    "a malformed call": respond_json(chunk(finish="MALFORMED_FUNCTION_CALL")),
    "no candidates": respond_json({}),
    "no finish reason": respond_json(chunk({"text": "Let me"})),
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
    "garbage": (respond("{nonsense", headers=JSON), InvalidResponseError),
    "overflow": (respond_json(OVERFLOW), ContextExceeded),
    "blocked": (respond_json({"promptFeedback": {"blockReason": "SAFETY"}}), Refused),
    "filtered": (respond_json(chunk(finish="SAFETY")), Refused),
    **{name: (FINAL[name][0](0), FINAL[name][1]) for name in ("wrong content type", "bad request")},
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
