"""The contract of compactors catches broken ones; the strategy makes what it promises."""

from __future__ import annotations

import builtins
import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import SkipTest

import anyio
import pytest
from hypothesis import Phase, find, given, settings

from loopctl.compaction import CompactionContext, Compactor, TruncatingCompactor
from loopctl.messages import Message, Role, ThinkingPart, ToolResultPart
from loopctl.testing import CompactorContract, assert_valid_conversation, conversations

QUICK = settings(phases=[Phase.generate], derandomize=True, database=None, deadline=None)
"""The first failure will do: nobody reads it. The same conversations each time."""


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    before = settings()
    settings.register_profile("quick", QUICK)
    settings.load_profile("quick")
    yield
    settings.register_profile("before", before)
    settings.load_profile("before")


Rewrite = Callable[[list[Message], CompactionContext], Any]


class Rewriting:
    """What the truncating compactor makes, and then one thing wrong with it."""

    def __init__(self, rewrite: Rewrite) -> None:
        self.rewrite = rewrite

    async def compact(
        self, messages: Sequence[Message], target: int, ctx: CompactionContext
    ) -> Sequence[Message]:
        made = list(await TruncatingCompactor().compact(messages, target, ctx))
        rewritten: Sequence[Message] = self.rewrite(made, ctx)
        return rewritten


class Broken(CompactorContract):
    """The contract's tests, few examples at a time, on a compactor with a fault."""

    examples = 60

    def __init__(self, rewrite: Rewrite) -> None:
        self.rewrite = rewrite

    def compactor(self) -> Compactor:
        return Rewriting(self.rewrite)


def without_a_result(made: list[Message], _: CompactionContext) -> list[Message]:
    """A2: the first message of results goes, its call stays."""
    first = next((i for i, m in enumerate(made) if m.results), None)
    return made if first is None else made[:first] + made[first + 1 :]


def without_a_call(made: list[Message], _: CompactionContext) -> list[Message]:
    """A1: a tail that starts at a result."""
    first = next((i for i, m in enumerate(made) if m.calls), None)
    return made if first is None else made[:first] + made[first + 1 :]


def with_tidied_thinking(made: list[Message], _: CompactionContext) -> list[Message]:
    """A13: "clean-up" of thinking."""

    def tidied(part: Any) -> Any:
        return ThinkingPart(part.text + " …") if isinstance(part, ThinkingPart) else part

    return [Message(m.role, map(tidied, m.parts)) for m in made]


def without_thinking(made: list[Message], _: CompactionContext) -> list[Message]:
    """A13: thinking is parted from the call that it precedes."""
    return [Message(m.role, [p for p in m.parts if not isinstance(p, ThinkingPart)]) for m in made]


def without_the_goal(made: list[Message], _: CompactionContext) -> list[Message]:
    """A10."""
    second = next((i for i, m in enumerate(made) if i and m.role is Role.USER and not m.results), 0)
    return made[second:]


def without_steering(made: list[Message], ctx: CompactionContext) -> list[Message]:
    """CMP-9: only the goal survives."""
    return [m for m in made if not any(m is p for p in ctx.pinned[1:])]


def without_mixed_text(made: list[Message], _: CompactionContext) -> list[Message]:
    """CMP-13: only results are left of mixed messages."""
    return [
        Message(m.role, m.results) if m.results and len(m.results) < len(m.parts) else m
        for m in made
    ]


def with_two_answers(made: list[Message], _: CompactionContext) -> list[Message]:
    """CMP-11."""
    return [*made, Message.assistant("Well."), Message.assistant("Anyway.")]


def with_blank_text(made: list[Message], _: CompactionContext) -> list[Message]:
    """MOD-20: a message that providers refuse."""
    return [*made, Message.user(" ")]


RULES = "test_no_output_breaks_a_rule"
SMALLER = "test_no_output_is_larger"
SHRINKS = "test_a_long_conversation_shrinks"
TENTH = "test_what_is_pinned_survives_ten_passes"
SAME = "test_the_same_conversation_gives_the_same_output"
WHOLE = "test_the_messages_that_it_is_given_stay_as_they_are"


@pytest.mark.parametrize(
    ("rewrite", "test", "says"),
    [
        (without_a_result, RULES, "is answered|never answered"),
        (without_a_call, RULES, "no open call"),
        (with_tidied_thinking, RULES, "has thinking that was changed"),
        (without_thinking, RULES, "parted from its thinking"),
        (without_the_goal, RULES, "goal|pinned message"),
        (without_the_goal, TENTH, "goal|pinned message"),
        (without_steering, RULES, "pinned message is gone|both the assistant's"),
        (without_mixed_text, RULES, "beside a result"),
        (lambda made, _: [], RULES, "it is empty"),
        (lambda made, _: [], SHRINKS, "it is empty"),
        (with_two_answers, RULES, "both the assistant's"),
        (with_blank_text, RULES, "has a blank text"),
        (lambda made, _: [*made, Message.user("And more. " * 9_000)], SMALLER, "tokens became"),
        (lambda made, _: [*made, Message.user("And more. " * 9_000)], SHRINKS, "frees 0 of"),
        (lambda made, _: "a summary", RULES, "returned str"),
        (lambda made, _: None, SHRINKS, "returned NoneType"),
    ],
)
def test_a_compactor_that_breaks_a_rule_is_caught(rewrite: Rewrite, test: str, says: str) -> None:
    """CMP-4, CMP-9 … CMP-13: each fault fails the test that is meant for it."""
    with pytest.raises(AssertionError, match=says):
        getattr(Broken(rewrite), test)()


