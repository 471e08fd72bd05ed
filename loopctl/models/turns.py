"""Conversations for APIs where two roles take turns (MOD-20, MOD-22, MOD-23, MOD-26, CTX-8).

Each message is turned into blocks of bytes once and keeps them in its `memo`. What depends on its
neighbours (which roles may meet, where cache marks stand, whether reasoning is still behind what
it answered) is settled over those, and kept with the conversation's first message: the next request
reads on from there. How a block looks is each dialect's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from loopctl.messages import Message, Role, TextPart, ThinkingPart
from loopctl.models.binding import RunningDigest
from loopctl.models.claude import LOOKBACK


@dataclass(frozen=True, slots=True)
class Entry:
    """One message of the body: its blocks, those of tool results apart, and all of it as bytes."""

    role: str
    results: tuple[bytes, ...]
    blocks: tuple[bytes, ...]
    whole: bytes
    ids: tuple[str, ...] = ()  # of the calls

    @property
    def size(self) -> int:
        """How many blocks there are."""
        return len(self.results) + len(self.blocks)


def made(
    role: str, results: Sequence[bytes], blocks: Sequence[bytes], ids: Iterable[str] = ()
) -> Entry:
    """An entry of these blocks."""
    return Entry(
        role, tuple(results), tuple(blocks), element(role, [*results, *blocks]), tuple(ids)
    )


def element(role: str, blocks: Sequence[bytes]) -> bytes:
    """A message of the body; nothing without blocks."""
    if not blocks:
        return b""
    return b'{"role":"%s","content":[%s]}' % (role.encode(), b",".join(blocks))


def parted(
    messages: tuple[Message, ...], head: int, tail: int
) -> tuple[list[str], Sequence[Message], int]:
    """The system texts in front, the other messages, and how many of these are at the head.

    System messages at the head belong to the system field (CTX-8), and so do those with which a
    conversation begins.
    """
    end = len(messages) - tail
    begin = head
    while begin < end and messages[begin].role is Role.SYSTEM:
        begin += 1
    if not begin:
        return [], messages, 0
    systems = [message for message in messages[:begin] if message.role is Role.SYSTEM]
    texts = [text for message in systems if (text := system_text(message))]
    others = [message for message in messages[:head] if message.role is not Role.SYSTEM]
    return texts, (*others, *messages[begin:]), len(others)


def system_text(message: Message) -> str:
    """The text of a system message; blank parts are left out."""
    texts = [part.text for part in message.parts if isinstance(part, TextPart)]
    return "\n\n".join(text for text in texts if text.strip())


@dataclass(frozen=True, slots=True)
class _State:
    """A conversation as far as it has been read; neighbours of one role are a group.

    `sealed` are the groups that nothing can change any more, `first` the entries of the first of
    them, `open` the last few. `seen` are the ids of calls, `renamed` those of the last turn that
    had to be changed.
    """

    sealed: Sequence[bytes] = ()
    first: tuple[Entry, ...] = ()
    open: tuple[tuple[Entry, ...], ...] = ()
    seen: frozenset[str] = frozenset()
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])


_NOTHING = _State()

_OPEN = 3
"""Groups that stay open: a turn, its results, and what was said before, where marks may stand."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """What was read of a conversation last time, behind which messages and which digest."""

    messages: tuple[Message, ...]
    before: tuple[_State, bytes | None]
    state: _State
    digest: bytes | None
    earlier: _Kept | None = None  # of the time before: the last messages may be others now


class Turns(ABC):
    """Reads the messages of one request; `digest` runs along where reasoning is bound.

    `key` is where a message keeps its entry: one for all that is written alike, but for which
    thinking parts stay.
    """

    BEGIN: ClassVar[Entry]
    """What the user says in front of an assistant that would speak first."""
    GO_ON: ClassVar[Entry]
    """What the user says behind an assistant that would have the last word."""

    def __init__(
        self, *, key: object, provider: str, model: str, digest: RunningDigest | None
    ) -> None:
        self._key = key
        self._provider = provider
        self._model = model
        self._digest = digest

    @abstractmethod
    def entry(self, message: Message, kept: tuple[bool, ...], renamed: Mapping[str, str]) -> Entry:
        """One message; `kept` says for each of its thinking parts whether it stays."""

    @abstractmethod
    def joined(self, entries: Sequence[Entry], marked: Sequence[int]) -> bytes:
        """Neighbours of one role as one message; those at `marked` end with a cache mark."""

    def stays(self, part: ThinkingPart) -> bool:
        """Whether the server accepts a thinking part back: its own, signed, where it belongs."""
        if part.provider != self._provider or not part.signature:
            return False
        if part.model is not None and part.model != self._model:
            return False
        return self._digest is None or self._digest.holds(part, self._model)

    def lower(self, messages: Sequence[Message], head: int, tail: int, marks: int) -> list[bytes]:
        """The elements of `messages`, of which `head` and `tail` ride this request only.

        The last message in front of the tail bears a cache mark; if there are two `marks` and too
        many blocks came since the last request for the server to find its entry, the end of that
        request does too.
        """
        end = len(messages) - tail
        state = self._conversation(tuple(messages[head:end]), self._read(_NOTHING, messages[:head]))
        marked = _marked(state)[:marks]
        state = self._read(state, messages[end:])
        first = state.first or (state.open[0] if state.open else ())
        fragments = list(state.sealed)
        for at, group in enumerate(state.open):
            here = [place for at_group, place in marked if at_group == at]
            fragments.append(self.joined(group, here))
        if not first or first[0].role == "assistant":
            fragments.insert(0, self.BEGIN.whole)
        if state.open and state.open[-1][0].role == "assistant":
            fragments.append(self.GO_ON.whole)
            if self._digest is not None:
                self._digest.add_bytes(self.GO_ON.whole)
        return fragments

    def _conversation(self, messages: tuple[Message, ...], state: _State) -> _State:
        """`state`, and the conversation behind it: only what is new is read (MOD-23).

        What was read last time is kept with the conversation's first message.
        """
        if not messages:
            return state
        digest = self._digest
        before = (state, None if digest is None else digest.state)
        memo, key = messages[0].memo, (self._key, self._provider, self._model)
        kept: _Kept | None = memo.get(key)
        while kept is not None and not (
            kept.before == before and messages[: len(kept.messages)] == kept.messages
        ):
            kept = kept.earlier
        known = 0
        if kept is not None:
            known, state = len(kept.messages), kept.state
            if digest is not None and kept.digest is not None:
                digest.state = kept.digest
        if known < len(messages):
            state = self._read(state, messages[known:])
            after = None if digest is None else digest.state
            earlier = None if kept is None else replace(kept, earlier=None)
            memo[key] = _Kept(messages, before, state, after, earlier)
        return state

    def _read(self, state: _State, messages: Sequence[Message]) -> _State:
        """`state`, and what `messages` say behind it."""
        if not messages:
            return state
        groups = [list(group) for group in state.open]
        seen, renamed = state.seen, state.renamed
        new: set[str] = set()
        for message in messages:
            entry: Entry | None = message.memo.get(self._key)
            kept: tuple[bool, ...] = ()
            if entry is None:
                entry, kept = self._kept_entry(message)
            if entry.role == "assistant":
                renamed = {}
                if not (seen.isdisjoint(entry.ids) and new.isdisjoint(entry.ids)):
                    count = len(seen) + len(new)
                    renamed = {id: f"{id[:40]}_{count + n}" for n, id in enumerate(entry.ids)}
                    entry = self.entry(message, kept, renamed)
                new.update(entry.ids)
            elif renamed and entry.results:
                entry = self.entry(message, (), renamed)
            if not entry.whole:
                continue
            if groups and groups[-1][0].role == entry.role:
                groups[-1].append(entry)
            else:
                groups.append([entry])
            if self._digest is not None:
                self._digest.add(message, entry.whole)
        closed = groups[:-_OPEN]
        return _State(
            [*state.sealed, *(self.joined(group, ()) for group in closed)]
            if closed
            else state.sealed,
            state.first or (tuple(closed[0]) if closed else ()),
            tuple([tuple(group) for group in groups[-_OPEN:]]),
            seen | new if new else seen,
            renamed,
        )

    def _kept_entry(self, message: Message) -> tuple[Entry, tuple[bool, ...]]:
        """The entry of a message, and which of its thinking parts are in it."""
        thinking = [part for part in message.parts if isinstance(part, ThinkingPart)]
        kept = tuple([self.stays(part) for part in thinking])
        key = (self._key, kept) if kept else self._key
        entry: Entry | None = message.memo.get(key)
        if entry is None:
            entry = message.memo[key] = self.entry(message, kept, {})
        return entry, kept


def _marked(state: _State) -> list[tuple[int, int]]:
    """Groups and places in them where cache marks are of use, the most useful first."""
    if not state.open:
        return []
    last = len(state.open) - 1
    marks = [(last, len(state.open[last]) - 1)]
    turn = last if state.open[last][0].role == "assistant" else last - 1
    blocks = sum(entry.size for group in state.open[max(turn, 0) :] for entry in group)
    if turn > 0 and blocks >= LOOKBACK:
        marks.append((turn - 1, len(state.open[turn - 1]) - 1))
    return marks
