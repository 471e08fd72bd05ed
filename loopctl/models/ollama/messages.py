"""Messages as Ollama wants them (MOD-20, MOD-23, CTX-8).

Content is one text, images stand beside it, and a result is known by its place and its tool's
name. Each message is turned into entries of bytes once and keeps them in its `memo`; where system
text may stand and which roles may meet is settled over those, because the templates of many
models take only one leading system text, and users and assistants in turns.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from loopctl import _json
from loopctl.messages import ImagePart, Message, Role, TextPart, ThinkingPart, ToolResultPart
from loopctl.models.client import ModelRequest

NO_OUTPUT = "(no output)"
"""What stands for a tool result without content."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One message of the body; `text` and `images` of a user's or system message only."""

    role: str
    body: bytes
    text: str = ""
    images: tuple[str, ...] = ()


@lru_cache(maxsize=64)
def _key(provider: str) -> object:
    """Where a message keeps its entries. Plain objects hash the fastest."""
    return object()


def lower(request: ModelRequest, provider: str) -> list[bytes]:
    """The elements of `messages`."""
    key = _key(provider)
    texts = [request.system] if request.system and request.system.strip() else []
    entries: list[Entry] = []
    for message in request.messages:
        made: tuple[Entry, ...] | None = message.memo.get(key)
        if made is None:
            made = message.memo[key] = tuple(_entries(message, provider))
        if message.role is not Role.SYSTEM:
            entries += made
        elif entries:
            # CTX-8: no system role in the middle, so a labelled user message says it.
            entries += [_user(f"[system note]\n{entry.text}") for entry in made]
        else:
            texts += [entry.text for entry in made]
    bodies = [entry.body for entry in _in_turns(entries)]
    if texts:
        bodies.insert(0, _json.wire({"role": "system", "content": "\n\n".join(texts)}))
    return bodies


def _entries(message: Message, provider: str) -> Iterable[Entry]:
    if message.role is Role.SYSTEM:
        text = _joined(part.text for part in message.parts if isinstance(part, TextPart))
        return [Entry("system", b"", text)] if text else []
    if message.role is Role.ASSISTANT:
        return _assistant(message, provider)
    return _said_by_user(message)


def _said_by_user(message: Message) -> Iterable[Entry]:
    """Results first, in the order of their calls; then their images and what the user says."""
    texts: list[str] = []
    images: list[str] = []
    for part in message.parts:
        if isinstance(part, ToolResultPart):
            shown = [] if isinstance(part.content, str) else _images(part.content)
            yield _result(part, bool(shown))
            if shown:
                texts.append(f"Images from the result of {part.name}:")
                images += shown
    texts += [part.text for part in message.parts if isinstance(part, TextPart)]
    images += _images(message.parts)
    text = _joined(texts)
    if text or images:
        yield _user(text, tuple(images))


def _user(text: str, images: tuple[str, ...] = ()) -> Entry:
    body: dict[str, Any] = {"role": "user", "content": text}
    if images:
        body["images"] = images
    return Entry("user", _json.wire(body), text, images)


def _result(part: ToolResultPart, images: bool) -> Entry:
    text = part.text
    if not text.strip():
        text = "(an image)" if images else NO_OUTPUT
    if part.is_error and not text.lower().startswith("error"):
        text = f"Error: {text}"
    body = {"role": "tool", "tool_name": part.name, "tool_call_id": part.call_id, "content": text}
    return Entry("tool", _json.wire(body))


def _assistant(message: Message, provider: str) -> Iterable[Entry]:
    text = message.text if message.text.strip() else ""
    body: dict[str, Any] = {"role": "assistant", "content": text}
    calls = [
        {"id": part.id, "function": {"name": part.name or "unnamed", "arguments": part.parse()}}
        for part in message.calls
    ]
    if not calls and not text:
        return []
    if calls:
        thought = "".join(
            part.text
            for part in message.parts
            if isinstance(part, ThinkingPart) and part.provider == provider
        )
        if thought:
            body["thinking"] = thought
        body["tool_calls"] = calls
    return [Entry("assistant", _json.wire(body))]


def _images(parts: Iterable[object]) -> list[str]:
    """Bare base64: no data URI, no other address."""
    return [
        base64.b64encode(part.data).decode("ascii") for part in parts if isinstance(part, ImagePart)
    ]


def _joined(texts: Iterable[str]) -> str:
    return "\n\n".join(text for text in texts if text.strip())


def _in_turns(entries: Sequence[Entry]) -> list[Entry]:
    """Merge neighbours of the user; let the user begin, and never the assistant end (C4)."""
    out: list[Entry] = []
    for entry in entries:
        if not out and entry.role != "user":
            out.append(_user("(the conversation goes on)"))
        if out and out[-1].role == entry.role == "user":
            last = out[-1]
            out[-1] = _user(_joined([last.text, entry.text]), last.images + entry.images)
        else:
            out.append(entry)
    if out and out[-1].role == "assistant":
        out.append(_user("Continue."))  # else the reply would go on with its words
    return out
