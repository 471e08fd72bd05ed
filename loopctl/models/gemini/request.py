"""The body of a generateContent request: pure, the same bytes for the same request (MOD-19).

An option that the API or the model cannot honour is a `ConfigError` that names it, before
anything is sent (MOD-3). Whether the reply is streamed is for the address to say.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, cast

from loopctl import _json
from loopctl.config import RequestOptions
from loopctl.errors import ConfigError
from loopctl.models.client import ModelRequest, ToolSchema
from loopctl.models.gemini.facts import MAX_STOP, facts_for
from loopctl.models.gemini.order import lower
from loopctl.models.gemini.schema import gemini_schema

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")
_TOOL = "gemini"


def encode_body(request: ModelRequest, *, model: str, provider: str) -> bytes:
    """The JSON of the request. `model` is the client's; the request's options may name another.

    Raises `ConfigError` for an option that cannot be honoured.
    """
    options = request.options
    model = options.model or model
    system, contents = lower(request, model, provider)
    tools = [tool for tool in request.tools if _tool(tool)]
    fields: dict[str, list[bytes]] = {}
    if system:
        instruction = {"parts": [{"text": text} for text in system]}
        fields["systemInstruction"] = [_json.wire(instruction)]
    if tools:
        fields["tools"] = [b'[{"functionDeclarations":[', b",".join(map(_tool, tools)), b"]}]"]
    extra = _merged(_option_fields(options, model, tools), options.extra_body or {})
    fields["contents"] = _array(contents)
    for name, value in extra.items():
        fields[name] = [_json.wire(_json.to_plain(value))]
    pieces: list[bytes] = []
    for name, value in fields.items():
        pieces += (b",", _json.wire(name), b":")
        pieces += value
    pieces[0] = b"{"
    pieces.append(b"}")
    return b"".join(pieces)  # once: copying a long conversation is what costs


def counting_body(body: bytes, *, model_path: str) -> bytes:
    """The body of a countTokens request for what `encode_body` gave."""
    named = _json.wire({"model": model_path})
    return b'{"generateContentRequest":%b,%b}' % (named[:-1], body[1:])


def _array(elements: list[bytes]) -> list[bytes]:
    """The pieces of a JSON array, of elements that each begin with a comma, or are nothing."""
    first = next((at for at, element in enumerate(elements) if element), None)
    if first is not None:
        elements[first] = elements[first][1:]
    return [b"[", *elements, b"]"]


def _merged(fields: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """`more` put into `fields`, mappings into mappings."""
    out = dict(fields)
    for name, value in more.items():
        there = out.get(name)
        if isinstance(there, Mapping) and isinstance(value, Mapping):
            value = _merged(cast("Mapping[str, Any]", there), cast("Mapping[str, Any]", value))
        out[name] = value
    return out


class _Refusal:
    """Builds the errors for what cannot be honoured."""

    def __init__(self, model: str) -> None:
        self._model = model

    def __call__(self, option: str, value: object, why: str) -> ConfigError:
        return ConfigError(f"RequestOptions.{option}={value!r}: {self._model} (Gemini) {why}")


def _option_fields(
    options: RequestOptions, model: str, tools: Sequence[ToolSchema]
) -> dict[str, Any]:
    facts = facts_for(model)
    refuse = _Refusal(model)
    config: dict[str, Any] = {}
    if options.max_output_tokens is not None:
        config["maxOutputTokens"] = options.max_output_tokens
    if options.temperature is not None:
        if not facts.sampling and options.temperature != 1:
            raise refuse("temperature", options.temperature, "takes no temperature")
        config["temperature"] = options.temperature
    if options.stop:
        if len(options.stop) > MAX_STOP:
            raise refuse("stop", options.stop, f"takes at most {MAX_STOP} stop sequences")
        config["stopSequences"] = list(options.stop)
    effort = options.thinking_effort
    if effort is not None:
        if effort not in facts.efforts:
            known = ", ".join(facts.efforts) or "none at all"
            raise refuse("thinking_effort", effort, f"takes: {known}")
        config["thinkingConfig"] = dict(facts.efforts[effort])
        if effort != "none":
            config["thinkingConfig"]["includeThoughts"] = True
    if options.response_schema is not None:
        if tools and not facts.schema_with_tools:
            raise refuse("response_schema", "…", "takes no schema for the reply beside tools")
        schema = gemini_schema(options.response_schema)
        if schema is None:
            raise refuse("response_schema", "…", "has no words for this schema")
        config["responseMimeType"] = "application/json"
        config["responseJsonSchema"] = schema
    fields: dict[str, Any] = {"generationConfig": config} if config else {}
    calling = _calling(options, tools, refuse)
    if calling:
        fields["toolConfig"] = {"functionCallingConfig": calling}
    return fields


def _calling(
    options: RequestOptions, tools: Sequence[ToolSchema], refuse: _Refusal
) -> dict[str, Any]:
    """How tools are to be called. `VALIDATED` is `AUTO` with arguments that fit their schema."""
    choice = options.tool_choice
    if not tools:
        if choice not in (None, "auto", "none"):
            raise refuse("tool_choice", choice, "was given no tools")
        return {}
    if choice in (None, "auto"):
        if options.strict_tools:
            return {"mode": "VALIDATED"}
        return {"mode": "AUTO"} if choice else {}
    if choice == "none":
        return {"mode": "NONE"}
    if choice == "required":
        return {"mode": "ANY"}
    if choice not in [tool.name for tool in tools]:
        raise refuse("tool_choice", choice, "was not given this tool")
    return {"mode": "ANY", "allowedFunctionNames": [choice]}


def _tool(tool: ToolSchema) -> bytes:
    """A declaration; nothing for a tool whose schema Gemini has no words for (MOD-21)."""
    made: bytes | None = tool.memo.get(_TOOL)
    if made is None:
        declared = _declaration(tool)
        made = tool.memo[_TOOL] = b"" if declared is None else _json.wire(declared)
    return made


def _declaration(tool: ToolSchema) -> dict[str, Any] | None:
    if not _NAME.fullmatch(tool.name):
        raise ConfigError(
            f"the tool name {tool.name!r} cannot be sent: Gemini takes up to 128 letters, digits"
            " and _ . : -, the first a letter or _"
        )
    parameters = gemini_schema(tool.input_schema)
    if parameters is None or parameters.setdefault("type", "object") != "object":
        warnings.warn(
            f"the tool {tool.name!r} is not offered: Gemini has no words for its schema",
            stacklevel=2,
        )
        return None
    declared: dict[str, Any] = {"name": tool.name}
    if tool.description.strip():
        declared["description"] = tool.description
    if any(value for name, value in parameters.items() if name != "type"):
        declared["parametersJsonSchema"] = parameters
    return declared
