"""A Messages reply, streamed or whole, becomes stream events: pure (MOD-4, MOD-8, MOD-9, MOD-13).

A whole reply goes the same way as a stream of its blocks, so both make the same message. A block
that loopctl does not know, such as a search that the server made, is kept to the letter and sent
back where it stood.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from loopctl import _json
from loopctl.errors import InvalidResponseError, ModelError, StreamIncomplete
from loopctl.models.anthropic.messages import BLOCK
from loopctl.models.anthropic.request import REPLY_TOOL
from loopctl.models.classify import read_error, to_error
from loopctl.replies import StopReason
from loopctl.usage import Usage
from loopctl.wire.sse import ServerSentEvent
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

_STOPS: Mapping[str, StopReason] = {
    "end_turn": StopReason.END,
    "stop_sequence": StopReason.STOP_SEQUENCE,
    "tool_use": StopReason.TOOL_CALLS,
    "max_tokens": StopReason.LENGTH,
    "model_context_window_exceeded": StopReason.LENGTH,
    "refusal": StopReason.REFUSAL,
    "pause_turn": StopReason.PAUSE,
}
_CALL, _TEXT, _THINKING, _SEALED = "tool_use", "text", "thinking", "redacted_thinking"


@dataclass(frozen=True, slots=True)
class Paused(Stop):
    """The server paused a long turn of its own tools; sending `content` back continues it.

    `content` is all that the turn has said so far, `places` how many parts of the message that
    took, `usage` what it cost, `times` how often it has paused.
    """

    content: tuple[dict[str, Any], ...] = ()
    places: int = 0
    usage: Usage | None = None
    times: int = 0


@dataclass(slots=True, eq=False)
class _Block:
    """A content block that is being put together."""

    place: int
    given: dict[str, Any]
    texts: list[str] = field(default_factory=list[str])
    citations: list[Any] = field(default_factory=list[Any])
    signature: str = ""
    open: bool = True

    @property
    def kind(self) -> str:
        return str(self.given.get("type"))

    def input(self) -> Any:
        """The arguments: those that came in pieces, else those that the block came with."""
        text = "".join(self.texts)
        parsed = _json.parse_object(text) if text.strip() else None
        return self.given.get("input", {}) if parsed is None else parsed

    def whole(self) -> dict[str, Any] | None:
        """The block as it is sent back unchanged; `None` for one that no request may hold."""
        text = "".join(self.texts)
        if self.kind == _TEXT:
            cited = {"citations": self.citations} if self.citations else {}
            return {**self.given, "text": text, **cited} if text.strip() else None
        if self.kind == _THINKING:
            whole = {**self.given, "thinking": text, "signature": self.signature}
            return whole if self.signature else None
        return {**self.given, "input": self.input()} if "input" in self.given else self.given


class MessagesDecoder:
    """Turns the events of one reply into stream events.

    `frame` takes each server-sent event, `whole` a reply in one piece. `done` is true when the
    reply is complete. Raises the error that the server sent, `StreamIncomplete` when the reply is
    not all there, and `InvalidResponseError` for what is no reply.

    `prefix` is the digest that reasoning of this reply is bound to, `None` where it is not;
    `reply_tool` says that arguments of `REPLY_TOOL` are the text of the reply; `after` that this
    reply continues a paused one: then its parts come behind that one's.
    """

    def __init__(
        self,
        *,
        provider: str,
        model: str,
        request_id: str | None = None,
        prefix: str | None = None,
        reply_tool: bool = False,
        after: Paused | None = None,
    ) -> None:
        self.done = False
        self._provider = provider
        self._model = model
        self._request_id = request_id
        self._prefix = prefix
        self._reply_tool = reply_tool
        self._after = after
        self._started = False
        self._all: list[_Block] = []
        self._blocks: dict[int, _Block] = {}  # the latest under each index
        self._last = -1
        self._counts: dict[str, int] = {}
        self._stop: str | None = None
        self._refusal: str | None = None

    def frame(self, frame: ServerSentEvent, /) -> list[StreamEvent]:
        """The stream events of one server-sent event."""
        data = frame.data
        if self.done or not data or data.isspace() or data.lstrip().startswith((":", "[DONE]")):
            return []
        document = self._decoded(data)
        kind = document.get("type") or frame.event
        if kind == "error" or frame.event == "error" or document.get("error"):
            raise self._failure(document)
        return self._event(str(kind), document)

    def whole(self, body: bytes, /) -> list[StreamEvent]:
        """The stream events of a reply that came in one piece."""
        document = self._decoded(body)
        if document.get("type") == "error" or document.get("error"):
            raise self._failure(document)
        content = document.get("content")
        if not isinstance(content, list):
            raise self._error(InvalidResponseError, "a reply without content")
        events = self._event("message_start", {"message": {**document, "content": []}})
        self._ending(document)  # how it ended is known before its blocks are read
        for index, block in enumerate(cast("list[Any]", content)):
            given = _mapping(block)
            events += self._event("content_block_start", {"index": index, "content_block": given})
            events += self._event("content_block_stop", {"index": index})
        events += self._event("message_delta", {"delta": document})
        return [*events, *self._event("message_stop", {})]

    def finish(self) -> list[StreamEvent]:
        """Say that the body ended: without the terminal signal it is not all there."""
        if not self.done:
            raise self._error(StreamIncomplete, "the reply ended without message_stop")
        return []

    def _event(self, kind: str, document: Mapping[str, Any]) -> list[StreamEvent]:
        events: list[StreamEvent] = []
        if kind == "message_start":
            message = _mapping(document.get("message"))
            self._start(message, events)
            self._count(message.get("usage"), events)
        elif kind == "content_block_start":
            self._start({}, events)
            self._open(document, events)
        elif kind == "content_block_delta":
            self._start({}, events)
            self._more(document, events)
        elif kind == "content_block_stop":
            block = self._blocks.get(self._index(document))
            if block is not None:
                self._close(block, events)
        elif kind == "message_delta":
            self._ending(_mapping(document.get("delta")))
            self._count(document.get("usage"), events)
        elif kind == "message_stop":
            events = self._end()
        return events

    def _start(self, message: Mapping[str, Any], events: list[StreamEvent]) -> None:
        if self._started:
            return
        self._started = True
        if self._after is not None:
            return  # it is the same message that goes on
        model, id = message.get("model"), message.get("id")
        start = MessageStart(
            model if isinstance(model, str) and model else self._model,
            id if isinstance(id, str) and id else None,
            self._provider,
            self._request_id,
            self._prefix,
            self._model,
        )
        events.append(start)

    def _index(self, document: Mapping[str, Any]) -> int:
        """The index of a block; one without goes on with the last."""
        index = document.get("index")
        return index if type(index) is int else max(self._last, 0)

    def _open(self, document: Mapping[str, Any], events: list[StreamEvent]) -> None:
        given = dict(_mapping(document.get("content_block")))
        index = document.get("index")
        if type(index) is not int:
            index = self._last + 1
        self._last = index
        places = 0 if self._after is None else self._after.places
        block = self._blocks[index] = _Block(places + len(self._all), given)
        self._all.append(block)
        place, kind = block.place, block.kind
        if kind == _TEXT:
            self._say(block, given.get("text"), events)
            citations = given.get("citations")
            block.citations += cast("list[Any]", citations) if isinstance(citations, list) else []
        elif kind == _THINKING:
            events.append(PartStart("thinking", place, field=_THINKING))
            self._say(block, given.get("thinking"), events)
            block.signature = _string(given.get("signature"))
        elif kind == _CALL and not self._is_reply(block):
            id, name = _string(given.get("id")), _string(given.get("name"))
            events.append(PartStart("tool_call", place, id, name, as_object=True))

    def _more(self, document: Mapping[str, Any], events: list[StreamEvent]) -> None:
        delta = _mapping(document.get("delta"))
        block = self._blocks.get(self._index(document))
        if block is None:  # its start did not come
            kind = {"thinking_delta": _THINKING, "text_delta": _TEXT}.get(str(delta.get("type")))
            if kind is None:
                return
            start = {"index": self._index(document), "content_block": {"type": kind}}
            self._open(start, events)
            block = self._blocks[self._last]
        match delta.get("type"):
            case "text_delta":
                self._say(block, delta.get("text"), events)
            case "thinking_delta":
                self._say(block, delta.get("thinking"), events)
            case "input_json_delta":
                self._say(block, delta.get("partial_json"), events)
            case "signature_delta":
                block.signature = _string(delta.get("signature")) or block.signature
            case "citations_delta":
                block.citations.append(delta.get("citation"))
            case _:
                pass

    def _say(self, block: _Block, text: object, events: list[StreamEvent]) -> None:
        if not isinstance(text, str) or not text:
            return
        block.texts.append(text)
        if block.kind == _TEXT:
            events.append(PartDelta("text", block.place, text))
        elif block.kind == _THINKING:
            events.append(PartDelta("thinking", block.place, text))
        elif block.kind == _CALL and not self._is_reply(block):
            events.append(PartDelta("tool_call", block.place, text))

    def _close(self, block: _Block, events: list[StreamEvent]) -> None:
        """The block is complete, or as complete as it will be."""
        if not block.open:
            return
        block.open = False
        place, kind = block.place, block.kind
        if kind == _TEXT:
            events.append(PartStop("text", place))
        elif kind == _THINKING:
            if block.signature:
                events.append(PartDelta("thinking", place, signature=block.signature))
            events.append(PartStop("thinking", place))
        elif kind == _SEALED:
            self._seal(place, _SEALED, _string(block.given.get("data")), events)
        elif kind != _CALL:
            self._seal(place, BLOCK, _json.dumps(block.whole()), events)
        elif self._is_reply(block):
            if text := self._replied(block):
                events.append(PartDelta("text", place, text))
            events.append(PartStop("text", place))
        else:
            given = block.given.get("input")
            if not block.texts and given:
                text = given if isinstance(given, str) else _json.dumps(given)
                events.append(PartDelta("tool_call", place, text))
            events.append(PartStop("tool_call", place))

    def _replied(self, block: _Block) -> str:
        """The text of a reply by tool; as it came, or nothing, where the limit cut it."""
        written = "".join(block.texts)
        if written.strip() and _json.parse_object(written) is None:
            return written
        found = block.input()
        cut = self._stop is not None and _STOPS.get(self._stop) is StopReason.LENGTH
        return "" if cut and not found else _json.dumps(found)

    def _seal(self, place: int, field: str, data: str, events: list[StreamEvent]) -> None:
        events.append(PartStart("thinking", place, redacted=True, field=field))
        events.append(PartDelta("thinking", place, signature=data))
        events.append(PartStop("thinking", place))

    def _is_reply(self, block: _Block) -> bool:
        return self._reply_tool and block.given.get("name") == REPLY_TOOL

    def _ending(self, delta: Mapping[str, Any]) -> None:
        reason = delta.get("stop_reason")
        if isinstance(reason, str) and reason:
            self._stop = reason
        details = _mapping(delta.get("stop_details"))
        self._refusal = (
            _string(details.get("explanation")) or _string(details.get("category")) or self._refusal
        )

    def _count(self, given: object, events: list[StreamEvent]) -> None:
        """Reports are cumulative: the largest of each count, then their sum (J4)."""
        usage = _mapping(given)
        details = _mapping(usage.get("output_tokens_details"))
        counts = {**usage, "thinking_tokens": details.get("thinking_tokens")}
        for name, value in counts.items():
            if type(value) is int and value >= 0:
                self._counts[name] = max(value, self._counts.get(name, 0))
        if (total := self._usage()) is not None:
            events.append(UsageReport(total))

    def _usage(self) -> Usage | None:
        counts, before = self._counts, None if self._after is None else self._after.usage
        if not counts:
            return before
        cached = counts.get("cache_read_input_tokens")
        written = counts.get("cache_creation_input_tokens")
        fresh = counts.get("input_tokens")
        usage = Usage(
            # input_tokens is what no cache had; loopctl's counts everything
            input_tokens=None if fresh is None else fresh + (cached or 0) + (written or 0),
            output_tokens=counts.get("output_tokens"),
            cached_tokens=cached,
            cache_write_tokens=written,
            thinking_tokens=counts.get("thinking_tokens"),
        )
        return usage + before

    def _end(self) -> list[StreamEvent]:
        """The events of a complete reply, or the error that it is none."""
        raw = self._stop
        if raw is None:
            raise self._error(StreamIncomplete, "the reply ended without a stop reason")
        reason = _STOPS.get(raw, StopReason.UNKNOWN)
        events: list[StreamEvent] = []
        cut = reason is StopReason.LENGTH
        for block in self._all:
            if not (cut and block.kind == _CALL and not self._is_reply(block)):
                self._close(block, events)  # a call that the limit cut stays open
        calls = any(block.kind == _CALL and not self._is_reply(block) for block in self._all)
        if reason is StopReason.TOOL_CALLS and not calls and any(map(self._is_reply, self._all)):
            reason = StopReason.END
        refusal = self._refusal if reason is StopReason.REFUSAL else None
        stop = Stop(reason, raw, refusal)
        if reason is StopReason.PAUSE:
            stop = Stop(StopReason.TOOL_CALLS, raw) if calls else self._paused(raw)
        self.done = True
        return [*events, stop, MessageStop()]

    def _paused(self, raw: str) -> Paused:
        before = self._after or Paused(StopReason.PAUSE, raw)
        content = [whole for block in self._all if (whole := block.whole()) is not None]
        return Paused(
            StopReason.PAUSE,
            raw,
            None,
            (*before.content, *content),
            before.places + len(self._all),
            self._usage(),
            before.times + 1,
        )

    def _decoded(self, data: str | bytes) -> Mapping[str, Any]:
        try:
            document: object = _json.loads(data)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            shown = data if isinstance(data, str) else data.decode(errors="replace")
            raise self._error(InvalidResponseError, f"not a JSON object: {shown[:200]}")
        return cast("Mapping[str, Any]", document)

    def _failure(self, document: Mapping[str, Any]) -> ModelError:
        failure = to_error(read_error(document), provider=self._provider, model=self._model)
        failure.request_id = failure.request_id or self._request_id
        failure.usage = self._usage()
        return failure

    def _error(self, kind: type[ModelError], text: str) -> ModelError:
        error = kind(text, provider=self._provider, model=self._model, request_id=self._request_id)
        error.usage = self._usage()
        return error


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
