"""TruncatingCompactor: what is pinned and the tail stay, the middle goes (CMP-14, CMP-15).

Every step looks at the messages, the counter and the target alone, so the same conversation
always gives the same output, and an output given back is left as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import cast

from loopctl._calls import says_something, without_blanks
from loopctl._steps import CompactReason
from loopctl.compaction.pinned import is_summary
from loopctl.compaction.types import CompactionContext
from loopctl.compaction.units import Unit, units_of
from loopctl.errors import ConfigError
from loopctl.messages import ImagePart, Message, Role, TextPart, ToolResultPart
from loopctl.tokens import TokenCounter
from loopctl.tools.results import cut

FAT_CHARS = 1_600
"""A tool result with more text than this, or with an image, may be shortened."""

KEPT_CHARS = 800
"""What is left of a shortened result's text, its marker included."""

IMAGE_MARKER = "[… an image left out …]"
"""What stands for an image of a shortened result."""

_LAST_RESORT = (CompactReason.EMERGENCY, CompactReason.SALVAGE)


@dataclass(frozen=True, kw_only=True, slots=True)
class TruncatingCompactor:
    """Shortens long tool results and then drops turns from the middle. It needs no model.

    First tool results of over 1,600 characters or with images are cut to head, marker and tail,
    the largest first, until the target is met; those of the last turn are spared. Only then turns
    are dropped: the goal, the run's input and steering, earlier summaries and the last
    `preserve_recent` (4) messages stay, further turns from the end while they fit. Conversations
    of fewer than `min_messages` (6) messages are only shortened. Where the window is nearly full
    or was exceeded (`EMERGENCY`, `SALVAGE`) the last turn's results are shortened last of all.

    A result marked `durable` is never shortened, and its turn is kept before others if it fits.
    Raises `ConfigError` for settings that are not whole numbers ≥ 1.
    """

    preserve_recent: int = 4
    min_messages: int = 6

    def __post_init__(self) -> None:
        for name in ("preserve_recent", "min_messages"):
            value: object = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ConfigError(
                    f"TruncatingCompactor.{name}={value!r}: must be a whole number ≥ 1"
                )

    async def compact(
        self, messages: Sequence[Message], target: int, ctx: CompactionContext
    ) -> Sequence[Message]:
        """The messages, shortened and dropped until they take at most `target` tokens."""
        work = _Work(messages, target, ctx.counter)
        turns = [unit for unit in work.units if messages[unit.start].role is Role.ASSISTANT]
        work.shorten(turns[:-1])
        if len(messages) >= self.min_messages and not work.fits:
            work.drop(work.kept(ctx.pinned, self.preserve_recent))
        if ctx.reason in _LAST_RESORT:
            work.shorten(turns[-1:])
        return work.output()


class _Work:
    """The messages while they shrink: what becomes of each stands where it stood."""

    def __init__(self, messages: Sequence[Message], target: int, counter: TokenCounter) -> None:
        self.messages = messages
        self.target = target
        self.counter = counter
        self.units = units_of(messages)
        self.sizes = [counter.count(message) for message in messages]
        self.total = sum(self.sizes)
        self._made: list[Message | None] = list(messages)

    @property
    def fits(self) -> bool:
        return self.total <= self.target

    def output(self) -> list[Message]:
        return [message for message in self._made if message is not None]

    def shorten(self, units: Iterable[Unit]) -> None:
        """Cut the fat results of these units, the largest first, until everything fits."""
        fat: list[tuple[float, int, int]] = []
        for index in [i for unit in units for i in unit.indices]:
            message = self._made[index]
            for place, part in enumerate(message.parts if message is not None else ()):
                if isinstance(part, ToolResultPart) and _is_fat(part):
                    fat.append((-self.counter.count(Message.user(part)), index, place))
        for _, index, place in sorted(fat):
            if self.fits:
                return
            if (message := self._made[index]) is not None:
                parts = message.parts
                part = cast("ToolResultPart", parts[place])
                short = (*parts[:place], _shortened(part), *parts[place + 1 :])
                made = Message(message.role, short)
                if self.counter.count(made) < self.sizes[index]:
                    self._put(index, made)

    def drop(self, kept: Sequence[bool]) -> None:
        """Take out the units that are not kept; what the user said beside results stays."""
        for unit, stays in zip(self.units, kept, strict=True):
            for index in () if stays else unit.indices:
                self._put(index, _without_results(self.messages[index]))

    def kept(self, pinned: Iterable[Message], recent: int) -> list[bool]:
        """Which units stay: pinned ones, the tail of `recent` messages, and what fits beside."""
        units, messages = self.units, self.messages
        left = [self._left_of(unit) for unit in units]
        sizes = [sum(self.sizes[unit.start : unit.end]) for unit in units]
        names = {id(message) for message in pinned}
        goal = next((m for m in messages if m.role is Role.USER and not m.results), None)
        kept = [
            any(
                id(m) in names or m is goal or m.role is Role.SYSTEM or is_summary(m)
                for m in messages[unit.start : unit.end]
            )
            for unit in units
        ]
        tail = len(units)
        while tail and len(messages) - units[tail - 1].end < recent:
            tail -= 1
            kept[tail] = True
        for place in range(len(units) - 1):  # only what answers a user may follow an answer
            kept[place + 1] |= kept[place] and messages[units[place].end - 1].role is Role.ASSISTANT
        room = self.target - sum(
            size if stays else rest for size, rest, stays in zip(sizes, left, kept, strict=True)
        )
        older = [place for place in reversed(range(tail)) if not kept[place]]
        durable = [place for place in older if self._is_durable(units[place])]
        for place in durable:
            if (cost := sizes[place] - left[place]) <= room:
                kept[place] = True
                room -= cost
        for place in older:
            if kept[place]:
                continue
            if (cost := sizes[place] - left[place]) > room:
                break
            kept[place] = True
            room -= cost
        return kept

    def _put(self, index: int, message: Message | None) -> None:
        size = 0 if message is None else self.counter.count(message)
        self.total += size - self.sizes[index]
        self.sizes[index] = size
        self._made[index] = message

    def _left_of(self, unit: Unit) -> float:
        """What a unit still costs once it is dropped."""
        rests = (_without_results(self.messages[index]) for index in unit.indices)
        return sum(self.counter.count(rest) for rest in rests if rest is not None)

    def _is_durable(self, unit: Unit) -> bool:
        found = self.messages[unit.start : unit.end]
        return any(result.retention == "durable" for m in found for result in m.results)


def _is_fat(result: ToolResultPart) -> bool:
    if result.retention == "durable":
        return False
    images = not isinstance(result.content, str) and any(
        isinstance(part, ImagePart) for part in result.content
    )
    return images or len(result.text) > FAT_CHARS


def _shortened(result: ToolResultPart) -> ToolResultPart:
    """The result with the head and the tail of its text, and a marker for each image."""
    content = result.content
    if not isinstance(content, str):
        content = tuple(
            TextPart(IMAGE_MARKER) if isinstance(part, ImagePart) else part for part in content
        )
    return replace(result, content=cut(content, KEPT_CHARS))


def _without_results(message: Message) -> Message | None:
    """What is left of a dropped message: what the user said beside results, if anything."""
    if not message.results:
        return None
    said = [part for part in message.parts if not isinstance(part, ToolResultPart)]
    return without_blanks(Message(message.role, said)) if says_something(said) else None
