"""A generateContent reply, streamed or whole, becomes stream events: pure (MOD-4, MOD-8, MOD-9).

Each event of a stream is a whole response with what is new; a whole reply goes the same way as a
stream of one. The API has no last event: a reply is complete when a finish reason has come and
the body has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from loopctl import _json
from loopctl.errors import (
    BadRequestError,
    InvalidResponseError,
    ModelError,
    ServerError,
    StreamIncomplete,
)
from loopctl.models.classify import read_error, to_error
from loopctl.models.gemini.messages import EMPTY, OF_CALL, OF_TEXT, THOUGHT, VERBATIM
from loopctl.replies import StopReason
from loopctl.usage import Usage
from loopctl.wire.sse import EventStreamReader, ServerSentEvent
from loopctl.wire.stream_events import (
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

_STOPS: Mapping[str, StopReason] = {
    "STOP": StopReason.END,
    "MAX_TOKENS": StopReason.LENGTH,
    "CONTINUATION": StopReason.LENGTH,  # all that one request may generate
    **dict.fromkeys(
        (
            "SAFETY",
            "RECITATION",
            "BLOCKLIST",
            "PROHIBITED_CONTENT",
            "SPII",
            "MODEL_ARMOR",
            "ESCALATION",
            "PUP_LIMITED_DISABLED",
            "IMAGE_SAFETY",
            "IMAGE_PROHIBITED_CONTENT",
            "IMAGE_RECITATION",
        ),
        StopReason.FILTER,
    ),
}
"""What a finish reason means; others are unknown, which is never success in silence (MOD-13)."""

_FAILED: Mapping[str, type[ModelError]] = {
    "MALFORMED_FUNCTION_CALL": ServerError,  # another try may well give a reply
    "MALFORMED_RESPONSE": ServerError,
    "UNEXPECTED_TOOL_CALL": ServerError,
    "TOO_MANY_TOOL_CALLS": ServerError,
    "MISSING_THOUGHT_SIGNATURE": BadRequestError,
}
"""Finish reasons of what is no reply."""

_COUNTS = (
    "promptTokenCount",
    "toolUsePromptTokenCount",
    "candidatesTokenCount",
    "thoughtsTokenCount",
    "cachedContentTokenCount",
)


class ChunkReader(EventStreamReader):
    """Server-sent events, and the errors that Gemini puts between them as bare JSON text (B6)."""

    def __init__(self, *, max_body: int) -> None:
        super().__init__(max_body=max_body)
        self._bare: list[str] = []

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        """The events that `data` completes; the last line of bare text may lack its end."""
        events = super().feed(data)
        rest = b"".join(self._pieces)
        if rest.endswith((b"}", b"]")) and (self._bare or rest.startswith((b"{", b"["))):
            text = rest.decode(errors="replace")
            if self._completes(text):
                self._pieces, self._pending = [], 0
                events += self._events
                self._events = []
        return events

    def _field(self, line: str) -> None:
        if not self._bare and not line.startswith(("{", "[")):
            super()._field(line)
        elif not self._completes(line):
            self._bare.append(line)

    def _completes(self, line: str) -> bool:
        """Whether bare text is whole with this line: then it is an event."""
        text = "\n".join([*self._bare, line])
        if not line.rstrip().endswith(("}", "]")) or (self._bare and line[0] not in "}]"):
            return False
        try:
            _json.loads(text)
        except ValueError:
            return False
        self._bare = []
        self._events.append(ServerSentEvent(text, "error"))
        return True


class GeminiDecoder:
    """Turns the chunks of one reply into stream events.

    `feed` each event of a stream and call `finish` when the body has ended; or give a whole reply
    to `whole`. Raises the error that the server sent, `StreamIncomplete` when the reply is not all
    there, and `InvalidResponseError` for what is no reply.
    """

    def __init__(self, *, provider: str, model: str, request_id: str | None = None) -> None:
        self.done = False
        self._provider = provider
        self._model = model
        self._request_id = request_id
        self._started = False
        self._places = 0
        self._open: tuple[PartKind, int] | None = None  # what unsigned text may go on with
        self._calls: set[tuple[str, str, str]] = set()
        self._counts: dict[str, int] = {}
        self._finish: str | None = None
        self._said: str | None = None

    def frame(self, frame: ServerSentEvent, /) -> list[StreamEvent]:
        """The stream events of one server-sent event."""
        return self.feed(frame.data)

    def feed(self, data: str | bytes) -> list[StreamEvent]:
        """The stream events of the data of one event."""
        if self.done or not data.strip() or data.lstrip()[:1] in (":", b":"):
            return []
        try:
            document: object = _json.loads(data)
        except ValueError:
            document = None
        events: list[StreamEvent] = []
        for chunk in cast("list[object]", document) if isinstance(document, list) else [document]:
            if not isinstance(chunk, dict):
                shown = data if isinstance(data, str) else data.decode(errors="replace")
                raise self._error(InvalidResponseError, f"not a JSON object: {shown[:200]}")
            self._chunk(cast("Mapping[str, Any]", chunk), events)
        return events

    def whole(self, body: bytes) -> list[StreamEvent]:
        """The stream events of a reply that came in one piece, also of an array of chunks."""
        return [*self.feed(body), *self.finish()]

    def finish(self) -> list[StreamEvent]:
        """Say that the body has ended; a reply whose finish reason has come is complete."""
        if self.done:
            return []
        reason = self._finish
        if reason is None:
            raise self._error(StreamIncomplete, "the reply ended without a finish reason")
        if reason in _FAILED:
            text = self._said or f"the model stopped: {reason}"
            raise self._error(_FAILED[reason], text, code=reason)
        stop = _STOPS.get(reason, StopReason.UNKNOWN)
        if stop is StopReason.END and self._calls:
            stop = StopReason.TOOL_CALLS  # the label is STOP for both
        refusal = self._said or f"stopped by {reason}" if stop is StopReason.FILTER else None
        self.done = True
        return [Stop(stop, reason, refusal), MessageStop()]

    def _chunk(self, chunk: Mapping[str, Any], events: list[StreamEvent]) -> None:
        error = chunk.get("error")
        if error:
            upstream = read_error({"error": error})
            failure = to_error(upstream, provider=self._provider, model=self._model)
            failure.request_id = failure.request_id or self._request_id
            raise failure
        candidates = chunk.get("candidates")
        feedback = _mapping(chunk.get("promptFeedback"))
        blocked = _word(feedback.get("blockReason"))
        if not self._started and (candidates or blocked):
            self._started = True
            model, id = _word(chunk.get("modelVersion")), _word(chunk.get("responseId"))
            events.append(MessageStart(model or self._model, id, self._provider, self._request_id))
        self._usage(_mapping(chunk.get("usageMetadata")), events)
        for candidate in cast("list[Any]", candidates) if isinstance(candidates, list) else ():
            candidate = _mapping(candidate)
            if not candidate.get("index"):  # others were not asked for
                self._candidate(candidate, events)
        if blocked:
            self.done = True
            said = _word(feedback.get("blockReasonMessage"))
            refusal = said or f"the prompt was blocked: {blocked}"
            events += (Stop(StopReason.FILTER, blocked, refusal), MessageStop())

    def _candidate(self, candidate: Mapping[str, Any], events: list[StreamEvent]) -> None:
        parts = _mapping(candidate.get("content")).get("parts")
        for part in cast("list[Any]", parts) if isinstance(parts, list) else ():
            self._part(_mapping(part), events)
        self._finish = _word(candidate.get("finishReason")) or self._finish
        self._said = _word(candidate.get("finishMessage")) or self._said

    def _part(self, part: Mapping[str, Any], events: list[StreamEvent]) -> None:
        signature = _word(part.get("thoughtSignature"))
        text = part.get("text")
        call = part.get("functionCall")
        if isinstance(call, dict):
            self._call(cast("Mapping[str, Any]", call), signature, events)
        elif isinstance(text, str) and part.get("thought"):
            if text or signature:
                self._increment("thinking", text, signature, events, field=THOUGHT)
        elif isinstance(text, str):
            if text and signature:
                self._signature(signature, OF_TEXT, events)
                self._increment("text", text, None, events)
                self._open = None
            elif text:
                self._increment("text", text, None, events)
            elif signature:
                self._signature(signature, EMPTY, events)
        elif part.keys() & {"thoughtSignature"} and len(part) == 1 and signature:
            self._signature(signature, EMPTY, events)
        elif part:
            self._signature(_json.dumps(part), VERBATIM, events)

    def _increment(
        self,
        kind: PartKind,
        text: str,
        signature: str | None,
        events: list[StreamEvent],
        *,
        field: str | None = None,
    ) -> None:
        """Text that goes on with the part before it, unless one of the two is signed."""
        if signature is not None or self._open is None or self._open[0] != kind:
            self._open = kind, self._place()
            if field is not None:
                events.append(PartStart(kind, self._open[1], field=field))
        events.append(PartDelta(*self._open, text, signature))
        if signature is not None:
            self._open = None

    def _call(
        self, call: Mapping[str, Any], signature: str | None, events: list[StreamEvent]
    ) -> None:
        id, name = _word(call.get("id")) or "", _word(call.get("name")) or ""
        given = call.get("args")
        arguments = given if isinstance(given, str) else _json.dumps(_json.to_plain(given or {}))
        if id and (id, name, arguments) in self._calls:
            return  # B18: one call, told twice
        self._calls.add((id, name, arguments))
        if signature is not None:
            self._signature(signature, OF_CALL, events)
        place = self._place()
        events += (
            PartStart("tool_call", place, id or None, name),
            PartDelta("tool_call", place, arguments),
            PartStop("tool_call", place),
        )
        self._open = None

    def _signature(self, signature: str, field: str, events: list[StreamEvent]) -> None:
        """A signature as a part of its own, in front of what it is the signature of."""
        place = self._place()
        events.append(PartStart("thinking", place, field=field))
        events.append(PartDelta("thinking", place, signature=signature))
        self._open = None

    def _place(self) -> int:
        self._places += 1
        return self._places - 1

    def _usage(self, given: Mapping[str, Any], events: list[StreamEvent]) -> None:
        """Each chunk tells the totals so far, and may leave some out (J4)."""
        counts = self._counts
        for name in _COUNTS:
            value = given.get(name)
            if type(value) is int and value >= counts.get(name, 0):
                counts[name] = value
        if given and counts:
            events.append(UsageReport(self._so_far()))

    def _so_far(self) -> Usage:
        return Usage(
            input_tokens=self._sum("promptTokenCount", "toolUsePromptTokenCount"),
            output_tokens=self._sum("candidatesTokenCount", "thoughtsTokenCount"),
            cached_tokens=self._counts.get("cachedContentTokenCount"),
            thinking_tokens=self._counts.get("thoughtsTokenCount"),
        )

    def _sum(self, *names: str) -> int | None:
        reported = [self._counts[name] for name in names if name in self._counts]
        return sum(reported) if reported else None

    def _error(self, kind: type[ModelError], text: str, code: str | None = None) -> ModelError:
        error = kind(
            text,
            provider=self._provider,
            model=self._model,
            code=code,
            request_id=self._request_id,
        )
        error.usage = self._so_far() if self._counts else None
        return error


def _word(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
