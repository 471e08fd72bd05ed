"""Messages as the Messages API wants them (MOD-20, MOD-22, MOD-23, MOD-26, CTX-8).

How a conversation is read, and read on from where the last request ended, stands in
`loopctl.models.turns`; here is what its blocks look like.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
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
from loopctl.models.turns import Entry, Turns, element, made, system_text

NO_OUTPUT = "(no output)"
"""What stands for a tool result without content."""

BLOCK = "block"
"""The `kind` of a thinking part that carries a block of the server's own tools, as JSON."""

_SAFE_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ODD = re.compile(r"[^A-Za-z0-9_-]")
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_THINKING = (b'{"type":"thinking"', b'{"type":"redacted_thinking"')
_RESULTS = b'{"role":"user","content":[{"type":"tool_result"'
_THOUGHT_FIRST = (
    b'{"role":"assistant","content":[{"type":"thinking"',
    b'{"role":"assistant","content":[{"type":"redacted_thinking"',
)
_MAGIC = (
    (b"\x89PNG", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)


# One key for all clients: what depends on the client is which thinking parts stay.
_KEY = object()


def text_block(text: str) -> bytes:
    """A block of text."""
    return _json.wire({"type": "text", "text": text})


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

    `digest`, where reasoning is bound, goes on with what they send; `marks` is how many of them may
    bear `mark`, a cache mark.
    """
    turns = _Turns(mark, key=_KEY, provider=provider, model=model, digest=digest)
    return turns.lower(messages, head, tail, marks)


def is_amid_another(elements: list[bytes]) -> bool:
    """Whether the last message answers calls of a turn without thinking, such as another model's.

    A model that thinks by a budget must have thought before those, or must not think now.
    """
    return (
        len(elements) > 1
        and elements[-1].startswith(_RESULTS)
        and not elements[-2].startswith(_THOUGHT_FIRST)
    )


class _Turns(Turns):
    """How this API's messages are written."""

    BEGIN = made("user", [], [text_block("(the conversation goes on)")])
    GO_ON = made("user", [], [text_block("Continue.")])

    def __init__(
        self,
        mark: bytes,
        *,
        key: object,
        provider: str,
        model: str,
        digest: RunningDigest | None,
    ) -> None:
        super().__init__(key=key, provider=provider, model=model, digest=digest)
        self._mark = mark

    def stays(self, part: ThinkingPart) -> bool:
        if part.kind == BLOCK:  # any of its models takes back what the server's own tools did
            return part.provider == self._provider and bool(part.signature)
        return super().stays(part)

    def entry(self, message: Message, kept: tuple[bool, ...], renamed: Mapping[str, str]) -> Entry:
        if message.role is Role.ASSISTANT:
            return _assistant(message, kept, renamed)
        if message.role is Role.SYSTEM:
            text = system_text(message)
            # CTX-8: there is no system role in the middle, so a labelled user's text says it.
            return made("user", [], [text_block(f"[system note]\n{text}")] if text else [])
        return _user(message, renamed)

    def joined(self, entries: Sequence[Entry], marked: Sequence[int]) -> bytes:
        """All results first, then everything else (C1)."""
        if len(entries) == 1 and not marked:
            return entries[0].whole
        results: list[bytes] = []
        blocks: list[bytes] = []
        for place, entry in enumerate(entries):
            of_results, others = list(entry.results), list(entry.blocks)
            if place in marked:
                _put(self._mark, others or of_results)
            results += of_results
            blocks += others
        return element(entries[0].role, results + blocks)


def _put(mark: bytes, blocks: list[bytes]) -> None:
    """Put the mark on the last block that may bear one."""
    for at in range(len(blocks) - 1, -1, -1):
        if not blocks[at].startswith(_THINKING):
            blocks[at] = marked(blocks[at], mark)
            return


def marked(block: bytes, mark: bytes) -> bytes:
    """A JSON object with a cache mark in it."""
    return b'%s,"cache_control":%s}' % (block[:-1], mark)


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
    return made("user", results, blocks)


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
    return made("assistant", [], blocks, ids)


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
