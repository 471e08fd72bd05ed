"""A Chat Completions reply, streamed or whole, becomes stream events: pure (MOD-4, MOD-8, MOD-9).

A whole reply goes the same way as a stream of one chunk, so both make the same message. What
compatible servers do differently is taken as they do it; what is not a reply is a typed error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from loopctl import _json
from loopctl.errors import InvalidResponseError, ModelError, StreamIncomplete
from loopctl.models.classify import read_error, to_error
from loopctl.models.openai_chat.fragments import CallFragments
from loopctl.replies import StopReason
from loopctl.usage import Usage
from loopctl.wire.sse import ServerSentEvent
from loopctl.wire.stream_events import (
    MessageStart,
    MessageStop,
    PartDelta,
    PartStart,
    Stop,
    StreamEvent,
    UsageReport,
)

DONE = "[DONE]"
"""The terminal signal."""

_THINKING, _TEXT, _CALLS = 0, 1, 2
"""Places in the message: what was thought, what was said, then the calls."""

_STOPS: Mapping[str, StopReason] = {
    "stop": StopReason.END,
    "eos": StopReason.END,
    "length": StopReason.LENGTH,
    "model_length": StopReason.LENGTH,
    "max_tokens": StopReason.LENGTH,
    "tool_calls": StopReason.TOOL_CALLS,
    "function_call": StopReason.TOOL_CALLS,
    "content_filter": StopReason.FILTER,
}


class ChatDecoder:
    """Turns the data of one reply into stream events.

    `feed` each event of a stream and, where the stream ends without `[DONE]`, call `finish`; or
    give a whole reply to `whole`. `done` is true when the reply is complete. Raises the error that
    the server sent, `StreamIncomplete` when the reply is not all there, and `InvalidResponseError`
    for what is no reply. `lenient_end` takes `[DONE]` for the end even without a finish reason.
    """

    def __init__(
        self,
        *,
        provider: str,
        model: str,
        request_id: str | None = None,
        lenient_end: bool = True,
    ) -> None:
        self.done = False
        self._provider = provider
        self._model = model
        self._request_id = request_id
        self._lenient_end = lenient_end
        self._started = False
        self._finish: str | None = None
        self._refusal: list[str] = []
        self._said = False
        self._details: list[dict[str, Any]] = []
        self._thinking = False
        self._calls = CallFragments(_CALLS)

    def frame(self, frame: ServerSentEvent, /) -> list[StreamEvent]:
        """The stream events of one server-sent event."""
        return self.feed(frame.data, frame.event)

    def feed(self, data: str, event: str = "") -> list[StreamEvent]:
        """The stream events of the data of one event."""
        if self.done or not data or data.isspace() or data.startswith(":"):
            return []
        if data.lstrip().startswith(DONE):
            return self._end(told=True)
        return self._chunk(self._decoded(data), event == "error")

    def whole(self, body: bytes) -> list[StreamEvent]:
        """The stream events of a reply that came in one piece."""
        events = self._chunk(self._decoded(body), False, whole=True)
        if self.done:
            return events
        if not self._started:
            raise self._error(StreamIncomplete, "a reply without choices")
        return [*events, *self._end(told=True)]

    def finish(self) -> list[StreamEvent]:
        """Say that the body ended; a reply whose finish reason has come is complete."""
        return [] if self.done else self._end(told=False)

    def _decoded(self, data: str | bytes) -> Mapping[str, Any]:
        try:
            document: object = _json.loads(data)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            shown = data if isinstance(data, str) else data.decode(errors="replace")
            raise self._error(InvalidResponseError, f"not a JSON object: {shown[:200]}")
        return cast("Mapping[str, Any]", document)

    def _chunk(
        self, chunk: Mapping[str, Any], is_error: bool, *, whole: bool = False
    ) -> list[StreamEvent]:
        events: list[StreamEvent] = []
        groq = _mapping(chunk.get("x_groq"))
        error = chunk.get("error") or groq.get("error")
        if error or is_error or chunk.get("object") == "error":
            return self._failed(error or chunk)
        usage = _usage(chunk.get("usage") or groq.get("usage"))
        if usage is not None:
            events.append(UsageReport(usage))
        choices = chunk.get("choices")
        if not isinstance(choices, list) or not choices:
            return events
        if not self._started:
            self._started = True
            events.insert(0, self._start(chunk))
        for choice in cast("list[Any]", choices):
            choice = _mapping(choice)
            if not choice.get("index"):  # others were not asked for
                self._choice(choice, events, whole)
        return events

    def _start(self, chunk: Mapping[str, Any]) -> MessageStart:
        model, id = chunk.get("model"), chunk.get("id")
        return MessageStart(
            model if isinstance(model, str) and model else self._model,
            id if isinstance(id, str) and id else None,
            self._provider,
            self._request_id,
        )

    def _choice(self, choice: Mapping[str, Any], events: list[StreamEvent], whole: bool) -> None:
        usage = _usage(choice.get("usage"))  # Moonshot reports it here
        if usage is not None:
            events.append(UsageReport(usage))
        delta = _mapping(choice.get("delta")) or _mapping(choice.get("message"))
        self._thought(delta, events)
        self._content(delta.get("content"), events)
        refusal = delta.get("refusal")
        if isinstance(refusal, str) and refusal:
            self._refusal.append(refusal)
        calls = delta.get("tool_calls")
        if isinstance(calls, list):
            events += self._calls.feed(cast("list[Any]", calls), whole=whole)
        elif legacy := _mapping(delta.get("function_call")):  # the API's first form of calls
            events += self._calls.feed([{"function": legacy}], whole=whole)
        finish = choice.get("finish_reason")
        if isinstance(finish, str) and finish:
            self._finish = finish

    def _thought(self, delta: Mapping[str, Any], events: list[StreamEvent]) -> None:
        details = delta.get("reasoning_details")
        if isinstance(details, list) and details:
            self._think("reasoning_details", "", events)
            for detail in cast("list[Any]", details):
                if isinstance(detail, dict):
                    _join_detail(self._details, cast("dict[str, Any]", detail))
        for name in ("reasoning_content", "reasoning"):
            text = delta.get(name)
            if isinstance(text, str) and text:
                self._think(name, text, events)
                break  # some servers send both names

    def _think(self, field: str, text: str, events: list[StreamEvent]) -> None:
        if not self._thinking:
            self._thinking = True
            events.append(PartStart("thinking", _THINKING, field=field))
        if text:
            events.append(PartDelta("thinking", _THINKING, text))

    def _content(self, content: object, events: list[StreamEvent]) -> None:
        if isinstance(content, str):
            if content:
                self._said = True
                events.append(PartDelta("text", _TEXT, content))
            return
        for part in cast("list[Any]", content) if isinstance(content, list) else ():
            part = _mapping(part)
            if part.get("type") == "thinking":
                thinking = part.get("thinking")
                for piece in _texts(thinking):
                    self._think("thinking", piece, events)
                signature = part.get("signature")
                if isinstance(signature, str) and signature:
                    events.append(PartDelta("thinking", _THINKING, signature=signature))
            elif part.get("type") == "refusal" and isinstance(part.get("refusal"), str):
                self._refusal.append(part["refusal"])
            else:
                for piece in _texts([part]):
                    self._content(piece, events)

    def _end(self, *, told: bool) -> list[StreamEvent]:
        """The events of a complete reply, or the error that it is none."""
        finish = self._finish
        if finish is None and not (told and self._lenient_end and self._is_whole()):
            raise self._error(StreamIncomplete, "the reply ended without a finish reason")
        if finish in ("error", "abort", "insufficient_system_resource"):
            raise to_error(
                read_error({"code": finish, "message": f"the server stopped: {finish}"}),
                provider=self._provider,
                model=self._model,
            )
        events: list[StreamEvent] = list(self._calls.finish())
        if self._details:
            sealed = _json.dumps(self._details)
            events.append(PartDelta("thinking", _THINKING, signature=sealed))
        refusal = "".join(self._refusal) or None
        if finish is None:
            reason = StopReason.TOOL_CALLS if self._calls else StopReason.END
        else:
            reason = _STOPS.get(finish, StopReason.UNKNOWN)
        if refusal and reason is not StopReason.FILTER:
            reason = StopReason.REFUSAL
        self.done = True
        return [*events, Stop(reason, finish, refusal), MessageStop()]

    def _is_whole(self) -> bool:
        """Whether something was said and no call was cut, as far as can be seen."""
        return bool(self._calls and self._calls.whole) or (self._said and not self._calls)

    def _failed(self, error: object) -> list[StreamEvent]:
        upstream = read_error({"error": error})
        if upstream.refused:
            self.done = True
            code = upstream.codes[0] if upstream.codes else None
            return [
                *([] if self._started else [self._start({})]),
                Stop(StopReason.FILTER, code, upstream.text),
                MessageStop(),
            ]
        failure = to_error(upstream, provider=self._provider, model=self._model)
        failure.request_id = failure.request_id or self._request_id
        raise failure

    def _error(self, kind: type[ModelError], text: str) -> ModelError:
        return kind(text, provider=self._provider, model=self._model, request_id=self._request_id)


def _join_detail(details: list[dict[str, Any]], piece: dict[str, Any]) -> None:
    """Join a streamed piece of reasoning to the one that it belongs to, by type and index."""
    last = details[-1] if details else None
    same = last is not None and piece.get("index") is not None
    if (
        last is None
        or not same
        or (last.get("type"), last.get("index")) != (piece.get("type"), piece.get("index"))
    ):
        details.append(dict(piece))
        return
    for name, value in piece.items():
        joined = name in ("text", "summary", "data") and isinstance(last.get(name), str)
        if joined and isinstance(value, str):
            last[name] += value
        elif value is not None:
            last[name] = value


def _texts(parts: object) -> Iterable[str]:
    if isinstance(parts, str):
        yield parts
    elif isinstance(parts, list):
        for part in cast("list[Any]", parts):
            text = part if isinstance(part, str) else _mapping(part).get("text")
            if isinstance(text, str) and text:
                yield text


def _usage(given: object) -> Usage | None:
    if not isinstance(given, dict) or not given:
        return None
    counts = cast("Mapping[str, Any]", given)
    prompt = _mapping(counts.get("prompt_tokens_details"))
    output = _mapping(counts.get("completion_tokens_details"))
    cached = _count(prompt, "cached_tokens")
    if cached is None:
        cached = _count(counts, "prompt_cache_hit_tokens")  # DeepSeek
    if cached is None:
        cached = _count(counts, "cached_tokens")  # Moonshot
    return Usage(
        input_tokens=_count(counts, "prompt_tokens"),
        output_tokens=_count(counts, "completion_tokens"),
        cached_tokens=cached,
        cache_write_tokens=_count(prompt, "cache_write_tokens"),
        thinking_tokens=_count(output, "reasoning_tokens"),
    )


def _count(counts: Mapping[str, Any], name: str) -> int | None:
    value = counts.get(name)
    return value if type(value) is int and value >= 0 else None


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
