"""Messages as the Messages API wants them (MOD-20, MOD-22, MOD-23, MOD-26, CTX-8).

Each message is turned into blocks of bytes once and keeps them in its `memo`. What depends on its
neighbours (which roles may meet, where cache marks stand, whether reasoning is still behind what
it answered) is settled over those, and kept with the conversation's first message: the next request
reads on from there.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from loopctl import _json
from loopctl.messages import (
    ImagePart,
    Message,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from loopctl.models.anthropic.facts import MEDIA_TYPES
from loopctl.models.binding import RunningDigest
from loopctl.models.claude import LOOKBACK

NO_OUTPUT = "(no output)"
"""What stands for a tool result without content."""

BLOCK = "block"
"""The `kind` of a thinking part that carries a block of the server's own tools, as JSON."""

_SAFE_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ODD = re.compile(r"[^A-Za-z0-9_-]")
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_THINKING = (b'{"type":"thinking"', b'{"type":"redacted_thinking"')
_MAGIC = (
    (b"\x89PNG", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)


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


# One key for all clients: what depends on the client is which thinking parts stay.
_KEY = object()
_KEPT = object()


def text_block(text: str) -> bytes:
    """A block of text."""
    return _json.wire({"type": "text", "text": text})


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
    texts = [text for message in systems if (text := _system_text(message))]
    others = [message for message in messages[:head] if message.role is not Role.SYSTEM]
    return texts, (*others, *messages[begin:]), len(others)


def lower(
    messages: Sequence[Message],
    head: int,
    tail: int,
    *,
    provider: str,
    model: str,
    digest: RunningDigest | None,
    marks: int,
    mark: bytes,
) -> list[bytes]:
    """The elements of `messages`, of which `head` and `tail` at the ends ride this request only.

    `digest`, where reasoning is bound, goes on with what they send. The last message in front of
    the tail bears a cache mark; if there are two `marks` and too many blocks came since the last
    request for the server to find its entry, the end of that request does too.
    """
    rules = _Rules(provider, model, digest)
    end = len(messages) - tail
    state = rules.conversation(tuple(messages[head:end]), rules.read(_NOTHING, messages[:head]))
    marked = _marked(state)[:marks]
    state = rules.read(state, messages[end:])
    first = state.first or (state.open[0] if state.open else ())
    fragments = list(state.sealed)
    for at, group in enumerate(state.open):
        here = [place for at_group, place in marked if at_group == at]
        lone = len(group) == 1 and not here
        fragments.append(group[0].whole if lone else _merged(group, here, mark))
    if not first or first[0].role == "assistant":
        fragments.insert(0, _BEGIN.whole)
    if state.open and state.open[-1][0].role == "assistant":
        fragments.append(_GO_ON.whole)
        if digest is not None:
            digest.add_bytes(_GO_ON.whole)
    return fragments


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


class _Rules:
    """Reads messages for one request; `digest` runs along where reasoning is bound."""

    def __init__(self, provider: str, model: str, digest: RunningDigest | None) -> None:
        self._provider = provider
        self._model = model
        self._digest = digest

    def conversation(self, messages: tuple[Message, ...], state: _State) -> _State:
        """`state`, and the conversation behind it: only what is new is read (MOD-23).

        What was read last time is kept with the conversation's first message.
        """
        if not messages:
            return state
        digest = self._digest
        before = (state, None if digest is None else digest.state)
        memo, key = messages[0].memo, (_KEPT, self._provider, self._model)
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
            state = self.read(state, messages[known:])
            after = None if digest is None else digest.state
            earlier = None if kept is None else replace(kept, earlier=None)
            memo[key] = _Kept(messages, before, state, after, earlier)
        return state

    def read(self, state: _State, messages: Sequence[Message]) -> _State:
        """`state`, and what `messages` say behind it."""
        if not messages:
            return state
        groups = [list(group) for group in state.open]
        seen, renamed = state.seen, state.renamed
        new: set[str] = set()
        for message in messages:
            entry: Entry | None = message.memo.get(_KEY)
            kept: tuple[bool, ...] = ()
            if entry is None:
                entry, kept = _kept_entry(message, self._provider, self._model, self._digest)
            if entry.role == "assistant":
                renamed = {}
                if not (seen.isdisjoint(entry.ids) and new.isdisjoint(entry.ids)):
                    count = len(seen) + len(new)
                    renamed = {id: f"{id[:40]}_{count + n}" for n, id in enumerate(entry.ids)}
                    entry = _entry(message, kept, renamed)
                new.update(entry.ids)
            elif renamed and entry.results:
                entry = _entry(message, (), renamed)
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
            [*state.sealed, *(_sealed(group) for group in closed)] if closed else state.sealed,
            state.first or (tuple(closed[0]) if closed else ()),
            tuple([tuple(group) for group in groups[-_OPEN:]]),
            seen | new if new else seen,
            renamed,
        )


