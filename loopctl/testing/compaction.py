"""Tests that every compactor must pass, and the conversations that they feed it (CMP-9 … CMP-14).

Conversations are made by hypothesis, which must be installed where they are used.
"""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias, TypeVar
from unittest import SkipTest

import anyio

from loopctl._steps import CompactReason
from loopctl.compaction.judge import broken_rule, judge, split
from loopctl.compaction.pinned import pinned_in, shortened
from loopctl.compaction.types import CompactionContext, Compactor
from loopctl.messages import (
    ImagePart,
    Message,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolOutcome,
    ToolResultPart,
)
from loopctl.testing.backends import BACKENDS
from loopctl.testing.validity import conversation_problems
from loopctl.tokens import DEFAULT_COUNTER, TokenCounter

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

T = TypeVar("T")

PATIENCE = 20.0
"""How long one scenario may take, in seconds."""

_IDS = ("call_1", "call_2", "call_3", "call_4", "call_5")
"""Few, so that later turns use them again."""

_WORDS = ("word ", "你好", "🙂 ", "{'a': 1}\n", "é")

_THOUGHTS = (
    ThinkingPart("I think.", signature="s1"),
    ThinkingPart("", signature="s2"),
    ThinkingPart("", signature="sealed", redacted=True),
    ThinkingPart("Unsigned."),
)

_OUTCOMES: tuple[ToolOutcome, ...] = ("executed", "denied", "interrupted", "not_run")


def conversations() -> SearchStrategy[list[Message]]:
    """A hypothesis strategy of conversations that every provider accepts.

    One to four runs with up to six turns each, answered, interrupted or in flight; parallel
    calls; ids that come again; results in one user message or spread over several, with images,
    errors, retentions, thousands of characters, and user text behind them; thinking that is
    signed, empty or redacted; steering between turns. They start with the user.

    Raises `ImportError` where hypothesis is not installed.
    """
    try:
        from hypothesis.strategies import composite
    except ImportError as error:
        raise ImportError(
            "conversations() needs hypothesis: pip install hypothesis", name="hypothesis"
        ) from error
    return composite(_conversation)()


def _conversation(draw: DrawFn) -> list[Message]:
    from hypothesis.strategies import integers

    pick = _Pick(lambda low, high: draw(integers(low, high)))
    made: list[Message] = []
    for _ in range(pick.number(1, 4)):
        made.append(pick.said())
        for _ in range(pick.number(0, 6)):
            made += pick.turn()
            if pick.one_in(5):
                made.append(pick.said())
        if not pick.one_in(4):
            made.append(Message.assistant(*pick.thinking(), pick.text()))
    return made


