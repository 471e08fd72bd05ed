"""A model that says what a test tells it to (MOD-3, MOD-4)."""

from __future__ import annotations

import inspect
import json
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, TypeAlias, TypeGuard, cast

from anyio.lowlevel import checkpoint

from loopctl.messages import ImagePart, Message, Part, Role, TextPart, ThinkingPart, ToolCallPart
from loopctl.models.client import ModelRequest
from loopctl.replies import ModelResponse, StopReason
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

Answer: TypeAlias = (
    str
    | ToolCallPart
    | Iterable[Part | str]
    | Message
    | ModelResponse
    | BaseException
    | type[BaseException]
)
"""What a model may say: text, a call, parts, a message, a whole response, or an exception."""

_Function: TypeAlias = Callable[[ModelRequest], Answer | Awaitable[Answer]]

Reply: TypeAlias = Answer | _Function
"""An answer, or a function of the request, sync or async, that gives one."""

Prepared: TypeAlias = ModelResponse | BaseException | type[BaseException]
"""An answer, ready to be returned or raised."""


class ScriptedClient:
    """A `ModelClient` that plays `replies`, one for each request, in order.

    A reply is text, a `ToolCallPart` (see `call`), an iterable of parts and texts, an assistant
    `Message`, a `ModelResponse`, an exception or exception class (it is raised), or a function of
    the request, sync or async, that gives any of these. `complete()` and `stream()` take from the
    same script and give equal messages; a stream cuts texts and arguments into pieces of at most
    `delta_chars` characters (`None`: uncut).

    `context_window` is what it says of its model, in tokens; `None` is a model that is not known.
    `requests` holds every request that came, `remaining` says how many replies are left. One
    request too many is an `AssertionError` that shows it. Concurrent calls take replies in the
    order in which they ask.

    Raises `TypeError` for a reply that is none of these, and `ValueError` for a message of another
    role or for `delta_chars` below 1.
    """

    def __init__(
        self,
        *replies: Reply,
        model: str = "scripted",
        provider: str = "scripted",
        context_window: int | None = 128_000,
        delta_chars: int | None = 16,
    ) -> None:
        if delta_chars is not None and delta_chars < 1:
            raise ValueError(f"delta_chars={delta_chars!r}: must be ≥ 1 or None")
        self.model = model
        self.provider = provider
        self.context_window = context_window
        self.requests: list[ModelRequest] = []
        self._delta_chars = delta_chars
        self._script: list[Prepared | _Function] = [
            reply
            if callable(reply) and not isinstance(reply, type)
            else prepare(cast(Answer, reply), model)
            for reply in replies
        ]
        # made here, so that a turn under measurement does not pay for them
        self._events = [
            list(stream_events(reply, delta_chars=delta_chars)) if _can_stream(reply) else None
            for reply in self._script
        ]

    @property
    def remaining(self) -> int:
        """How many replies have not been asked for."""
        return max(0, len(self._script) - len(self.requests))

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """The next reply; raises what is scripted, or `AssertionError` when nothing is left."""
        await checkpoint()
        return await self._answer(self._take(request), request)

    def stream(self, request: ModelRequest) -> _Stream:
        """The next reply as stream events: an async context manager of an async iterator.

        What is scripted to be raised is raised when the first event is asked for.
        """
        return _Stream(self, request)

    async def aclose(self) -> None:
        """There is nothing to close; the script goes on where it was."""

    def _take(self, request: ModelRequest) -> int:
        number = len(self.requests)
        self.requests.append(request)
        if number >= len(self._script):
            raise AssertionError(_exhausted(len(self._script), number + 1, request))
        return number

    async def _events_for(self, request: ModelRequest) -> Iterator[StreamEvent]:
        number = self._take(request)
        if (events := self._events[number]) is not None:
            return iter(events)
        response = await self._answer(number, request)
        return stream_events(response, delta_chars=self._delta_chars)

    async def _answer(self, number: int, request: ModelRequest) -> ModelResponse:
        reply = self._script[number]
        if isinstance(reply, ModelResponse):
            return reply
        if not isinstance(reply, (BaseException, type)):
            answer = reply(request)
            if inspect.isawaitable(answer):
                answer = await answer
            reply = prepare(answer, self.model)
            if isinstance(reply, ModelResponse):
                return reply
        raise cast(BaseException, reply)


