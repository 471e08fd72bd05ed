"""A fault at every event of a reply, through a whole run with a tool (MOD-8, MOD-14, E3)."""

from __future__ import annotations

import gzip
from typing import Any

import anyio
import pytest

from loopctl import BareLoop, RetryPolicy
from loopctl.errors import ContextExceeded, InvalidResponseError, LoopError, ModelError, Refused
from loopctl.events import AttemptReset, TextDelta
from loopctl.messages import Message, ThinkingPart
from loopctl.models.anthropic import AnthropicClient
from loopctl.replies import ModelResponse, StopReason
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
)
from loopctl.testing.anthropic_replies import body, event, events, reply

pytestmark = pytest.mark.anyio

SAID = Message.assistant(ThinkingPart("hm", "S1"), "Let me add.", call("add", id="toolu_1", a=1))
FRAMES = events(SAID)
GZIP = {"Content-Encoding": "gzip"}
HTML = {"Content-Type": "text/html"}


def error(type: str, message: str = "m") -> dict[str, Any]:
    return {"type": "error", "error": {"type": type, "message": message}}


def cut(at: int, *fault: Any) -> Script:
    return respond_sse(*FRAMES[:at], *fault)


def zipped(at: int) -> Script:
    packed = gzip.compress(b"".join(FRAMES), mtime=0)
    return respond_sse(packed[: len(packed) * at // len(FRAMES)], headers=GZIP)


def limited(after: str) -> Any:
    headers = {"Retry-After": after}
    return lambda at: respond_json(error("rate_limit_error"), status=429, headers=headers)


SURVIVED: dict[str, Any] = {
    "reset": lambda at: cut(at, Reset()),
    "close": lambda at: cut(at, Close()),
    "end": cut,
    "half an event": lambda at: cut(at, FRAMES[at][:-5]),
    "stall": lambda at: cut(at, Stall()),
    "overloaded event": lambda at: cut(at, event(error("overloaded_error"))),
    "api_error event": lambda at: cut(at, event(error("api_error"))),
    "gzip cut short": zipped,
    "429 with seconds": limited("0"),
    "429 in the past": limited("Sat, 01 Jan 2000 00:00:00 GMT"),
    "429 negative": limited("-5"),
    "429 with nonsense": limited("soon"),
    "500": lambda at: respond("oops", status=500),
    "529": lambda at: respond_json(error("overloaded_error"), status=529),
}

LONG = "prompt is too long: 210000 tokens > 200000 maximum"
FINAL: dict[str, tuple[Any, type[LoopError]]] = {
    "garbage": (lambda at: cut(at, b"data: {nonsense\n\n"), InvalidResponseError),
    "wrong content type": (lambda at: respond("<html>", headers=HTML), InvalidResponseError),
    "overflow event": (
        lambda at: cut(at, event(error("invalid_request_error", LONG))),
        ContextExceeded,
    ),
    "overflow": (
        lambda at: respond_json(error("invalid_request_error", LONG), status=400),
        ContextExceeded,
    ),
    "not found": (lambda at: respond_json(error("not_found_error"), status=404), ModelError),
}


class Trial:
    """A run against a server that fails once, at one place of its first reply."""

    def __init__(self, fault: Script, *, always: bool) -> None:
        self.added = 0
        self.sent: list[dict[str, Any]] = []
        self._fault = fault
        self._always = always
        self._failed = False

    def play(self, request: ReceivedRequest) -> Script:
        if not self._failed or self._always:
            self._failed = True
            return self._fault
        document = request.json()
        self.sent.append(document)
        last = document["messages"][-1]["content"][0]
        return reply("Two." if last["type"] == "tool_result" else SAID)(request)

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
            client = AnthropicClient("claude-opus-5-5", base_url=server.url)
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
async def test_a_fault_at_any_event_leaves_one_copy_and_one_execution(
    name: str, nothing_left: None
) -> None:
    """E3, E4, B7, D7, MOD-14, MOD-15, A13: in front of each event of a streamed reply."""
    for at in range(len(FRAMES)):
        trial = Trial(SURVIVED[name](at), always=False)
        with anyio.fail_after(20):
            answer, told = await trial.run(stream=True)
        assert (answer, told, trial.added) == ("Two.", ["Let me add.", "Two."], 1), at
        thought, text, use = trial.sent[-1]["messages"][1]["content"]
        assert thought == {"type": "thinking", "thinking": "hm", "signature": "S1"}
        assert (text["type"], use["type"]) == ("text", "tool_use")


WHOLE = body(SAID)


def half(*fault: Any, headers: dict[str, str] | None = None) -> Script:
    """Half of a whole reply, and then that."""
    given = {
        "Content-Type": "application/json",
        "Content-Length": str(len(WHOLE)),
        **(headers or {}),
    }
    return respond(WHOLE[: len(WHOLE) // 2], *fault, headers=given, framing="length")


def half_zipped() -> Script:
    packed = gzip.compress(WHOLE, mtime=0)
    headers = {"Content-Type": "application/json", **GZIP}
    return respond(packed[: len(packed) // 2], headers=headers)


SURVIVED_WHOLE: dict[str, Script] = {
    "reset at once": (Reset(),),
    "reset": half(Reset()),
    "close": half(Close()),
    "gzip cut short": half_zipped(),
    "overloaded in a 200": respond_json(error("overloaded_error")),
    **{name: SURVIVED[name](0) for name in SURVIVED if name[0] in "45"},
}


@pytest.mark.parametrize("name", SURVIVED_WHOLE)
async def test_a_fault_of_a_whole_reply_leaves_one_execution(name: str, nothing_left: None) -> None:
    """E4, B7, MOD-14: where nobody reads along."""
    trial = Trial(SURVIVED_WHOLE[name], always=False)
    with anyio.fail_after(20):
        answer, _ = await trial.run(stream=False)
    assert (answer, trial.added) == ("Two.", 1)


@pytest.mark.parametrize(
    ("name", "stream"),
    [(name, True) for name in FINAL]
    + [(name, False) for name in ("wrong content type", "overflow", "not found")],
)
async def test_what_another_try_cannot_mend_ends_in_its_typed_error(
    name: str, stream: bool, nothing_left: None
) -> None:
    """MOD-11, MOD-12, B6: no tool runs of a reply that was none."""
    fault, kind = FINAL[name]
    for at in range(len(FRAMES)) if stream else (0,):
        trial = Trial(fault(at), always=True)
        with anyio.fail_after(20), pytest.raises(kind):
            await trial.run(stream=stream)
        assert trial.added == 0, at


@pytest.mark.parametrize("stream", [True, False])
async def test_a_refusal_ends_the_run_with_what_was_said(stream: bool, nothing_left: None) -> None:
    """MOD-13: never an ordinary answer, and no call of it runs."""
    refused = ModelResponse(
        message=Message.assistant("Well", call("add", a=1)),
        stop_reason=StopReason.REFUSAL,
        refusal="not that",
    )
    whole = respond(body(refused), headers={"Content-Type": "application/json"})
    script = respond_sse(*events(refused)) if stream else whole
    trial = Trial(script, always=True)
    with pytest.raises(Refused, match="not that"):
        await trial.run(stream=stream)
    assert trial.added == 0
