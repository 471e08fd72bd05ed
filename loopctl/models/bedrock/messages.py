"""Messages as the Converse API wants them (MOD-20, MOD-22, MOD-23, MOD-26, CTX-8).

Each message is turned into blocks of bytes once and keeps them in its `memo`. What depends on its
neighbours (which roles may meet, where cache points stand, whether reasoning is still behind what
it answered) is settled over those.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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
from loopctl.models.bedrock.facts import IMAGE_FORMATS, Facts
from loopctl.models.binding import RunningDigest
from loopctl.models.claude import LOOKBACK

NO_OUTPUT = "(no output)"
"""What stands for a tool result without content."""

CACHE_POINT = b'{"cachePoint":{"type":"default"}}'

_SAFE_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_ODD = re.compile(r"[^A-Za-z0-9_-]")
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_REASONING = b'{"reasoningContent"'
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


# Where a message keeps its entry, by whether results may be marked as failed.
_KEYS = {True: object(), False: object()}


def text_block(text: str) -> bytes:
    """A block of text."""
    return _json.wire({"text": text})


def parted(
    messages: tuple[Message, ...], head: int, tail: int
) -> tuple[list[str], Sequence[Message], int]:
    """The system texts in front, the other messages, and how many of those are stable.

    System messages at the head belong to the system field (CTX-8), and so do those with which a
    conversation begins. What is behind the stable messages rides this one request.
    """
    end = len(messages) - tail
    begin = head
    while begin < end and messages[begin].role is Role.SYSTEM:
        begin += 1
    if not begin:
        return [], messages, end
    systems = [message for message in messages[:begin] if message.role is Role.SYSTEM]
    texts = [text for message in systems if (text := _system_text(message))]
    others = [message for message in messages[:head] if message.role is not Role.SYSTEM]
    rest = [*others, *messages[begin:]]
    return texts, rest, len(rest) - tail


@dataclass(frozen=True, kw_only=True, slots=True)
class Lowering:
    """How the messages of one request are sent to one model.

    `digest`, where reasoning is bound, goes on with what they send.
    """

    provider: str
    model: str
    facts: Facts
    digest: RunningDigest | None

    def lower(self, messages: Sequence[Message], stable: int, points: int) -> list[bytes]:
        """The elements of `messages`, at most `points` cache points in them.

        One stands behind the last of the first `stable` messages. If too many blocks came since
        the last request for the server to find its entry, one stands at the end of that request.
        """
        entries, anchor = self._entries(messages, stable)
        marked = _marked(entries, anchor)[:points]
        if entries[-1].role == "assistant":
            entries.append(_GO_ON)
            self._say(_GO_ON)
        fragments: list[bytes] = []
        begin, count = 0, len(entries)
        while begin < count:
            role, end = entries[begin].role, begin + 1
            while end < count and entries[end].role == role:
                end += 1
            here = [place - begin for place in marked if begin <= place < end]
            group = entries[begin:end]
            if len(group) == 1 and not here and not self._apart(group):
                fragments.append(group[0].whole)
            else:
                fragments += self._merged(group, here)
            begin = end
        return fragments

    def _entries(self, messages: Sequence[Message], stable: int) -> tuple[list[Entry], int]:
        """The entries of all messages, and how many of them are stable."""
        entries: list[Entry] = []
        anchor: int | None = None
        seen: set[str] = set()
        renamed: Mapping[str, str] = {}
        key = _KEYS[self.facts.status]
        for index, message in enumerate(messages):
            if index == stable:
                anchor = len(entries)
            entry: Entry | None = message.memo.get(key)
            kept: tuple[bool, ...] = ()
            if entry is None:
                entry, kept = self._kept_entry(message, key)
            if entry.role == "assistant":
                renamed = {}
                if entry.ids:
                    if not seen.isdisjoint(entry.ids):
                        taken = len(seen)
                        renamed = {id: f"{id[:40]}_{taken + n}" for n, id in enumerate(entry.ids)}
                        entry = self._entry(message, kept, renamed)
                    seen.update(entry.ids)
            elif renamed and entry.results:
                entry = self._entry(message, (), renamed)
            if not entry.whole:
                continue
            if not entries and entry.role == "assistant":
                entries.append(_BEGIN)
                self._say(_BEGIN)
            entries.append(entry)
            if self.digest is not None:
                self.digest.add(message, entry.whole)
        if anchor is None:
            anchor = len(entries)
        return entries or [_BEGIN], anchor

    def _say(self, entry: Entry) -> None:
        if self.digest is not None:
            self.digest.add_bytes(entry.whole)

    def _kept_entry(self, message: Message, key: object) -> tuple[Entry, tuple[bool, ...]]:
        """The entry of a message, and which of its thinking parts are in it."""
        thinking = [part for part in message.parts if isinstance(part, ThinkingPart)]
        kept = tuple([self._stays(part) for part in thinking])
        place = (key, kept) if kept else key
        entry: Entry | None = message.memo.get(place)
        if entry is None:
            entry = message.memo[place] = self._entry(message, kept, {})
        return entry, kept

    def _stays(self, part: ThinkingPart) -> bool:
        """Whether the server accepts a thinking part back: its own, signed, where it belongs."""
        if part.provider != self.provider or not part.signature:
            return False
        if part.model is not None and part.model != self.model:
            return False
        return self.digest is None or self.digest.holds(part, self.model)

    def _entry(self, message: Message, kept: tuple[bool, ...], renamed: Mapping[str, str]) -> Entry:
        if message.role is Role.ASSISTANT:
            return _assistant(message, kept, renamed)
        if message.role is Role.SYSTEM:
            text = _system_text(message)
            # CTX-8: few models know a system role in the middle, so a labelled user's text says it.
            return _made("user", [], [text_block(f"[system note]\n{text}")] if text else [])
        return _user(message, renamed, self.facts.status)

    def _apart(self, entries: Sequence[Entry]) -> bool:
        """Whether what the user says must not stand beside tool results."""
        if self.facts.beside_results:
            return False
        return any(e.results for e in entries) and any(e.blocks for e in entries)

    def _merged(self, entries: Sequence[Entry], marked: Sequence[int]) -> list[bytes]:
        """Neighbours of one role as one message: all results first, then everything else (C1)."""
        results: list[bytes] = []
        blocks: list[bytes] = []
        for place, entry in enumerate(entries):
            results += entry.results
            blocks += entry.blocks
            if place in marked:
                (blocks or results).append(CACHE_POINT)
        role = entries[0].role
        if self._apart(entries):
            return [_whole(role, results), _OK, _whole(role, blocks)]
        return [_whole(role, results + blocks)]


def _marked(entries: Sequence[Entry], stable: int) -> list[int]:
    """The places where cache points are of use, the most useful first."""
    if not stable:
        return []
    last = at = stable - 1
    blocks = entries[at].size
    while at > 0 and entries[at].role != "assistant":
        at -= 1
        blocks += entries[at].size
    return [last, at - 1] if at > 0 and blocks >= LOOKBACK else [last]


def _made(
    role: str, results: Sequence[bytes], blocks: Sequence[bytes], ids: Iterable[str] = ()
) -> Entry:
    return Entry(role, tuple(results), tuple(blocks), _whole(role, [*results, *blocks]), tuple(ids))


def _whole(role: str, blocks: Sequence[bytes]) -> bytes:
    if not blocks:
        return b""
    return b'{"role":"%s","content":[%s]}' % (role.encode(), b",".join(blocks))


def _system_text(message: Message) -> str:
    texts = [part.text for part in message.parts if isinstance(part, TextPart)]
    return "\n\n".join(text for text in texts if text.strip())


def _user(message: Message, renamed: Mapping[str, str], status: bool) -> Entry:
    results: list[bytes] = []
    blocks: list[bytes] = []
    for part in message.parts:
        if isinstance(part, ToolResultPart):
            results.append(_json.wire({"toolResult": _result(part, renamed, status)}))
            if part.is_error and (images := _images(part)):  # a failed result is of text only
                blocks.append(text_block(f"Images from the result of {part.name}:"))
                blocks += [_json.wire(image) for image in images]
    for part in message.parts:
        if isinstance(part, ImagePart):
            blocks.append(_json.wire(_image(part)))
        elif isinstance(part, TextPart) and part.text.strip():
            blocks.append(text_block(part.text))
    return _made("user", results, blocks)


def _result(part: ToolResultPart, renamed: Mapping[str, str], status: bool) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    if part.is_error or isinstance(part.content, str):
        text = part.text
        if part.is_error and not status and not text.lower().startswith("error"):
            text = f"Error: {text}"
        content += [{"text": text}] if text.strip() else []
    else:
        content += [
            {"text": item.text} if isinstance(item, TextPart) else _image(item)
            for item in part.content
            if not isinstance(item, TextPart) or item.text.strip()
        ]
    id = call_id(part.call_id)
    result: dict[str, Any] = {"toolUseId": renamed.get(id, id)}
    result["content"] = content or [{"text": NO_OUTPUT}]
    if part.is_error and status:
        result["status"] = "error"
    return result


def _images(part: ToolResultPart) -> list[dict[str, Any]]:
    if isinstance(part.content, str):
        return []
    return [_image(item) for item in part.content if isinstance(item, ImagePart)]


def _image(part: ImagePart) -> dict[str, Any]:
    """An image by what its bytes say that it is: models compare (rule 22)."""
    said = part.media_type.lower().replace("image/jpg", "image/jpeg")
    found = next((kind for magic, kind in _MAGIC if part.data.startswith(magic)), said)
    if part.data[:4] == b"RIFF" and part.data[8:12] == b"WEBP":
        found = "image/webp"
    if found not in IMAGE_FORMATS or not part.data:
        return {"text": f"(an image of type {part.media_type}, left out)"}
    data = base64.b64encode(part.data).decode("ascii")
    return {"image": {"format": IMAGE_FORMATS[found], "source": {"bytes": data}}}


def _assistant(message: Message, kept: tuple[bool, ...], renamed: Mapping[str, str]) -> Entry:
    blocks: list[bytes] = []
    ids: list[str] = []
    stays = iter(kept)
    for part in message.parts:
        if isinstance(part, ThinkingPart):
            if next(stays):
                blocks.append(_reasoning(part))
        elif isinstance(part, ToolCallPart):
            id = call_id(part.id)
            ids.append(renamed.get(id, id))
            blocks.append(_call(part, ids[-1]))
        elif isinstance(part, TextPart) and part.text.strip():
            blocks.append(text_block(part.text))
    while blocks and blocks[-1].startswith(_REASONING):
        blocks.pop()  # no message may end with reasoning
    return _made("assistant", [], blocks, ids)


def _reasoning(part: ThinkingPart) -> bytes:
    if part.redacted:
        return _json.wire({"reasoningContent": {"redactedContent": part.signature}})
    said = {"text": part.text, "signature": part.signature}
    return _json.wire({"reasoningContent": {"reasoningText": said}})


def _call(part: ToolCallPart, id: str) -> bytes:
    head = _json.wire({"toolUseId": id, "name": tool_name(part.name)})[:-1]
    if _SURROGATE_ESCAPE.search(part.arguments):
        arguments = _json.wire(part.parse())
    else:
        arguments = part.arguments.encode(errors="replace")
    return b'{"toolUse":%s,"input":%s}}' % (head, arguments)


def tool_name(name: str) -> str:
    """A name as it may be sent back, whatever the model made up."""
    return _ODD.sub("_", name)[:64] or "unnamed"


def call_id(id: str) -> str:
    """`id`, or where the server would refuse it one of ours that is made of it."""
    if _SAFE_ID.fullmatch(id):
        return id
    return f"tooluse_{hashlib.sha256(id.encode(errors='replace')).hexdigest()[:24]}"


_BEGIN = _made("user", [], [text_block("(the conversation goes on)")])
_GO_ON = _made("user", [], [text_block("Continue.")])
_OK = _whole("assistant", [text_block("OK.")])
