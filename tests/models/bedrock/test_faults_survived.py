"""A fault at every frame of a reply, through a whole run with a tool (MOD-8, MOD-14, E3)."""

from __future__ import annotations

import gzip
from typing import Any

import anyio
import pytest

from loopctl import BareLoop, RetryPolicy
from loopctl.errors import (
    AuthError,
    BadRequestError,
    ContextExceeded,
    InvalidResponseError,
    LoopError,
    QuotaError,
    Refused,
)
from loopctl.events import AttemptReset, TextDelta
from loopctl.messages import Message, ThinkingPart
from loopctl.models.bedrock import BedrockClient
from loopctl.models.bedrock.stream import REASONING
from loopctl.testing import ByteServer, Close, ReceivedRequest, Reset, Script, Stall, call, respond
from tests.models.bedrock.replies import (
    MODEL,
    body,
    event,
    events,
    exception,
    pack,
    reply,
    respond_error,
    respond_frames,
    respond_whole,
)

pytestmark = pytest.mark.anyio

SIGNED = ThinkingPart("hm", signature="S+/=", provider="bedrock", model=MODEL, kind=REASONING)
CALLING = Message.assistant(SIGNED, "Let me add.", call("add", id="x1", a=1))
FRAMES = events(CALLING)
TERMINAL = len(FRAMES) - 1
"""The place behind messageStop: what fails there fails a reply that is already complete."""

OVERFLOW = "Input is too long for requested model."


def cut(at: int, *fault: Any) -> Script:
    return respond_frames(*FRAMES[:at], *fault)


