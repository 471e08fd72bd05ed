"""Stream events become a reply (MOD-4, MOD-9, MOD-10, MOD-13, MOD-26).

The dialects say which part a piece belongs to; everything else about a reply is decided here, once
for all of them, and for `complete` as for `stream`: ids that are there and are unique, the call
that the output limit cut, the sum of the usage reports, and what is no reply at all.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from loopctl import _json
from loopctl.errors import InvalidResponseError, StreamIncomplete
from loopctl.messages import Message, Part, Role, TextPart, ThinkingPart, ToolCallPart
from loopctl.replies import ModelResponse, StopReason
from loopctl.usage import Usage
from loopctl.wire.stream_events import (
    AttemptStarted,
    MessageStart,
    MessageStop,
    PartDelta,
    PartKind,
    PartStart,
    PartStop,
    Stop,
    StreamEvent,
    UsageReport,
)


@dataclass(slots=True)
class _Open:
    """A part that is being put together."""

    kind: PartKind
    index: int
    texts: list[str] = field(default_factory=list[str])
    signatures: list[str] = field(default_factory=list[str])
    id: str = ""
    name: str = ""
    redacted: bool = False
    field: str | None = None
    as_object: bool = False
    stopped: bool = False


class Accumulator:
    """Collects the events of one reply; `response()` gives it when the provider said it was all.

    `usage` is what was reported so far, also of a reply that failed. A new attempt begins anew:
    what the failed one said and cost is dropped here.
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.usage: Usage | None = None
        self._start = MessageStart()
        self._stop: Stop | None = None
        self._complete = False
        self._parts: dict[tuple[PartKind, int], _Open] = {}

    def feed(self, event: StreamEvent) -> None:
        """Take the next event."""
        match event:
            case PartDelta():
                part = self._part(event.kind, event.index)
                if event.text:
                    part.texts.append(event.text)
                if event.signature is not None:
                    part.signatures.append(event.signature)
            case PartStart():
                part = self._part(event.kind, event.index)
                part.id = part.id or event.id or ""
                part.name = part.name or event.name or ""
                part.redacted = part.redacted or event.redacted
                part.field = part.field or event.field
                part.as_object = part.as_object or event.as_object
            case PartStop():
                self._part(event.kind, event.index).stopped = True
            case UsageReport():
                self.usage = event.usage.peak(self.usage)
            case MessageStart():
                self._start = event
            case Stop():
                self._stop = event
            case MessageStop():
                self._complete = True
            case AttemptStarted():
                self._begin()

    def response(self) -> ModelResponse:
        """The whole reply.

        Raises `StreamIncomplete` if the provider did not say that it was complete, and
        `InvalidResponseError` if it stopped for calls and made none, or stopped for a reason that
        nobody knows and said nothing.
        """
        if not self._complete:
            error = StreamIncomplete(
                "the reply ended before the provider said that it was complete",
                provider=self._start.provider,
                model=self._start.model,
                request_id=self._start.request_id,
            )
            error.usage = self.usage
            raise error
        message = Message(Role.ASSISTANT, self._finished())
        calls = bool(message.calls)
        default = StopReason.TOOL_CALLS if calls else StopReason.END
        stop = self._stop or Stop(default if message.parts else StopReason.UNKNOWN)
        if stop.reason is StopReason.TOOL_CALLS and not calls:
            raise self._invalid("the model stopped for tool calls, but made none", stop)
        if stop.reason is StopReason.UNKNOWN and not message.parts:
            raise self._invalid(f"an empty reply, stopped by {stop.raw!r}", stop)
        return ModelResponse(
            message=message,
            stop_reason=stop.reason,
            raw_stop_reason=stop.raw,
            refusal=stop.refusal,
            usage=self.usage,
            model=self._start.model,
            response_id=self._start.response_id,
            request_id=self._start.request_id,
        )

    def _part(self, kind: PartKind, index: int) -> _Open:
        part = self._parts.get((kind, index))
        if part is None:
            part = self._parts[kind, index] = _Open(kind, index)
        return part

    def _finished(self) -> list[Part]:
        opened = sorted(self._parts.values(), key=lambda part: part.index)
        cut = self._cut(opened)
        calls = _Calls(self._start.response_id or "")
        parts: list[Part] = []
        for part in opened:
            text = "".join(part.texts)
            if part.kind == "tool_call":
                if part.as_object and (arguments := _json.parse_object(text)) is not None:
                    text = _json.dumps(arguments)
                if made := calls.add(part.id, part.name.strip(), text, truncated=part is cut):
                    parts.append(made)
            elif part.kind == "text":
                if text:
                    parts.append(TextPart(text))
            elif text or part.signatures or part.redacted:
                parts.append(self._thinking(part, text))
        return parts

    def _cut(self, opened: list[_Open]) -> _Open | None:
        """The call that the output limit cut: the last one, unless a later part followed it."""
        if self._stop is None or self._stop.reason is not StopReason.LENGTH:
            return None
        last = next((part for part in reversed(opened) if part.kind == "tool_call"), None)
        return None if last is None or (last.stopped and last is not opened[-1]) else last

    def _thinking(self, part: _Open, text: str) -> ThinkingPart:
        start = self._start
        return ThinkingPart(
            text,
            signature="".join(part.signatures) if part.signatures else None,
            redacted=part.redacted,
            provider=start.provider,
            model=(start.asked or start.model) if start.provider else None,
            prefix=start.prefix,
            kind=part.field,
        )

    def _invalid(self, text: str, stop: Stop) -> InvalidResponseError:
        error = InvalidResponseError(
            text,
            provider=self._start.provider,
            model=self._start.model,
            code=stop.raw,
            request_id=self._start.request_id,
        )
        error.usage = self.usage
        return error


class _Calls:
    """Gives each call of a reply an id of its own (MOD-9)."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._made: dict[str, list[ToolCallPart]] = {}  # by the id that the provider gave
        self._taken: set[str] = set()

    def add(self, given: str, name: str, arguments: str, *, truncated: bool) -> ToolCallPart | None:
        """The call under an id that is unique; `None` when it repeats an earlier one."""
        earlier = self._made.setdefault(given, [])
        call = ToolCallPart(given, name, arguments, truncated=truncated)
        if given and not truncated:
            for other in earlier:
                if (other.name, other.arguments, other.unusable) == (
                    call.name,
                    call.arguments,
                    call.unusable,
                ):
                    return None
        id = given
        while not id or id in self._taken:
            number = len(self._taken)
            text = "\0".join((self._seed, str(number), id, name, arguments))
            id = f"call_{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:24]}"
        self._taken.add(id)
        if id != given:
            call = ToolCallPart(id, name, arguments, truncated=truncated)
        earlier.append(call)
        return call
