"""Replies of an Ollama server, for a `ByteServer` that stands in for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loopctl import _json
from loopctl.messages import TextPart, ThinkingPart, ToolCallPart
from loopctl.replies import ModelResponse, StopReason
from loopctl.testing.byte_script import Close, Reset, Script, Stall, respond
from loopctl.testing.byte_server import ReceivedRequest
from loopctl.testing.scripted import Answer, prepare

NDJSON = {"Content-Type": "application/x-ndjson"}
_JSON = {"Content-Type": "application/json; charset=utf-8"}


def ollama_reply(
    answer: Answer,
    *,
    broken_by: Stall | Close | Reset | None = None,
    model: str = "scripted",
    delta_chars: int = 16,
) -> Callable[[ReceivedRequest], Script]:
    """Answer a request to `/api/chat` with `answer`: streamed unless it asks for one piece.

    `answer` is text, a call, parts, a message or a `ModelResponse`, as for `ScriptedClient`; texts
    are streamed in pieces of `delta_chars` characters. With `broken_by` half of the reply comes,
    and then that.
    """

    def play(request: ReceivedRequest) -> Script:
        if request.json().get("stream", True):
            lines = events(answer, model=model, delta_chars=delta_chars)
            if broken_by is not None:
                lines = lines[: max(len(lines) // 2, 1)]
                return respond(*lines, broken_by, headers=NDJSON)
            return respond(*lines, headers=NDJSON)
        whole = body(answer, model=model)
        if broken_by is not None:
            headers = {**_JSON, "Content-Length": str(len(whole))}
            return respond(whole[: len(whole) // 2], broken_by, headers=headers, framing="length")
        return respond(whole, headers=_JSON)

    return play


def events(answer: Answer, *, model: str = "scripted", delta_chars: int = 16) -> list[bytes]:
    """The lines of a streamed reply, each with its end; the last says that it is done."""
    response = _response(answer, model)
    messages: list[dict[str, Any]] = []
    for part in response.message.parts:
        if isinstance(part, ToolCallPart):
            messages.append({"content": "", "tool_calls": [_call(part, len(messages))]})
            continue
        if not isinstance(part, (TextPart, ThinkingPart)):
            raise ValueError(f"Ollama has no reply with a {type(part).__name__}")
        thought = isinstance(part, ThinkingPart)
        for at in range(0, len(part.text), delta_chars):
            piece = part.text[at : at + delta_chars]
            messages.append({"content": "", "thinking": piece} if thought else {"content": piece})
    lines = [_line(message, model, {"done": False}) for message in messages]
    return [*lines, _line({"content": ""}, model, _ending(response))]


def body(answer: Answer, *, model: str = "scripted") -> bytes:
    """A whole reply."""
    response = _response(answer, model)
    said = response.message
    message: dict[str, Any] = {"content": said.text}
    thought = "".join(part.text for part in said.parts if isinstance(part, ThinkingPart))
    if thought:
        message["thinking"] = thought
    if said.calls:
        message["tool_calls"] = [_call(part, at) for at, part in enumerate(said.calls)]
    return _line(message, model, _ending(response)).rstrip(b"\n")


def _line(message: dict[str, Any], model: str, rest: dict[str, Any]) -> bytes:
    document = {
        "model": model,
        "created_at": "2026-01-01T00:00:00Z",
        "message": {"role": "assistant", **message},
        **rest,
    }
    return _json.wire(document) + b"\n"


def _call(part: ToolCallPart, index: int) -> dict[str, Any]:
    function = {"index": index, "name": part.name, "arguments": part.parse()}
    return {"id": part.id, "function": function}


def _ending(response: ModelResponse) -> dict[str, Any]:
    cut = response.stop_reason is StopReason.LENGTH
    reason = response.raw_stop_reason or ("length" if cut else "stop")
    ending: dict[str, Any] = {"done": True, "done_reason": reason, "total_duration": 1_000_000}
    if response.usage is not None:
        ending["prompt_eval_count"] = response.usage.input_tokens
        ending["eval_count"] = response.usage.output_tokens
    return ending


def _response(answer: Answer, model: str) -> ModelResponse:
    response = prepare(answer, model)
    if not isinstance(response, ModelResponse):
        raise TypeError("a server cannot raise; script its status and body with respond_json")
    return response
