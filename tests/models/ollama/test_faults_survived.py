"""A fault at every line of a reply, through a whole run with a tool (MOD-8, MOD-14, E3)."""

from __future__ import annotations

import gzip
from typing import Any

import anyio
import pytest

from loopctl import BareLoop, RetryPolicy
from loopctl.errors import ContextExceeded, InvalidResponseError, LoopError, ModelError
from loopctl.events import AttemptReset, TextDelta
from loopctl.models.ollama import OllamaClient
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
)
from loopctl.testing.ollama_replies import NDJSON, events, ollama_reply

pytestmark = pytest.mark.anyio

GZIP = {"Content-Encoding": "gzip"}
HTML = {"Content-Type": "text/html"}
LINES = events(["Let me add.", call("add", id="call_1", a=1)])


def cut(at: int, *fault: Any) -> Script:
    return respond(*LINES[:at], *fault, headers=NDJSON)


def zipped(at: int) -> Script:
    packed = gzip.compress(b"".join(LINES), mtime=0)
    return respond(packed[: len(packed) * at // len(LINES)], headers={**NDJSON, **GZIP})


SURVIVED: dict[str, Any] = {
    "reset": lambda at: cut(at, Reset()),
    "close": lambda at: cut(at, Close()),
    "end": cut,
    "half a line": lambda at: cut(at, LINES[at][:-5]),
    "stall": lambda at: cut(at, Stall()),
    "error line": lambda at: cut(at, b'{"error":"the runner died"}\n'),
    "gzip cut short": zipped,
    "429 with seconds": lambda at: respond_json({}, status=429, headers={"Retry-After": "0"}),
    "429 in the past": lambda at: respond_json(
        {}, status=429, headers={"Retry-After": "Sat, 01 Jan 2000 00:00:00 GMT"}
    ),
    "429 with nonsense": lambda at: respond_json({}, status=429, headers={"Retry-After": "soon"}),
    "500": lambda at: respond("oops", status=500),
    "529": lambda at: respond("", status=529),
}

FINAL: dict[str, tuple[Any, type[LoopError]]] = {
    "garbage": (lambda at: cut(at, b"{nonsense\n"), InvalidResponseError),
    "wrong content type": (lambda at: respond("<html>", headers=HTML), InvalidResponseError),
    "overflow": (
        lambda at: cut(at, b'{"error":"input length exceeds the context length"}\n'),
        ContextExceeded,
    ),
    "not found": (lambda at: respond_json({"error": "no"}, status=404), ModelError),
}


class Trial:
    """A run against a server that fails once, at one place of its first reply."""

    def __init__(self, fault: Script, *, always: bool) -> None:
        self.added = 0
        self._fault = fault
        self._always = always
        self._failed = False

    def play(self, request: ReceivedRequest) -> Script:
        if not self._failed or self._always:
            self._failed = True
            return self._fault
        answered = any(m["role"] == "tool" for m in request.json()["messages"])
        made = ollama_reply("Two." if answered else ["Let me add.", call("add", id="c", a=1)])
        return made(request)

    def add(self, a: int) -> int:
        """Add one."""
        self.added += 1
        return a + 1

    async def run(self, *, stream: bool) -> tuple[str | None, list[str]]:
        """The answer, and the text of each turn as its last attempt told it."""
        limit = 0.05 if any(isinstance(step, Stall) for step in self._fault) else None
        # A slow machine may take a whole reply for a stall, and try again.
        retries = 3 if limit is None else 40
        policy = RetryPolicy(
            retries=retries, base_delay=0, first_event_timeout=limit, event_timeout=limit
        )
        told: dict[int, str] = {}
        async with ByteServer(*[self.play] * 100) as server:
            client = OllamaClient("m", base_url=server.url)
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
async def test_a_fault_at_any_line_leaves_one_copy_and_one_execution(
    name: str, nothing_left: None
) -> None:
    """E3, E4, B7, D7, MOD-14, MOD-15: in front of each line of a streamed reply."""
    for at in range(len(LINES)):
        trial = Trial(SURVIVED[name](at), always=False)
        with anyio.fail_after(20):
            answer, told = await trial.run(stream=True)
        assert (answer, told, trial.added) == ("Two.", ["Let me add.", "Two."], 1), at


@pytest.mark.parametrize(
    "name", [name for name in SURVIVED if name not in ("stall", "half a line")]
)
async def test_a_fault_before_a_whole_reply_leaves_one_execution(
    name: str, nothing_left: None
) -> None:
    """E4, B7, MOD-14: where nobody reads along."""
    trial = Trial(SURVIVED[name](0), always=False)
    with anyio.fail_after(20):
        answer, _ = await trial.run(stream=False)
    assert (answer, trial.added) == ("Two.", 1)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", FINAL)
async def test_what_another_try_cannot_mend_ends_in_its_typed_error(
    name: str, stream: bool, nothing_left: None
) -> None:
    """MOD-11, MOD-12, B6: no tool runs of a reply that was none."""
    fault, kind = FINAL[name]
    for at in range(len(LINES)) if stream else (0,):
        trial = Trial(fault(at), always=True)
        with anyio.fail_after(20), pytest.raises(kind):
            await trial.run(stream=stream)
        assert trial.added == 0, at
