"""The body of a request to `/api/chat`: pure, the same bytes for the same request (MOD-19).

An option that the server or the model cannot honour is a `ConfigError` that names it, before
anything is sent (MOD-3). The window is always asked for, and cutting the prompt to it is
forbidden: a server left to itself drops the oldest messages and says nothing.
"""

from __future__ import annotations

from typing import Any

from loopctl import _json
from loopctl.errors import ConfigError
from loopctl.models.client import ModelRequest, ToolSchema
from loopctl.models.ollama.facts import facts
from loopctl.models.ollama.messages import lower
from loopctl.models.ollama.schema import tool_parameters

_TOOL = object()
"""Where a tool keeps its bytes."""


def encode_body(
    request: ModelRequest,
    *,
    model: str,
    provider: str,
    window: int | None,
    cloud: bool,
    keep_alive: str | float | None,
    stream: bool,
) -> bytes:
    """The JSON of the request; `window` is asked for as `num_ctx`, `cloud` is the vendor's own.

    Raises `ConfigError` for an option that cannot be honoured.
    """
    fields: dict[str, bytes] = {"model": _json.wire(model)}
    fields["messages"] = b"[" + b",".join(lower(request, provider)) + b"]"
    if tools := _tools(request):
        fields["tools"] = b"[" + b",".join([_tool(tool) for tool in tools]) + b"]"
    rest = _rest(request, model, tools, cloud=cloud)
    settings = rest.pop("options")
    if window is not None:
        settings = {"num_ctx": window, **settings}
    extra = dict(request.options.extra_body or {})
    settings |= extra.pop("options", None) or {}
    rest |= {"stream": stream, "truncate": False, "shift": False}
    if keep_alive is not None:
        rest["keep_alive"] = keep_alive
    if settings:
        rest["options"] = settings
    fields |= {name: _json.wire(_json.to_plain(value)) for name, value in (rest | extra).items()}
    return b"{" + b",".join([_json.wire(name) + b":" + v for name, v in fields.items()]) + b"}"


def _rest(
    request: ModelRequest, model: str, tools: tuple[ToolSchema, ...], *, cloud: bool
) -> dict[str, Any]:
    """What the request's options become."""
    options = request.options

    def refuse(option: str, value: object, why: str) -> ConfigError:
        return ConfigError(f"RequestOptions.{option}={value!r}: {model} on Ollama {why}")

    settings: dict[str, Any] = {}
    fields: dict[str, Any] = {"options": settings}
    if options.max_output_tokens is not None:
        settings["num_predict"] = options.max_output_tokens
    if options.temperature is not None:
        settings["temperature"] = options.temperature
    if options.stop:
        settings["stop"] = list(options.stop)
    if options.thinking_effort is not None:
        efforts = facts(model).efforts
        if options.thinking_effort not in efforts:
            raise refuse("thinking_effort", options.thinking_effort, f"takes: {', '.join(efforts)}")
        fields["think"] = efforts[options.thinking_effort]
    if options.strict_tools:
        raise refuse("strict_tools", True, "has no strict tools")
    if options.tool_choice not in (None, "auto", "none"):
        raise refuse("tool_choice", options.tool_choice, "cannot be made to call a tool")
    if options.response_schema is not None:
        if tools and not cloud:
            raise refuse(
                "response_schema",
                "…",
                "calls no tools while its reply is bound to a schema; use a request without"
                ' tools, or tool_choice="none"',
            )
        fields["format"] = options.response_schema
    return fields


def _tools(request: ModelRequest) -> tuple[ToolSchema, ...]:
    """What is offered. There is no `tool_choice`: none may be called when none is offered."""
    return () if request.options.tool_choice == "none" else request.tools


def _tool(tool: ToolSchema) -> bytes:
    made: bytes | None = tool.memo.get(_TOOL)
    if made is None:
        function: dict[str, Any] = {"name": tool.name}
        if tool.description.strip():
            function["description"] = tool.description
        function["parameters"] = tool_parameters(tool.input_schema)
        made = tool.memo[_TOOL] = _json.wire({"type": "function", "function": function})
    return made
