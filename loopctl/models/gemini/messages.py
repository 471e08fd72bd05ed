"""Messages as Gemini wants them (MOD-20, MOD-23, CTX-8).

A signature rides on the part that it came with. Our parts have no room for it, so a `ThinkingPart`
directly in front of the part holds it; its `kind` says of what it is the signature.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

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
from loopctl.models.gemini.facts import RESULT_IMAGES, SKIP_SIGNATURE, generation

THOUGHT = "thought"
"""Kind of a summary of what was thought, with its own signature if it has one."""

OF_TEXT = "text"
"""Kind of the signature of the text behind it."""

OF_CALL = "functionCall"
"""Kind of the signature of the call behind it."""

EMPTY = "thoughtSignature"
"""Kind of a signature that came with an empty text."""

VERBATIM = "part"
"""Kind of a part that loopctl has no name for: its `signature` is the part as JSON."""

NO_OUTPUT = "(no output)"
"""What stands for a tool result without content."""

_OUR_ID = re.compile(r"(call_[0-9a-f]{24})?")
_ODD = re.compile(r"[^A-Za-z0-9_-]")

Calls: TypeAlias = tuple[tuple[str, str], ...]
"""Id and name of each call, or of each result."""


class Lowered(NamedTuple):
    """One message: its contents, each with a comma in front; what it calls, what it answers.

    `shape` is `m` for the model's, `u` for the user's, `s` for system text, blank for nothing.
    """

    body: bytes
    calls: Calls
    results: Calls
    shape: str


@dataclass(frozen=True, slots=True)
class Lowering:
    """How the messages of one provider's conversation are sent to one kind of model."""

    provider: str
    generation: str | None
    signatures: bool
    result_images: bool

    def message(self, message: Message) -> Lowered:
        """The contents of one message, as they are when its neighbours are in order."""
        if message.role is Role.ASSISTANT:
            parts = list(self.said_by_model(message))
            calls = tuple((call.id, call.name) for call in message.calls)
            return Lowered(content("model", parts), calls, (), "m" if parts else " ")
        rest = self.beside_results(message)
        if message.role is Role.SYSTEM:
            return Lowered(content("user", rest), (), (), "s" if rest else " ")
        answers = [self.result(part, part.name) for part in message.results]
        body = content("user", answers) + content("user", rest)
        results = tuple((part.call_id, part.name) for part in message.results)
        return Lowered(body, (), results, "u" if body else " ")

    def said_by_model(self, message: Message) -> Iterator[bytes]:
        """The parts of a model's content; none when it neither says nor calls anything."""
        parts: list[bytes] = []
        signature: tuple[str, str] | None = None
        said, called = False, False
        for part in message.parts:
            pending, signature = signature, None
            if isinstance(part, ThinkingPart):
                if not self._is_own(part):
                    continue
                if part.kind in (OF_TEXT, OF_CALL) and part.signature is not None:
                    signature = part.kind, part.signature
                elif part.kind == VERBATIM and part.signature is not None:
                    said = True
                    parts.append(_json.wire(_json.loads(part.signature)))
                elif part.text or part.signature is not None:
                    thought = {} if part.kind == EMPTY else {"thought": True}
                    parts.append(_signed({"text": part.text, **thought}, part.signature))
            elif isinstance(part, ToolCallPart):
                own = pending[1] if pending and pending[0] == OF_CALL else None
                if own is None and self.signatures and not called:
                    own = SKIP_SIGNATURE
                called = said = True
                parts.append(_signed({"functionCall": _call(part)}, own))
            elif isinstance(part, TextPart):
                own = pending[1] if pending and pending[0] == OF_TEXT else None
                if own is not None or part.text.strip():
                    said = True
                    parts.append(_signed({"text": part.text}, own))
            elif isinstance(part, ImagePart):
                said = True
                parts.append(_image(part))
        yield from parts if said else ()

    def said_by_user(self, message: Message) -> Iterator[bytes]:
        """The parts of a user's content: images that no result may hold, then what is said."""
        for result in message.results:
            images = [image for image in _images(result) if not self._inside(image)]
            if images:
                yield text_part(f"Images from the result of {result.name}:")
                yield from map(_image, images)
        for part in message.parts:
            if isinstance(part, ImagePart):
                yield _image(part)
            elif isinstance(part, TextPart) and part.text.strip():
                yield text_part(part.text)

    def result(self, part: ToolResultPart, name: str) -> bytes:
        """The function response of one call."""
        images = _images(part)
        text = part.text if part.text.strip() else "(an image)" if images else NO_OUTPUT
        response: dict[str, Any] = {
            **_id(part.call_id),
            "name": function_name(name),
            "response": {"error" if part.is_error else "output": text},
        }
        inside = [{"inlineData": _blob(image)} for image in images if self._inside(image)]
        if inside:
            response["parts"] = inside
        return _json.wire({"functionResponse": response})

    def beside_results(self, message: Message) -> list[bytes]:
        """What a user or the system says that is no result."""
        if message.role is Role.SYSTEM:
            text = system_text(message)
            return [text_part(f"[system note]\n{text}")] if text else []
        return list(self.said_by_user(message))

    def _is_own(self, part: ThinkingPart) -> bool:
        """Whether a model of this provider and generation made it."""
        made = generation(part.model)
        same = made is None or self.generation is None or made == self.generation
        return part.provider == self.provider and same

    def _inside(self, image: ImagePart) -> bool:
        """Whether a function response may hold the image."""
        return self.result_images and image.media_type in RESULT_IMAGES


def system_text(message: Message) -> str:
    """The text of a system message; blank parts are left out."""
    texts = [part.text for part in message.parts if isinstance(part, TextPart)]
    return "\n\n".join(text for text in texts if text.strip())


def function_name(name: str) -> str:
    """A name as it may be sent back, whatever the model made up."""
    fitting = _ODD.sub("_", name)[:64] or "unnamed"
    return fitting if fitting[0].isalpha() or fitting[0] == "_" else f"_{fitting}"[:64]


def content(role: str, parts: Iterable[bytes]) -> bytes:
    """A content with a comma in front of it, or nothing."""
    joined = b",".join(parts)
    return b',{"role":"%b","parts":[%b]}' % (role.encode(), joined) if joined else b""


def _signed(part: dict[str, Any], signature: str | None) -> bytes:
    return _json.wire(part if signature is None else {**part, "thoughtSignature": signature})


def _call(part: ToolCallPart) -> dict[str, Any]:
    return {**_id(part.id), "name": function_name(part.name), "args": part.parse()}


def _id(id: str) -> dict[str, str]:
    """An id that the API gave, or another provider; ours never, on neither side."""
    return {} if _OUR_ID.fullmatch(id) else {"id": id}


def _images(part: ToolResultPart) -> list[ImagePart]:
    content = () if isinstance(part.content, str) else part.content
    return [item for item in content if isinstance(item, ImagePart)]


def _blob(part: ImagePart) -> dict[str, str]:
    return {"mimeType": part.media_type, "data": base64.b64encode(part.data).decode("ascii")}


def _image(part: ImagePart) -> bytes:
    return _json.wire({"inlineData": _blob(part)})


def text_part(text: str) -> bytes:
    """A part of plain text."""
    return _json.wire({"text": text})
