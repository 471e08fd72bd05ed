"""Replies of Bedrock's Converse API, for a `ByteServer` that stands in for it."""

from __future__ import annotations

import struct
from binascii import crc32
from collections.abc import Callable
from typing import Any

from loopctl import _json
from loopctl.messages import TextPart, ThinkingPart, ToolCallPart
from loopctl.replies import ModelResponse, StopReason
from loopctl.testing import (
    Close,
    ReceivedRequest,
    Reset,
    Script,
    Stall,
    respond,
)
from loopctl.testing.byte_script import Piece
from loopctl.testing.scripted import Answer, prepare
from loopctl.wire.eventstream import MEDIA_TYPE

MODEL = "us.anthropic.claude-opus-4-6"
STOPS = {
    StopReason.END: "end_turn",
    StopReason.TOOL_CALLS: "tool_use",
    StopReason.LENGTH: "max_tokens",
    StopReason.STOP_SEQUENCE: "stop_sequence",
    StopReason.FILTER: "content_filtered",
    StopReason.REFUSAL: "guardrail_intervened",
}
_HEADERS = {"x-amzn-RequestId": "req-1"}
_JSON = {"Content-Type": "application/json", **_HEADERS}


def pack(payload: bytes, **headers: str) -> bytes:
    """A frame; `headers` without their colons, `_` for `-`."""
    packed = b""
    for name, value in headers.items():
        key, text = b":" + name.replace("_", "-").encode(), value.encode()
        packed += bytes([len(key)]) + key + b"\7" + struct.pack("!H", len(text)) + text
    prelude = struct.pack("!II", len(packed) + len(payload) + 16, len(packed))
    body = prelude + struct.pack("!I", crc32(prelude)) + packed + payload
    return body + struct.pack("!I", crc32(body))


def event(name: str, document: Any) -> bytes:
    """One event; its payload is sent as it is when it is bytes."""
    payload = document if isinstance(document, bytes) else _json.wire(document)
    return pack(payload, event_type=name, content_type="application/json", message_type="event")


def exception(name: str, document: Any) -> bytes:
    """One exception of a stream."""
    payload = document if isinstance(document, bytes) else _json.wire(document)
    return pack(payload, exception_type=name, message_type="exception")


def blocks(answer: Answer) -> list[dict[str, Any]]:
    """The content of the message that says `answer`."""
    made: list[dict[str, Any]] = []
    for part in response_of(answer).message.parts:
        match part:
            case TextPart():
                made.append({"text": part.text})
            case ThinkingPart(redacted=True):
                made.append({"reasoningContent": {"redactedContent": part.signature}})
            case ThinkingPart():
                said = {"text": part.text}
                said |= {} if part.signature is None else {"signature": part.signature}
                made.append({"reasoningContent": {"reasoningText": said}})
            case ToolCallPart():
                used = {"toolUseId": part.id, "name": part.name, "input": part.parse()}
                made.append({"toolUse": used})
            case _:
                raise ValueError(f"Converse has no reply with a {type(part).__name__}")
    return made


def usage(response: ModelResponse) -> dict[str, int]:
    """The counts: the input without what a cache had."""
    used = response.usage
    if used is None:
        return {"inputTokens": 0, "outputTokens": 0, "totalTokens": 0}
    cached, written = used.cached_tokens or 0, used.cache_write_tokens or 0
    counts = {
        "inputTokens": (used.input_tokens or 0) - cached - written,
        "outputTokens": used.output_tokens or 0,
        "totalTokens": used.total_tokens,
    }
    counts |= {} if used.cached_tokens is None else {"cacheReadInputTokens": cached}
    return counts | ({} if used.cache_write_tokens is None else {"cacheWriteInputTokens": written})


