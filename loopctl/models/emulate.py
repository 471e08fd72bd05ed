"""Tools for models that have none: asked for in words, answered as JSON (MOD-25).

The tools stand in the system text, the reply is held to a JSON schema, and calls and results of
the history become text on the outgoing copy only. JSON that is not of the agreed shape is text
like any other (B23).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, cast

from loopctl import _json
from loopctl.errors import ConfigError
from loopctl.messages import ImagePart, Message, Part, Role, TextPart, ToolCallPart, ToolResultPart
from loopctl.models.client import ModelClient, ModelRequest, ToolSchema
from loopctl.replies import ModelResponse, StopReason
from loopctl.wire.stream_events import (
    AttemptStarted,
    MessageStop,
    PartDelta,
    PartStart,
    PartStop,
    Stop,
    StreamEvent,
)


class EmulatedTools:
    """A `ModelClient` around `client` that offers tools without the model's own support.

    The model answers `{"tool": name, "arguments": {…}}` or `{"answer": text}`, which becomes a
    `ToolCallPart` or text. Requests without tools pass as they are, but for calls and results in
    their history. A schema for the reply, if there is one, holds for the answer. Text is streamed
    when the reply is complete, since only then it is known to be text.
    """

    def __init__(self, client: ModelClient) -> None:
        self._client = client
        self._told: tuple[tuple[ToolSchema, ...], str] = ((), "")

    @property
    def model(self) -> str:
        """The wrapped client's."""
        return self._client.model

    @property
    def provider(self) -> str:
        """The wrapped client's."""
        return self._client.provider

    @property
    def context_window(self) -> int | None:
        """The wrapped client's."""
        return self._client.context_window

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """The whole reply at once."""
        adapted = self._adapted(request)
        try:
            response = await self._client.complete(adapted)
        except ConfigError:
            response = await self._client.complete(_without_schema(adapted, request))
        if not _offered(request):
            return response
        parts: list[Part] = []
        for part in response.message.parts:
            if isinstance(part, TextPart):
                part = _read(part.text, request, len(parts))
            parts.append(part)
        calls = any(isinstance(part, ToolCallPart) for part in parts)
        stop = StopReason.TOOL_CALLS if calls else response.stop_reason
        return replace(response, message=Message(Role.ASSISTANT, parts), stop_reason=stop)

    def stream(
        self, request: ModelRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[StreamEvent]]:
        """The reply as it comes; text and calls when they are complete."""
        return self._stream(request)

    @asynccontextmanager
    async def _stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[StreamEvent]]:
        adapted = self._adapted(request)
        async with AsyncExitStack() as opened:
            try:
                events = await opened.enter_async_context(self._client.stream(adapted))
            except ConfigError:
                adapted = _without_schema(adapted, request)
                events = await opened.enter_async_context(self._client.stream(adapted))
            yield _decided(events, request) if _offered(request) else events

    async def aclose(self) -> None:
        """Close the wrapped client."""
        await self._client.aclose()

    def _adapted(self, request: ModelRequest) -> ModelRequest:
        messages = tuple(map(_as_text, request.messages))
        options = replace(request.options, tool_choice=None, strict_tools=False)
        tools = _offered(request)
        if not tools:
            return replace(request, messages=messages, tools=(), options=options)
        if self._told[0] is not request.tools:
            self._told = (request.tools, _instructions(request.tools))
        system = f"{request.system}\n\n{self._told[1]}" if request.system else self._told[1]
        options = replace(options, response_schema=_reply_schema(request, tools))
        return replace(request, messages=messages, system=system, tools=(), options=options)


def _offered(request: ModelRequest) -> Sequence[ToolSchema]:
    """The tools that the reply may call; raises `ConfigError` for a choice that is none of them."""
    choice = request.options.tool_choice
    if choice in (None, "auto", "required"):
        return request.tools
    if choice == "none":
        return ()
    named = [tool for tool in request.tools if tool.name == choice]
    if not named:
        raise ConfigError(f"RequestOptions.tool_choice={choice!r}: no tool has this name")
    return named


def _without_schema(adapted: ModelRequest, request: ModelRequest) -> ModelRequest:
    """What is sent to a client that refused the first try, probably for its schema.

    It may have refused something else, or a schema that the caller asked for: then it does so
    again, and that is what the caller is told.
    """
    schema = request.options.response_schema
    return replace(adapted, options=replace(adapted.options, response_schema=schema))


def _reply_schema(request: ModelRequest, tools: Sequence[ToolSchema]) -> dict[str, Any]:
    shapes: list[dict[str, Any]] = [
        _object(tool={"const": tool.name}, arguments=_closed(tool.input_schema)) for tool in tools
    ]
    if request.options.tool_choice in (None, "auto"):
        shapes.append(_object(answer=request.options.response_schema or {"type": "string"}))
    return shapes[0] if len(shapes) == 1 else {"anyOf": shapes}


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, **schema}


def _instructions(tools: Sequence[ToolSchema]) -> str:
    how = (
        'Reply with one JSON object: {"tool": name, "arguments": {...}} to call a tool,'
        ' or {"answer": text} to answer. Tools:'
    )
    lines = [how]
    for tool in tools:
        schema = _json.dumps(_json.to_plain(tool.input_schema))
        lines.append(f"{tool.name}: {tool.description} Schema of its arguments: {schema}")
    lines.append("Examples:")
    for shot, result in enumerate(("It costs 30 euros.", "The blue one.")):
        for tool in tools:
            arguments = _example(tool.input_schema, shot)
            words = " ".join(str(value) for value in arguments.values())
            lines += [
                f"user: {tool.description or tool.name} {words}",
                "assistant: " + _json.dumps({"tool": tool.name, "arguments": arguments}),
                f"user: Result of {tool.name}:\n{result}",
                "assistant: " + _json.dumps({"answer": result}),
            ]
    return "\n".join(lines)


