"""The body of a Chat Completions request: pure, the same bytes for the same request (MOD-19).

An option that the server or the model cannot honour is a `ConfigError` that names it, before
anything is sent (MOD-3).
"""

from __future__ import annotations

import re
from typing import Any

from loopctl import _json
from loopctl.config import RequestOptions
from loopctl.errors import ConfigError
from loopctl.models.cache_key import cache_key
from loopctl.models.client import ModelRequest, ToolSchema
from loopctl.models.openai_chat.facts import ModelFacts, Profile
from loopctl.models.openai_chat.messages import lower
from loopctl.models.strict import strict_schema

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MAX_STOP = 4


def encode_body(
    request: ModelRequest, *, model: str, profile: Profile, provider: str, stream: bool
) -> bytes:
    """The JSON of the request. `model` is the client's; the request's options may name another.

    Raises `ConfigError` for an option that cannot be honoured.
    """
    options = request.options
    model = options.model or model
    fields: dict[str, list[bytes]] = {"model": [_json.wire(model)]}
    fields["messages"] = _array(lower(request, profile, provider))
    if request.tools:
        strict = options.strict_tools
        fields["tools"] = _array([_tool(tool, profile, strict=strict) for tool in request.tools])
    refusal = _Refusal(model, profile)
    extra = _option_fields(options, profile.facts(model), request.tools, profile, refusal)
    if stream:
        extra["stream"] = True
        if profile.ask_usage:
            extra["stream_options"] = {"include_usage": True}
    if profile.cache_key and (key := cache_key(request.system, request.tools)) is not None:
        extra["prompt_cache_key"] = key
    extra |= options.extra_body or {}
    fields |= {name: [_json.wire(_json.to_plain(value))] for name, value in extra.items()}
    pieces: list[bytes] = []
    for name, value in fields.items():
        pieces += (b",", _json.wire(name), b":")
        pieces += value
    pieces[0] = b"{"
    pieces.append(b"}")
    return b"".join(pieces)  # once: copying a long conversation is what costs


def _array(elements: list[bytes]) -> list[bytes]:
    """The pieces of a JSON array, of elements that each begin with a comma, or are nothing."""
    first = next((at for at, element in enumerate(elements) if element), None)
    if first is not None:
        elements[first] = elements[first][1:]
    return [b"[", *elements, b"]"]


class _Refusal:
    """Builds the errors for what cannot be honoured."""

    def __init__(self, model: str, profile: Profile) -> None:
        self._where = f"{model} on a {profile.name} server (Chat Completions)"

    def __call__(self, option: str, value: object, why: str) -> ConfigError:
        return ConfigError(f"RequestOptions.{option}={value!r}: {self._where} {why}")


def _option_fields(
    options: RequestOptions,
    facts: ModelFacts,
    tools: tuple[ToolSchema, ...],
    profile: Profile,
    refuse: _Refusal,
) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    thinks = (options.thinking_effort or facts.default_effort) != "none"
    if options.max_output_tokens is not None:
        fields[profile.cap_field] = options.max_output_tokens
    if options.temperature is not None:
        silent = thinks and not facts.sampling_while_thinking and options.temperature != 1
        if not profile.sampling or silent:
            raise refuse("temperature", options.temperature, "takes no temperature here")
        fields["temperature"] = options.temperature
    if options.stop:
        if not profile.stop or (thinks and not facts.sampling_while_thinking):
            raise refuse("stop", options.stop, "takes no stop sequences here")
        if len(options.stop) > _MAX_STOP:
            raise refuse("stop", options.stop, f"takes at most {_MAX_STOP} stop sequences")
        fields["stop"] = list(options.stop)
    if options.thinking_effort is not None:
        fields |= _effort(options.thinking_effort, facts, profile, refuse)
    if tools and thinks and not facts.tools_while_thinking:
        raise refuse(
            "thinking_effort",
            options.thinking_effort,
            f"calls no function tools while it thinks (it does by default:"
            f' {facts.default_effort}); use thinking_effort="none" if it has that,'
            " or the Responses API",
        )
    if options.strict_tools and not profile.strict:
        raise refuse("strict_tools", True, "has no strict tools")
    if options.tool_choice is not None and tools:
        fields["tool_choice"] = _choice(options.tool_choice, tools, profile, refuse)
    elif options.tool_choice not in (None, "auto", "none"):
        raise refuse("tool_choice", options.tool_choice, "was given no tools")
    if options.response_schema is not None:
        if not profile.schemas:
            raise refuse("response_schema", "…", "has no schemas for replies")
        fields["response_format"] = _response_format(options, profile)
    return fields


def _effort(effort: str, facts: ModelFacts, profile: Profile, refuse: _Refusal) -> dict[str, Any]:
    efforts = profile.efforts if facts.efforts is None else facts.efforts
    if effort not in efforts:
        known = ", ".join(efforts) or "none at all"
        raise refuse("thinking_effort", effort, f"takes: {known}")
    return dict(efforts[effort])


def _choice(
    choice: str, tools: tuple[ToolSchema, ...], profile: Profile, refuse: _Refusal
) -> object:
    named = choice not in ("auto", "none", "required")
    if ("named" if named else choice) not in profile.tool_choices:
        known = ", ".join(sorted(profile.tool_choices))
        raise refuse("tool_choice", choice, f"takes: {known}")
    if not named:
        return choice
    if choice not in [tool.name for tool in tools]:
        raise refuse("tool_choice", choice, "was not given this tool")
    return {"type": "function", "function": {"name": choice}}


def _tool(tool: ToolSchema, profile: Profile, *, strict: bool) -> bytes:
    key = ("openai_chat", profile, strict)
    made: bytes | None = tool.memo.get(key)
    if made is None:
        function = {"type": "function", "function": _function(tool, strict)}
        made = tool.memo[key] = b"," + _json.wire(function)
    return made


def _function(tool: ToolSchema, strict: bool) -> dict[str, Any]:
    if not _NAME.fullmatch(tool.name):
        raise ConfigError(
            f"the tool name {tool.name!r} cannot be sent: Chat Completions takes up to 64 letters,"
            " digits, _ and -"
        )
    function: dict[str, Any] = {"name": tool.name, "description": tool.description}
    if not tool.description.strip():
        del function["description"]
    closed = strict_schema(tool.input_schema) if strict else None
    if closed is not None:
        return {**function, "parameters": closed, "strict": True}
    plain = _json.to_plain(tool.input_schema)
    shape: dict[str, Any] = {"type": "object", "properties": {}}
    return {**function, "parameters": {**shape, **plain} if isinstance(plain, dict) else shape}


def _response_format(options: RequestOptions, profile: Profile) -> dict[str, Any]:
    schema = options.response_schema or {}
    title = re.sub(r"[^A-Za-z0-9_-]", "_", str(schema.get("title", "")))[:64]
    described: dict[str, Any] = {"name": title or "reply", "schema": schema}
    if profile.strict:
        closed = strict_schema(schema, nullable=False)
        described["strict"] = closed is not None
        described["schema"] = schema if closed is None else closed
    return {"type": "json_schema", "json_schema": described}
