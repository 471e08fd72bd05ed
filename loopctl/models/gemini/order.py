"""The contents of a request, in the order that Gemini wants (MOD-20, MOD-23, CTX-21).

Each message is turned into bytes once and keeps them in its `memo`. A conversation that is in
order, as a session's is, is those bytes joined; the first message of it remembers what was found
in order behind it, so that the next turn looks only at what is new. Another conversation is put
in order on the way out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from loopctl.messages import Message, Role, ToolCallPart, ToolResultPart
from loopctl.models.client import ModelRequest
from loopctl.models.gemini.facts import facts_for, generation
from loopctl.models.gemini.messages import (
    Calls,
    Lowered,
    Lowering,
    content,
    system_text,
    text_part,
)

OPENING = "(the conversation goes on)"
"""What the user says where the model would begin."""

CONTINUE = "Continue."
"""What the user says where the model would have the last word."""

MISSING = "(there is no result)"
"""What stands for a result that the conversation lacks."""

_MODEL = b',{"role":"model","parts":['


@dataclass(frozen=True, slots=True)
class _Keys:
    """Where a message keeps its bytes, and where what stood in order behind it."""

    lowered: object
    steady: object


@dataclass(frozen=True, slots=True)
class _Steady:
    """A stretch of a conversation that is in order: all behind its first message, and its bytes."""

    rest: tuple[Message, ...]
    bodies: list[bytes]
    last: Lowered


@lru_cache(maxsize=64)
def lowering_for(model: str, provider: str) -> tuple[Lowering, _Keys]:
    """How `model` is talked to, and where messages keep what was made of them for that."""
    facts = facts_for(model)
    lowering = Lowering(provider, generation(model), facts.signatures, facts.result_images)
    return lowering, _keys(lowering)


@lru_cache(maxsize=64)
def _keys(lowering: Lowering) -> _Keys:
    return _Keys(object(), object())  # plain objects hash the fastest


def lower(request: ModelRequest, model: str, provider: str) -> tuple[list[str], list[bytes]]:
    """The texts of the system instruction, and the elements of `contents`, commas in front."""
    lowering, keys = lowering_for(model, provider)
    lead, contents = _in_order(request, lowering, keys) or _put_in_order(request, lowering, keys)
    system = [request.system] if request.system and request.system.strip() else []
    system += [text for message in request.messages[:lead] if (text := system_text(message))]
    first = next((each for each in contents if each), _MODEL)
    last = next((each for each in reversed(contents) if each), b"")
    if first.startswith(_MODEL):
        contents.insert(0, content("user", [text_part(OPENING)]))
    if last.startswith(_MODEL):
        contents.append(content("user", [text_part(CONTINUE)]))
    return system, contents


def _in_order(
    request: ModelRequest, lowering: Lowering, keys: _Keys
) -> tuple[int, list[bytes]] | None:
    """How many messages are for the system instruction, and the contents of the others.

    `None` where the conversation between the transients, or what surrounds it, must be mended.
    """
    messages = request.messages
    end = len(messages) - request.tail
    steady = _steady(messages[request.head : end], lowering, keys)
    if steady is None:
        return None
    first: Lowered = messages[request.head].memo[keys.lowered]
    head = [*_kept(messages[: request.head], lowering, keys), first]
    tail = [steady.last, *_kept(messages[end:], lowering, keys)]
    if head[0].results or not (_is_orderly(head) and _is_orderly(tail)):
        return None
    shape = "".join(row.shape for row in head)
    lead = len(shape) - len(shape.lstrip("s "))
    if lead == len(head):
        return None  # the instruction may go on in the conversation
    before, behind = [row.body for row in head[lead:-1]], [row.body for row in tail[1:]]
    missing = [lowering.result(_missing(*call), call[1]) for call in tail[-1].calls]
    return lead, [*before, *steady.bodies, *behind, content("user", missing)]


def _steady(messages: tuple[Message, ...], lowering: Lowering, keys: _Keys) -> _Steady | None:
    """The conversation, if it is in order; what was seen before is not looked at again."""
    if not messages:
        return None
    first, rest = messages[0], messages[1:]
    known: _Steady | None = first.memo.get(keys.steady)
    if known is not None:
        if known.rest == rest:
            return known
        count = len(known.rest)
        if known.rest == rest[:count]:
            new = _kept(rest[count:], lowering, keys)
            rows, bodies = [known.last, *new], [*known.bodies, *[row.body for row in new]]
            return _remembered(first, rest, rows, bodies, keys)
    rows = _kept(messages, lowering, keys)
    return _remembered(first, rest, rows, [row.body for row in rows], keys)


def _remembered(
    first: Message,
    rest: tuple[Message, ...],
    rows: list[Lowered],
    bodies: list[bytes],
    keys: _Keys,
) -> _Steady | None:
    if not _is_orderly(rows):
        return None
    made = first.memo[keys.steady] = _Steady(rest, bodies, rows[-1])
    return made


def _is_orderly(rows: list[Lowered]) -> bool:
    """Whether each says something, results stand behind calls, and the model speaks in turn."""
    _, calls, results, shapes = zip(*rows, strict=True)
    shape = "".join(shapes)
    return calls[:-1] == results[1:] and " " not in shape and "mm" not in shape


def _put_in_order(
    request: ModelRequest, lowering: Lowering, keys: _Keys
) -> tuple[int, list[bytes]]:
    """The same of any conversation: stretches that are not in order are mended."""
    messages = request.messages
    kept = _kept(messages, lowering, keys)
    shape = "".join(row.shape for row in kept)
    lead = len(shape) - len(shape.lstrip("s "))
    contents = [row.body for row in kept[lead:]]
    calls, results = [row.calls for row in kept[lead:]], [row.results for row in kept[lead:]]
    for start, end in _disorderly(shape[lead:], calls, results):
        mended = _mended(messages[lead + start : lead + end], lowering)
        contents[start:end] = [content(role, parts) for role, parts in mended]
    return lead, _in_turn(contents)


def _in_turn(contents: list[bytes]) -> list[bytes]:
    """Contents of the model's that nothing is left between become one."""
    out: list[bytes] = []
    for each in contents:
        if each.startswith(_MODEL) and out and out[-1].startswith(_MODEL):
            out[-1] = out[-1][:-2] + b"," + each.removeprefix(_MODEL)
        elif each:
            out.append(each)
    return out


