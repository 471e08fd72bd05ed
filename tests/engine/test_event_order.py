"""ENG-24: the order that the docstring of `loopctl.events` draws is the order of real runs.

The drawing itself is read and made a pattern; nothing of it is written down a second time.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio
import pytest

from loopctl import (
    Ask,
    BareLoop,
    CompactionAdvice,
    FallbackChain,
    InMemoryStore,
    MemoryEntry,
    Message,
    RatioTokenCounter,
    RetryPolicy,
    RunConfig,
    SessionConfig,
    TodoAttachment,
    TodoItem,
    ToolContext,
    events,
    hookimpl,
    tool,
)
from loopctl.errors import ConfigError, ContextOverflowError, LoopError, ServerError
from loopctl.events import KINDS, Event, ToolFinished
from loopctl.messages import ThinkingPart
from loopctl.replies import ModelResponse, StopReason
from loopctl.testing import FixedClock, ScriptedClient, call

pytestmark = pytest.mark.anyio

CHARS = RatioTokenCounter(1, per_message=0)


# -- the drawing as a pattern ----------------------------------------------------------------------


class Drawing:
    """The grammar of the docstring: `whole` matches a run, `broken` one that ended early."""

    def __init__(self, text: str) -> None:
        run, _, rest = text.partition("    RunStarted\n")[2].partition("    RunEnded\n")
        lines = [re.split(r"\s{3,}", line.strip())[0] for line in run.splitlines()]
        self._rules = dict(re.findall(r"(?m)^    (\w+) = (.*)$", rest))
        self._words = re.findall(r"\w+|[()|*?]", " ".join(lines))
        self._letters = {name: chr(0x100 + number) for number, name in enumerate(sorted(KINDS))}
        full, begun = self._alternatives()
        assert not self._words
        started, ended = self._letters["RunStarted"], self._letters["RunEnded"]
        self.whole = re.compile(started + full + ended)
        self.broken = re.compile(started + begun + ended)
        self.order = run.splitlines()

    def letters(self, told: Sequence[Event]) -> str:
        """One letter for each event; what may come anywhere left out."""
        names = [type(event).__name__ for event in told]
        return "".join(self._letters[name] for name in names if name != "AttachmentsChanged")

    def _alternatives(self) -> tuple[str, str]:
        """What comes up to the closing bracket: a pattern, and one for each beginning of it."""
        full, begun = [""], [""]
        while self._words and self._words[0] != ")":
            word = self._words.pop(0)
            if word == "|":
                full.append("")
                begun.append("")
                continue
            item, beginning = self._item(word)
            begun[-1] = f"(?:{begun[-1]}|{full[-1]}{beginning})" if full[-1] else beginning
            full[-1] += item
        return f"(?:{'|'.join(full)})", f"(?:{'|'.join(begun)})"

    def _item(self, word: str) -> tuple[str, str]:
        if word == "(":
            item, begun = self._alternatives()
            assert self._words.pop(0) == ")"
        elif word in self._rules:
            self._words[:0] = ["(", *re.findall(r"\w+|[()|*?]", self._rules[word]), ")"]
            item, begun = self._item(self._words.pop(0))
        else:
            item = self._letters[word]
            begun = f"(?:{item})?"
        if self._words and self._words[0] in "*?":
            often = self._words.pop(0)
            begun = f"(?:{item}{often}{begun})" if often == "*" else f"(?:{begun})?"
            item = f"(?:{item}){often}"
        return item, begun


DRAWING = Drawing(events.__doc__ or "")


def made(*names: str) -> list[Event]:
    """Events of these kinds; only their kinds matter here."""
    return [object.__new__(KINDS[name]) for name in names]


ANSWER = ("RunStarted", "TurnStarted", "TextDelta", "ReplyReceived", "TurnEnded", "RunEnded")


def test_the_pattern_tells_a_right_order_from_a_wrong_one() -> None:
    """ENG-24: any two neighbours exchanged, any event of the frame left out, is noticed."""
    assert DRAWING.whole.fullmatch(DRAWING.letters(made(*ANSWER)))
    for place in range(len(ANSWER) - 1):
        before, one, other, after = (
            ANSWER[:place],
            ANSWER[place],
            ANSWER[place + 1],
            ANSWER[place + 2 :],
        )
        wrong = DRAWING.letters(made(*before, other, one, *after))
        assert not DRAWING.broken.fullmatch(wrong), (one, other)
    for place in (0, 1, 3, 4, 5):
        missing = DRAWING.letters(made(*ANSWER[:place], *ANSWER[place + 1 :]))
        assert not DRAWING.whole.fullmatch(missing)
    assert DRAWING.broken.fullmatch(DRAWING.letters(made(*ANSWER[:3], "RunEnded")))


# -- runs of every kind ----------------------------------------------------------------------------


@tool
async def work(size: int = 2) -> str:
    """Work."""
    return "r" * size


@tool
async def report(ctx: ToolContext) -> str:
    """Work and say how far it is."""
    await ctx.progress("half", 0.5)
    await ctx.set_attachment(TodoAttachment([TodoItem("sweep", completed=True)]))
    await anyio.lowlevel.checkpoint()
    return "done"


def history(runs: int) -> list[Message]:
    """Runs of 1,000 characters each."""
    pairs = [(Message.user("q" * 500), Message.assistant("a" * 500)) for _ in range(runs)]
    return [message for pair in pairs for message in pair]


def session(*replies: Any, **given: Any) -> BareLoop:
    settings = {"context_window": 8_000} | given.pop("settings", {})
    options: dict[str, Any] = {"retry": None, "counter": CHARS, "clock": FixedClock()} | given
    client = ScriptedClient(*replies)
    return BareLoop(client, [work, report], SessionConfig(**settings), **options)


def overflow() -> ContextOverflowError:
    return ContextOverflowError("prompt is too long")


class Plugin:
    """One that listens, and asks about every call of `work`; a veto if it is given one."""

    def __init__(self, veto: str | None = None) -> None:
        self.veto = veto
        self.heard: list[Event] = []

    @hookimpl
    def on_event(self, event: Event) -> None:
        self.heard.append(event)

    @hookimpl
    def before_tool_call(self, ctx: Any) -> Any:
        return Ask("may it?") if ctx.arguments.get("size") == 1 else None

    @hookimpl
    def before_compaction(self, ctx: Any) -> CompactionAdvice | None:
        return None if self.veto is None else CompactionAdvice(veto=self.veto)


def broken(ctx: Any) -> str:
    raise OSError("no network")


class BrokenStore(InMemoryStore):
    async def retrieve(self, query: str, limit: int) -> list[MemoryEntry]:
        raise OSError("the disk is gone")


class Compacting:
    """A compactor of one line."""

    def __init__(self, compact: Callable[[Sequence[Message]], Awaitable[Any]]) -> None:
        self._compact = compact

    async def compact(self, messages: Sequence[Message], target: int, ctx: Any) -> Any:
        return await self._compact(messages)


async def says_yes(request: Any) -> bool:
    return True


async def raises(messages: Sequence[Message]) -> Any:
    raise OSError("no more room")


async def hangs(messages: Sequence[Message]) -> Any:
    await anyio.sleep_forever()


async def same(messages: Sequence[Message]) -> Any:
    return messages


def second_time() -> Callable[[Sequence[Message]], Awaitable[Any]]:
    asked: list[int] = []

    async def shrinks(messages: Sequence[Message]) -> Any:
        asked.append(len(messages))
        return messages if len(asked) == 1 else [messages[0], messages[-1]]

    return shrinks


def chained(*replies: Any) -> BareLoop:
    """A session whose primary fails at once, and whose backup says the rest."""
    first, *rest = replies
    backup = ScriptedClient(*rest, model="backup")
    chain = FallbackChain(
        ScriptedClient(first), [backup], retry=RetryPolicy(retries=0), clock=FixedClock()
    )
    return BareLoop(chain, [work, report])


def no_schema() -> ConfigError:
    return ConfigError("RequestOptions.response_schema: this model takes none")


TYPED = ("a typed answer sent back", "a client that takes no schema")


def contributing(agent: BareLoop, *contributors: Any) -> BareLoop:
    for contributor in contributors:
        agent.add_contributor(contributor)
    return agent


def big(ctx: Any) -> str:
    return "n" * 1_000


def steered() -> BareLoop:
    agent: BareLoop

    def first(request: Any) -> Any:
        agent.steer("look left")
        return call("work")

    def second(request: Any) -> Any:
        agent.steer("in French")
        return "Hello."

    agent = session(first, second, "Bonjour.")
    return agent


def steered_in_a_salvage() -> BareLoop:
    agent: BareLoop

    def refuses(request: Any) -> Any:
        agent.steer("look left")
        return overflow()

    agent = session(refuses, "done", "and left", history=history(5))
    return agent


def cancelled(*, tools: bool) -> BareLoop:
    """One that cancels itself in its model call, or with two tools at work."""
    agent: BareLoop

    def stops(request: Any) -> Any:
        assert agent.cancel()
        return "never"

    @tool
    async def stop() -> str:
        """Stop."""
        assert agent.cancel()
        await anyio.sleep_forever()
        return "never"

    agent = session(call("work"), [call("stop"), call("work", id="b")] if tools else stops)
    agent.tools.register(stop)
    return agent


def cancelled_in_a_pass() -> BareLoop:
    agent: BareLoop

    async def stops(messages: Sequence[Message]) -> Any:
        assert agent.cancel()
        await anyio.sleep_forever()

    agent = session(history=history(7), compactor=Compacting(stops))
    return agent


REFUSED = ModelResponse(message=Message.assistant("no"), stop_reason=StopReason.REFUSAL)
THINKING = Message.assistant(ThinkingPart("let me see"), "An answer that is long enough.")

RUNS: dict[str, tuple[Callable[[], BareLoop], str]] = {
    "an answer with thinking": (lambda: session(THINKING), "completed"),
    "calls, progress, attachments": (
        lambda: session([call("report"), call("work", id="b")], call("work"), "done"),
        "completed",
    ),
    "calls that are not run": (
        lambda: session([call("nobody"), call("work", id="b")], "done"),
        "completed",
    ),
    "an approval": (
        lambda: session([call("work", size=1), call("report", id="b")], "ok", approver=says_yes),
        "completed",
    ),
    "a denial": (lambda: session(call("work", size=1), "ok"), "completed"),
    "a backup that serves": (
        lambda: chained(ServerError("busy"), "done"),
        "completed",
    ),
    "a typed answer sent back": (lambda: session("no number", "7"), "completed"),
    "a client that takes no schema": (
        lambda: contributing(session(no_schema(), call("work"), "7", memory=BrokenStore()), broken),
        "completed",
    ),
    "a failed attempt": (
        lambda: session(ServerError("busy"), "done", retry=RetryPolicy()),
        "completed",
    ),
    "steering": (steered, "completed"),
    "steering in a salvage": (steered_in_a_salvage, "completed"),
    "a failed contributor and memory": (
        lambda: contributing(session(call("work"), "done", memory=BrokenStore()), broken),
        "completed",
    ),
    "the threshold": (lambda: session("done", history=history(7)), "completed"),
    "a threshold in the middle": (
        lambda: session(call("work", size=1_500), "done", history=history(5)),
        "completed",
    ),
    "a veto": (
        lambda: session("done", history=history(7), plugins=[Plugin("not now")]),
        "completed",
    ),
    "a failed pass": (
        lambda: session("done", history=history(7), compactor=Compacting(raises)),
        "completed",
    ),
    "a pass that hangs": (
        lambda: session(
            "done",
            history=history(7),
            compactor=Compacting(hangs),
            settings={"compaction_timeout": 0.01},
        ),
        "completed",
    ),
    "the emergency line": (
        lambda: session(history=history(8), compactor=Compacting(same)),
        "context_exceeded",
    ),
    "a deferral": (
        lambda: contributing(
            session("done", history=history(6), memory=BrokenStore()), broken, big, broken
        ),
        "completed",
    ),
    "a salvage": (
        lambda: contributing(session(overflow(), "done", history=history(5)), broken),
        "completed",
    ),
    "a salvage after a deferral": (
        lambda: contributing(
            session(
                overflow(),
                call("work"),
                "done",
                history=history(6),
                compactor=Compacting(second_time()),
            ),
            broken,
            big,
        ),
        "completed",
    ),
    "a salvage after a failed attempt": (
        lambda: session(
            ServerError("busy"), overflow(), "done", history=history(5), retry=RetryPolicy()
        ),
        "completed",
    ),
    "a salvage in vain": (
        lambda: session(overflow(), overflow(), history=history(5)),
        "context_exceeded",
    ),
    "the turn limit": (lambda: session(*[call("work")] * 3), "max_turns"),
    "a refusal": (lambda: session(call("work"), REFUSED), "refused"),
    "a model that fails": (lambda: session(call("work"), ServerError("down")), "failed"),
    "a contributor that may not fail": (
        lambda: contributing(session("done", settings={"strict_plugins": True}), broken),
        "failed",
    ),
    "cancelled in the model call": (lambda: cancelled(tools=False), "cancelled"),
    "cancelled in a tool": (lambda: cancelled(tools=True), "cancelled"),
    "cancelled in a pass": (cancelled_in_a_pass, "cancelled"),
}

ENDS_EARLY = {"context_exceeded", "failed", "cancelled", "max_turns", "refused"}


def _output(kind: str) -> type[Any]:
    return int if kind in TYPED else str


async def told(
    agent: BareLoop, listening: Plugin | None = None, *, output: type[Any] = str
) -> list[Event]:
    """What a reader of the stream is told; `listening` is a plugin beside."""
    agent.add_plugin(listening or Plugin())
    heard: list[Event] = []
    try:
        async with agent.stream("go", RunConfig(max_turns=3), output=output) as stream:
            async for event in stream:
                heard.append(event)
    except LoopError:
        pass
    return heard


@pytest.mark.parametrize("kind", RUNS)
async def test_the_events_of_a_run_come_in_the_drawn_order(kind: str) -> None:
    """ENG-24, CTX-31, CTX-33: for the reader of a stream and for a plugin that listens."""
    make, ending = RUNS[kind]
    agent, listening = make(), Plugin()
    heard = await told(agent, listening, output=_output(kind))
    assert agent.runs[-1].ending == ending
    letters = DRAWING.letters(heard)
    assert DRAWING.broken.fullmatch(letters), [type(event).__name__ for event in heard]
    if ending not in ENDS_EARLY:
        assert DRAWING.whole.fullmatch(letters), [type(event).__name__ for event in heard]
    assert DRAWING.letters(listening.heard) == letters
    starts, ends = _passes(heard)
    assert starts == ends
    _each_call_in_order(heard)
    turns = [event.turn for event in heard[:-1]]
    assert turns == sorted(turns)


def _passes(heard: list[Event]) -> tuple[int, int]:
    """How many passes started and ended; at most one before a turn's first start."""
    names = [type(event).__name__ for event in heard]
    for part in re.split("TurnEnded|RunEnded", " ".join(names)):
        assert part.partition("TurnStarted")[0].count("CompactionStarted") <= 1
    ends = ("CompactionFinished", "CompactionSkipped", "CompactionFailed")
    return names.count("CompactionStarted"), sum(map(names.count, ends))


def _each_call_in_order(heard: list[Event]) -> None:
    """The events of one call stand in the order of the drawing's line."""
    (line,) = [line for line in DRAWING.order if "ToolProgress" in line]
    order = re.findall(r"\w+", line)
    calls: dict[tuple[int, str], list[int]] = {}
    for event in heard:
        name = type(event).__name__
        if name in order:
            subject: Any = event
            if isinstance(event, ToolFinished):
                identity = event.result.call_id
            else:
                identity = subject.call.id if hasattr(event, "call") else subject.call_id
            calls.setdefault((event.turn, identity), []).append(order.index(name))
    for places in calls.values():
        assert places == sorted(places)
        assert places.count(order.index("ToolFinished")) <= 1


async def test_every_kind_of_event_is_told_in_one_of_these_runs() -> None:
    """ENG-24: but for those that nothing tells yet."""
    kinds: set[str] = set()
    for kind, (make, _) in RUNS.items():
        kinds |= {type(event).__name__ for event in await told(make(), output=_output(kind))}
    assert set(KINDS) - kinds == {"LoopSuspected", "BudgetWarning"}
