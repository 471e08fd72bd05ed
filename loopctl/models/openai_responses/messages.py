"""Messages as input items of the Responses API (MOD-20, MOD-23, MOD-26, CTX-8).

How a conversation is read, and read on from where the last request ended, stands in
`loopctl.models.turns`; here is what its items look like. Reasoning and the items of the server's
own tools go back as they came, from the JSON that their `ThinkingPart` holds. What nothing here
stores has no id: a reasoning item's alone is kept, it is a part of it.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from loopctl import _json
from loopctl.messages import (
    ImagePart,
    Message,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from loopctl.models.binding import RunningDigest
from loopctl.models.openai_responses.facts import WAITING, Profile
from loopctl.models.turns import Entry, Turns, system_text

NO_OUTPUT = "(no output)"
"""What stands for a tool result without content."""

REASONING = "reasoning"
"""The `kind` of a thinking part whose signature is a reasoning item, as JSON."""

ITEM = "item"
"""The `kind` of a thinking part whose signature is any other item of the server's, as JSON."""

PHASE = "phase"
"""The `kind` of a thinking part whose signature is the phase of the text behind it."""

_SAFE_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ODD = re.compile(r"[^A-Za-z0-9_-]")
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


@lru_cache(maxsize=64)
def _key(profile: Profile) -> object:
    """Where a message keeps its items. Plain objects hash the fastest."""
    return object()


def lower(
    messages: Sequence[Message],
    head: int,
    tail: int,
    *,
    profile: Profile,
    provider: str,
    model: str,
    digest: RunningDigest | None,
) -> list[bytes]:
    """The items of `messages`, of which `head` and `tail` at the ends ride this request only.

    `digest`, where reasoning is bound, goes on with what they send.
    """
    turns = _Items(profile, provider=provider, model=model, digest=digest)
    return [items for items in turns.lower(messages, head, tail, 0) if items]


def _said(text: str) -> Entry:
    return _entry("user", [], [_json.wire({"role": "user", "content": text})])


def _entry(role: str, results: Sequence[bytes], items: Sequence[bytes], ids: Any = ()) -> Entry:
    return Entry(role, tuple(results), tuple(items), b",".join([*results, *items]), tuple(ids))


class _Items(Turns):
    """How this API's items are written. Its roles need not take turns; results come first."""

    BEGIN = _said("(the conversation goes on)")
    GO_ON = _said("Continue.")

    def __init__(
        self, profile: Profile, *, provider: str, model: str, digest: RunningDigest | None
    ) -> None:
        super().__init__(key=_key(profile), provider=provider, model=model, digest=digest)
        self._profile = profile

    def stays(self, part: ThinkingPart) -> bool:
        if part.kind == PHASE:  # any of its models takes it back
            return part.provider == self._provider and bool(part.signature)
        return super().stays(part)

    def entry(self, message: Message, kept: tuple[bool, ...], renamed: Mapping[str, str]) -> Entry:
        if message.role is Role.ASSISTANT:
            return _assistant(message, kept, renamed, self._profile)
        if message.role is Role.SYSTEM:
            return _note(system_text(message), self._profile)
        return _user(message, renamed, self._profile)

    def joined(self, entries: Sequence[Entry], marked: Sequence[int]) -> bytes:
        if len(entries) == 1:
            return entries[0].whole
        results = [item for entry in entries for item in entry.results]
        return b",".join([*results, *(item for entry in entries for item in entry.blocks)])


def _note(text: str, profile: Profile) -> Entry:
    if not text:
        return _entry("system", [], [])
    if profile.notes is None:
        # CTX-8: there is no system role in the middle, so a labelled user's text says it.
        return _said(f"[system note]\n{text}")
    return _entry("system", [], [_json.wire({"role": profile.notes, "content": text})])


