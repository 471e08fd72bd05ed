"""Replies of a Messages server, for a `ByteServer` that stands in for one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from loopctl import _json
from loopctl.messages import Part, TextPart, ThinkingPart, ToolCallPart
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

_STOPS = {
    StopReason.END: "end_turn",
    StopReason.STOP_SEQUENCE: "stop_sequence",
    StopReason.TOOL_CALLS: "tool_use",
    StopReason.LENGTH: "max_tokens",
    StopReason.REFUSAL: "refusal",
    StopReason.FILTER: "refusal",
    StopReason.PAUSE: "pause_turn",
}


def reply(
    answer: Answer,
    *,
    broken_by: Stall | Close | Reset | None = None,
    model: str = "scripted",
    delta_chars: int = 16,
) -> Callable[[ReceivedRequest], Script]:
    """Answer a Messages request with `answer`: streamed if it asks for that.

    `answer` is text, a call, parts, a message or a `ModelResponse`, as for `ScriptedClient`. With
    `broken_by` half of the reply comes, and then that.
    """

    def play(request: ReceivedRequest) -> Script:
        if request.json().get("stream"):
            frames = events(answer, model=model, delta_chars=delta_chars)
            if broken_by is not None:
                return respond_sse(*frames[: len(frames) // 2], broken_by)
            return respond_sse(*frames)
        whole = body(answer, model=model)
        if broken_by is not None:
            headers = {"Content-Type": "application/json", "Content-Length": str(len(whole))}
            return respond(whole[: len(whole) // 2], broken_by, headers=headers, framing="length")
        return respond_json(json.loads(whole))

    return play


def events(answer: Answer, *, model: str = "scripted", delta_chars: int = 16) -> list[bytes]:
    """The frames of a streamed reply, `message_stop` included; some of them fake a cut one.

    Texts and arguments are cut into pieces of `delta_chars` characters.
    """
    response = _response(answer, model)
    empty: dict[str, Any] = {"content": [], "stop_reason": None, "stop_details": None}
    message = {**_message(response, model), **empty}
    documents: list[dict[str, Any]] = [{"type": "message_start", "message": message}]
    for index, part in enumerate(response.message.parts):
        documents += _streamed(index, part, delta_chars)
    ending = _message(response, model)
    delta = {name: ending[name] for name in ("stop_reason", "stop_sequence", "stop_details")}
    documents.append({"type": "message_delta", "delta": delta, "usage": ending["usage"]})
    documents.append({"type": "message_stop"})
    return [event(document) for document in documents]


def event(document: dict[str, Any]) -> bytes:
    """One frame, named by the type of its document."""
    return sse(document, event=document["type"])


def body(answer: Answer, *, model: str = "scripted") -> bytes:
    """A whole reply."""
    response = _response(answer, model)
    content = [_block(part) for part in response.message.parts]
    return _json.wire({**_message(response, model), "content": content})


def _response(answer: Answer, model: str) -> ModelResponse:
    response = prepare(answer, model)
    if not isinstance(response, ModelResponse):
        raise TypeError("a server cannot raise; script its status and body with respond_json")
    return response


def _message(response: ModelResponse, model: str) -> dict[str, Any]:
    refused = response.refusal is not None
    details = {"type": "refusal", "category": None, "explanation": response.refusal}
    return {
        "id": response.response_id or "msg_1",
        "type": "message",
        "role": "assistant",
        "model": response.model or model,
        "stop_reason": response.raw_stop_reason or _STOPS.get(response.stop_reason, "end_turn"),
        "stop_sequence": None,
        "stop_details": details if refused else None,
        "usage": _usage(response.usage or Usage(input_tokens=1, output_tokens=1)),
    }


def _block(part: Part) -> dict[str, Any]:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ThinkingPart() if part.kind == "block":
            return dict(json.loads(part.signature or "{}"))
        case ThinkingPart() if part.redacted:
            return {"type": "redacted_thinking", "data": part.signature or ""}
        case ThinkingPart():
            return {"type": "thinking", "thinking": part.text, "signature": part.signature or ""}
        case ToolCallPart():
            return {"type": "tool_use", "id": part.id, "name": part.name, "input": part.parse()}
        case _:
            raise ValueError(f"the Messages API has no reply with a {type(part).__name__}")


def _streamed(index: int, part: Part, size: int) -> list[dict[str, Any]]:
    block, deltas = _block(part), list[dict[str, Any]]()
    match part:
        case TextPart():
            block["text"] = ""
            deltas += [{"type": "text_delta", "text": piece} for piece in _cut(part.text, size)]
        case ThinkingPart() if block["type"] == "thinking":
            block |= {"thinking": "", "signature": ""}
            pieces = _cut(part.text, size)
            deltas += [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
            if part.signature is not None:
                deltas.append({"type": "signature_delta", "signature": part.signature})
        case ToolCallPart():
            block["input"] = {}
            text = part.arguments if part.unusable is None else part.unusable
            pieces = ["", *_cut(text, size)] if text != "{}" else [""]
            deltas += [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        case _:
            pass
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def _cut(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def _usage(usage: Usage) -> dict[str, Any]:
    cached, written = usage.cached_tokens, usage.cache_write_tokens
    counts: dict[str, Any] = {
        "input_tokens": (usage.input_tokens or 0) - (cached or 0) - (written or 0),
        "output_tokens": usage.output_tokens or 0,
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": written,
    }
    if usage.thinking_tokens is not None:
        counts["output_tokens_details"] = {"thinking_tokens": usage.thinking_tokens}
    return counts
