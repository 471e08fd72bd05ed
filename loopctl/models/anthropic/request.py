"""The body of a Messages request: pure, the same bytes for the same request (MOD-19).

An option that the model cannot honour is a `ConfigError` that names it, before anything is sent
(MOD-3). Cache marks stand at the last tool, the system prompt and the last stable message, as many
as the API takes after those that `extra_body` brings (MOD-22).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from loopctl import _json
from loopctl.config import RequestOptions
from loopctl.errors import ConfigError
from loopctl.models.anthropic.facts import (
    API_VERSION,
    BINDING_BETA,
    MAX_CACHE_MARKS,
    SAMPLING_VERSION,
)
from loopctl.models.anthropic.messages import is_amid_another, lower, marked, text_block
from loopctl.models.binding import RunningDigest
from loopctl.models.claude import MAX_OPTIONAL, MAX_STRICT_TOOLS, MAX_UNIONS, Facts
from loopctl.models.client import ModelRequest, ToolSchema
from loopctl.models.closed_schema import Closed, closed_schema, open_schema
from loopctl.models.turns import parted

REPLY_TOOL = "structured_reply"
"""The tool whose arguments are the reply, where the model knows no schemas of replies."""

DEFAULT_MAX_TOKENS = 4_096
"""The output cap where neither the request nor the facts name one: the API wants one."""

_MIN_BUDGET = 1_024
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SAMPLING = ("temperature", "top_p", "top_k")
_COUNTED = ("model", "system", "tools", "messages", "tool_choice", "thinking", "output_config")


@dataclass(frozen=True, kw_only=True, slots=True)
class Body:
    """The fields of a body, each in pieces of JSON, and what goes with it.

    `version` and `betas` are for the headers; `prefix` the digest of what is sent, where reasoning
    is bound to it; `reply_tool` says that the reply comes as arguments of `REPLY_TOOL`.
    """

    fields: Mapping[str, list[bytes]]
    version: str
    betas: tuple[str, ...]
    prefix: str | None
    reply_tool: bool

    def encode(self) -> bytes:
        """The whole body."""
        return _object(self.fields)

    def continued(self, content: list[Any]) -> bytes:
        """The whole body with what the assistant has said so far behind its messages."""
        said = _wire({"role": "assistant", "content": content})
        messages = [b"".join(self.fields["messages"])[:-1], b",", said, b"]"]
        return _object({**self.fields, "messages": messages})

    def counted(self) -> bytes:
        """The body of a request that only counts its tokens."""
        return _object({name: self.fields[name] for name in _COUNTED if name in self.fields})


def encode_body(
    request: ModelRequest, *, model: str, facts: Facts, provider: str, stream: bool = False
) -> Body:
    """The request for `model`, of which `facts` are known.

    Raises `ConfigError` for an option that cannot be honoured.
    """
    options = request.options
    extra = dict(options.extra_body or {})
    tools, reply_tool, fields = _Options(options, request.tools, model, facts).told()
    if stream:
        fields["stream"] = True
    fields |= extra
    marks = _Marks(extra)
    texts, messages, head = parted(request.messages, request.head, request.tail)
    prompt = request.system if request.system and request.system.strip() else None
    marks.plan(has_tools=bool(tools), has_system=prompt is not None)
    system = [text_block(prompt)] if prompt else []
    system += [text_block(text) for text in texts]
    digest = None
    if facts.bound:
        replaced = {name: extra[name] for name in ("system", "tools", "messages") if name in extra}
        digest = RunningDigest([*system, b"", *tools, b"", _wire(replaced)])
    elements = lower(
        messages,
        head,
        request.tail,
        provider=provider,
        model=model,
        digest=digest,
        marks=marks.messages,
        mark=marks.mark,
    )
    if "thinking" not in extra and facts.thinking == "budget" and is_amid_another(elements):
        fields.pop("thinking", None)
    if marks.system:
        system[0] = marked(system[0], marks.mark)
    if marks.tools:
        tools[-1] = marked(tools[-1], marks.mark)
    pieces: dict[str, list[bytes]] = {"model": [_json.wire(model)]}
    for name, listed in (("system", system), ("tools", tools), ("messages", elements)):
        if listed:
            pieces[name] = _array(listed)
    pieces |= {name: [_wire(value)] for name, value in fields.items()}
    thinking = fields.get("thinking")
    binds = isinstance(thinking, Mapping) and "block_binding" in thinking
    return Body(
        fields=pieces,
        version=SAMPLING_VERSION if any(name in fields for name in _SAMPLING) else API_VERSION,
        betas=(BINDING_BETA,) if binds else (),
        prefix=None if digest is None else digest.value,
        reply_tool=reply_tool,
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


class _Marks:
    """Where cache marks go, so that the final body has no more than are taken (C5).

    A `cache_control` of the whole body, which `extra_body` may bring, says how long all of them
    live, because a longer life may not follow a shorter one.
    """

    def __init__(self, extra: Mapping[str, Any]) -> None:
        own = extra.get("cache_control")
        self.mark = _wire(own if isinstance(own, Mapping) else {"type": "ephemeral"})
        self._extra = extra
        self._left = MAX_CACHE_MARKS - _count(extra)
        if self._left < 0:
            raise ConfigError(
                f"RequestOptions.extra_body: has {MAX_CACHE_MARKS - self._left} cache marks, the"
                f" Messages API takes {MAX_CACHE_MARKS}"
            )
        self.messages = 0
        self.system = self.tools = False

    def plan(self, *, has_tools: bool, has_system: bool) -> None:
        """Spend what is left: the last message first, it saves the most."""
        messages = self._take("messages", True)
        self.system = self._take("system", has_system)
        self.tools = self._take("tools", has_tools)
        self.messages = messages + (messages and self._take("messages", True))

    def _take(self, field: str, wanted: bool) -> bool:
        taken = wanted and self._left > 0 and field not in self._extra
        self._left -= taken
        return taken


def _count(value: object) -> int:
    """How many cache marks are in a JSON value."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[Any, Any]", value)
        own = isinstance(fields.get("cache_control"), Mapping)
        return own + sum(_count(item) for name, item in fields.items() if name != "cache_control")
    if isinstance(value, (list, tuple)):
        return sum(_count(item) for item in cast("list[Any]", value))
    return 0


