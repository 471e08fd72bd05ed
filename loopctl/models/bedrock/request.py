"""The body of a Converse request: pure, the same bytes for the same request (MOD-19).

An option that the model cannot honour is a `ConfigError` that names it, before anything is sent
(MOD-3). Cache points stand behind the last tool, the system prompt and the last stable message, as
many as the API takes beside those that `extra_body` brings (MOD-22). The model's id and whether
the reply is streamed are for the address to say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from loopctl import _json
from loopctl.config import RequestOptions
from loopctl.errors import ConfigError
from loopctl.messages import Message
from loopctl.models.bedrock.facts import MAX_CACHE_POINTS, Facts
from loopctl.models.bedrock.messages import (
    CACHE_POINT,
    ConverseTurns,
    is_amid_another,
    text_block,
    tool_name,
)
from loopctl.models.binding import RunningDigest
from loopctl.models.claude import MAX_OPTIONAL, MAX_STRICT_TOOLS, MAX_UNIONS
from loopctl.models.client import ModelRequest, ToolSchema
from loopctl.models.closed_schema import Closed, closed_schema, open_schema
from loopctl.models.turns import parted

REPLY_TOOL = "structured_reply"
"""The tool whose arguments are the reply, where the model knows no schemas of replies."""

_MIN_BUDGET = 1_024
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_COUNTED = ("system", "messages", "toolConfig", "additionalModelRequestFields")


@dataclass(frozen=True, kw_only=True, slots=True)
class Body:
    """The fields of a body, each in pieces of JSON, and what goes with it.

    `prefix` is the digest of what is sent, where reasoning is bound to it; `reply_tool` says that
    the reply comes as arguments of `REPLY_TOOL`.
    """

    fields: Mapping[str, list[bytes]]
    prefix: str | None
    reply_tool: bool

    def encode(self) -> bytes:
        """The whole body."""
        return _object(self.fields)

    def counted(self) -> bytes:
        """The body of a request that only counts its tokens."""
        fields = {name: self.fields[name] for name in _COUNTED if name in self.fields}
        return b'{"input":{"converse":%s}}' % _object(fields)


def encode_body(request: ModelRequest, *, model: str, facts: Facts, provider: str) -> Body:
    """The request for `model`, of which `facts` are known.

    Raises `ConfigError` for an option that cannot be honoured.
    """
    options = request.options
    extra = dict(options.extra_body or {})
    told = _Options(options, request.tools, model, facts)
    if told.without_tools and _of_history(request.messages):
        raise told.refuse("tool_choice", "none", "must be given tools once some were called")
    tools = [] if told.without_tools else told.tools or _of_history(request.messages)
    points = _Points(extra, facts)
    texts, messages, head = parted(request.messages, request.head, request.tail)
    prompt = request.system if request.system and request.system.strip() else None
    points.plan(has_tools=bool(tools), has_system=prompt is not None)
    system = [text_block(prompt)] if prompt else []
    system += [text_block(text) for text in texts]
    digest = None
    if facts.claude is not None and facts.claude.bound:
        replaced = {n: extra[n] for n in ("system", "toolConfig", "messages") if n in extra}
        digest = RunningDigest([*system, b"", *tools, b"", _wire(replaced)])
    turns = ConverseTurns(provider=provider, model=model, facts=facts, digest=digest)
    pieces: dict[str, list[bytes]] = {}
    elements = turns.lower(messages, head, request.tail, points.messages)
    if facts.claude is not None and facts.claude.thinking == "budget" and is_amid_another(elements):
        told.stop_thinking()
    fields = _merged(told.fields, extra)
    if points.system:
        system.insert(1, CACHE_POINT)
    if points.tools:
        tools = [*tools, CACHE_POINT]
    config = fields.pop("toolConfig", {})
    for name, listed in (("system", system), ("messages", elements)):
        if listed:
            pieces[name] = _array(listed)
    if tools or config:
        pieces["toolConfig"] = [_tool_config(tools, config)]
    pieces |= {name: [_wire(value)] for name, value in fields.items()}
    return Body(
        fields=pieces,
        prefix=None if digest is None else digest.value,
        reply_tool=told.reply_tool,
    )


def _wire(value: Any) -> bytes:
    return _json.wire(_json.to_plain(value))


def _array(elements: list[bytes]) -> list[bytes]:
    """The pieces of a JSON array."""
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


def _tool_config(tools: list[bytes], config: Mapping[str, Any]) -> bytes:
    if "tools" in config or not tools:
        return _wire(config)
    others = b"".join([b",%s:%s" % (_json.wire(n), _wire(value)) for n, value in config.items()])
    return b'{"tools":[%s]%s}' % (b",".join(tools), others)


def _merged(fields: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """`more` put into `fields`, mappings into mappings."""
    out = dict(fields)
    for name, value in more.items():
        there = out.get(name)
        if isinstance(there, Mapping) and isinstance(value, Mapping):
            value = _merged(cast("Mapping[str, Any]", there), cast("Mapping[str, Any]", value))
        out[name] = value
    return out


def _of_history(messages: tuple[Message, ...]) -> list[bytes]:
    """Declarations of the tools that a conversation has called: it may not go without any."""
    names = [tool_name(call.name) for message in messages for call in message.calls]
    return [
        _wire(_spec(name, "No longer offered: do not call it.", {"type": "object"}))
        for name in dict.fromkeys(names)
    ]


def _spec(name: str, description: str, schema: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"name": name}
    if description.strip():
        spec["description"] = description
    return {"toolSpec": {**spec, "inputSchema": {"json": schema}, **more}}


class _Points:
    """Where cache points go, so that the final body has no more than are taken (C5)."""

    def __init__(self, extra: Mapping[str, Any], facts: Facts) -> None:
        self._extra = extra
        self._facts = facts
        self._left = MAX_CACHE_POINTS - _count(extra)
        if self._left < 0:
            raise ConfigError(
                f"RequestOptions.extra_body: has {MAX_CACHE_POINTS - self._left} cache points,"
                f" Converse takes {MAX_CACHE_POINTS}"
            )
        self.messages = 0
        self.system = self.tools = False

    def plan(self, *, has_tools: bool, has_system: bool) -> None:
        """Spend what is left: the last message first, it saves the most."""
        everywhere = self._facts.cache_all
        messages = self._take("messages", everywhere)
        self.system = self._take("system", has_system and self._facts.cache_system)
        own_tools = "tools" not in (self._extra.get("toolConfig") or ())
        self.tools = own_tools and self._take("", has_tools and everywhere)
        self.messages = messages + (messages and self._take("messages", True))

    def _take(self, field: str, wanted: bool) -> bool:
        taken = wanted and self._left > 0 and field not in self._extra
        self._left -= taken
        return taken


def _count(value: object) -> int:
    """How many cache points are in a JSON value."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[Any, Any]", value)
        return ("cachePoint" in fields) + sum(_count(item) for item in fields.values())
    if isinstance(value, (list, tuple)):
        return sum(_count(item) for item in cast("list[Any]", value))
    return 0