class _Stream:
    """One reply, event by event. Nothing is asked of the script before the first event."""

    __slots__ = ("_client", "_events", "_request")

    def __init__(self, client: ScriptedClient, request: ModelRequest) -> None:
        self._client = client
        self._request = request
        self._events: Iterator[StreamEvent] | None = None

    async def __aenter__(self) -> AsyncIterator[StreamEvent]:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._events = iter(())

    def __aiter__(self) -> AsyncIterator[StreamEvent]:
        return self

    async def __anext__(self) -> StreamEvent:
        if self._events is None:
            await checkpoint()
            self._events = iter(())
            self._events = await self._client._events_for(self._request)  # pyright: ignore[reportPrivateUsage]
        event = next(self._events, None)
        if event is None:
            raise StopAsyncIteration
        if type(event) is PartDelta:
            await checkpoint()
        return event


def call(name: str, /, id: str | None = None, **arguments: Any) -> ToolCallPart:
    """A tool call of `name` with the given arguments, for scripts and conversations.

    Without `id` it is made of the name and the arguments, so that it is the same in every
    process; give one where a reply holds the same call twice. A tool whose own argument is called
    `id` needs a `ToolCallPart`.
    """
    part = ToolCallPart(id or "", name, arguments)
    if id is None:
        digest = zlib.crc32(f"{name} {part.arguments}".encode(errors="replace"))
        part = ToolCallPart(f"call_{digest:08x}", name, part.arguments)
    return part


def stream_events(
    response: ModelResponse, *, delta_chars: int | None = None
) -> Iterator[StreamEvent]:
    """The events of which a stream would build `response`, cut every `delta_chars` characters.

    Raises `ValueError` for an image of the assistant's, which no stream can carry.
    """
    parts = response.message.parts
    origin = next((p.provider for p in parts if isinstance(p, ThinkingPart) and p.provider), None)
    yield MessageStart(response.model, response.response_id, origin, response.request_id)
    for index, part in enumerate(parts):
        match part:
            case TextPart():
                start, text = PartStart("text", index), part.text
            case ThinkingPart():
                start = PartStart("thinking", index, redacted=part.redacted, field=part.kind)
                text = part.text
            case ToolCallPart():
                start = PartStart("tool_call", index, part.id, part.name)
                text = part.arguments if part.unusable is None else part.unusable
            case _:
                raise ValueError(f"a stream cannot carry a {type(part).__name__}")
        kind: PartKind = start.kind
        yield start
        step = delta_chars or len(text) or 1
        for at in range(0, len(text), step):
            yield PartDelta(kind, index, text[at : at + step])
        if isinstance(part, ThinkingPart) and part.signature is not None:
            yield PartDelta(kind, index, signature=part.signature)
        if not (isinstance(part, ToolCallPart) and part.truncated):
            yield PartStop(kind, index)
    if response.usage is not None:
        yield UsageReport(response.usage)
    yield Stop(response.stop_reason, response.raw_stop_reason, response.refusal)
    yield MessageStop()


def _can_stream(reply: Prepared | _Function) -> TypeGuard[ModelResponse]:
    return isinstance(reply, ModelResponse) and not any(
        isinstance(part, ImagePart) for part in reply.message.parts
    )


def prepare(answer: Answer, model: str) -> Prepared:
    """The response or exception that `answer` stands for, said by `model`."""
    if isinstance(answer, (ModelResponse, BaseException)):
        return answer
    if isinstance(answer, type):
        if issubclass(answer, BaseException):  # pyright: ignore[reportUnnecessaryIsInstance]
            return answer
        raise TypeError(f"a reply cannot be the class {answer.__name__}")
    if isinstance(answer, Message):
        message = answer
        if message.role is not Role.ASSISTANT:
            raise ValueError(f"a reply is an assistant's message, not one of {message.role.value}")
    elif isinstance(answer, str):
        message = Message(Role.ASSISTANT, (TextPart(answer),) if answer else ())
    elif isinstance(answer, ToolCallPart):
        message = Message(Role.ASSISTANT, (answer,))
    else:
        message = Message(Role.ASSISTANT, answer)
    calls = message.calls
    stop = StopReason.TOOL_CALLS if calls else StopReason.END
    if calls and calls[-1].truncated:
        stop = StopReason.LENGTH
    return ModelResponse(message=message, stop_reason=stop, model=model)


def _exhausted(scripted: int, asked: int, request: ModelRequest) -> str:
    lines = [f"ScriptedClient has {scripted} replies, but request number {asked} came:"]
    if request.system is not None:
        lines.append(f"  system: {request.system[:200]!r}")
    if request.tools:
        lines.append(f"  tools: {', '.join(tool.name for tool in request.tools)}")
    shown = request.messages[-6:]
    if len(shown) < len(request.messages):
        lines.append(f"  … {len(request.messages) - len(shown)} earlier messages")
    lines += [f"  {json.dumps(message.to_json())[:400]}" for message in shown]
    return "\n".join(lines)
