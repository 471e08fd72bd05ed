"""Messages as the Converse API wants them (MOD-20, MOD-22, MOD-23, MOD-26, CTX-8).

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
from loopctl.models.bedrock.facts import IMAGE_FORMATS, Facts
from loopctl.models.binding import RunningDigest
from loopctl.models.turns import Entry, Turns, element, made, system_text

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


# Where a message keeps its entry, by whether results may be marked as failed, and have company.
_KEYS = {(status, beside): object() for status in (True, False) for beside in (True, False)}


def text_block(text: str) -> bytes:
    """A block of text."""
    return _json.wire({"text": text})


def is_amid_another(elements: list[bytes]) -> bool:
    """Whether the last message answers calls of a turn without thinking, such as another model's.

    A Claude that thinks by a budget must have thought before those, or must not think now.
    """
    return (
        len(elements) > 1
        and elements[-1].startswith(b'{"role":"user","content":[{"toolResult"')
        and not elements[-2].startswith(b'{"role":"assistant","content":[{"reasoningContent"')
    )


class ConverseTurns(Turns):
    """How this API's messages are written for a model; `digest` goes on with what they send."""

    BEGIN = made("user", [], [text_block("(the conversation goes on)")])
    GO_ON = made("user", [], [text_block("Continue.")])

    def __init__(
        self, *, provider: str, model: str, facts: Facts, digest: RunningDigest | None
    ) -> None:
        key = _KEYS[facts.status, facts.beside_results]
        super().__init__(key=key, provider=provider, model=model, digest=digest)
        self._facts = facts

    def entry(self, message: Message, kept: tuple[bool, ...], renamed: Mapping[str, str]) -> Entry:
        """One message as blocks."""
        if message.role is Role.ASSISTANT:
            return _assistant(message, kept, renamed)
        if message.role is Role.SYSTEM:
            text = system_text(message)
            # CTX-8: few models know a system role in the middle, so a labelled user's text says it.
            return made("user", [], [text_block(f"[system note]\n{text}")] if text else [])
        return _user(message, renamed, self._facts.status)

    def joined(self, entries: Sequence[Entry], marked: Sequence[int]) -> bytes:
        """All results first, then everything else (C1); apart, where they must be alone."""
        if len(entries) == 1 and not marked and not (entries[0].results and self._alone):
            return entries[0].whole
        results: list[bytes] = []
        blocks: list[bytes] = []
        for place, entry in enumerate(entries):
            results += entry.results
            blocks += entry.blocks
            if place in marked:
                blocks.append(CACHE_POINT)
        role = entries[0].role
        if results and blocks and self._alone:
            return b",".join([element(role, results), _OK, element(role, blocks)])
        return element(role, results + blocks)

    @property
    def _alone(self) -> bool:
        """Whether what the user says must not stand beside tool results."""
        return not self._facts.beside_results


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
    return made("user", results, blocks)


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
    return made("assistant", [], blocks, ids)


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


_OK = element("assistant", [text_block("OK.")])