_SAMPLES: Mapping[str, tuple[Any, Any]] = {
    "integer": (7, 20),
    "number": (7, 20),
    "boolean": (True, False),
    "array": ((), ()),
    "object": ({}, {}),
}


def _example(schema: Mapping[str, Any], shot: int) -> dict[str, Any]:
    """Arguments that the schema allows, as far as simple types go."""
    properties = cast("Mapping[str, Mapping[str, Any]]", schema.get("properties") or {})
    required = cast("Sequence[str]", schema.get("required") or ())
    values: dict[str, Any] = {}
    for name in required:
        allowed = properties.get(name, {})
        is_file = "path" in name or "file" in name
        plain = ("letter.md", "docs/plan.txt") if is_file else ("train", "blue bird")
        samples = allowed.get("enum") or _SAMPLES.get(str(allowed.get("type")), plain)
        values[name] = samples[shot % len(samples)]
    return values


def _as_text(message: Message) -> Message:
    """The message with calls and results as text; made once for each message."""
    if not any(isinstance(part, (ToolCallPart, ToolResultPart)) for part in message.parts):
        return message
    made: Message | None = message.memo.get(_KEY)
    if made is None:
        parts: list[Part] = []
        for part in message.parts:
            parts.extend(_told(part))
        made = message.memo[_KEY] = Message(message.role, parts)
    return made


_KEY = "emulated_tools"


def _told(part: Part) -> list[Part]:
    if isinstance(part, ToolCallPart):
        call = {"tool": part.name, "arguments": part.parse()}
        return [TextPart(_json.dumps(call))]
    if isinstance(part, ToolResultPart):
        what = "Error of" if part.is_error else "Result of"
        images: list[Part] = (
            []
            if isinstance(part.content, str)
            else [item for item in part.content if isinstance(item, ImagePart)]
        )
        return [TextPart(f"{what} {part.name}:\n{part.text}"), *images]
    return [part]


def _read(text: str, request: ModelRequest, place: int) -> Part:
    """The call or the answer that the text is, if it is of the agreed shape; else the text."""
    document = _document(text)
    if document is None:
        return TextPart(text)
    names = [tool.name for tool in _offered(request)]
    if document.keys() == {"tool", "arguments"} and document["tool"] in names:
        arguments = document["arguments"]
        if isinstance(arguments, dict):
            return _call(str(document["tool"]), cast("dict[str, Any]", arguments), request, place)
    if document.keys() == {"answer"}:
        answer = document["answer"]
        return TextPart(answer if isinstance(answer, str) else _json.dumps(answer))
    return TextPart(text)


def _document(text: str) -> dict[str, Any] | None:
    """The one object in a reply: alone, in a fence, or with words around it."""
    if (document := _json.repair_object(text)) is not None:
        return document
    fences = _FENCED.findall(text)
    if len(fences) == 1:
        return _json.repair_object(fences[0])
    start, end = text.find("{"), text.rfind("}")
    return _json.repair_object(text[start : end + 1]) if 0 <= start < end else None


_FENCED = re.compile(r"```[A-Za-z0-9_-]*\s*\n(.*?)\n?\s*```", re.DOTALL)


def _call(name: str, arguments: dict[str, Any], request: ModelRequest, place: int) -> ToolCallPart:
    """The call, under an id that the same conversation gives it in any process."""
    made = ToolCallPart("", name, arguments)
    seed = "\0".join((str(len(request.messages)), str(place), name, made.arguments))
    digest = hashlib.sha256(seed.encode(errors="replace")).hexdigest()[:24]
    return ToolCallPart(f"call_{digest}", name, made.arguments)


async def _decided(
    events: AsyncIterator[StreamEvent], request: ModelRequest
) -> AsyncGenerator[StreamEvent]:
    """The events of a stream, its text held back until it is known what it is."""
    texts: dict[int, list[str]] = {}
    stop = Stop(StopReason.END)
    async for event in events:
        match event:
            case PartStart(kind="text"):
                texts.setdefault(event.index, [])
            case PartDelta(kind="text"):
                texts.setdefault(event.index, []).append(event.text)
            case PartStop(kind="text"):
                pass
            case Stop():
                stop = event
            case MessageStop():
                parts = [(i, _read("".join(texts[i]), request, i)) for i in sorted(texts)]
                for index, part in parts:
                    for made in _events(index, part):
                        yield made
                calls = any(isinstance(part, ToolCallPart) for _, part in parts)
                yield replace(stop, reason=StopReason.TOOL_CALLS) if calls else stop
                yield event
            case AttemptStarted():
                texts.clear()
                yield event
            case _:
                yield event


def _events(index: int, part: Part) -> list[StreamEvent]:
    if isinstance(part, ToolCallPart):
        start = PartStart("tool_call", index, part.id, part.name)
        return [start, PartDelta("tool_call", index, part.arguments), PartStop("tool_call", index)]
    text = part.text if isinstance(part, TextPart) else ""
    return [PartStart("text", index), PartDelta("text", index, text), PartStop("text", index)]
