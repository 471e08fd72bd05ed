"""Replies of a Chat Completions server, for a `ByteServer` that stands in for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loopctl import _json
from loopctl.messages import TextPart, ThinkingPart, ToolCallPart
from loopctl.replies import ModelResponse, StopReason
from loopctl.testing.byte_script import (
    Close,
    Reset,
    Script,
    Stall,
    respond,
    respond_json,
    respond_sse,
    sse,
)
from loopctl.testing.byte_server import ReceivedRequest
from loopctl.testing.scripted import Answer, prepare
from loopctl.usage import Usage

_FINISH = {
    StopReason.END: "stop",
    StopReason.STOP_SEQUENCE: "stop",
    StopReason.TOOL_CALLS: "tool_calls",
    StopReason.LENGTH: "length",
    StopReason.FILTER: "content_filter",
    StopReason.REFUSAL: "stop",
}


def chat_reply(
    answer: Answer,
    *,
    broken_by: Stall | Close | Reset | None = None,
    model: str = "scripted",
    delta_chars: int = 16,
) -> Callable[[ReceivedRequest], Script]:
    """Answer a Chat Completions request with `answer`: streamed if it asks for that.

    `answer` is text, a call, parts, a message or a `ModelResponse`, as for `ScriptedClient`;
    texts and arguments are streamed in pieces of `delta_chars` characters. With `broken_by` half
    of the reply comes, and then that.
    """
    response = _response(answer, model)

    def play(request: ReceivedRequest) -> Script:
        if request.json().get("stream"):
            pieces = chat_pieces(response, model=model, delta_chars=delta_chars)
            if broken_by is not None:
                return respond_sse(*pieces[: len(pieces) // 2], broken_by)
            return respond_sse(*pieces)
        completion = chat_completion(response, model=model)
        if broken_by is not None:
            half = _json.wire(completion)
            headers = {"Content-Type": "application/json", "Content-Length": str(len(half))}
            return respond(half[: len(half) // 2], broken_by, headers=headers, framing="length")
        return respond_json(completion)

    return play


def chat_pieces(answer: Answer, *, model: str = "scripted", delta_chars: int = 16) -> list[bytes]:
    """The events of a streamed reply, `[DONE]` included; take some of them to fake a cut one."""
    response = _response(answer, model)
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    calls = 0
    for part in response.message.parts:
        match part:
            case TextPart():
                deltas += [{"content": piece} for piece in _cut(part.text, delta_chars)]
            case ThinkingPart():
                field = part.kind or "reasoning_content"
                deltas += [{field: piece} for piece in _cut(part.text, delta_chars)]
            case ToolCallPart():
                function = {"name": part.name, "arguments": ""}
                head = {"index": calls, "id": part.id, "type": "function", "function": function}
                deltas.append({"tool_calls": [head]})
                for piece in _cut(_arguments(part), delta_chars):
                    more = {"index": calls, "function": {"arguments": piece}}
                    deltas.append({"tool_calls": [more]})
                calls += 1
            case _:
                raise ValueError(f"Chat Completions has no reply with a {type(part).__name__}")
    if response.refusal is not None:
        deltas.append({"refusal": response.refusal})
    chunks = [chat_chunk(delta, model=model) for delta in deltas]
    chunks.append(chat_chunk({}, finish_reason=_finish(response), model=model))
    if response.usage is not None:
        chunks.append(chat_chunk(None, usage=response.usage, model=model))
    return [*(sse(chunk) for chunk in chunks), sse("[DONE]")]


def chat_chunk(
    delta: dict[str, Any] | None,
    *,
    finish_reason: str | None = None,
    usage: Usage | None = None,
    model: str = "scripted",
    id: str = "chatcmpl-1",
) -> dict[str, Any]:
    """One chunk of a stream, as a JSON object; without `delta` it has no choices."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    chunk: dict[str, Any] = {
        "id": id,
        "object": "chat.completion.chunk",
        "created": 1_767_225_600,
        "model": model,
        "choices": [] if delta is None else [choice],
    }
    if usage is not None:
        chunk["usage"] = _usage(usage)
    return chunk


def chat_completion(
    answer: Answer, *, model: str = "scripted", id: str = "chatcmpl-1"
) -> dict[str, Any]:
    """A whole reply, as a JSON object."""
    response = _response(answer, model)
    said = response.message
    message: dict[str, Any] = {"role": "assistant", "content": said.text or None}
    for part in said.parts:
        if isinstance(part, ThinkingPart):
            field = part.kind or "reasoning_content"
            message[field] = message.get(field, "") + part.text
    if said.calls:
        message["tool_calls"] = [
            {
                "id": part.id,
                "type": "function",
                "function": {"name": part.name, "arguments": _arguments(part)},
            }
            for part in said.calls
        ]
    if response.refusal is not None:
        message["refusal"] = response.refusal
    completion: dict[str, Any] = {
        "id": id,
        "object": "chat.completion",
        "created": 1_767_225_600,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": _finish(response)}],
    }
    if response.usage is not None:
        completion["usage"] = _usage(response.usage)
    return completion


def _response(answer: Answer, model: str) -> ModelResponse:
    response = prepare(answer, model)
    if not isinstance(response, ModelResponse):
        raise TypeError("a server cannot raise; script its status and body with respond_json")
    return response


def _finish(response: ModelResponse) -> str:
    return response.raw_stop_reason or _FINISH.get(response.stop_reason, "stop")


def _arguments(part: ToolCallPart) -> str:
    return part.arguments if part.unusable is None else part.unusable


def _cut(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def _usage(usage: Usage) -> dict[str, Any]:
    counts: dict[str, Any] = {
        "prompt_tokens": usage.input_tokens or 0,
        "completion_tokens": usage.output_tokens or 0,
        "total_tokens": usage.total_tokens,
    }
    if usage.cached_tokens is not None:
        counts["prompt_tokens_details"] = {"cached_tokens": usage.cached_tokens}
    if usage.thinking_tokens is not None:
        counts["completion_tokens_details"] = {"reasoning_tokens": usage.thinking_tokens}
    return counts
