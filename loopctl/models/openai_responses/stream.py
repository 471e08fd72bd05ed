"""A Responses reply, streamed or whole, becomes stream events: pure (MOD-4, MOD-8, MOD-9).

A reply is a list of items. In a stream each is announced, comes in pieces, and is told once more
when it is done: that last form is the one that counts, and what is missing in the pieces is taken
from it. A whole reply goes the way of a stream of which only the last event came. So both make the
same message: reasoning and the items of the server's own tools as thinking parts that hold them as
JSON, each message as one text, calls under the id that their results name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from loopctl import _json
from loopctl.errors import InvalidResponseError, ModelError, StreamIncomplete
from loopctl.models.classify import read_error, to_error
from loopctl.models.openai_responses.items import (
    Object,
    mapping,
    named,
    refusals,
    said,
    string,
    thought,
    usage_of,
)
from loopctl.models.openai_responses.messages import ITEM, PHASE, REASONING
from loopctl.replies import StopReason
from loopctl.usage import Usage
from loopctl.wire.sse import ServerSentEvent
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

DONE = "[DONE]"
"""What some servers send behind the terminal event."""

_MESSAGE = "message"
_CALLS: Mapping[str, str] = {"function_call": "arguments", "custom_tool_call": "input"}
"""Items that are calls, and the field in which their arguments stand."""

_DELTAS: Mapping[str, str] = {
    "response.output_text.delta": _MESSAGE,
    "response.function_call_arguments.delta": "function_call",
    "response.custom_tool_call_input.delta": "custom_tool_call",
    "response.reasoning_summary_text.delta": REASONING,
    "response.reasoning_text.delta": REASONING,
}
"""Events that bring more of an item, and the type of that item."""

_TERMINAL = frozenset(
    f"response.{status}" for status in ("completed", "incomplete", "failed", "cancelled")
)
_INCOMPLETE: Mapping[str, StopReason] = {
    "max_output_tokens": StopReason.LENGTH,
    "content_filter": StopReason.FILTER,
}


@dataclass(slots=True)
class _Item:
    """One item of the output: its places are for the phase in front of it and for itself."""

    place: int
    type: str
    given: dict[str, Any]
    texts: list[str] = field(default_factory=list[str])
    paragraph: object = None
    open: bool = True

    @property
    def id(self) -> object:
        return self.given.get("id")


class ResponsesDecoder:
    """Turns the data of one reply into stream events.

    `feed` each event of a stream and call `finish` where the body ends; or give a whole reply to
    `whole`. `done` is true when the terminal event has come. Raises the error that the server sent,
    `StreamIncomplete` when the reply is not all there, and `InvalidResponseError` for what is no
    reply. `prefix` is the digest of the request, where reasoning is bound to it.
    """

    def __init__(
        self,
        *,
        provider: str,
        model: str,
        request_id: str | None = None,
        prefix: str | None = None,
    ) -> None:
        self.done = False
        self._provider = provider
        self._model = model
        self._request_id = request_id
        self._prefix = prefix
        self._started = False
        self._items: list[_Item] = []
        self._by_index: dict[int, _Item] = {}
        self._refusing: list[str] = []
        self._refused: list[str] = []
        self._usage: Usage | None = None

    def frame(self, frame: ServerSentEvent, /) -> list[StreamEvent]:
        """The stream events of one server-sent event."""
        return self.feed(frame.data, frame.event)

    def feed(self, data: str, event: str = "") -> list[StreamEvent]:
        """The stream events of the data of one event; those of unknown types have none."""
        if self.done or not data or data.isspace() or data.startswith(":"):
            return []
        if data.strip() == DONE:
            return self.finish()
        document = self._decoded(data)
        kind = document.get("type")
        return self._event(kind if isinstance(kind, str) and kind else event, document)

    def whole(self, body: bytes, /) -> list[StreamEvent]:
        """The stream events of a reply that came in one piece."""
        return self._end(self._decoded(body))

    def finish(self) -> list[StreamEvent]:
        """Say that the body ended: without the terminal event it is not all there."""
        if not self.done:
            raise self._error(StreamIncomplete, "the reply ended without its terminal event")
        return []

    def _event(self, kind: str, document: Object) -> list[StreamEvent]:
        if kind in _TERMINAL:
            status = kind.removeprefix("response.")
            return self._end({**mapping(document.get("response")), "status": status})
        if kind == "error" or (document.get("error") and not kind.startswith("response.")):
            return self._failed(document)
        events: list[StreamEvent] = []
        if kind in ("response.created", "response.in_progress"):
            self._start(mapping(document.get("response")), events)
        elif kind == "response.output_item.added":
            if given := mapping(document.get("item")):
                self._open(given, document.get("output_index"), events)
        elif kind in _DELTAS:
            if (item := self._item(document, _DELTAS[kind], events)) is not None:
                self._more(item, document, events)
        elif kind == "response.refusal.delta":
            self._refusing.append(string(document.get("delta")))
        elif kind == "response.output_item.done":
            self._done(mapping(document.get("item")), document.get("output_index"), events)
        return events

    def _start(self, response: Object, events: list[StreamEvent]) -> None:
        if self._started:
            return
        self._started = True
        start = MessageStart(
            string(response.get("model")) or self._model,
            string(response.get("id")) or None,
            self._provider,
            self._request_id,
            self._prefix,
            self._model,
        )
        events.append(start)

    def _open(self, given: Object, index: object, events: list[StreamEvent]) -> _Item:
        self._start({}, events)
        number = index if type(index) is int else max(self._by_index, default=-1) + 1
        taken = {item.place for item in self._items}
        place = 2 * number + 1
        if place in taken:
            place = max(taken) + 2
        kind = string(given.get("type"))
        item = _Item(place, kind, dict(given))
        self._items.append(item)
        self._by_index[number] = item
        if kind in _CALLS:
            events.append(PartStart("tool_call", place, *named(given)))
        elif kind == REASONING:
            events.append(PartStart("thinking", place, field=REASONING))
        return item

    def _item(self, document: Object, kind: str, events: list[StreamEvent]) -> _Item | None:
        """The item that an event is about: by its id, its index, or the last one of its type.

        `None` if it is done already. One that was not announced is made, unless it is a call: its
        name would be missing.
        """
        index, id = document.get("output_index"), document.get("item_id")
        found = next((item for item in self._items if id and item.id == id), None)
        if found is None:
            found = self._by_index.get(index) if type(index) is int else None
        if found is None and type(index) is not int:
            found = next((item for item in reversed(self._items) if item.type == kind), None)
        if found is None:
            if kind in _CALLS:
                return None
            found = self._open({"type": kind, "id": id}, index, events)
        return found if found.open and found.type == kind else None

    def _more(self, item: _Item, document: Object, events: list[StreamEvent]) -> None:
        """A piece of an item. The paragraphs of a summary are parted by an empty line."""
        text = string(document.get("delta"))
        if not text:
            return
        if item.type == REASONING:
            names = ("type", "summary_index", "content_index")
            paragraph = tuple(document.get(name) for name in names)
            if item.texts and item.paragraph != paragraph:
                self._say(item, "\n\n", events)
            item.paragraph = paragraph
        self._say(item, text, events)

    def _say(self, item: _Item, text: str, events: list[StreamEvent]) -> None:
        item.texts.append(text)
        events.append(PartDelta(_part_kind(item), item.place, text))

    def _done(self, given: Object, index: object, events: list[StreamEvent]) -> None:
        """An item in its last form."""
        if not given:
            return
        same = [item for item in self._items if item.type == given.get("type")]
        item = next((item for item in same if item.id and item.id == given.get("id")), None)
        if item is None and type(index) is int:
            item = next((item for item in same if item is self._by_index.get(index)), None)
        elif item is None:
            item = next((item for item in same if item.open), None)
        if item is None:
            item = self._open(given, index, events)
        if item.open:
            item.given = dict(given)
            self._close(item, events)

    def _close(self, item: _Item, events: list[StreamEvent]) -> None:
        """Give what the pieces lacked, and end the part; a call that was cut stays open."""
        item.open = False
        given, place = item.given, item.place
        if item.type in _CALLS:
            events.append(PartStart("tool_call", place, *named(given)))
            self._arguments(item, events)
            if given.get("status") not in ("incomplete", "in_progress"):
                events.append(PartStop("tool_call", place))
        elif item.type == _MESSAGE:
            self._rest(item, said(given), events)
            self._refused += refusals(given)
            phase = given.get("phase")
            if isinstance(phase, str) and phase:
                self._seal(PHASE, place - 1, phase, events)
            events.append(PartStop("text", place))
        elif item.type == REASONING:
            self._rest(item, thought(given), events)
            if given.get("encrypted_content") or given.get("content"):
                kept = {k: v for k, v in given.items() if v is not None and k != "status"}
                kept.setdefault("summary", [])
                sealed = _json.dumps(kept)
                events.append(PartDelta("thinking", place, signature=sealed))
            events.append(PartStop("thinking", place))
        elif item.type:
            self._seal(ITEM, place, _json.dumps(given), events)

    def _rest(self, item: _Item, text: str, events: list[StreamEvent]) -> None:
        """What was not told yet of a text; what was told stands."""
        told = "".join(item.texts)
        if text.startswith(told) and len(text) > len(told):
            self._say(item, text[len(told) :], events)

    def _arguments(self, item: _Item, events: list[StreamEvent]) -> None:
        """What was not told yet of a call's arguments, which must not differ from what was."""
        given = item.given.get(_CALLS[item.type])
        text = _json.dumps(given) if isinstance(given, dict) else string(given)
        told = "".join(item.texts)
        if text.startswith(told):
            self._rest(item, text, events)
        elif text and _json.parse_object(text) != _json.parse_object(told):
            raise self._error(
                StreamIncomplete, "the arguments of a call are not what came of them in pieces"
            )

    def _seal(self, kind: str, place: int, data: str, events: list[StreamEvent]) -> None:
        events.append(PartStart("thinking", place, redacted=kind == ITEM, field=kind))
        events.append(PartDelta("thinking", place, signature=data))
        events.append(PartStop("thinking", place))

    def _end(self, response: Object) -> list[StreamEvent]:
        """The events of the terminal event's response, or the error that it is."""
        status = response.get("status")
        self._usage = usage_of(response.get("usage")) or self._usage
        failed = response.get("error")
        if failed or status == "failed":
            return self._failed({"error": failed or f"the response is {status}"})
        output = response.get("output")
        if status == "cancelled":
            raise self._error(StreamIncomplete, "the response was cancelled")
        if status in ("queued", "in_progress"):
            raise self._error(InvalidResponseError, f"the response is {status}, in the background")
        if not isinstance(output, list) and not (self._started and status):
            raise self._error(InvalidResponseError, "a reply without output")
        events: list[StreamEvent] = []
        self._start(response, events)
        self._settle(cast("list[Any]", output or []), events)
        if self._usage is not None:
            events.append(UsageReport(self._usage))
        self.done = True
        return [*events, self._stop(response, status), MessageStop()]

    def _settle(self, output: Sequence[Any], events: list[StreamEvent]) -> None:
        """Bring what the stream told of the items into line with the list of all of them.

        Ids are no help here: some servers make new ones for it. So the first message is the first
        message, and so on; what is in the list alone comes to the end.
        """
        waiting = sorted(self._items, key=lambda item: item.place)
        for given in map(mapping, output):
            same = (item for item in waiting if item.type == given.get("type"))
            item = next(same, None)
            if item is None:
                item = self._open(given, None, events) if given else None
            else:
                waiting.remove(item)
            if item is not None and item.open:
                item.given = dict(given)
                self._close(item, events)
        for item in self._items:
            if item.open:
                self._close(item, events)

    def _stop(self, response: Object, status: object) -> Stop:
        details = mapping(response.get("incomplete_details"))
        raw = string(details.get("reason")) or string(status) or "completed"
        refusal = "".join(self._refused or self._refusing) or None
        if status == "incomplete":
            reason = _INCOMPLETE.get(raw, StopReason.UNKNOWN)
        elif status in (None, "completed"):
            calls = any(item.type in _CALLS for item in self._items)
            reason = StopReason.TOOL_CALLS if calls else StopReason.END
        else:
            reason = StopReason.UNKNOWN
        if refusal and reason is not StopReason.FILTER:
            reason = StopReason.REFUSAL
        return Stop(reason, raw, refusal)

    def _failed(self, document: object) -> list[StreamEvent]:
        upstream = read_error(document)
        if upstream.refused:
            self.done = True
            events: list[StreamEvent] = []
            self._start({}, events)
            if self._usage is not None:
                events.append(UsageReport(self._usage))
            code = upstream.codes[0] if upstream.codes else None
            return [*events, Stop(StopReason.FILTER, code, upstream.text), MessageStop()]
        failure = to_error(upstream, provider=self._provider, model=self._model)
        failure.request_id = failure.request_id or self._request_id
        failure.usage = self._usage
        raise failure

    def _decoded(self, data: str | bytes) -> Object:
        try:
            document: object = _json.loads(data)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            shown = data if isinstance(data, str) else data.decode(errors="replace")
            raise self._error(InvalidResponseError, f"not a JSON object: {shown[:200]}")
        return cast("Object", document)

    def _error(self, kind: type[ModelError], text: str) -> ModelError:
        error = kind(text, provider=self._provider, model=self._model, request_id=self._request_id)
        error.usage = self._usage
        return error


def _part_kind(item: _Item) -> PartKind:
    if item.type in _CALLS:
        return "tool_call"
    return "thinking" if item.type == REASONING else "text"