@dataclass(frozen=True, slots=True)
class _Pick:
    """Picks the pieces of a conversation by drawn numbers; the lowest mean the simplest."""

    number: Callable[[int, int], int]

    def one_in(self, chances: int) -> bool:
        return self.number(1, chances) == chances

    def one_of(self, options: Sequence[T]) -> T:
        return options[self.number(0, len(options) - 1)]

    def text(self) -> str:
        """A few words, now and then thousands of them."""
        times = self.number(1, 12) * (300 if self.one_in(5) else 1)
        return f"{self.number(0, 9)}: " + self.one_of(_WORDS) * times

    def image(self) -> ImagePart:
        return ImagePart("image/png", bytes([self.number(0, 255)]))

    def said(self) -> Message:
        return Message.user(self.text(), *([self.image()] if self.one_in(5) else []))

    def thinking(self) -> list[ThinkingPart]:
        return [self.one_of(_THOUGHTS) for _ in range(self.number(0, 2))]

    def turn(self) -> list[Message]:
        """A message with calls and the user messages that answer them."""
        first = self.number(0, len(_IDS) - 1)
        ids = [_IDS[(first + step) % len(_IDS)] for step in range(self.number(1, 4))]
        calls = [ToolCallPart(id, f"tool_{id[-1]}", {"n": self.number(0, 3)}) for id in ids]
        text = [self.text()] if self.one_in(3) else []
        messages = [Message.assistant(*self.thinking(), *text, *calls)]
        parts: list[Part] = []
        for call in calls:
            parts.append(self.result(call))
            if call is not calls[-1] and self.one_in(3):
                messages.append(Message.user(*parts))
                parts = []
        if self.one_in(4):
            parts.append(TextPart(self.text()))
        return [*messages, Message.user(*parts)]

    def result(self, call: ToolCallPart) -> ToolResultPart:
        text = self.text()
        return ToolResultPart(
            call.id,
            call.name,
            (TextPart(text), self.image()) if self.one_in(5) else text,
            is_error=self.one_in(4),
            outcome=self.one_of(_OUTCOMES),
            retention=self.one_of((None, None, "durable", "requery")),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Situation:
    """What a compactor is asked: messages, where the run begins, why, and the target in tokens."""

    messages: list[Message]
    run_start: int
    reason: CompactReason
    target: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Passed:
    """One pass: what the compactor was given, that list afterwards, what was pinned, what came."""

    given: tuple[Message, ...]
    left: list[Message]
    pinned: tuple[Message, ...]
    after: Sequence[Message]


Scenario: TypeAlias = Callable[[Situation], Awaitable[None]]


class CompactorContract:
    """Inherit from it, say how your compactor is made, and pytest runs the tests.

        class TestMyCompactor(CompactorContract):
            def compactor(self):
                return MyCompactor()

    The tests are sync and run event loops of their own, on asyncio and, if it is installed, on
    trio; so they need no plugin of pytest. They need hypothesis.
    """

    deterministic: bool = True
    """Whether the same conversation gives the same output; off for one that asks a model."""

    examples: int = 50
    """How many conversations each test tries on each backend."""

    counter: TokenCounter = DEFAULT_COUNTER
    """What the tests measure with."""

    def compactor(self) -> Compactor:
        """A compactor as it is used; asked for once for each conversation."""
        raise NotImplementedError("a contract's subclass says how its compactor is made")

    def test_it_is_a_compactor(self) -> None:
        """CMP-2: it has the protocol's method."""
        assert isinstance(self.compactor(), Compactor), f"{self.compactor()!r} has no compact()"

    def test_a_long_conversation_shrinks(self) -> None:
        """CMP-1, CMP-4: measured with our counter, it is smaller by more than a little."""
        messages = [Message.user("The goal.")]
        for number in range(60):
            messages += _turn(number)
        situation = Situation(
            messages=messages,
            run_start=0,
            reason=CompactReason.THRESHOLD,
            target=int(self._size(messages) / 2),
        )

        async def scenario(situation: Situation) -> None:
            passed = await self._pass(self.compactor(), situation)
            why = judge(messages, passed.after, pinned=passed.pinned, counter=self.counter)
            assert why is None, why

        for backend in BACKENDS:
            _run(backend, scenario, situation)

    def test_no_output_breaks_a_rule(self) -> None:
        """CMP-9 … CMP-13: what is pinned, pairs, who speaks, thinking, mixed messages."""

        async def scenario(situation: Situation) -> None:
            self._keeps_the_rules(await self._pass(self.compactor(), situation))

        self._on_many(scenario)

    def test_no_output_is_larger(self) -> None:
        """CMP-4: a pass may gain nothing, but it never costs."""

        async def scenario(situation: Situation) -> None:
            passed = await self._pass(self.compactor(), situation)
            before, after = self._size(passed.given), self._size(passed.after)
            assert after <= before, f"{before:.0f} tokens became {after:.0f}"

        self._on_many(scenario)

    def test_what_is_pinned_survives_ten_passes(self) -> None:
        """CMP-9: the goal and what the user said in a long run are in front of every turn."""

        async def scenario(situation: Situation) -> None:
            messages, start = situation.messages, situation.run_start
            if messages[-1].role is Role.ASSISTANT:
                messages = [*messages, Message.user("Go on.")]
            compactor = self.compactor()
            pinned: tuple[Message, ...] = ()
            for number in range(10):
                now = replace(situation, messages=messages, run_start=start)
                passed = await self._pass(compactor, now)
                self._keeps_the_rules(passed)
                said = iter(message.text[:100] for message in passed.pinned)
                lost = [m for m in pinned if m.text[:100] not in said]
                assert not lost, f"pass {number} lost what the user said: {lost}"
                pinned = passed.pinned
                start = split(start, passed.given, passed.after)
                messages = [*passed.after, *_turn(number)]

        self._on_many(scenario)

    def test_the_messages_that_it_is_given_stay_as_they_are(self) -> None:
        """CMP-6: whatever a pass fails at, the old history is whole."""

        async def scenario(situation: Situation) -> None:
            passed = await self._pass(self.compactor(), situation)
            assert tuple(passed.left) == passed.given, "the compactor changed what it was given"

        self._on_many(scenario)

    def test_the_same_conversation_gives_the_same_output(self) -> None:
        """CMP-14: no clock, no random number, no memory of what it did before."""
        if not self.deterministic:
            raise SkipTest("this compactor asks a model")

        async def scenario(situation: Situation) -> None:
            used = self.compactor()
            first, again, fresh = [
                (await self._pass(compactor, situation)).after
                for compactor in (used, used, self.compactor())
            ]
            assert list(first) == list(again) == list(fresh), "the same pass came out differently"

        self._on_many(scenario)

    # -- inside -------------------------------------------------------------------------------

    async def _pass(self, compactor: Compactor, situation: Situation) -> Passed:
        """What the driver does, without its judgement."""
        messages, target = situation.messages, situation.target
        indices = pinned_in(messages, situation.run_start)
        given, pinned = shortened(messages, indices, target, self.counter)
        ctx = CompactionContext(
            reason=situation.reason,
            turn=3,
            window=max(1, 2 * target),
            size=int(self._size(given)),
            reserve=0,
            counter=self.counter,
            pinned=pinned,
        )
        kept = tuple(given)
        after = await compactor.compact(given, target, ctx)
        return Passed(given=kept, left=given, pinned=pinned, after=after)

    def _keeps_the_rules(self, passed: Passed) -> None:
        why = broken_rule(passed.given, passed.after, pinned=passed.pinned)
        assert why is None, why
        problems = conversation_problems(passed.after)
        assert not problems, f"providers would refuse the output: {'; '.join(problems)}"

    def _size(self, messages: Sequence[Message]) -> float:
        return sum(map(self.counter.count, messages))

    def _on_many(self, scenario: Scenario) -> None:
        """Run a scenario on conversations of all kinds, on each backend."""
        strategy = conversations()  # first: it says what to install
        from hypothesis import HealthCheck, Phase, given, settings
        from hypothesis.strategies import integers, just, sampled_from

        quick = settings(
            max_examples=self.examples,
            deadline=None,
            phases=[phase for phase in settings().phases if phase is not Phase.explain],
            suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large),
        )

        def check(
            backend: str, messages: list[Message], run: int, reason: CompactReason, percent: int
        ) -> None:
            runs = [i for i, m in enumerate(messages) if m.role is Role.USER and not m.results]
            situation = Situation(
                messages=messages,
                run_start=[len(messages), *reversed(runs)][run % (len(runs) + 1)],
                reason=reason,
                target=int(self._size(messages) * percent / 100),
            )
            _run(backend, scenario, situation)

        for backend in BACKENDS:
            many = given(
                backend=just(backend),
                messages=strategy,
                run=integers(0, 7),
                reason=sampled_from(CompactReason),
                percent=sampled_from((50, 20, 80, 5)),
            )(check)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Generating overly large repr")
                quick(many)()


def _turn(number: int) -> list[Message]:
    """A turn with thinking, whose id comes again, and which is long enough to be worth a cut."""
    call = ToolCallPart(_IDS[number % len(_IDS)], "read", {"page": number})
    thought = ThinkingPart(f"Page {number}.", signature=f"s{number}")
    result = ToolResultPart(call.id, call.name, f"page {number} " * 300)
    return [Message.assistant(thought, call), Message.user(result)]


def _run(backend: str, scenario: Scenario, situation: Situation) -> None:
    async def bounded() -> None:
        with anyio.fail_after(PATIENCE):
            await scenario(situation)

    anyio.run(bounded, backend=backend)
