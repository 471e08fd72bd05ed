"""Replies of the Responses API, for a `ByteServer` that stands in for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from loopctl import _json
from loopctl.messages import TextPart, ThinkingPart, ToolCallPart
from loopctl.models.openai_responses.messages import PHASE
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

MODEL = "gpt-6-sol"
REASONS = {StopReason.LENGTH: "max_output_tokens", StopReason.FILTER: "content_filter"}


def output(answer: Answer) -> list[dict[str, Any]]:
    """The items that say `answer`, each as it is when it is done."""
    response = _response(answer)
    items: list[dict[str, Any]] = []
    phase: str | None = None
    for number, part in enumerate(response.message.parts):
        match part:
            case ThinkingPart(kind=kind) if kind == PHASE:
                phase = part.signature
            case ThinkingPart():
                items.append(_json.loads(part.signature or "{}"))
            case TextPart():
                text = {"type": "output_text", "text": part.text, "annotations": [], "logprobs": []}
                items.append(message(f"msg_{number}", text, phase))
                phase = None
            case ToolCallPart():
                items.append(function_call(part.id or f"call_{number}", part.name, part.arguments))
            case _:
                raise ValueError(f"Responses has no reply with a {type(part).__name__}")
    if response.refusal:
        items.append(message("msg_no", {"type": "refusal", "refusal": response.refusal}))
    return items


def message(id: str, part: dict[str, Any], phase: str | None = None) -> dict[str, Any]:
    said = {"type": "message", "id": id, "role": "assistant", "status": "completed"}
    return {**said, "content": [part], **({"phase": phase} if phase else {})}


def function_call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    call = {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": name}
    return {**call, "arguments": arguments, "status": "completed"}


def document(answer: Answer, items: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """The whole response."""
    response = _response(answer)
    reason = REASONS.get(response.stop_reason)
    made = {
        **begun(),
        "status": "incomplete" if reason else "completed",
        "output": output(response) if items is None else items,
        "incomplete_details": {"reason": reason} if reason else None,
    }
    if response.usage is not None:
        made["usage"] = counts(response.usage)
    return made


def begun() -> dict[str, Any]:
    """A response of which nothing has come."""
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": MODEL,
        "output": [],
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": None,
    }


def counts(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens or 0,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens or 0,
            "cache_write_tokens": usage.cache_write_tokens or 0,
        },
        "output_tokens": usage.output_tokens or 0,
        "output_tokens_details": {"reasoning_tokens": usage.thinking_tokens or 0},
        "total_tokens": usage.total_tokens,
    }


def documents(answer: Answer, *, delta_chars: int = 16) -> list[dict[str, Any]]:
    """The data of the events of a streamed reply."""
    response = _response(answer)
    told = [{"type": "response.created", "response": begun()}]
    told.append({"type": "response.in_progress", "response": begun()})
    items = output(response)
    for index, item in enumerate(items):
        told += of_item(item, index, delta_chars)
    whole = document(response, items)
    told.append({"type": f"response.{whole['status']}", "response": whole})
    return [{**each, "sequence_number": number} for number, each in enumerate(told)]


def of_item(item: dict[str, Any], index: int, delta_chars: int = 16) -> Iterator[dict[str, Any]]:
    """The events that tell one item."""
    where = {"item_id": item["id"], "output_index": index}

    def pieces(text: str, kind: str, **rest: Any) -> Iterator[dict[str, Any]]:
        for at in range(0, len(text), delta_chars):
            yield {"type": kind, **where, **rest, "delta": text[at : at + delta_chars]}

    empty = {**item, "status": "in_progress"}
    empty |= {name: "" for name in ("arguments", "encrypted_content") if name in item}
    empty |= {name: [] for name in ("content", "summary") if name in item}
    yield {"type": "response.output_item.added", "output_index": index, "item": empty}
    if item["type"] == "message":
        for number, part in enumerate(item["content"]):
            at = {"content_index": number}
            name, field = ("text", "output_text") if "text" in part else ("refusal", "refusal")
            blank = {"type": "response.content_part.added", **where, **at}
            yield {**blank, "part": {**part, name: ""}}
            extra: dict[str, Any] = {"logprobs": []} if name == "text" else {}
            yield from pieces(part[name], f"response.{field}.delta", **at, **extra)
            yield {"type": f"response.{field}.done", **where, **at, name: part[name], **extra}
            yield {"type": "response.content_part.done", **where, **at, "part": part}
    elif item["type"] == "function_call":
        yield from pieces(item["arguments"], "response.function_call_arguments.delta")
        done = {"type": "response.function_call_arguments.done", **where}
        yield {**done, "arguments": item["arguments"], "name": item["name"]}
    elif item["type"] == "reasoning":
        for number, part in enumerate(item["summary"]):
            at = {"summary_index": number}
            blank = {"type": "response.reasoning_summary_part.added", **where, **at}
            yield {**blank, "part": {**part, "text": ""}}
            yield from pieces(part["text"], "response.reasoning_summary_text.delta", **at)
            done = {"type": "response.reasoning_summary_text.done", **where, **at}
            yield {**done, "text": part["text"]}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def events(answer: Answer) -> list[bytes]:
    """The frames of a streamed reply."""
    return [sse(each, event=each["type"]) for each in documents(answer)]


def body(answer: Answer) -> bytes:
    """A whole reply."""
    return _json.wire(document(answer))


def reply(
    answer: Answer, *, broken_by: Stall | Close | Reset | None = None
) -> Callable[[ReceivedRequest], Script]:
    """Answer a request: streamed if it asks for that. With `broken_by` half comes, then that."""

    def play(request: ReceivedRequest) -> Script:
        if request.json().get("stream"):
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
