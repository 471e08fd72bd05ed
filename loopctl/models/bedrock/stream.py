"""A Converse reply, streamed or whole, becomes stream events: pure (MOD-4, MOD-8, MOD-9, MOD-13).

A whole reply goes the same way as a stream of its blocks, so both make the same message. What a
tool of the server's own did inside the reply is left out: the model has said what came of it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from loopctl import _json
from loopctl.errors import InvalidResponseError, ModelError, ServerError, StreamIncomplete
from loopctl.models.bedrock.request import REPLY_TOOL
from loopctl.models.classify import read_error, to_error
from loopctl.replies import StopReason
from loopctl.usage import Usage
from loopctl.wire.eventstream import EventFrame
from loopctl.wire.stream_events import (
    MessageStart,
    MessageStop,
    PartDelta,
    PartStart,
    PartStop,
    Stop,
    StreamEvent,
    UsageReport,
)

REASONING = "reasoningContent"
"""The `kind` of thinking parts."""

_STOPS: Mapping[str, StopReason] = {
    "end_turn": StopReason.END,
    "stop_sequence": StopReason.STOP_SEQUENCE,
    "tool_use": StopReason.TOOL_CALLS,
    "max_tokens": StopReason.LENGTH,
    "model_context_window_exceeded": StopReason.LENGTH,
    "guardrail_intervened": StopReason.FILTER,
    "content_filtered": StopReason.FILTER,
}
_MALFORMED = frozenset({"malformed_model_output", "malformed_tool_use"})
_TEXT, _CALL, _THINKING, _OTHER = "text", "tool_call", "thinking", "other"


@dataclass(slots=True, eq=False)
class _Block:
    """A content block that is being put together."""

    place: int
    kind: str
    is_reply: bool = False
    texts: list[str] = field(default_factory=list[str])
    signatures: list[str] = field(default_factory=list[str])
    sealed: list[str] = field(default_factory=list[str])
    open: bool = True


class ConverseDecoder:
    """Turns the frames of one reply into stream events.

    `frame` takes each frame, `whole` a reply in one piece. `done` is true when the reply and its
    usage are there; the usage comes behind the terminal signal, and a body that ends without it is
    complete too. Raises the error that the server sent, `StreamIncomplete` when the reply is not
    all there, and `InvalidResponseError` for what is no reply.

    `prefix` is the digest that reasoning of this reply is bound to, `None` where it is not;
    `reply_tool` says that arguments of `REPLY_TOOL` are the text of the reply.
    """

    def __init__(
        self,
        *,
        provider: str,
        model: str,
        request_id: str | None = None,
        prefix: str | None = None,
        reply_tool: bool = False,
    ) -> None:
        self.done = False
        self._provider = provider
        self._model = model
        self._request_id = request_id
        self._prefix = prefix
        self._reply_tool = reply_tool
        self._started = False
        self._all: list[_Block] = []
        self._blocks: dict[int, _Block] = {}  # the latest under each index
        self._last = -1
        self._stop: str | None = None
        self._usage: Usage | None = None

    def frame(self, frame: EventFrame, /) -> list[StreamEvent]:
        """The stream events of one frame."""
        if self.done:
            return []
        kind = frame.text(":message-type")
        if kind == "error":
            said = {"type": frame.text(":error-code"), "message": frame.text(":error-message")}
            raise self._failure(said)
        if kind == "exception":
            raise self._failure({**self._lenient(frame), "type": frame.text(":exception-type")})
        name = frame.text(":event-type")
        return self._event(name, self._decoded(frame.payload))

    def whole(self, body: bytes, /) -> list[StreamEvent]:
        """The stream events of a reply that came in one piece."""
        document = self._decoded(body)
        content = _mapping(_mapping(document.get("output")).get("message")).get("content")
        if not isinstance(content, list):
            if "message" in document or "Message" in document or "__type" in document:
                raise self._failure(document)
            raise self._error(InvalidResponseError, "a reply without content")
        if not document.get("stopReason"):
            raise self._error(StreamIncomplete, "the reply ended without a stop reason")
        events = self._event("messageStart", {})
        for index, given in enumerate(cast("list[Any]", content)):
            events += self._block(index, _mapping(given))
        events += self._event("messageStop", document)
        return [*events, *self._event("metadata", document)]

    def finish(self) -> list[StreamEvent]:
        """Say that the body ended: without the terminal signal it is not all there."""
        if self.done:
            return []
        if self._stop is None:
            raise self._error(StreamIncomplete, "the reply ended without messageStop")
        return self._end()

    def _event(self, name: str, document: Mapping[str, Any]) -> list[StreamEvent]:
        events: list[StreamEvent] = []
        if name == "messageStart":
            self._start(events)
        elif name == "contentBlockStart":
            self._start(events)
            self._open(document, events)
        elif name == "contentBlockDelta":
            self._start(events)
            self._more(document, events)
        elif name == "contentBlockStop":
            block = self._blocks.get(self._index(document))
            if block is not None:
                self._close(block, events)
        elif name == "messageStop":
            self._start(events)
            reason = document.get("stopReason")
            self._stop = reason if isinstance(reason, str) and reason else "none"
        elif name == "metadata":
            self._count(_mapping(document.get("usage")))
            if self._stop is not None:
                events += self._end()
        return events

    def _block(self, index: int, given: Mapping[str, Any]) -> list[StreamEvent]:
        """The events that a stream would have for a block of a whole reply."""
        where: dict[str, Any] = {"contentBlockIndex": index}
        events: list[StreamEvent] = []
        for delta in _deltas(given):
            if "toolUse" in delta:
                used = _mapping(delta["toolUse"])
                events += self._event("contentBlockStart", {**where, "start": delta})
                text = used.get("input", {})
                text = text if isinstance(text, str) else _json.dumps(text)
                delta = {"toolUse": {"input": text}}
            events += self._event("contentBlockDelta", {**where, "delta": delta})
        return [*events, *self._event("contentBlockStop", where)]

    def _start(self, events: list[StreamEvent]) -> None:
        if self._started:
            return
        self._started = True
        start = MessageStart(
            self._model, None, self._provider, self._request_id, self._prefix, self._model
        )
        events.append(start)

    def _index(self, document: Mapping[str, Any]) -> int:
        """The index of a block; one without goes on with the last."""
        index = document.get("contentBlockIndex")
        return index if type(index) is int else max(self._last, 0)

    def _open(self, document: Mapping[str, Any], events: list[StreamEvent]) -> None:
        start = _mapping(document.get("start"))
        index = document.get("contentBlockIndex")
        if type(index) is not int:
            index = self._last + 1
        if start.keys() <= {"text", REASONING}:  # its first delta says what it is
            self._blocks.pop(index, None)
            self._last = index
            return
        used = _mapping(start.get("toolUse"))
        if not used or used.get("type") == "server_tool_use":
            self._begin(index, _OTHER)
            return
        block = self._begin(index, _CALL)
        name = _string(used.get("name"))
        block.is_reply = self._reply_tool and name == REPLY_TOOL
        if not block.is_reply:
            id = _string(used.get("toolUseId"))
            events.append(PartStart("tool_call", block.place, id, name, as_object=True))

    def _begin(self, index: int, kind: str) -> _Block:
        block = self._blocks[index] = _Block(len(self._all), kind)
        self._all.append(block)
        self._last = index
        return block

    def _more(self, document: Mapping[str, Any], events: list[StreamEvent]) -> None:
        delta = _mapping(document.get("delta"))
        reasoning = _mapping(delta.get(REASONING))
        if "text" in delta:
            kind, text = _TEXT, _string(delta["text"])
        elif "toolUse" in delta:
            kind, text = _CALL, _string(_mapping(delta["toolUse"]).get("input"))
        elif reasoning:
            kind, text = _THINKING, _string(reasoning.get("text"))
        else:
            return
        index = self._index(document)
        block = self._blocks.get(index)
        if block is None or (block.kind not in (kind, _OTHER)):
            if block is not None:
                self._close(block, events)
            block = self._begin(index, kind)  # text and reasoning have no start
            if kind == _THINKING:
                events.append(PartStart("thinking", block.place, field=REASONING))
        if kind == _THINKING and block.kind == _THINKING:
            self._seal(block, reasoning, events)
        if text and block.kind == kind:
            block.texts.append(text)
            if not block.is_reply:
                events.append(PartDelta(_PARTS[kind], block.place, text))

    def _seal(self, block: _Block, reasoning: Mapping[str, Any], events: list[StreamEvent]) -> None:
        if signature := _string(reasoning.get("signature")):
            block.signatures.append(signature)
        if sealed := _string(reasoning.get("redactedContent")):
            if not block.sealed:
                events.append(PartStart("thinking", block.place, redacted=True, field=REASONING))
            block.sealed.append(sealed)

    def _close(self, block: _Block, events: list[StreamEvent]) -> None:
        """The block is complete, or as complete as it will be."""
        if not block.open or block.kind == _OTHER:
            return
        block.open = False
        if block.is_reply:
            parsed = _json.parse_object("".join(block.texts))
            text = "".join(block.texts) if parsed is None else _json.dumps(parsed)
            events.append(PartDelta("text", block.place, text))
            events.append(PartStop("text", block.place))
            return
        if block.kind == _THINKING:
            signature = _rejoined(block.sealed) if block.sealed else "".join(block.signatures)
            if signature:
                events.append(PartDelta("thinking", block.place, signature=signature))
        events.append(PartStop(_PARTS[block.kind], block.place))

    def _count(self, given: Mapping[str, Any]) -> None:
        names = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheWriteInputTokens")
        counts = [given.get(name) for name in names]
        fresh, output, cached, written = [
            count if type(count) is int and count >= 0 else None for count in counts
        ]
        if (fresh, output, cached, written) == (None,) * 4:
            return
        usage = Usage(
            # inputTokens is what no cache had; loopctl's counts everything
            input_tokens=None if fresh is None else fresh + (cached or 0) + (written or 0),
            output_tokens=output,
            cached_tokens=cached,
            cache_write_tokens=written,
        )
        self._usage = usage.peak(self._usage)

    def _end(self) -> list[StreamEvent]:
        """The events of a complete reply, or the error that it is none."""
        raw = self._stop or ""
        if raw in _MALFORMED:  # another try may well give a reply
            raise self._error(ServerError, f"the model gave no usable reply: {raw}", code=raw)
        reason = _STOPS.get(raw, StopReason.UNKNOWN)
        events: list[StreamEvent] = []
        for block in self._all:
            if not (reason is StopReason.LENGTH and block.kind == _CALL and not block.is_reply):
                self._close(block, events)  # a call that the limit cut stays open
        calls = any(block.kind == _CALL and not block.is_reply for block in self._all)
        if reason in (StopReason.END, StopReason.TOOL_CALLS) and calls:
            reason = StopReason.TOOL_CALLS  # some models label both alike
        elif reason is StopReason.TOOL_CALLS and any(block.is_reply for block in self._all):
            reason = StopReason.END
        refusal = None
        if reason is StopReason.FILTER:  # what the guardrail says stands in place of the reply
            said = [text for block in self._all if block.kind == _TEXT for text in block.texts]
            refusal = "".join(said) or None
        if self._usage is not None:
            events.append(UsageReport(self._usage))
        self.done = True
        return [*events, Stop(reason, raw, refusal), MessageStop()]

    def _decoded(self, data: bytes) -> Mapping[str, Any]:
        try:
            document: object = _json.loads(data) if data.strip() else {}
        except ValueError:
            document = None
        if not isinstance(document, dict):
            shown = data[:200].decode(errors="replace")
            raise self._error(InvalidResponseError, f"not a JSON object: {shown}")
        return cast("Mapping[str, Any]", document)

    def _lenient(self, frame: EventFrame) -> Mapping[str, Any]:
        """The payload of an exception, whatever it is."""
        try:
            return self._decoded(frame.payload)
        except InvalidResponseError:
            return {"message": frame.payload.decode(errors="replace")}

    def _failure(self, document: Mapping[str, Any]) -> ModelError:
        failure = to_error(read_error(document), provider=self._provider, model=self._model)
        failure.request_id = failure.request_id or self._request_id
        failure.usage = self._usage
        return failure

    def _error(self, kind: type[ModelError], text: str, *, code: str | None = None) -> ModelError:
        error = kind(
            text,
            provider=self._provider,
            model=self._model,
            code=code,
            request_id=self._request_id,
        )
        error.usage = self._usage
        return error


_PARTS: Mapping[str, Any] = {_TEXT: "text", _CALL: "tool_call", _THINKING: "thinking"}


def _deltas(given: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """A block of a whole reply as the deltas of a stream's; none for what is left out."""
    if isinstance(given.get("text"), str) or "toolUse" in given:
        return [given]
    reasoning = _mapping(given.get(REASONING))
    if reasoning:
        text = _mapping(reasoning.get("reasoningText"))
        return [{REASONING: {**text, **reasoning}}]
    cited = _mapping(given.get("citationsContent")).get("content")
    texts = cast("list[Any]", cited) if isinstance(cited, list) else []
    return [{"text": _string(_mapping(item).get("text"))} for item in texts]


def _rejoined(pieces: Sequence[str]) -> str:
    """Sealed reasoning: its own base64 to the letter, or that of all pieces together."""
    if len(pieces) == 1:
        return pieces[0]
    try:
        data = b"".join([base64.b64decode(piece, validate=True) for piece in pieces])
    except binascii.Error:
        return "".join(pieces)
    return base64.b64encode(data).decode("ascii")


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