def zipped(at: int) -> Script:
    packed = gzip.compress(b"".join(FRAMES), mtime=0)
    half = packed[: len(packed) * at // len(FRAMES)]
    return respond_frames(half, **{"Content-Encoding": "gzip"})


def stopped(reason: str) -> tuple[bytes, bytes]:
    return event("messageStop", {"stopReason": reason}), event("metadata", {})


def limited(**headers: str) -> Script:
    renamed = {name.replace("_", "-"): value for name, value in headers.items()}
    return respond_error("ThrottlingException", 429, **renamed)


def damaged(frame: bytes) -> bytes:
    return frame[:-6] + bytes([frame[-6] ^ 1]) + frame[-5:]


SURVIVED: dict[str, Any] = {
    "reset": lambda at: cut(at, Reset()),
    "close": lambda at: cut(at, Close()),
    "end": cut,
    "half a frame": lambda at: cut(at, FRAMES[at][:-3]),
    "stall": lambda at: cut(at, Stall()),
    "throttled": lambda at: cut(at, exception("throttlingException", {"message": "m"})),
    "unavailable": lambda at: cut(at, exception("serviceUnavailableException", {})),
    "internal": lambda at: cut(at, exception("internalServerException", b"oops")),
    "model stream error": lambda at: cut(
        at, exception("modelStreamErrorException", {"message": "m", "originalStatusCode": 400})
    ),
    "an error frame": lambda at: cut(at, pack(b"", message_type="error", error_code="x")),
    "malformed output": lambda at: cut(at, *stopped("malformed_model_output")),
    "a malformed call": lambda at: cut(at, *stopped("malformed_tool_use")),
    "gzip cut short": zipped,
    "429 with seconds": lambda at: limited(Retry_After="0"),
    "429 with decimals": lambda at: limited(Retry_After="0.01"),
    "429 in the past": lambda at: limited(Retry_After="Sat, 01 Jan 2000 00:00:00 GMT"),
    "429 below nothing": lambda at: limited(Retry_After="-5"),
    "429 with nonsense": lambda at: limited(Retry_After="soon"),
    "429 without": lambda at: limited(),
    "not ready": lambda at: respond_error("ModelNotReadyException", 429),
    "timeout": lambda at: respond_error("ModelTimeoutException", 408),
    "500": lambda at: respond("oops", status=500),
    "503": lambda at: respond_error("ServiceUnavailableException", 503),
    "529": lambda at: respond("", status=529),
}

FINAL: dict[str, tuple[Any, type[LoopError]]] = {
    "garbage": (lambda at: cut(at, b"data: {nonsense\n\n"), InvalidResponseError),
    "a damaged frame": (lambda at: cut(at, damaged(FRAMES[at])), InvalidResponseError),
    "no document": (lambda at: cut(at, event("contentBlockDelta", b"{")), InvalidResponseError),
    "wrong content type": (
        lambda at: respond("<html>", headers={"Content-Type": "text/html"}),
        InvalidResponseError,
    ),
    "overflow": (
        lambda at: cut(at, exception("validationException", {"message": OVERFLOW})),
        ContextExceeded,
    ),
    "overflow by status": (
        lambda at: respond_error("ValidationException", 400, OVERFLOW),
        ContextExceeded,
    ),
    "bad request": (lambda at: respond_error("ValidationException", 400), BadRequestError),
    "no access": (lambda at: respond_error("AccessDeniedException", 403), AuthError),
    "quota": (lambda at: respond_error("ServiceQuotaExceededException", 400), QuotaError),
    "filtered": (lambda at: cut(at, *stopped("content_filtered")), Refused),
    "guardrail": (lambda at: cut(at, *stopped("guardrail_intervened")), Refused),
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
        answered = b"toolResult" in request.body
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
            client = BedrockClient(MODEL, base_url=server.url, api_key="k")
            agent = BareLoop(client, [self.add], retry=policy)
            try:
                if not stream:
                    return (await agent.run("1 + 1?")).output, []
                async with agent.stream("1 + 1?") as along:
                    async for each in along:
                        if isinstance(each, AttemptReset):
                            told[each.turn] = ""
                        elif isinstance(each, TextDelta):
                            told[each.turn] = told.get(each.turn, "") + each.text
                assert along.run is not None
                return along.run.output, list(told.values())
            finally:
                await client.aclose()


@pytest.mark.parametrize("name", SURVIVED)
async def test_a_fault_at_any_frame_leaves_one_copy_and_one_execution(
    name: str, nothing_left: None
) -> None:
    """E1, E3, E4, B6, B7, D7, MOD-14, MOD-15: in front of each frame of a streamed reply."""
    for at in range(len(FRAMES)):
        trial = Trial(SURVIVED[name](at), always=False)
        with anyio.fail_after(20):
            answer, told = await trial.run(stream=True)
        assert (answer, told, trial.added) == ("Two.", ["Let me add.", "Two."], 1), at
        said = trial.seen[-1].json()["messages"][1]["content"]
        signed = {"reasoningText": {"text": "hm", "signature": "S+/="}}
        assert said[0] == {"reasoningContent": signed}


BODY = body(CALLING)
JSON = {"Content-Type": "application/json"}


def half(*fault: Any) -> Script:
    headers = {**JSON, "Content-Length": str(len(BODY))}
    return respond(BODY[: len(BODY) // 2], *fault, headers=headers, framing="length")


WHOLE: dict[str, Script] = {
    "reset": half(Reset()),
    "close": half(Close()),
    "an error in a 200": respond_whole(b'{"__type":"ThrottlingException","message":"m"}'),
    "a malformed call": respond_whole(BODY.replace(b'"tool_use"', b'"malformed_tool_use"')),
    "no stop reason": respond_whole(BODY.replace(b'"tool_use"', b"null")),
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


@pytest.mark.parametrize("name", FINAL)
async def test_what_another_try_cannot_mend_ends_in_its_typed_error(
    name: str, nothing_left: None
) -> None:
    """MOD-11, MOD-12, MOD-13, B6: no tool runs of a reply that was none."""
    fault, kind = FINAL[name]
    for at in range(TERMINAL):
        trial = Trial(fault(at), always=True)
        with anyio.fail_after(20), pytest.raises(kind):
            await trial.run(stream=True)
        assert trial.added == 0, at


FINAL_WHOLE: dict[str, tuple[Script, type[LoopError]]] = {
    "garbage": (respond("{nonsense}", headers=JSON), InvalidResponseError),
    "nothing": (respond_whole(b"{}"), InvalidResponseError),
    "filtered": (
        respond_whole(BODY.replace(b'"tool_use"', b'"content_filtered"')),
        Refused,
    ),
    **{
        name: (FINAL[name][0](0), FINAL[name][1])
        for name in ("wrong content type", "overflow by status", "bad request", "no access")
    },
}


@pytest.mark.parametrize("name", FINAL_WHOLE)
async def test_so_does_a_whole_reply(name: str, nothing_left: None) -> None:
    """MOD-11, MOD-12, MOD-13: where nobody reads along."""
    fault, kind = FINAL_WHOLE[name]
    trial = Trial(fault, always=True)
    with anyio.fail_after(20), pytest.raises(kind):
        await trial.run(stream=False)
    assert trial.added == 0