def _sealed(group: Sequence[Entry]) -> bytes:
    return group[0].whole if len(group) == 1 else _merged(group, (), b"")


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


def _kept_entry(
    message: Message, provider: str, model: str, digest: RunningDigest | None
) -> tuple[Entry, tuple[bool, ...]]:
    """The entry of a message, and which of its thinking parts are in it."""
    kept = tuple(
        [
            _stays(part, provider, model, digest)
            for part in message.parts
            if isinstance(part, ThinkingPart)
        ]
    )
    key = (_KEY, kept) if kept else _KEY
    entry: Entry | None = message.memo.get(key)
    if entry is None:
        entry = message.memo[key] = _entry(message, kept, {})
    return entry, kept


def _stays(part: ThinkingPart, provider: str, model: str, digest: RunningDigest | None) -> bool:
    """Whether the server accepts a thinking part back: its own, signed, where it belongs."""
    if part.provider != provider or not part.signature:
        return False
    if part.kind == BLOCK:
        return True
    if part.model is not None and part.model != model:
        return False
    return digest is None or digest.holds(part, model)


def _entry(message: Message, kept: tuple[bool, ...], renamed: Mapping[str, str]) -> Entry:
    if message.role is Role.ASSISTANT:
        return _assistant(message, kept, renamed)
    if message.role is Role.SYSTEM:
        text = _system_text(message)
        # CTX-8: there is no system role in the middle, so a labelled user's text says it.
        return _made("user", [], [text_block(f"[system note]\n{text}")] if text else [])
    return _user(message, renamed)


def _made(
    role: str, results: Sequence[bytes], blocks: Sequence[bytes], ids: Iterable[str] = ()
) -> Entry:
    return Entry(role, tuple(results), tuple(blocks), _whole(role, [*results, *blocks]), tuple(ids))


def _whole(role: str, blocks: Sequence[bytes]) -> bytes:
    if not blocks:
        return b""
    return b'{"role":"%s","content":[%s]}' % (role.encode(), b",".join(blocks))


def _merged(entries: Sequence[Entry], marked: Sequence[int], mark: bytes) -> bytes:
    """Neighbours of one role as one message: all results first, then everything else (C1)."""
    results: list[bytes] = []
    blocks: list[bytes] = []
    for place, entry in enumerate(entries):
        of_results, others = list(entry.results), list(entry.blocks)
        if place in marked:
            _put(mark, others or of_results)
        results += of_results
        blocks += others
    return _whole(entries[0].role, results + blocks)


def _put(mark: bytes, blocks: list[bytes]) -> None:
    """Put the mark on the last block that may bear one."""
    for at in range(len(blocks) - 1, -1, -1):
        if not blocks[at].startswith(_THINKING):
            blocks[at] = marked(blocks[at], mark)
            return


def marked(element: bytes, mark: bytes) -> bytes:
    """A JSON object with a cache mark in it."""
    return b'%s,"cache_control":%s}' % (element[:-1], mark)


def _system_text(message: Message) -> str:
    texts = [part.text for part in message.parts if isinstance(part, TextPart)]
    return "\n\n".join(text for text in texts if text.strip())


def _user(message: Message, renamed: Mapping[str, str]) -> Entry:
    results: list[bytes] = []
    blocks: list[bytes] = []
    for part in message.parts:
        if isinstance(part, ToolResultPart):
            results.append(_json.wire(_result(part, renamed)))
            if part.is_error and (images := _images(part)):  # a failed result is of text only
                blocks.append(text_block(f"Images from the result of {part.name}:"))
                blocks += [_json.wire(image) for image in images]
    for part in message.parts:
        if isinstance(part, ImagePart):
            blocks.append(_json.wire(_image(part)))
        elif isinstance(part, TextPart) and part.text.strip():
            blocks.append(text_block(part.text))
    return _made("user", results, blocks)


