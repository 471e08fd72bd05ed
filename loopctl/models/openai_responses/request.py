"""The body of a Responses request: pure, the same bytes for the same request (MOD-19).

Every request is complete in itself: nothing is stored at the server, and sealed reasoning comes
back to be sent again. An option that the server or the model cannot honour is a `ConfigError` that
names it, before anything is sent (MOD-3).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loopctl import _json
from loopctl.config import RequestOptions
from loopctl.errors import ConfigError
from loopctl.messages import Message
from loopctl.models.binding import RunningDigest
from loopctl.models.cache_key import cache_key
from loopctl.models.client import ModelRequest, ToolSchema
from loopctl.models.openai_responses.facts import ModelFacts, Profile
from loopctl.models.openai_responses.messages import lower
from loopctl.models.strict import strict_schema
from loopctl.models.turns import parted

SEALED = "reasoning.encrypted_content"
"""What is asked for with `include`: without a store, reasoning can only come back sealed."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_COUNTED = ("model", "instructions", "input", "tools", "tool_choice", "text", "reasoning")


@dataclass(frozen=True, kw_only=True, slots=True)
class Body:
    """The fields of a body, each in pieces of JSON.

    `prefix` is the digest of what is sent, where reasoning is bound to it.
    """

    fields: Mapping[str, list[bytes]]
    prefix: str | None

    def encode(self) -> bytes:
        """The whole body."""
        return _object(self.fields)

    def counted(self) -> bytes:
        """The body of a request that only counts its tokens."""
        return _object({name: self.fields[name] for name in _COUNTED if name in self.fields})


def encode_body(
    request: ModelRequest, *, model: str, profile: Profile, provider: str, stream: bool = False
) -> Body:
    """The request for `model`.

    Raises `ConfigError` for an option that cannot be honoured.
    """
    options = request.options
    facts = profile.facts(model)
    fields = _Options(options, request.tools, model, facts, profile).told()
    fields["store"] = False
    if profile.include and facts.seals:
        fields["include"] = [SEALED]
    if stream:
        fields["stream"] = True
    if profile.cache_key and (key := cache_key(request.system, request.tools)) is not None:
        fields["prompt_cache_key"] = key
    extra = dict(options.extra_body or {})
    fields |= extra
    tools = [_tool(tool, strict=options.strict_tools) for tool in request.tools]
    prompt = request.system if request.system and request.system.strip() else None
    texts = [prompt] if prompt else []
    messages: Sequence[Message] = request.messages
    head = request.head
    if profile.notes is None:
        noted, messages, head = parted(request.messages, head, request.tail)
        texts += noted
    instructions = _json.wire("\n\n".join(texts)) if texts else None
    digest = None
    if profile.bound:
        replaced = {
            name: extra[name] for name in ("instructions", "tools", "input") if name in extra
        }
        digest = RunningDigest([instructions or b"", *tools, b"", _wire(replaced)])
    items = lower(
        messages,
        head,
        request.tail,
        profile=profile,
        provider=provider,
        model=model,
        digest=digest,
    )
    pieces: dict[str, list[bytes]] = {"model": [_json.wire(model)]}
    if instructions is not None:
        pieces["instructions"] = [instructions]
    if tools:
        pieces["tools"] = _array(tools)
    pieces["input"] = _array(items)
    pieces |= {name: [_wire(value)] for name, value in fields.items()}
    return Body(fields=pieces, prefix=None if digest is None else digest.value)


def _wire(value: Any) -> bytes:
    return _json.wire(_json.to_plain(value))


def _array(elements: list[bytes]) -> list[bytes]:
    """The pieces of a JSON array that is not empty."""
    pieces = [b","] * (2 * len(elements) + 1)
    pieces[1::2] = elements
    pieces[0], pieces[-1] = b"[", b"]"
    return pieces


def _object(fields: Mapping[str, list[bytes]]) -> bytes:
    pieces: list[bytes] = []
    for name, value in fields.items():
        pieces += (b",", _json.wire(name), b":")
        pieces += value
    pieces[0] = b"{"
    pieces.append(b"}")
    return b"".join(pieces)  # once: copying a long conversation is what costs


class _Options:
    """Turns the options of one request into fields, or refuses them."""

    def __init__(
        self,
        options: RequestOptions,
        tools: tuple[ToolSchema, ...],
        model: str,
        facts: ModelFacts,
        profile: Profile,
    ) -> None:
        self._options = options
        self._tools = tools
        self._where = f"{model} on a {profile.name} server (Responses)"
        self._facts = facts
        self._profile = profile

    def told(self) -> dict[str, Any]:
        options, facts = self._options, self._facts
        fields: dict[str, Any] = {}
        if options.max_output_tokens is not None:
            fields["max_output_tokens"] = options.max_output_tokens
        thinks = facts.thinks
        if (effort := options.thinking_effort) is not None:
            if effort not in facts.efforts:
                known = ", ".join(facts.efforts) or "none at all"
                raise self._refuse("thinking_effort", effort, f"takes: {known}")
            fields["reasoning"] = {"effort": effort}
            thinks = effort != "none"
        if options.temperature is not None:
            if thinks and not facts.sampling and options.temperature != 1:
                why = "takes no temperature while it thinks"
                raise self._refuse("temperature", options.temperature, why)
            fields["temperature"] = options.temperature
        if options.stop:
            raise self._refuse("stop", options.stop, "takes no stop sequences")
        if options.strict_tools and not self._profile.strict:
            raise self._refuse("strict_tools", True, "has no strict tools")
        choice = options.tool_choice
        if choice is not None and self._tools:
            fields["tool_choice"] = self._choice(choice)
        elif choice not in (None, "auto", "none"):
            raise self._refuse("tool_choice", choice, "was given no tools")
        if options.response_schema is not None:
            fields["text"] = {"format": _reply_format(options.response_schema)}
        return fields

    def _refuse(self, option: str, value: object, why: str) -> ConfigError:
        return ConfigError(f"RequestOptions.{option}={value!r}: {self._where} {why}")

    def _choice(self, choice: str) -> object:
        if choice in ("auto", "none", "required"):
            return choice
        if choice not in [tool.name for tool in self._tools]:
            raise self._refuse("tool_choice", choice, "was not given this tool")
        return {"type": "function", "name": choice}


def _tool(tool: ToolSchema, *, strict: bool) -> bytes:
    key = ("openai_responses", strict)
    made: bytes | None = tool.memo.get(key)
    if made is None:
        made = tool.memo[key] = _json.wire(_function(tool, strict))
    return made


def _function(tool: ToolSchema, strict: bool) -> dict[str, Any]:
    if not _NAME.fullmatch(tool.name):
        raise ConfigError(
            f"the tool name {tool.name!r} cannot be sent: the Responses API takes up to 64"
            " letters, digits, _ and -"
        )
    function: dict[str, Any] = {"type": "function", "name": tool.name}
    if tool.description.strip():
        function["description"] = tool.description
    closed = strict_schema(tool.input_schema) if strict else None
    if closed is None:
        plain = _json.to_plain(tool.input_schema)
        shape: dict[str, Any] = {"type": "object", "properties": {}}
        closed, strict = {**shape, **plain} if isinstance(plain, dict) else shape, False
    return {**function, "parameters": closed, "strict": strict}  # its default is not Chat's


def _reply_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    title = re.sub(r"[^A-Za-z0-9_-]", "_", str(schema.get("title", "")))[:64]
    closed = strict_schema(schema, nullable=False)
    return {
        "type": "json_schema",
        "name": title or "reply",
        "schema": schema if closed is None else closed,
        "strict": closed is not None,
    }
