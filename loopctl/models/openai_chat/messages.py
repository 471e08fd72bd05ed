"""Messages as Chat Completions wants them (MOD-20, MOD-23, CTX-8).

Each message is turned into entries of bytes once and keeps them in its `memo`; what depends on
the neighbours, where system text may stand and which roles may meet, is settled over those.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
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
from loopctl.models.client import ModelRequest
from loopctl.models.openai_chat.facts import Profile

NO_OUTPUT = "(no output)"
"""What stands for a tool result without content."""

_SAFE_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
_NINE = re.compile(r"[A-Za-z0-9]{9}")
_ODD = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True)
class Entry:
    """One message of the body. `parts` are its content's parts, of a user's message only."""

    role: str
    body: bytes
    parts: tuple[dict[str, Any], ...] = ()
    text: str = ""  # of a system message


@lru_cache(maxsize=64)
def _keys(profile: Profile, provider: str) -> tuple[object, object]:
    """Where a message keeps its bytes, and where its entries. Plain objects hash the fastest."""
    return object(), object()


def lower(request: ModelRequest, profile: Profile, provider: str) -> list[bytes]:
    """The elements of `messages`, each with a comma in front of it, or nothing."""
    system = request.system if request.system and request.system.strip() else None
    if not profile.one_system and not profile.alternate:
        leading = [b",", _system(system, profile).body] if system else []
        return leading + _standing_alone(request.messages, profile, provider)
    entries = _in_company(request.messages, system, profile, provider)
    fragments = [b","] * (2 * len(entries))
    fragments[1::2] = [entry.body for entry in entries]
    return fragments


def _standing_alone(messages: Sequence[Message], profile: Profile, provider: str) -> list[bytes]:
    """The bytes of each message, where its neighbours do not matter."""
    key, _ = _keys(profile, provider)
    for message in reversed(messages):  # what is new stands at the end, as a rule
        if key in message.memo:
            break
        _keep(message, key, profile, provider)
    try:
        return [message.memo[key] for message in messages]
    except KeyError:
        for message in messages:
            if key not in message.memo:
                _keep(message, key, profile, provider)
        return [message.memo[key] for message in messages]


def _keep(message: Message, key: object, profile: Profile, provider: str) -> None:
    made = _entries(message, profile, provider)
    message.memo[key] = b"".join([b"," + entry.body for entry in made])


def _in_company(
    messages: Sequence[Message], system: str | None, profile: Profile, provider: str
) -> list[Entry]:
    """The entries of all messages, after what their server's rules make of neighbours."""
    _, key = _keys(profile, provider)
    texts = [system] if system else []
    entries: list[Entry] = []
    for message in messages:
        made: tuple[Entry, ...] | None = message.memo.get(key)
        if made is None:
            made = message.memo[key] = tuple(_entries(message, profile, provider))
        if message.role is not Role.SYSTEM or not profile.one_system:
            entries += made
        elif entries:
            # CTX-8: no system role in the middle, so a labelled user message says it.
            entries += [_user([_text(f"[system note]\n{entry.text}")]) for entry in made]
        else:
            texts += [entry.text for entry in made]
    if profile.alternate:
        entries = _alternating(entries, profile)
    return [_system("\n\n".join(texts), profile), *entries] if texts else entries


def _entries(message: Message, profile: Profile, provider: str) -> Iterable[Entry]:
    if message.role is Role.SYSTEM:
        text = _joined(part.text for part in message.parts if isinstance(part, TextPart))
        return [_system(text, profile)] if text else []
    if message.role is Role.ASSISTANT:
        return _assistant(message, profile, provider)
    return _said_by_user(message, profile)


def _system(text: str, profile: Profile) -> Entry:
    role = profile.system_role
    return Entry("system", _json.wire({"role": role, "content": text}), text=text)


def _said_by_user(message: Message, profile: Profile) -> Iterable[Entry]:
    """Results first, each in a message of its own; then their images and what the user says."""
    parts: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, ToolResultPart):
            images = [] if isinstance(part.content, str) else _images(part.content)
            yield _result(part, images, profile)
            if images and not profile.result_images:
                parts += [_text(f"Images from the result of {part.name}:"), *images]
    for part in message.parts:
        if isinstance(part, TextPart):
            if part.text.strip():
                parts.append(_text(part.text))
        elif isinstance(part, ImagePart):
            parts.append(_image(part))
    if parts:
        yield _user(parts)