def test_a_compactor_that_never_shrinks_anything_is_caught() -> None:
    """A6, CMP-4: returning the input is no pass."""

    class Idle(CompactorContract):
        def compactor(self) -> Compactor:
            class Same:
                async def compact(
                    self, messages: Sequence[Message], target: int, ctx: CompactionContext
                ) -> Sequence[Message]:
                    return messages

            return Same()

    getattr(Idle(), RULES)()
    with pytest.raises(AssertionError, match="frees 0 of"):
        getattr(Idle(), SHRINKS)()


def test_a_compactor_that_draws_lots_is_caught() -> None:
    """CMP-14: the same conversation must give the same output."""
    numbers = itertools.count()
    broken = Broken(lambda made, _: [*made, Message.user(f"pass {next(numbers)}")])
    with pytest.raises(AssertionError, match="came out differently"):
        getattr(broken, SAME)()


def test_a_compactor_that_asks_a_model_need_not_repeat_itself() -> None:
    """CMP-14: it binds those without a model."""
    broken = Broken(lambda made, _: made)
    broken.deterministic = False
    with pytest.raises(SkipTest, match="asks a model"):
        getattr(broken, SAME)()


def test_a_compactor_that_changes_what_it_was_given_is_caught() -> None:
    """CMP-6: the old history must be there if the pass fails."""

    class Greedy(CompactorContract):
        def compactor(self) -> Compactor:
            class Clearing:
                async def compact(
                    self, messages: Any, target: int, ctx: CompactionContext
                ) -> Sequence[Message]:
                    kept = list(messages)
                    messages.clear()
                    return kept

            return Clearing()

    with pytest.raises(AssertionError, match="changed what it was given"):
        getattr(Greedy(), WHOLE)()


def test_what_is_no_compactor_is_caught() -> None:
    """CMP-2: it needs the protocol's method."""

    class Nothing(CompactorContract):
        def compactor(self) -> Any:
            return object()

    with pytest.raises(AssertionError, match=r"no compact\(\)"):
        Nothing().test_it_is_a_compactor()


def test_a_hanging_compactor_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """CMP-2: a test of the suite ends."""

    class Hanging(CompactorContract):
        def compactor(self) -> Compactor:
            class Hangs:
                async def compact(
                    self, messages: Sequence[Message], target: int, ctx: CompactionContext
                ) -> Sequence[Message]:
                    await anyio.sleep_forever()
                    return messages

            return Hangs()

    monkeypatch.setattr("loopctl.testing.compaction.PATIENCE", 0.0)
    with pytest.raises(TimeoutError):
        getattr(Hanging(), SHRINKS)()


def test_a_suite_without_a_compactor_says_what_is_missing() -> None:
    with pytest.raises(NotImplementedError, match="how its compactor is made"):
        CompactorContract().test_it_is_a_compactor()


@given(messages=conversations())
def test_every_conversation_is_valid(messages: list[Message]) -> None:
    """ENG-15: what the strategy makes, providers take."""
    assert_valid_conversation(messages)


def ids(messages: list[Message]) -> list[str]:
    return [call.id for message in messages for call in message.calls]


def neighbours(messages: list[Message]) -> Any:
    return itertools.pairwise(messages)


def is_mixed(message: Message) -> bool:
    return 0 < len(message.results) < len(message.parts)


def holds_image(result: ToolResultPart) -> bool:
    return not isinstance(result.content, str)


KINDS: dict[str, Callable[[list[Message]], bool]] = {
    "parallel calls": lambda ms: any(len(m.calls) >= 3 for m in ms),
    "ids that come again": lambda ms: len(ids(ms)) > len(set(ids(ms))),
    "signed thinking": lambda ms: any(isinstance(m.parts[0], ThinkingPart) for m in ms),
    "two thoughts before a call": lambda ms: any(
        m.calls and sum(isinstance(p, ThinkingPart) for p in m.parts) == 2 for m in ms
    ),
    "spread results": lambda ms: any(a.results and b.results for a, b in neighbours(ms)),
    "mixed results": lambda ms: any(map(is_mixed, ms)),
    "spread and mixed": lambda ms: any(a.results and is_mixed(b) for a, b in neighbours(ms)),
    "images in results": lambda ms: any(holds_image(r) for m in ms for r in m.results),
    "long results": lambda ms: any(len(r.text) > 3_000 for m in ms for r in m.results),
    "durable results": lambda ms: any(r.retention == "durable" for m in ms for r in m.results),
    "steering": lambda ms: any(
        a.results and b.role is Role.USER and not b.results for a, b in neighbours(ms)
    ),
    "several runs": lambda ms: sum(m.role is Role.ASSISTANT and not m.calls for m in ms) >= 2,
    "a run in flight": lambda ms: bool(ms[-1].results),
    "an answer": lambda ms: ms[-1].role is Role.ASSISTANT,
}


@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@pytest.mark.parametrize("kind", KINDS)
def test_conversations_of_every_kind_are_among_them(kind: str) -> None:
    find(conversations(), KINDS[kind], settings=settings(QUICK, max_examples=2_000))


def test_without_hypothesis_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Optional parts fail where they are needed, naming what is missing."""
    real = builtins.__import__

    def importing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("hypothesis"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", importing)
    for needs in (conversations, Broken(lambda made, _: made).test_no_output_is_larger):
        with pytest.raises(ImportError, match="needs hypothesis: pip install hypothesis"):
            needs()


def test_importing_the_testing_kit_imports_neither_pytest_nor_hypothesis() -> None:
    code = "import sys, loopctl.testing; print([m for m in sys.argv[1:] if m in sys.modules])"
    made = subprocess.run(
        [sys.executable, "-c", code, "pytest", "hypothesis"],
        capture_output=True,
        check=True,
        text=True,
    )
    assert made.stdout == "[]\n"
