"""Messages as Gemini wants them (MOD-20, MOD-23, CTX-8).

Each message is turned into bytes once and keeps them in its `memo`. A conversation that is in
order, as a session's is, is those bytes joined; another one is put in order on the way out.

A signature rides on the part that it came with. Our parts have no room for it, so a `ThinkingPart`
directly in front of the part holds it; its `kind` says of what it is the signature.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
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
from loopctl.models.client import ModelRequest
from loopctl.models.gemini.facts import RESULT_IMAGES, SKIP_SIGNATURE, facts_for, generation

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

_MODEL = b',{"role":"model"'
_OPENING = "(the conversation goes on)"
_CONTINUE = "Continue."
_MISSING = "(there is no result)"
_OUR_ID = re.compile(r"(call_[0-9a-f]{24})?")
_ODD = re.compile(r"[^A-Za-z0-9_-]")

_Calls: TypeAlias = tuple[tuple[str, str], ...]
"""Id and name of each call, or of each result."""


class Lowered(NamedTuple):
    """One message: its contents, each with a comma in front; what it calls, what it answers.

    `shape` is `m` for the model's, `u` for the user's, `s` for system text, blank for nothing.
    """

    body: bytes
    calls: _Calls
    results: _Calls
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
            return Lowered(_content("model", parts), calls, (), "m" if parts else " ")
        if message.role is Role.SYSTEM:
            text = system_text(message)
            note = [_text(f"[system note]\n{text}")] if text else []
            return Lowered(_content("user", note), (), (), "s" if text else " ")
        answers = [self.result(part, part.name) for part in message.results]
        rest = list(self.said_by_user(message))
        body = _content("user", answers) + _content("user", rest)
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
                yield _text(f"Images from the result of {result.name}:")
                yield from map(_image, images)
        for part in message.parts:
            if isinstance(part, ImagePart):
                yield _image(part)
            elif isinstance(part, TextPart) and part.text.strip():
                yield _text(part.text)

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

    def _is_own(self, part: ThinkingPart) -> bool:
        """Whether a model of this provider and generation made it."""
        made = generation(part.model)
        same = made is None or self.generation is None or made == self.generation
        return part.provider == self.provider and same

    def _inside(self, image: ImagePart) -> bool:
        """Whether a function response may hold the image."""
        return self.result_images and image.media_type in RESULT_IMAGES


@lru_cache(maxsize=64)
def lowering_for(model: str, provider: str) -> tuple[Lowering, object]:
    """How `model` is talked to, and where a message keeps its bytes for that."""
    facts = facts_for(model)
    lowering = Lowering(provider, generation(model), facts.signatures, facts.result_images)
    return lowering, _key(lowering)


@lru_cache(maxsize=64)
def _key(lowering: Lowering) -> object:
    return object()  # plain objects hash the fastest


def lower(request: ModelRequest, model: str, provider: str) -> tuple[list[str], list[bytes]]:
    """The texts of the system instruction, and the elements of `contents`, commas in front."""
    lowering, key = lowering_for(model, provider)
    messages = request.messages
    kept = _kept(messages, lowering, key)
    bodies, calls, results, shapes = zip(*kept, strict=True) if kept else ((), (), (), ())
    shape = "".join(shapes)
    lead = len(shape) - len(shape.lstrip("s "))
    system = [request.system] if request.system and request.system.strip() else []
    system += [system_text(message) for message in messages[:lead]]
    contents: list[bytes] = list(bodies[lead:])
    if calls != (*results[1:], ()) or results[:1] > ((),) or "mm" in shape.replace(" ", ""):
        contents = [_content(role, parts) for role, parts in _mended(messages[lead:], lowering)]
    first = next((content for content in contents if content), _MODEL)
    last = next((content for content in reversed(contents) if content), b"")
    if first.startswith(_MODEL):
        contents.insert(0, _content("user", [_text(_OPENING)]))
    if last.startswith(_MODEL):
        contents.append(_content("user", [_text(_CONTINUE)]))
    return [text for text in system if text], contents


def _kept(messages: Sequence[Message], lowering: Lowering, key: object) -> list[Lowered]:
    for message in reversed(messages):  # what is new stands at the end, as a rule
        if key in message.memo:
            break
        message.memo[key] = lowering.message(message)
    try:
        return [message.memo[key] for message in messages]
    except KeyError:
        for message in messages:
            if key not in message.memo:
                message.memo[key] = lowering.message(message)
        return [message.memo[key] for message in messages]


def system_text(message: Message) -> str:
    """The text of a system message; blank parts are left out."""
    texts = [part.text for part in message.parts if isinstance(part, TextPart)]
    return "\n\n".join(text for text in texts if text.strip())


def function_name(name: str) -> str:
    """A name as it may be sent back, whatever the model made up."""
    fitting = _ODD.sub("_", name)[:64] or "unnamed"
    return fitting if fitting[0].isalpha() or fitting[0] == "_" else f"_{fitting}"[:64]


def _mended(messages: Sequence[Message], lowering: Lowering) -> Iterator[tuple[str, list[bytes]]]:
    """Role and parts of the contents of a conversation that is not in order.

    The calls of a message are answered behind it, each once and in order, wherever the results
    stood before the model's next word; a result that answers nothing is left out.
    """
    model: list[bytes] = []
    calls: list[ToolCallPart] = []
    heard: list[Message] = []

    def close() -> Iterator[tuple[str, list[bytes]]]:
        if model:
            yield "model", list(model)
        found = [part for message in heard for part in message.results]
        answers: list[bytes] = []
        for call in calls:
            match = next((part for part in found if part.call_id == call.id), None)
            if match is None:
                match = ToolResultPart(call.id, call.name, _MISSING, is_error=True)
            else:
                found = [part for part in found if part is not match]
            answers.append(lowering.result(match, call.name))
        yield "user", answers
        for message in heard:
            yield "user", _unanswering(message, lowering)

    for message in messages:
        if message.role is not Role.ASSISTANT:
            heard.append(message)
            continue
        speaks = any(_unanswering(other, lowering) for other in heard)
        if calls or speaks:
            yield from close()
            model.clear()
        model += lowering.said_by_model(message)
        calls[:] = message.calls
        heard.clear()
    yield from close()


def _unanswering(message: Message, lowering: Lowering) -> list[bytes]:
    """What a user or the system says beside results."""
    if message.role is Role.SYSTEM:
        text = system_text(message)
        return [_text(f"[system note]\n{text}")] if text else []
    return list(lowering.said_by_user(message))


def _content(role: str, parts: Iterable[bytes]) -> bytes:
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


def _text(text: str) -> bytes:
    return _json.wire({"text": text})
