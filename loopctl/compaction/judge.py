"""Whether an output may replace what was there, and where the run then begins (CMP-4, CMP-8).

The judge believes nothing that a compactor says of itself: it looks at the messages and counts
them with the driver's counter. What it refuses is a pass that changed nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from loopctl._calls import says_something, unpaired
from loopctl.compaction.pinned import is_summary
from loopctl.messages import Message, Part, Role, ThinkingPart, ToolResultPart
from loopctl.tokens import TokenCounter

LEAST_GAIN_PERCENT = 5
"""What a pass must free to count as one, in per cent of the messages' size before it."""


def judge(
    before: Sequence[Message],
    after: object,
    *,
    pinned: tuple[Message, ...],
    counter: TokenCounter,
) -> str | None:
    """Why `after` must not replace `before`: one sentence for people; `None` if it may.

    `before` are the messages as they stood before the pass, `pinned` the messages that must come
    out as they are (shortened already where CMP-9 says so), in order, the goal first.
    """
    if problem := broken_rule(before, after, pinned=pinned):
        return problem
    made = cast("Sequence[Message]", after)
    size, now = (sum(map(counter.count, messages)) for messages in (before, made))
    if size - now < size * LEAST_GAIN_PERCENT / 100:
        return f"it frees {max(0, size - now):.0f} of {size:.0f} tokens: too little"
    return None


def broken_rule(
    before: Sequence[Message], after: object, *, pinned: tuple[Message, ...]
) -> str | None:
    """The first thing that `after` breaks of what must hold in every output (CMP-9 … CMP-13)."""
    if isinstance(after, str) or not isinstance(after, Sequence):
        return f"the compactor returned {type(after).__name__}, not messages"
    for item in cast("Sequence[object]", after):
        if not isinstance(item, Message):
            return f"the compactor returned a {type(item).__name__} among its messages"
    return next(_objections(before, cast("Sequence[Message]", after), pinned), None)


def _objections(
    before: Sequence[Message], after: Sequence[Message], pinned: tuple[Message, ...]
) -> Iterator[str]:
    if problem := unpaired(after):
        yield problem
    yield from _shape(after)
    yield from _pins(before, after, pinned)
    yield from _thinking(before, after)
    yield from _mixed(before, after)
    if before[-1].role is Role.USER and after[-1].role is not Role.USER:
        yield "what the user's side said last is gone from its end"


def _shape(after: Sequence[Message]) -> Iterator[str]:
    """CMP-10, CMP-11: who speaks, in which order."""
    speaker = Role.SYSTEM
    for number, message in enumerate(after):
        if not message.parts:
            yield f"message {number} is empty"
        if message.role is Role.SYSTEM:
            continue
        if message.role is Role.ASSISTANT and speaker is Role.SYSTEM:
            yield "it does not start with a user message"
        if message.role is Role.ASSISTANT and speaker is Role.ASSISTANT:
            yield f"message {number} and the one before it are both the assistant's"
        speaker = message.role
    if speaker is Role.SYSTEM:
        yield "it is empty"


def _pins(
    before: Sequence[Message], after: Sequence[Message], pinned: tuple[Message, ...]
) -> Iterator[str]:
    """CMP-9: what must come out as it went in."""
    rest = iter(after)
    for message in pinned:
        if not any(other == message for other in rest):
            yield f"a pinned message is gone, changed or moved: {_quoted(message)}"
    if pinned and next((m for m in after if m.role is Role.USER), None) != pinned[0]:
        yield f"the goal is no longer the first user message: {_quoted(pinned[0])}"
    known = {message for message in before if is_summary(message)}
    kept = {message for message in after if is_summary(message)}
    if not known <= kept and not kept - known:
        yield "an earlier summary is gone"


def _thinking(before: Sequence[Message], after: Sequence[Message]) -> Iterator[str]:
    """CMP-12: thinking is kept to the byte with its turn, or gone with it."""
    rest = (message for message in before if _thinks(message))
    known = set(before)
    parted = {_unthought(message) for message in before if _thinks(message)}
    calls = {call for message in before if _thinks(message) for call in message.calls}
    calls -= {call for message in before if not _thinks(message) for call in message.calls}
    for number, message in enumerate(after):
        if _thinks(message):
            if not any(message == other for other in rest):
                yield f"message {number} has thinking that was changed, moved or made up"
        elif message in known or message.role is not Role.ASSISTANT:
            continue
        elif message.parts in parted or calls.intersection(message.calls):
            yield f"message {number} was parted from its thinking"


def _thinks(message: Message) -> bool:
    return any(isinstance(part, ThinkingPart) for part in message.parts)


def _unthought(message: Message) -> tuple[Part, ...]:
    return tuple(part for part in message.parts if not isinstance(part, ThinkingPart))


def _mixed(before: Sequence[Message], after: Sequence[Message]) -> Iterator[str]:
    """CMP-13: what a user said beside a result stays when the result goes."""
    kept = Counter(_texts(after))
    for message in before:
        said = _said(message)
        if not message.results or not says_something(said):
            continue
        if kept[said] < 1 and not any(_holds(other, said) for other in after):
            yield f"what the user said beside a result is gone: {_quoted(message)}"
        kept[said] -= 1


def _texts(messages: Iterable[Message]) -> Iterator[tuple[Part, ...]]:
    return (_said(message) for message in messages if message.role is Role.USER)


def _said(message: Message) -> tuple[Part, ...]:
    return tuple(part for part in message.parts if not isinstance(part, ToolResultPart))


def _holds(message: Message, said: tuple[Part, ...]) -> bool:
    if message.role is not Role.USER or len(message.parts) <= len(said):
        return False
    return all(part in message.parts for part in said)


def _quoted(message: Message) -> str:
    text = message.text
    return repr(text if len(text) <= 80 else text[:80] + "…")


def split(before_history: int, before: Sequence[Message], after: Sequence[Message]) -> int:
    """How many messages of `after` are history: all in front of what is left of the pending ones.

    `before` are the messages that the compactor was given; the first `before_history` of them were
    history. Survivors are found from the right, because the same words may stand in the history
    too. Nothing left of the pending messages: all is history.
    """
    places: defaultdict[Message, list[int]] = defaultdict(list)
    for number, message in enumerate(before[before_history:]):
        places[message].append(number)
    pending = {id(message) for message in before[before_history:]}
    settled = {id(message) for message in before[:before_history]} - pending
    first, limit = len(after), len(before) - before_history
    for number in range(len(after) - 1, -1, -1):
        message = after[number]
        if id(message) in settled:
            break
        found = [place for place in places.get(message, ()) if place < limit]
        if found:
            first, limit = number, found[-1]
    return first