def _user(parts: Sequence[dict[str, Any]]) -> Entry:
    content: Any = list(parts)
    if all(part["type"] == "text" for part in parts):
        content = "\n\n".join(part["text"] for part in parts)
    return Entry("user", _json.wire({"role": "user", "content": content}), tuple(parts))


def _result(part: ToolResultPart, images: list[dict[str, Any]], profile: Profile) -> Entry:
    text = part.text
    if not text.strip():
        text = "(an image)" if images else NO_OUTPUT
    if part.is_error and not text.lower().startswith("error"):
        text = f"Error: {text}"
    content: Any = [_text(text), *images] if images and profile.result_images else text
    body = {"role": "tool", "tool_call_id": call_id(part.call_id, profile), "content": content}
    return Entry("tool", _json.wire(body))


def _assistant(message: Message, profile: Profile, provider: str) -> Iterable[Entry]:
    text = message.text
    body: dict[str, Any] = {"role": "assistant", "content": text if text.strip() else None}
    calls = [_call(part, profile) for part in message.calls]
    thoughts = [
        part
        for part in message.parts
        if isinstance(part, ThinkingPart) and part.provider == provider
    ]
    if profile.echo is not None:
        _echo(body, thoughts, bool(calls), profile)
    if calls:
        body["tool_calls"] = calls
    elif body["content"] is None:
        return []
    return [Entry("assistant", _json.wire(body))]


def _echo(
    body: dict[str, Any], thoughts: Sequence[ThinkingPart], calls: bool, profile: Profile
) -> None:
    """Send reasoning back in the form that it came in."""
    form = profile.echo
    if form == "chunks":
        chunks = [_chunk(part) for part in thoughts if part.kind == "thinking"]
        if chunks:
            text = body["content"]
            body["content"] = [*chunks, *([_text(text)] if text else [])]
    elif form == "reasoning_details":
        for part in thoughts:
            if part.kind == form and part.signature:
                body[form] = json.loads(part.signature)
            elif part.text:
                body["reasoning"] = part.text
    elif form is not None and calls:
        said = "".join(part.text for part in thoughts)
        if said or profile.echo_always:
            body[form] = said


def _chunk(part: ThinkingPart) -> dict[str, Any]:
    chunk: dict[str, Any] = {"type": "thinking", "thinking": [_text(part.text)]}
    if part.signature is not None:
        chunk["signature"] = part.signature
    return chunk


def _call(part: ToolCallPart, profile: Profile) -> dict[str, Any]:
    name = _ODD.sub("_", part.name)[:64] or "unnamed"
    function = {"name": name, "arguments": part.arguments}
    return {"id": call_id(part.id, profile), "type": "function", "function": function}


def call_id(id: str, profile: Profile) -> str:
    """`id`, or where the server would refuse it one of ours that is made of it."""
    if profile.ids == "nine":
        return id if _NINE.fullmatch(id) else _digest(id)[:9]
    if profile.ids == "safe" and not _SAFE_ID.fullmatch(id):
        return f"call_{_digest(id)[:24]}"
    return id


def _digest(id: str) -> str:
    return hashlib.sha256(id.encode(errors="replace")).hexdigest()


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _image(part: ImagePart) -> dict[str, Any]:
    data = base64.b64encode(part.data).decode("ascii")
    return {"type": "image_url", "image_url": {"url": f"data:{part.media_type};base64,{data}"}}


def _images(parts: Iterable[TextPart | ImagePart]) -> list[dict[str, Any]]:
    return [_image(part) for part in parts if isinstance(part, ImagePart)]


def _joined(texts: Iterable[str]) -> str:
    return "\n\n".join(text for text in texts if text.strip())


def _alternating(entries: Sequence[Entry], profile: Profile) -> list[Entry]:
    """Merge neighbours of the user; let the user begin, and never the assistant end (C4)."""
    out: list[Entry] = []
    for entry in entries:
        last = out[-1] if out else None
        if last is None and entry.role != "user":
            out.append(_user([_text("(the conversation goes on)")]))
        elif last is not None and entry.role == "user":
            if last.role == "user":
                out[-1] = _user([*last.parts, *entry.parts])
                continue
            if last.role == "tool" and profile.after_tools is not None:
                said = {"role": "assistant", "content": profile.after_tools}
                out.append(Entry("assistant", _json.wire(said)))
        out.append(entry)
    if out and out[-1].role == "assistant":
        out.append(_user([_text("Continue.")]))
    return out
