"""What every pass must leave alone, and how the longest of it is bounded (CMP-9)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from loopctl._calls import says_something
from loopctl.messages import ImagePart, Message, Role, TextPart
from loopctl.tokens import TokenCounter
from loopctl.tools.results import cut

SUMMARY_LABEL = "[Summary of the earlier conversation: background, not a new task]"
"""What a summary's text begins with, so that models and later passes know it for one."""

PINNED_PERCENT = 25
"""How much of the target all pinned messages together may take before they are shortened."""

LEAST_CHARS = 400
"""No pinned message is shortened below this."""


def is_summary(message: Message) -> bool:
    """Whether a message is the summary that an earlier pass left."""
    first = message.parts[0] if message.parts else None
    return (
        message.role is Role.USER
        and isinstance(first, TextPart)
        and first.text.startswith(SUMMARY_LABEL)
    )


def pinned_in(messages: Sequence[Message], run_start: int) -> tuple[int, ...]:
    """The indices of the goal and of the input and steering of the run in flight, in order.

    The goal is the first message of the user's own. The run begins at `run_start`; whatever the
    user says from there on is its input or steering. Summaries are not pinned, because a pass may
    fold them.
    """
    goal = next((i for i, m in enumerate(messages) if m.role is Role.USER and not m.results), None)
    said = [i for i in range(run_start, len(messages)) if _is_said(messages[i])]
    return tuple(said if goal is None else sorted({goal, *said}))


def _is_said(message: Message) -> bool:
    """Whether a message is the user's own words."""
    said = message.role is Role.USER and not message.results and not is_summary(message)
    return said and says_something(message.parts)


def shortened(
    messages: Sequence[Message], pinned: Iterable[int], target: int, counter: TokenCounter
) -> tuple[list[Message], tuple[Message, ...]]:
    """The messages with very long pinned ones cut to head, marker and tail, and the pinned ones.

    Nothing changes while the pinned messages together take at most a quarter of the `target`.
    Otherwise the longest are cut to one common size that makes them fit, but none below 400
    characters. Images are never cut. The next pass leaves what was shortened as it is.
    """
    made = list(messages)
    places = tuple(pinned)
    sizes = {i: counter.count(made[i]) for i in places}
    budget = target * PINNED_PERCENT / 100
    if sum(sizes.values()) > budget:
        limit = _common_size(sizes.values(), budget)
        for i, size in sizes.items():
            if size > limit:
                made[i] = _cut_to(made[i], limit, counter)
    return made, tuple(made[i] for i in places)


def _common_size(sizes: Collection[float], budget: float) -> float:
    """The size to which the larger ones must come down so that all fit the budget together."""
    left = budget
    for number, size in enumerate(sorted(sizes)):
        fair = left / (len(sizes) - number)
        if size > fair:
            return fair
        left -= size
    return max(sizes)


def _cut_to(message: Message, tokens: float, counter: TokenCounter) -> Message:
    """The message with as much of its text as `tokens` allow, or `LEAST_CHARS` of it."""
    low, high = LEAST_CHARS, sum(len(p.text) for p in message.parts if isinstance(p, TextPart))
    if high <= low:
        return message
    while low + 1 < high:
        middle = (low + high) // 2
        if counter.count(_cut(message, middle)) <= tokens:
            low = middle
        else:
            high = middle
    return _cut(message, low)


def _cut(message: Message, chars: int) -> Message:
    parts = tuple(part for part in message.parts if isinstance(part, (TextPart, ImagePart)))
    content = cut(parts, chars)
    return Message(message.role, content)