def documents(answer: Answer, *, delta_chars: int = 16) -> list[tuple[str, dict[str, Any]]]:
    """The events of a streamed reply, by name."""
    response = response_of(answer)
    made: list[tuple[str, dict[str, Any]]] = [("messageStart", {"role": "assistant"})]
    for index, block in enumerate(blocks(response)):
        where = {"contentBlockIndex": index}
        deltas: list[dict[str, Any]] = []
        if "toolUse" in block:
            used = block["toolUse"]
            start = {"toolUse": {"toolUseId": used["toolUseId"], "name": used["name"]}}
            made.append(("contentBlockStart", {**where, "start": start}))
            text = _json.dumps(used["input"]) if used["input"] else ""
            deltas += [{"toolUse": {"input": piece}} for piece in _cut(text, delta_chars)]
        elif "text" in block:
            deltas += [{"text": piece} for piece in _cut(block["text"], delta_chars)]
        else:
            inner = block["reasoningContent"]
            said = inner.get("reasoningText", {})
            deltas += [{"text": piece} for piece in _cut(said.get("text", ""), delta_chars)]
            deltas += [{"signature": said["signature"]}] if "signature" in said else []
            deltas += [inner] if "redactedContent" in inner else []
            deltas = [{"reasoningContent": delta} for delta in deltas]
        made += [("contentBlockDelta", {**where, "delta": delta, "p": "abc"}) for delta in deltas]
        made.append(("contentBlockStop", where))
    made.append(("messageStop", {"stopReason": _stop(response)}))
    counted = {"usage": usage(response), "metrics": {"latencyMs": 1}}
    return [*made, ("metadata", counted)]


def events(answer: Answer, *, delta_chars: int = 16) -> list[bytes]:
    """The frames of a streamed reply; the usage comes behind the one that ends it."""
    return [event(*each) for each in documents(answer, delta_chars=delta_chars)]


def document(answer: Answer) -> dict[str, Any]:
    """A whole reply, decoded."""
    response = response_of(answer)
    return {
        "output": {"message": {"role": "assistant", "content": blocks(response)}},
        "stopReason": _stop(response),
        "usage": usage(response),
        "metrics": {"latencyMs": 1},
    }


def body(answer: Answer) -> bytes:
    """A whole reply."""
    return _json.wire(document(answer))


def respond_frames(*pieces: Piece, **headers: str) -> Script:
    """A stream of frames."""
    return respond(*pieces, headers={"Content-Type": MEDIA_TYPE, **_HEADERS, **headers})


def respond_whole(data: bytes, *, status: int = 200, **headers: str) -> Script:
    """A JSON body."""
    return respond(data, status=status, headers={**_JSON, **headers}, framing="length")


def respond_error(name: str, status: int, text: str = "m", **headers: str) -> Script:
    """An error as AWS tells it."""
    told = {"x-amzn-ErrorType": f"{name}:http://internal.amazon.com/coral/", **headers}
    return respond_whole(_json.wire({"message": text}), status=status, **told)


def reply(
    answer: Answer, *, broken_by: Stall | Close | Reset | None = None
) -> Callable[[ReceivedRequest], Script]:
    """Answer a request: streamed if it asks for that. With `broken_by` half comes, then that."""

    def play(request: ReceivedRequest) -> Script:
        if request.path.endswith("/converse-stream"):
            frames = events(answer)
            if broken_by is not None:
                return respond_frames(*frames[: max(1, len(frames) // 2)], broken_by)
            return respond_frames(*frames)
        whole = body(answer)
        if broken_by is None:
            return respond_whole(whole)
        headers = {**_JSON, "Content-Length": str(len(whole))}
        return respond(whole[: len(whole) // 2], broken_by, headers=headers, framing="length")

    return play


def response_of(answer: Answer) -> ModelResponse:
    """The reply that `answer` stands for."""
    response = prepare(answer, MODEL)
    if not isinstance(response, ModelResponse):
        raise TypeError("a server cannot raise; script its status and body")
    return response


def _cut(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def _stop(response: ModelResponse) -> str:
    return response.raw_stop_reason or STOPS[response.stop_reason]
