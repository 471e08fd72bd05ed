"""The APIs whose reasoning is bound to its prefix, as a byte server plays them (MOD-26).

Each tells which thoughts a request sends, to the byte, and what its vendor would refuse about it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from loopctl import _json
from loopctl.messages import Message, Part, ThinkingPart
from loopctl.models.anthropic import AnthropicClient
from loopctl.models.anthropic.facts import BINDING_BETA
from loopctl.models.bedrock import BedrockClient
from loopctl.models.client import ModelClient
from loopctl.models.openai_responses import OpenAIResponsesClient
from loopctl.models.openai_responses.messages import REASONING
from loopctl.replies import ModelResponse, StopReason
from loopctl.testing import Playable, ReceivedRequest, Script, anthropic_replies, respond_json
from loopctl.usage import Usage
from loopctl.wire.sigv4 import AwsCredentials
from tests.models.anthropic import test_request as anthropic
from tests.models.bedrock import replies as bedrock_replies
from tests.models.bedrock import test_request as bedrock
from tests.models.openai_responses import replies as openai_replies
from tests.models.openai_responses import test_request as openai

ONE_TOKEN = Usage(input_tokens=1, output_tokens=1)
TOO_LONG = "prompt is too long: 210000 tokens > 200000 maximum"


@dataclass(frozen=True, kw_only=True)
class Vendor:
    """One API: two of its models that bind reasoning, its client, its replies.

    `blocks` gives the thinking of each assistant turn of a request, as it was sent; `block` is
    how a thought of a reply must come back. `refusals` are the reasons for which the vendor would
    not take a request. `any_schema` says that replies may have a schema with objects of any shape.
    """

    name: str
    model: str
    other: str
    connect: Callable[[str, str], ModelClient]
    reply: Callable[..., Playable]
    thought: Callable[[int], ThinkingPart]
    block: Callable[[ThinkingPart], dict[str, Any]]
    blocks: Callable[[dict[str, Any]], list[list[dict[str, Any]]]]
    refusals: Callable[[ReceivedRequest], list[str]]
    overloaded: Script
    too_long: Script
    any_schema: bool = False

    def says(self, number: int, *parts: Part | str) -> Playable:
        """A reply that has thought, for the `number`th time."""
        return self.answers(self.thought(number), *parts)

    def answers(self, *parts: Part | str) -> Playable:
        """A reply of these parts, which costs one token each way."""
        message = Message.assistant(*parts)
        stop = StopReason.TOOL_CALLS if message.calls else StopReason.END
        return self.reply(ModelResponse(message=message, stop_reason=stop, usage=ONE_TOKEN))

    def sent(self, request: ReceivedRequest) -> list[int]:
        """The numbers of the thoughts that a request sends, in their order.

        Raises an `AssertionError` for one that is not as it came, or not whole.
        """
        known = {json.dumps(self.block(self.thought(n))): n for n in range(10)}
        turns = self.blocks(request.json())
        return [known[json.dumps(block)] for turn in turns for block in turn]


def _odd(number: int) -> str:
    """Text that only comes back equal if nobody touched it."""
    return f'  thought {number}:\r\n\té \U0001f642 \u2028 {{"a": 1}}  '


# -- the Messages API -------------------------------------------------------------------------


def _anthropic_blocks(body: dict[str, Any]) -> list[list[dict[str, Any]]]:
    return [
        [block for block in message["content"] if "thinking" in block["type"]]
        for message in body["messages"]
        if message["role"] == "assistant"
    ]


def _anthropic_refusals(request: ReceivedRequest) -> list[str]:
    body = request.json()
    anthropic.BETA.validate_python({**anthropic.unmarked(body), "stream": False})
    found = [*_turns(body["messages"], _anthropic_result, _anthropic_call)]
    for message in body["messages"]:
        content = message["content"]
        if "thinking" in content[-1]["type"]:
            found.append("a message ends with thinking")
        for block in content:
            if block["type"] == "text" and not block["text"].strip():
                found.append("a blank text")
            if "thinking" in block["type"] and "cache_control" in block:
                found.append("a cache mark on thinking")
            if block["type"] == "thinking" and not block["signature"]:
                found.append("thinking without a signature")
    if anthropic.marks(body) > 4:
        found.append("too many cache marks")
    if "block_binding" not in body["thinking"]:
        found.append("the server is not asked to drop what it cannot use")
    if body["thinking"]["type"] != "adaptive":
        found.append("the model takes adaptive thinking only")
    if BINDING_BETA not in request.headers.get("anthropic-beta", ""):
        found.append("the beta of block_binding is missing")
    return found


def _anthropic_result(block: dict[str, Any]) -> str | None:
    return block.get("tool_use_id")


def _anthropic_call(block: dict[str, Any]) -> str | None:
    return block["id"] if block["type"] == "tool_use" else None


def _turns(
    messages: list[dict[str, Any]],
    result: Callable[[dict[str, Any]], str | None],
    call: Callable[[dict[str, Any]], str | None],
) -> Iterator[str]:
    """What is wrong with the order of two roles, and with calls and their results."""
    roles = [message["role"] for message in messages]
    if roles != [["user", "assistant"][n % 2] for n in range(len(roles))] or roles[-1] != "user":
        yield f"the roles are {roles}"
    open_calls: list[str] = []
    for message in messages:
        if not message["content"]:
            yield "an empty message"
        results = [result(block) for block in message["content"]]
        answered = [id for id in results if id is not None]
        if answered != open_calls:
            yield f"calls {open_calls} are answered by {answered}"
        if results[: len(answered)] != answered:
            yield "something stands in front of results"
        open_calls = [id for block in message["content"] if (id := call(block)) is not None]


ANTHROPIC = Vendor(
    name="anthropic",
    model="claude-opus-5-5",
    other="claude-fable-5-2",
    connect=lambda url, model: AnthropicClient(model, api_key="k", base_url=url),
    reply=anthropic_replies.reply,
    thought=lambda n: ThinkingPart(_odd(n), f"c2ln+/{n}=="),
    block=lambda part: {
        "type": "thinking",
        "thinking": part.text,
        "signature": part.signature,
    },
    blocks=_anthropic_blocks,
    refusals=_anthropic_refusals,
    overloaded=respond_json(
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
        status=529,
    ),
    too_long=respond_json(
        {"type": "error", "error": {"type": "invalid_request_error", "message": TOO_LONG}},
        status=400,
    ),
)


# -- Claude on Bedrock ------------------------------------------------------------------------


def _bedrock_blocks(body: dict[str, Any]) -> list[list[dict[str, Any]]]:
    return [
        [block for block in message["content"] if "reasoningContent" in block]
        for message in body["messages"]
        if message["role"] == "assistant"
    ]


def _bedrock_refusals(request: ReceivedRequest) -> list[str]:
    body = request.json()
    found = [*_turns(bedrock.unmarked(body["messages"]), _bedrock_result, _bedrock_call)]
    for message in body["messages"]:
        if "reasoningContent" in message["content"][-1]:
            found.append("a message ends with thinking")
        for at, block in enumerate(message["content"]):
            if "text" in block and not block["text"].strip():
                found.append("a blank text")
            if "cachePoint" in block and "reasoningContent" in message["content"][at - 1]:
                found.append("a cache point behind thinking")
    if bedrock.points(body) > 4:
        found.append("too many cache points")
    uses = json.dumps(body["messages"])
    if "toolConfig" not in body and ("toolUse" in uses or "toolResult" in uses):
        found.append("calls without toolConfig")
    return found


def _bedrock_result(block: dict[str, Any]) -> str | None:
    return block["toolResult"]["toolUseId"] if "toolResult" in block else None


def _bedrock_call(block: dict[str, Any]) -> str | None:
    return block["toolUse"]["toolUseId"] if "toolUse" in block else None


BEDROCK = Vendor(
    name="bedrock",
    model="us.anthropic.claude-opus-5-5",
    other="us.anthropic.claude-fable-5-2",
    connect=lambda url, model: BedrockClient(
        model,
        credentials=AwsCredentials(access_key="AKID", secret_key="secret"),
        region="us-east-1",
        base_url=url,
    ),
    reply=bedrock_replies.reply,
    thought=lambda n: ThinkingPart(_odd(n), f"c2ln+/{n}=="),
    block=lambda part: {
        "reasoningContent": {"reasoningText": {"text": part.text, "signature": part.signature}}
    },
    blocks=_bedrock_blocks,
    refusals=_bedrock_refusals,
    overloaded=bedrock_replies.respond_error("ServiceUnavailableException", 503),
    too_long=bedrock_replies.respond_error(
        "ValidationException", 400, "Input is too long for requested model."
    ),
)


# -- OpenAI's Responses API -------------------------------------------------------------------


def _openai_thought(number: int) -> ThinkingPart:
    item = {
        "type": "reasoning",
        "id": f"rs_{number}",
        "summary": [{"type": "summary_text", "text": _odd(number)}],
        "encrypted_content": f"c2ln+/{number}==",
    }
    return ThinkingPart(_odd(number), _json.dumps(item), kind=REASONING)


def _openai_blocks(body: dict[str, Any]) -> list[list[dict[str, Any]]]:
    return [[item] for item in body["input"] if item.get("type") == "reasoning"]


def _openai_refusals(request: ReceivedRequest) -> list[str]:
    body = request.json()
    whole = {**body, "stream": False}
    openai.WHOLE.validate_python(whole)
    found: list[str] = []
    kinds = openai.kinds(body["input"])
    for kind, following in itertools.pairwise([*kinds, "the end"]):
        if kind == "reasoning" and following not in ("assistant", "function_call", "reasoning"):
            found.append(f"reasoning in front of {following}")
    if kinds[-1] not in ("user", "developer", "function_call_output"):
        found.append(f"the last item is {kinds[-1]}")
    open_calls: list[str] = []
    for item, kind in zip(body["input"], kinds, strict=True):
        if "id" in item and kind != "reasoning":
            found.append(f"an id of a {kind} that nobody stores")
        if kind == "function_call":
            open_calls.append(item["call_id"])
        elif kind == "function_call_output":
            if item["call_id"] != open_calls.pop(0):
                found.append(f"an answer to no call: {item['call_id']}")
        elif open_calls and kind in ("user", "developer"):
            found.append(f"calls without an answer: {open_calls}")
    if body["store"] is not False or "reasoning.encrypted_content" not in body["include"]:
        found.append("reasoning does not come back sealed")
    return found


OPENAI = Vendor(
    name="openai",
    model="gpt-6-sol",
    other="gpt-6-luna",
    connect=lambda url, model: OpenAIResponsesClient(
        model, api_key="k", base_url=url, profile="openai"
    ),
    reply=openai_replies.reply,
    thought=_openai_thought,
    block=lambda part: json.loads(part.signature or ""),
    blocks=_openai_blocks,
    refusals=_openai_refusals,
    overloaded=respond_json({"error": {"code": "server_error", "message": "busy"}}, status=503),
    too_long=respond_json(
        {"error": {"code": "context_length_exceeded", "message": TOO_LONG}}, status=400
    ),
    any_schema=True,
)

VENDORS = (ANTHROPIC, BEDROCK, OPENAI)