class _Options:
    """The options of one request as fields and tools, or a refusal.

    `without_tools` says that the model must not call any and has no other way to be told so.
    """

    def __init__(
        self, options: RequestOptions, tools: tuple[ToolSchema, ...], model: str, facts: Facts
    ) -> None:
        self._options = options
        self._given = tools
        self._model = model
        self._facts = facts
        self._more: dict[str, Any] = {}
        self._inference: dict[str, Any] = {}
        self._config: dict[str, Any] = {}
        self._optional, self._unions = MAX_OPTIONAL, MAX_UNIONS
        self.without_tools = False
        self.reply_tool = False
        self.fields: dict[str, Any] = {}
        self.tools: list[bytes] = []
        self._tell()

    def refuse(self, option: str, value: object, why: str) -> ConfigError:
        """The error for an option that cannot be honoured."""
        return ConfigError(f"RequestOptions.{option}={value!r}: {self._model} (Converse) {why}")

    def stop_thinking(self) -> None:
        """Take back that the model is to think by a budget."""
        self._more.pop("thinking", None)
        if not self._more:
            self.fields.pop("additionalModelRequestFields", None)

    def _tell(self) -> None:
        options, facts, fields = self._options, self._facts, self.fields
        if options.max_output_tokens is not None:
            self._inference["maxTokens"] = options.max_output_tokens
        thinks = self._think()
        if options.temperature is not None:
            self._sample(options.temperature, thinks)
        if options.stop:
            self._inference["stopSequences"] = list(options.stop)
        forced = options.tool_choice is not None and self._choose(options.tool_choice)
        schema = options.response_schema
        if schema is not None and not self._has_format(schema):
            self.reply_tool = True
        self._list_tools()
        if self.reply_tool:
            self._add_reply_tool(schema or {}, forced)
        manual = facts.claude is not None and facts.claude.thinking == "budget" and thinks
        if manual and "thinking" in self._more and (forced or self.reply_tool):
            name = "response_schema" if self.reply_tool else "tool_choice"
            why = "cannot be made to call tools while it thinks"
            raise self.refuse(name, options.tool_choice or "…", why)
        if self._inference:
            fields["inferenceConfig"] = self._inference
        if self._config:
            fields["toolConfig"] = self._config
        if self._more:
            fields["additionalModelRequestFields"] = self._more

    def _think(self) -> bool:
        """Set the fields of thinking; whether the model will think."""
        effort, known = self._options.thinking_effort, self._facts.claude
        if known is None:
            if effort is None:
                return False
            asked = self._facts.efforts.get(effort)
            if asked is None:
                names = ", ".join(self._facts.efforts) or "none at all"
                raise self.refuse("thinking_effort", effort, f"takes: {names}")
            self._more |= asked
            return effort != "none"
        if effort is None:
            return known.thinking in ("always", "on")
        if effort == "none":
            if known.thinking == "always":
                raise self.refuse("thinking_effort", effort, "always thinks")
            if known.thinking != "none":
                self._more["thinking"] = {"type": "disabled"}
            return False
        efforts = known.budgets if known.thinking == "budget" else known.efforts
        if effort not in efforts:
            names = ", ".join(efforts) or "none at all"
            raise self.refuse("thinking_effort", effort, f"takes: {names}")
        if known.thinking == "budget":
            budget = self._budget(effort, known.budgets[effort])
            self._more["thinking"] = {"type": "enabled", "budget_tokens": budget}
        else:
            self._more["thinking"] = {"type": "adaptive"}
        if effort in known.efforts:
            self._more["output_config"] = {"effort": known.efforts[effort]}
        return True

    def _budget(self, effort: str, budget: int) -> int:
        """Tokens to think with: they count towards the output cap, and leave some of it."""
        cap = self._options.max_output_tokens
        if cap is None:
            return budget  # unasked, the cap is the model's
        budget = min(budget, cap - _MIN_BUDGET)
        if budget < _MIN_BUDGET:
            why = f"needs at least {2 * _MIN_BUDGET} max_output_tokens to think and answer"
            raise self.refuse("thinking_effort", effort, why)
        return budget

    def _sample(self, temperature: float, thinks: bool) -> None:
        known = self._facts.claude
        if known is not None:
            if temperature == 1:
                return  # what the model does unasked
            if not known.sampling or thinks:
                raise self.refuse("temperature", temperature, "takes no temperature here")
        if temperature > 1:
            raise self.refuse("temperature", temperature, "takes temperatures from 0 to 1")
        self._inference["temperature"] = temperature

    def _choose(self, choice: str) -> bool:
        """Set the choice of tools; whether that makes the model call one."""
        if not self._given:
            if choice in ("auto", "none"):
                return False
            raise self.refuse("tool_choice", choice, "was given no tools")
        if choice == "auto":
            return False  # the default, and some models refuse to be told
        if choice == "none":
            if self._facts.claude is None:
                self.without_tools = True
            else:
                self._more["tool_choice"] = {"type": "none"}
            return False
        if choice == "required":
            self._force("any", "tool_choice")
        elif choice in [tool.name for tool in self._given]:
            self._force("tool", "tool_choice", choice)
        else:
            raise self.refuse("tool_choice", choice, "was not given this tool")
        return True

    def _force(self, kind: str, option: str, name: str | None = None) -> None:
        if kind not in self._facts.choices:
            value = "…" if option == "response_schema" else self._options.tool_choice
            raise self.refuse(option, value, "cannot be made to call tools like this")
        self._config["toolChoice"] = {kind: {} if name is None else {"name": name}}

    def _has_format(self, schema: Mapping[str, Any]) -> bool:
        """Set the schema of the reply; `False` when only a tool can bring it."""
        closed = closed_schema(schema) if self._facts.structured else None
        if closed is None or not self._affords(closed):
            return False
        text = _json.dumps(_json.to_plain(closed.schema))
        definition = {"name": "reply", "schema": text}  # text, where tools have an object
        self.fields["outputConfig"] = {
            "textFormat": {"type": "json_schema", "structure": {"jsonSchema": definition}}
        }
        return True

    def _affords(self, closed: Closed) -> bool:
        """Whether the request may have this schema beside those that it has; then it does."""
        optional, unions = self._optional - closed.optional, self._unions - closed.unions
        if optional < 0 or unions < 0:
            return False
        self._optional, self._unions = optional, unions
        return True

    def _add_reply_tool(self, schema: Mapping[str, Any], forced: bool) -> None:
        if self.without_tools:
            self.tools, self.without_tools = [], False
        said = "Give your final answer with this tool."
        self.tools.append(_wire(_spec(REPLY_TOOL, said, open_schema(schema))))
        if forced:
            return
        if self._given and self._options.tool_choice != "none":
            self._force("any", "response_schema")
        elif "tool" in self._facts.choices:
            self._force("tool", "response_schema", REPLY_TOOL)
        else:
            self._force("any", "response_schema")
        self._more.pop("tool_choice", None)

    def _list_tools(self) -> None:
        strict = self._options.strict_tools
        if strict and not self._facts.structured:
            raise self.refuse("strict_tools", True, "has no strict tools")
        left = MAX_STRICT_TOOLS
        for tool in self._given:
            closed = _closed(tool) if strict and left else None
            if closed is not None and not self._affords(closed):
                closed = None  # one tool more than is compiled: without the promise
            left -= closed is not None
            self.tools.append(_tool(tool, closed))


def _closed(tool: ToolSchema) -> Closed | None:
    key = ("bedrock", "closed")
    if key not in tool.memo:
        tool.memo[key] = closed_schema(tool.input_schema)
    return cast("Closed | None", tool.memo[key])


def _tool(tool: ToolSchema, closed: Closed | None) -> bytes:
    key = ("bedrock", closed is not None)
    made: bytes | None = tool.memo.get(key)
    if made is None:
        if not _NAME.fullmatch(tool.name):
            raise ConfigError(
                f"the tool name {tool.name!r} cannot be sent: Converse takes up to 64 letters,"
                " digits, _ and -"
            )
        schema = open_schema(tool.input_schema) if closed is None else closed.schema
        strict: dict[str, Any] = {} if closed is None else {"strict": True}
        made = tool.memo[key] = _wire(_spec(tool.name, tool.description, schema, **strict))
    return made