class _Options:
    """Turns the options of one request into fields, or refuses them."""

    def __init__(
        self, options: RequestOptions, tools: tuple[ToolSchema, ...], model: str, facts: Facts
    ) -> None:
        self._options = options
        self._tools = tools
        self._model = model
        self._facts = facts
        self._fields: dict[str, Any] = {}
        self._optional, self._unions = MAX_OPTIONAL, MAX_UNIONS

    def told(self) -> tuple[list[bytes], bool, dict[str, Any]]:
        """The tools, whether one of them is for the reply, and the other fields."""
        options, fields, facts = self._options, self._fields, self._facts
        fields["max_tokens"] = options.max_output_tokens or facts.max_output or DEFAULT_MAX_TOKENS
        thinks = self._think()
        if options.temperature is not None:
            self._sample(options.temperature, thinks)
        if options.stop:
            fields["stop_sequences"] = list(options.stop)
        forced = options.tool_choice is not None and self._choose(options.tool_choice)
        schema = options.response_schema
        closed = None if schema is None else self._reply_format(schema)
        tools = self._list_tools()
        reply_tool = schema is not None and closed is None
        if reply_tool:
            shape = {"name": REPLY_TOOL, "description": "Give your final answer with this tool."}
            tools.append(_wire({**shape, "input_schema": open_schema(schema or {})}))
            either = self._tools and options.tool_choice != "none"
            kind = {"type": "any"} if either else {"type": "tool", "name": REPLY_TOOL}
            if not forced:
                fields["tool_choice"] = kind
            forced = True
        if forced and not facts.forced_choice:
            raise self._refuse("tool_choice", options.tool_choice, "cannot be made to call tools")
        if forced and facts.thinking == "budget" and "thinking" in fields and thinks:
            why = "cannot be made to call tools while it thinks"
            name = "response_schema" if reply_tool else "tool_choice"
            raise self._refuse(name, options.tool_choice or "…", why)
        return tools, reply_tool, fields

    def _refuse(self, option: str, value: object, why: str) -> ConfigError:
        return ConfigError(f"RequestOptions.{option}={value!r}: {self._model} (Messages) {why}")

    def _think(self) -> bool:
        """Set the fields of thinking; whether the model will think."""
        effort, facts, fields = self._options.thinking_effort, self._facts, self._fields
        adaptive: dict[str, Any] = {"type": "adaptive"}
        if facts.bound:
            adaptive["block_binding"] = {"prefix_mismatch_behavior": "drop_block"}
        if effort is None:
            if facts.bound:
                fields["thinking"] = adaptive
            return facts.thinking in ("always", "on")
        if effort == "none":
            if facts.thinking == "always":
                raise self._refuse("thinking_effort", effort, "always thinks")
            if facts.thinking != "none":
                fields["thinking"] = {"type": "disabled"}
            return False
        known = facts.budgets if facts.thinking == "budget" else facts.efforts
        if effort not in known:
            names = ", ".join(known) or "none at all"
            raise self._refuse("thinking_effort", effort, f"takes: {names}")
        if facts.thinking == "budget":
            fields["thinking"] = {"type": "enabled", "budget_tokens": self._budget(effort)}
        else:
            fields["thinking"] = adaptive
        if effort in facts.efforts:
            fields["output_config"] = {"effort": facts.efforts[effort]}
        return True

    def _budget(self, effort: str) -> int:
        """Tokens to think with: they count towards the output cap, and leave some of it."""
        budget, cap = self._facts.budgets[effort], int(self._fields["max_tokens"])
        if self._options.max_output_tokens is None:
            cap = self._fields["max_tokens"] = max(cap, budget + DEFAULT_MAX_TOKENS)
        budget = min(budget, cap - _MIN_BUDGET)
        if budget < _MIN_BUDGET:
            why = f"needs at least {2 * _MIN_BUDGET} max_output_tokens to think and answer"
            raise self._refuse("thinking_effort", effort, why)
        return budget

    def _sample(self, temperature: float, thinks: bool) -> None:
        if temperature == 1:
            return  # what the model does unasked
        if not self._facts.sampling or thinks:
            raise self._refuse("temperature", temperature, "takes no temperature here")
        if temperature > 1:
            raise self._refuse("temperature", temperature, "takes temperatures from 0 to 1")
        self._fields["temperature"] = temperature

    def _choose(self, choice: str) -> bool:
        """Set the choice of tools; whether that makes the model call one."""
        if not self._tools:
            if choice in ("auto", "none"):
                return False
            raise self._refuse("tool_choice", choice, "was given no tools")
        if choice in ("auto", "none"):
            self._fields["tool_choice"] = {"type": choice}
            return False
        if choice == "required":
            self._fields["tool_choice"] = {"type": "any"}
        elif choice in [tool.name for tool in self._tools]:
            self._fields["tool_choice"] = {"type": "tool", "name": choice}
        else:
            raise self._refuse("tool_choice", choice, "was not given this tool")
        return True

    def _reply_format(self, schema: Mapping[str, Any]) -> Closed | None:
        """Set the schema of the reply; `None` when only a tool can bring it."""
        closed = closed_schema(schema) if self._facts.structured else None
        if closed and closed.optional <= self._optional and closed.unions <= self._unions:
            self._optional -= closed.optional
            self._unions -= closed.unions
            config = self._fields.setdefault("output_config", {})
            config["format"] = {"type": "json_schema", "schema": closed.schema}
            return closed
        if not self._facts.forced_choice:
            why = "takes no schema with recursion or with objects of any shape"
            raise self._refuse("response_schema", "…", why)
        return None

    def _list_tools(self) -> list[bytes]:
        strict = self._options.strict_tools
        if strict and not self._facts.structured:
            raise self._refuse("strict_tools", True, "has no strict tools")
        made: list[bytes] = []
        left = MAX_STRICT_TOOLS
        for tool in self._tools:
            closed = _closed(tool) if strict and left else None
            if closed is not None:
                optional, unions = self._optional - closed.optional, self._unions - closed.unions
                if optional < 0 or unions < 0:
                    closed = None  # one tool more than the API compiles: without the promise
                else:
                    self._optional, self._unions, left = optional, unions, left - 1
            made.append(_tool(tool, closed))
        return made


def _closed(tool: ToolSchema) -> Closed | None:
    key = ("anthropic", "closed")
    if key not in tool.memo:
        tool.memo[key] = closed_schema(tool.input_schema)
    return cast("Closed | None", tool.memo[key])


def _tool(tool: ToolSchema, closed: Closed | None) -> bytes:
    key = ("anthropic", closed is not None)
    made: bytes | None = tool.memo.get(key)
    if made is None:
        if not _NAME.fullmatch(tool.name):
            raise ConfigError(
                f"the tool name {tool.name!r} cannot be sent: the Messages API takes up to 64"
                " letters, digits, _ and -"
            )
        shape: dict[str, Any] = {"name": tool.name}
        if tool.description.strip():
            shape["description"] = tool.description
        shape["input_schema"] = open_schema(tool.input_schema) if closed is None else closed.schema
        if closed is not None:
            shape["strict"] = True
        made = tool.memo[key] = _wire(shape)
    return made