def _result(part: ToolResultPart, renamed: Mapping[str, str]) -> dict[str, Any]:
    content: Any = part.text
    if not isinstance(part.content, str) and not part.is_error:
        parts = [
            {"type": "text", "text": item.text} if isinstance(item, TextPart) else _image(item)
            for item in part.content
            if not isinstance(item, TextPart) or item.text.strip()
        ]
        if _images(part):
            content = parts
    if not content or (isinstance(content, str) and not content.strip()):
        content = NO_OUTPUT
    id = call_id(part.call_id)
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": renamed.get(id, id)}
    result["content"] = content
    if part.is_error:
        result["is_error"] = True
    return result


def _images(part: ToolResultPart) -> list[dict[str, Any]]:
    if isinstance(part.content, str):
        return []
    return [_image(item) for item in part.content if isinstance(item, ImagePart)]


def _image(part: ImagePart) -> dict[str, Any]:
    """An image by what its bytes say that it is: the API compares (rule 22)."""
    said = part.media_type.lower().replace("image/jpg", "image/jpeg")
    found = next((kind for magic, kind in _MAGIC if part.data.startswith(magic)), said)
    if part.data[:4] == b"RIFF" and part.data[8:12] == b"WEBP":
        found = "image/webp"
    if found not in MEDIA_TYPES:
        return {"type": "text", "text": f"(an image of type {part.media_type}, left out)"}
    data = base64.b64encode(part.data).decode("ascii")
    return {"type": "image", "source": {"type": "base64", "media_type": found, "data": data}}


def _assistant(message: Message, kept: tuple[bool, ...], renamed: Mapping[str, str]) -> Entry:
    blocks: list[bytes] = []
    ids: list[str] = []
    stays = iter(kept)
    paired = _paired(message)
    for part in message.parts:
        if isinstance(part, ThinkingPart):
            if not next(stays):
                continue
            if part.kind != BLOCK:
                blocks.append(_thinking(part))
            elif part.signature in paired:
                blocks.append(part.signature.encode(errors="replace"))
        elif isinstance(part, ToolCallPart):
            id = call_id(part.id)
            ids.append(renamed.get(id, id))
            blocks.append(_call(part, ids[-1]))
        elif isinstance(part, TextPart) and part.text.strip():
            blocks.append(text_block(part.text))
    while blocks and blocks[-1].startswith(_THINKING):
        blocks.pop()  # no message may end with thinking
    return _made("assistant", [], blocks, ids)


def _thinking(part: ThinkingPart) -> bytes:
    if part.redacted:
        return _json.wire({"type": "redacted_thinking", "data": part.signature})
    return _json.wire({"type": "thinking", "thinking": part.text, "signature": part.signature})


def _call(part: ToolCallPart, id: str) -> bytes:
    name = _ODD.sub("_", part.name)[:64] or "unnamed"
    head = _json.wire({"type": "tool_use", "id": id, "name": name})
    if _SURROGATE_ESCAPE.search(part.arguments):
        return b'%s,"input":%s}' % (head[:-1], _json.wire(part.parse()))
    return b'%s,"input":%s}' % (head[:-1], part.arguments.encode(errors="replace"))


def _paired(message: Message) -> set[str]:
    """The blocks of the server's own tools that may be sent back: uses with a result, and those.

    Beside open calls of ours a use may still be open: the server goes on with it.
    """
    blocks = [
        (part.signature, _json.parse_object(part.signature) or {})
        for part in message.parts
        if isinstance(part, ThinkingPart) and part.kind == BLOCK and part.signature
    ]
    used = {block.get("id") for _, block in blocks if "tool_use_id" not in block}
    answered = {block.get("tool_use_id") for _, block in blocks}
    if message.calls:
        answered |= used
    return {
        text
        for text, block in blocks
        if block.get("tool_use_id", block.get("id")) in (used & answered)
        or not block.keys() & {"id", "tool_use_id"}
    }


def call_id(id: str) -> str:
    """`id`, or where the server would refuse it one of ours that is made of it."""
    if _SAFE_ID.fullmatch(id):
        return id
    return f"toolu_{hashlib.sha256(id.encode(errors='replace')).hexdigest()[:24]}"


_BEGIN = _made("user", [], [text_block("(the conversation goes on)")])
_GO_ON = _made("user", [], [text_block("Continue.")])