def _missing(id: str, name: str) -> ToolResultPart:
    return ToolResultPart(id, name, MISSING, is_error=True)


def _kept(messages: Sequence[Message], lowering: Lowering, keys: _Keys) -> list[Lowered]:
    key = keys.lowered
    for message in messages:
        if key not in message.memo:
            message.memo[key] = lowering.message(message)
    return [message.memo[key] for message in messages]


def _disorderly(
    shape: str, calls: Sequence[Calls], results: Sequence[Calls]
) -> Iterator[tuple[int, int]]:
    """The stretches that must be put in order, from the last to the first.

    A stretch is what the model says in a row with all that follows until it speaks again.
    """
    pairs = enumerate(zip(((), *calls), (*results, ()), strict=True))
    wrong = [at - 1 for at, (asked, answered) in pairs if asked != answered]
    last = len(shape)
    for at in reversed(wrong):
        if at < last:
            spoke = shape.rfind("m", 0, at + 1) + 1
            start = len(shape[:spoke].rstrip("m "))
            heard = len(shape) - len(shape[spoke:].lstrip("m "))
            again = shape.find("m", heard, last)
            yield start, last if again < 0 else again
            last = start


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
                match = _missing(call.id, call.name)
            else:
                found = [part for part in found if part is not match]
            answers.append(lowering.result(match, call.name))
        yield "user", answers
        for message in heard:
            yield "user", lowering.beside_results(message)

    for message in messages:
        if message.role is not Role.ASSISTANT:
            heard.append(message)
            continue
        speaks = any(lowering.beside_results(other) for other in heard)
        if calls or speaks:
            yield from close()
            model.clear()
        model += lowering.said_by_model(message)
        calls[:] = message.calls
        heard.clear()
    yield from close()
