"""Replies of the Gemini API, for a `ByteServer` that stands in for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loopctl import _json
from loopctl.messages import TextPart, ThinkingPart, ToolCallPart
from loopctl.models.gemini.messages import EMPTY, OF_CALL, OF_TEXT, VERBATIM
from loopctl.replies import ModelResponse, StopReason
from loopctl.testing import (
    Close,
    ReceivedRequest,
    Reset,
    Script,
    Stall,
    respond,
    respond_json,
    respond_sse,
    sse,
)
from loopctl.testing.scripted import Answer, prepare
from loopctl.usage import Usage

MODEL = "gemini-4-argon"
FINISH = {
    StopReason.LENGTH: "MAX_TOKENS",
    StopReason.FILTER: "SAFETY",
    StopReason.REFUSAL: "SAFETY",
}


def chunk(
    *parts: dict[str, Any],
    finish: str | None = None,
    said: str | None = None,
    usage: Usage | None = None,
    model: str = MODEL,
) -> dict[str, Any]:
    """One response of a stream, or a whole one."""
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    candidate |= {} if finish is None else {"finishReason": finish}
    candidate |= {} if said is None else {"finishMessage": said}
    made: dict[str, Any] = {
        "candidates": [candidate],
        "modelVersion": model,
        "responseId": "resp-1",
    }
    if usage is not None:
        thought = usage.thinking_tokens or 0
        made["usageMetadata"] = {
            "promptTokenCount": usage.input_tokens or 0,
            "candidatesTokenCount": (usage.output_tokens or 0) - thought,
            "totalTokenCount": usage.total_tokens,
            **({"thoughtsTokenCount": thought} if thought else {}),
            **({"cachedContentTokenCount": usage.cached_tokens} if usage.cached_tokens else {}),
        }
    return made


def parts(answer: Answer) -> list[dict[str, Any]]:
    """The parts of the content that says `answer`."""
    made: list[dict[str, Any]] = []
    signature: str | None = None
    for part in _response(answer).message.parts:
        match part:
            case ThinkingPart(kind=kind) if kind in (OF_TEXT, OF_CALL):
                signature = part.signature
                continue
            case ThinkingPart(kind=kind) if kind == VERBATIM:
                made.append(_json.loads(part.signature or "{}"))
                continue
            case ThinkingPart():
                thought = {} if part.kind == EMPTY else {"thought": True}
                made.append({"text": part.text, **thought})
                signature = part.signature
            case TextPart():
                made.append({"text": part.text})
            case ToolCallPart():
                call = {"id": part.id, "name": part.name, "args": part.parse()}
                made.append({"functionCall": {k: v for k, v in call.items() if v != ""}})
            case _:
                raise ValueError(f"Gemini has no reply with a {type(part).__name__}")
        if signature is not None:
            made[-1]["thoughtSignature"] = signature
            signature = None
    return made


def chunks(answer: Answer, *, delta_chars: int = 16) -> list[dict[str, Any]]:
    """The responses of a streamed reply; what is signed comes uncut."""
    response = _response(answer)
    pieces: list[dict[str, Any]] = []
    for part in parts(response):
        if "text" in part and "thoughtSignature" not in part:
            cuts = range(0, len(part["text"]), delta_chars)
            pieces += [{**part, "text": part["text"][at : at + delta_chars]} for at in cuts]
        else:
            pieces.append(part)
    usage = response.usage
    made = [chunk(piece, usage=usage) for piece in pieces]
    return [
        *made,
        chunk({"text": ""}, finish=_finish(response), said=response.refusal, usage=usage),
    ]


def events(answer: Answer) -> list[bytes]:
    """The frames of a streamed reply: the last one finishes it, and the body ends behind it."""
    return [sse(each) for each in chunks(answer)]


def body(answer: Answer) -> bytes:
    """A whole reply."""
    response = _response(answer)
    finish = _finish(response)
    return _json.wire(
        chunk(*parts(response), finish=finish, said=response.refusal, usage=response.usage)
    )


def reply(
    answer: Answer, *, broken_by: Stall | Close | Reset | None = None
) -> Callable[[ReceivedRequest], Script]:
    """Answer a request: streamed if it asks for that. With `broken_by` half comes, then that."""

    def play(request: ReceivedRequest) -> Script:
        if ":streamGenerateContent" in request.path:
            frames = events(answer)
            if broken_by is not None:
                return respond_sse(*frames[: max(1, len(frames) // 2)], broken_by)
            return respond_sse(*frames)
        whole = body(answer)
        if broken_by is None:
            return respond_json(_json.loads(whole))
        headers = {"Content-Type": "application/json", "Content-Length": str(len(whole))}
        return respond(whole[: len(whole) // 2], broken_by, headers=headers, framing="length")

    return play


def _response(answer: Answer) -> ModelResponse:
    response = prepare(answer, MODEL)
    if not isinstance(response, ModelResponse):
        raise TypeError("a server cannot raise; script its status and body with respond_json")
    return response


def _finish(response: ModelResponse) -> str:
    return response.raw_stop_reason or FINISH.get(response.stop_reason, "STOP")