def _user(message: Message, renamed: Mapping[str, str], profile: Profile) -> Entry:
    results: list[bytes] = []
    parts: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, ToolResultPart):
            results.append(_json.wire(_result(part, renamed, profile)))
            images = _images(part)
            if images and not profile.result_images:
                parts += [_text(f"Images from the result of {part.name}:"), *images]
    for part in message.parts:
        if isinstance(part, ImagePart):
            parts.append(_image(part))
        elif isinstance(part, TextPart) and part.text.strip():
            parts.append(_text(part.text))
    if not parts:
        return _entry("user", results, [])
    content: Any = parts
    if all(part["type"] == "input_text" for part in parts):
        content = "\n\n".join(part["text"] for part in parts)
    return _entry("user", results, [_json.wire({"role": "user", "content": content})])


def _result(part: ToolResultPart, renamed: Mapping[str, str], profile: Profile) -> dict[str, Any]:
    text, images = part.text, _images(part)
    if not text.strip():
        text = "(an image)" if images else NO_OUTPUT
    if part.is_error and not text.lower().startswith("error"):
        text = f"Error: {text}"
    output: Any = text
    if images and profile.result_images:
        output = [_text(text), *images]
    id = call_id(part.call_id)
    return {"type": "function_call_output", "call_id": renamed.get(id, id), "output": output}


def _text(text: str) -> dict[str, Any]:
    return {"type": "input_text", "text": text}


def _image(part: ImagePart) -> dict[str, Any]:
    data = base64.b64encode(part.data).decode("ascii")
    url = f"data:{part.media_type};base64,{data}"
    return {"type": "input_image", "detail": "auto", "image_url": url}


def _images(part: ToolResultPart) -> list[dict[str, Any]]:
    if isinstance(part.content, str):
        return []
    return [_image(item) for item in part.content if isinstance(item, ImagePart)]


def _assistant(
    message: Message, kept: tuple[bool, ...], renamed: Mapping[str, str], profile: Profile
) -> Entry:
    items: list[tuple[str, bytes]] = []
    ids: list[str] = []
    phase: str | None = None
    for part in _kept(message.parts, kept):
        if isinstance(part, ThinkingPart):
            if part.kind == PHASE:
                phase = part.signature
            elif (found := _as_it_came(part)) is not None:
                items.append(found)
        elif isinstance(part, ToolCallPart):
            id = call_id(part.id)
            ids.append(renamed.get(id, id))
            items.append(("function_call", _call(part, ids[-1])))
        elif isinstance(part, TextPart) and part.text.strip():
            said = {"type": "message", "role": "assistant", "content": part.text}
            items.append(("message", _json.wire(said | ({"phase": phase} if phase else {}))))
            phase = None
    while items and items[-1][0] == REASONING:
        items.pop()  # it is refused without what it led to
    if profile.calls_last:
        items.sort(key=lambda item: item[0] == "function_call")
    return _entry("assistant", [], [item for _, item in items], ids)


def _kept(parts: Iterable[Part], kept: tuple[bool, ...]) -> Iterable[Part]:
    stays = iter(kept)
    return [part for part in parts if not isinstance(part, ThinkingPart) or next(stays)]


def _as_it_came(part: ThinkingPart) -> tuple[str, bytes] | None:
    """The type and the bytes of an item that the server made; `None` if it is none to send."""
    text = part.signature or ""
    item = _json.parse_object(text) or {}
    kind = item.get("type")
    if not isinstance(kind, str) or kind in WAITING:
        return None
    if _SURROGATE_ESCAPE.search(text):
        return kind, _json.wire(item)
    return kind, text.encode(errors="replace")


def _call(part: ToolCallPart, id: str) -> bytes:
    name = _ODD.sub("_", part.name)[:64] or "unnamed"
    call = {"type": "function_call", "call_id": id, "name": name, "arguments": part.arguments}
    return _json.wire(call)


def call_id(id: str) -> str:
    """`id`, or where the API would refuse it one of ours that is made of it."""
    if _SAFE_ID.fullmatch(id):
        return id
    return f"call_{hashlib.sha256(id.encode(errors='replace')).hexdigest()[:24]}"
