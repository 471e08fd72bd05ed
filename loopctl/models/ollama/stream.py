"""A reply of `/api/chat`, streamed or whole, becomes stream events: pure (MOD-4, MOD-8, MOD-9).

A whole reply goes the same way as a stream of one line, so both make the same message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from loopctl import _json
from loopctl.errors import InvalidResponseError, ModelError, StreamIncomplete
from loopctl.models.classify import read_error, to_error
from loopctl.replies import StopReason
from loopctl.usage import Usage
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

_THINKING, _TEXT, _CALLS = 0, 1, 2
"""Places in the message: what was thought, what was said, then the calls."""


class OllamaDecoder:
    """Turns the lines of one reply into stream events.

    `done` is true when the reply is complete. Raises the error that the server sent,
    `StreamIncomplete` when the reply is not all there, and `InvalidResponseError` for what is no
    reply.
    """

    def __init__(self, *, provider: str, model: str) -> None:
        self.done = False
        self._provider = provider
        self._model = model
        self._started = False
        self._thinking = False
        self._calls = 0

    def frame(self, frame: str, /) -> list[StreamEvent]:
        """The events of one line; raises the error that it is."""
        return self._line(frame) if not self.done else []

    def whole(self, body: bytes, /) -> list[StreamEvent]:
        """The events of a reply that came in one piece."""
        return [*self._line(body), *self.finish()]

    def finish(self) -> list[StreamEvent]:
        """The body ended: nothing more, or `StreamIncomplete`."""
        if not self.done:
            raise self._error(StreamIncomplete, "the reply ended before it was said to be done")
        return []

    def _line(self, line: str | bytes) -> list[StreamEvent]:
        try:
            document: object = _json.loads(line)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            shown = line if isinstance(line, str) else line.decode(errors="replace")
            raise self._error(InvalidResponseError, f"not a JSON object: {shown[:200]}")
        reply = cast("Mapping[str, Any]", document)
        if reply.get("error"):
            raise to_error(read_error(reply), provider=self._provider, model=self._model)
        events: list[StreamEvent] = []
        if not self._started:
            self._started = True
            model = reply.get("model")
            named = model if isinstance(model, str) and model else self._model
            events.append(MessageStart(named, provider=self._provider))
        message = reply.get("message")
        if isinstance(message, dict):
            self._message(cast("Mapping[str, Any]", message), events)
        if reply.get("done") is True:
            self._end(reply, events)
        return events

    def _message(self, message: Mapping[str, Any], events: list[StreamEvent]) -> None:
        thought, said = message.get("thinking"), message.get("content")
        if isinstance(thought, str) and thought:
            if not self._thinking:
                self._thinking = True
                events.append(PartStart("thinking", _THINKING, field="thinking"))
            events.append(PartDelta("thinking", _THINKING, thought))
        if isinstance(said, str) and said:
            events.append(PartDelta("text", _TEXT, said))
        calls = message.get("tool_calls")
        for call in cast("list[Any]", calls) if isinstance(calls, list) else ():
            if isinstance(call, dict):
                self._call(cast("Mapping[str, Any]", call), events)

    def _call(self, call: Mapping[str, Any], events: list[StreamEvent]) -> None:
        """A call comes whole, in one line."""
        function = call.get("function")
        given = cast("Mapping[str, Any]", function if isinstance(function, dict) else call)
        id, name, arguments = call.get("id"), given.get("name"), given.get("arguments")
        place = _CALLS + self._calls
        self._calls += 1
        events.append(
            PartStart(
                "tool_call",
                place,
                id if isinstance(id, str) and id else None,
                name if isinstance(name, str) else None,
            )
        )
        if arguments is not None:
            text = arguments if isinstance(arguments, str) else _json.dumps(arguments)
            events.append(PartDelta("tool_call", place, text))
        events.append(PartStop("tool_call", place))

    def _end(self, reply: Mapping[str, Any], events: list[StreamEvent]) -> None:
        usage = Usage(
            input_tokens=_count(reply, "prompt_eval_count"),
            output_tokens=_count(reply, "eval_count"),
        )
        if usage != Usage():
            events.append(UsageReport(usage))
        raw = reply.get("done_reason")
        if not isinstance(raw, str) or not raw:
            raise self._error(StreamIncomplete, "the reply ended without a reason")
        if raw == "stop":
            reason = StopReason.TOOL_CALLS if self._calls else StopReason.END
        else:
            reason = StopReason.LENGTH if raw == "length" else StopReason.UNKNOWN
        self.done = True
        events += [Stop(reason, raw), MessageStop()]

    def _error(self, kind: type[ModelError], text: str) -> ModelError:
        return kind(text, provider=self._provider, model=self._model)


def _count(reply: Mapping[str, Any], name: str) -> int | None:
    value = reply.get(name)
    return value if type(value) is int and value >= 0 else None
