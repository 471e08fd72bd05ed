"""The six dialects, each with a client, replies of its server, and its vendor's own types."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ollama import _types as ollama_sdk

from loopctl import _json
from loopctl.messages import Message, Part, ThinkingPart
from loopctl.models.anthropic import AnthropicClient
from loopctl.models.bedrock import BedrockClient
from loopctl.models.client import HttpRequest, ModelClient
from loopctl.models.gemini import GeminiClient
from loopctl.models.gemini.messages import OF_CALL, OF_TEXT
from loopctl.models.ollama import OllamaClient
from loopctl.models.openai_chat import OpenAIChatClient
from loopctl.models.openai_responses import OpenAIResponsesClient
from loopctl.models.openai_responses.messages import REASONING
from loopctl.replies import ModelResponse, StopReason
from loopctl.testing import Playable, ReceivedRequest, anthropic_replies, chat_reply
from loopctl.testing.ollama_replies import ollama_reply
from loopctl.usage import Usage
from loopctl.wire.sigv4 import AwsCredentials
from tests.models.anthropic import test_request as anthropic
from tests.models.bedrock import replies as bedrock_replies
from tests.models.bedrock import test_request as bedrock
from tests.models.gemini import replies as gemini_replies
from tests.models.gemini import test_request as gemini
from tests.models.openai_chat import test_request as chat
from tests.models.openai_responses import replies as openai_replies
from tests.models.openai_responses import test_request as responses

USAGE = Usage(input_tokens=10, output_tokens=2, cached_tokens=7)


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """One of them. `thought` is reasoning that holds a text, in front of a call or of text;
    `validate` checks a request against the vendor's types."""

    name: str
    connect: Callable[[str], ModelClient]
    reply: Callable[[ModelResponse], Playable]
    thought: Callable[[str, bool], ThinkingPart]
    validate: Callable[[ReceivedRequest], object]

    def says(self, thought: str, *parts: Part | str) -> Playable:
        """A reply that has thought, and took most of its input from a cache."""
        calls = Message.assistant(*parts).calls
        # a signature of Gemini's belongs to what stands right behind it
        message = Message.assistant(self.thought(thought, parts[:1] == calls[:1]), *parts)
        stop = StopReason.TOOL_CALLS if calls else StopReason.END
        return self.reply(ModelResponse(message=message, stop_reason=stop, usage=USAGE))


def _validate_bedrock(request: ReceivedRequest) -> None:
    model = request.path.removeprefix("/model/").removesuffix("/converse").replace("%3A", ":")
    url = f"https://bedrock-runtime.us-east-1.amazonaws.com{request.path}"
    bedrock.validate(HttpRequest(method="POST", url=url, headers={}, body=request.body), model)


def _base64(text: str) -> str:
    """The letters of a text as if they were base64."""
    letters = text.replace(" ", "")
    return letters + "A" * (-len(letters) % 4)


def _item(text: str) -> str:
    summary = [{"type": "summary_text", "text": text}]
    return _json.dumps(
        {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": text}
    )


DIALECTS = (
    Dialect(
        name="openai_responses",
        connect=lambda url: OpenAIResponsesClient(
            "gpt-6-sol", api_key="k", base_url=url, profile="openai"
        ),
        reply=openai_replies.reply,
        thought=lambda text, _: ThinkingPart(text, _item(text), kind=REASONING),
        validate=lambda request: responses.WHOLE.validate_python(request.json()),
    ),
    Dialect(
        name="openai_chat",
        connect=lambda url: OpenAIChatClient(
            "deepseek-v4-pro", api_key="k", base_url=url, profile="deepseek", provider="deepseek"
        ),
        reply=chat_reply,
        thought=lambda text, _: ThinkingPart(text, kind="reasoning_content"),
        validate=lambda request: chat.WHOLE.validate_python(request.json()),
    ),
    Dialect(
        name="anthropic",
        connect=lambda url: AnthropicClient("claude-sonnet-5-5", api_key="k", base_url=url),
        reply=anthropic_replies.reply,
        thought=lambda text, _: ThinkingPart(text, "c2ln"),
        validate=lambda request: anthropic.BETA.validate_python(request.json()),
    ),
    Dialect(
        name="gemini",
        connect=lambda url: GeminiClient("gemini-4-argon", api_key="k", base_url=url),
        reply=gemini_replies.reply,
        thought=lambda text, calls: ThinkingPart(
            signature=_base64(text), kind=OF_CALL if calls else OF_TEXT
        ),
        validate=lambda request: gemini.validate(request.json()),
    ),
    Dialect(
        name="bedrock",
        connect=lambda url: BedrockClient(
            "us.anthropic.claude-sonnet-5-5",
            credentials=AwsCredentials(access_key="AKID", secret_key="secret"),
            region="us-east-1",
            base_url=url,
        ),
        reply=bedrock_replies.reply,
        thought=lambda text, _: ThinkingPart(text, "c2ln"),
        validate=_validate_bedrock,
    ),
    Dialect(
        name="ollama",
        connect=lambda url: OllamaClient("qwen3", base_url=url),
        reply=ollama_reply,
        thought=lambda text, _: ThinkingPart(text, kind="thinking"),
        validate=lambda request: ollama_sdk.ChatRequest.model_validate(request.json()),
    ),
)


def names(dialect: Any) -> str:
    """The id of a test."""
    name: str = dialect.name
    return name


def texts_of(body: bytes) -> str:
    """A body without escapes, to look for words in."""
    return json.dumps(json.loads(body), ensure_ascii=False)
