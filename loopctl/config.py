"""Settings of a session, a run and a request: frozen, keyword-only, checked when made (ENG-14).

A value out of its range is a `ConfigError` that names the field, the value and the range.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, Literal, TypeAlias, cast, get_args

from loopctl.errors import ConfigError

Placement: TypeAlias = Literal["head", "tail"]
"""Where a transient rides: in front of the conversation, or behind it (CTX-7)."""

ThinkingEffort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How long the model may think. Each dialect maps it, or refuses what its model has not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestOptions:
    """What one model call may be told (MOD-3). `None` leaves the provider's default.

    `model` overrides the client's; `max_output_tokens` ≥ 1; `temperature` 0 to 2; `stop` are
    stop sequences; `response_schema` a JSON schema for the reply; `tool_choice` `"auto"`,
    `"none"`, `"required"` or a tool's name; `strict_tools` asks for arguments that always fit
    their schema; `extra_body` is merged into the request's JSON last. A client that cannot
    honour one raises `ConfigError` before any byte is sent.
    """

    model: str | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    stop: tuple[str, ...] = ()
    response_schema: Mapping[str, Any] | None = None
    tool_choice: str | None = None
    strict_tools: bool = False
    thinking_effort: ThinkingEffort | None = None
    extra_body: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if isinstance(cast(object, self.stop), str):
            raise _refuse(self, "stop", "a tuple of strings")
        object.__setattr__(self, "stop", tuple(self.stop))
        for name in ("model", "tool_choice"):
            _kind(self, name, (str, NoneType), "a string or None")
        for name in ("response_schema", "extra_body"):
            _kind(self, name, (Mapping, NoneType), "a mapping or None")
        _kind(self, "strict_tools", bool, "True or False")
        _number(self, "max_output_tokens", low=1, whole=True, optional=True)
        _number(self, "temperature", low=0, high=2, optional=True)
        efforts = get_args(ThinkingEffort)
        if self.thinking_effort is not None and self.thinking_effort not in efforts:
            raise _refuse(self, "thinking_effort", f"one of {', '.join(efforts)}")


_OPTION = re.compile(r"RequestOptions\.(\w+)")


def refused_option(error: ConfigError) -> str | None:
    """The option that a client cannot honour, by the name that its error begins with (MOD-3)."""
    found = _OPTION.match(str(error))
    return found[1] if found else None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig:
    """Settings of one run.

    `max_turns` (200) ≥ 1; `memory_top_k` (3) ≥ 0 entries of memory ride each request, 0 is off;
    `parallel_tools` (on) lets safe calls of one reply run together, at most `max_concurrency` (8)
    at once; `options` ride on every request of the run.
    """

    max_turns: int = 200
    memory_top_k: int = 3
    parallel_tools: bool = True
    max_concurrency: int = 8
    options: RequestOptions = field(default_factory=RequestOptions)

    def __post_init__(self) -> None:
        _number(self, "max_turns", low=1, whole=True)
        _number(self, "memory_top_k", low=0, whole=True)
        _number(self, "max_concurrency", low=1, whole=True)
        _kind(self, "parallel_tools", bool, "True or False")
        _kind(self, "options", RequestOptions, "RequestOptions")


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionConfig:
    """Settings of one session. Times are seconds; `None` switches a time limit off.

    `context_window` is the model's window in tokens: by default what the client knows of its model,
    else 128,000; 0 switches the window's lines off. `compact_threshold` (80) is the soft line, in
    per cent of the window from 1 to 100; `auto_compact` (on) compacts there, off only at the
    emergency line of 95 %; `compaction_timeout` (120) bounds one pass.
    `attachment_placement` and `memory_placement` head or tail (CTX-7); `contributor_timeout` (10)
    for async contributors, for advice before a pass and for memory; `decision_timeout` (10) for
    async `before_tool_call` hooks and `approval_timeout` (off) for the approver; `tool_timeout`
    (120) for tools without their own; `max_result_chars` (16,384) ≥ 256, what any tool result is
    cut to; `strict_plugins` ends a run when a contributor fails; `keep_runs` (100) ≥ 0, the length
    of the audit trail; `working_folder` what tools see (the process's by default); `run` the
    default `RunConfig`.
    """

    context_window: int | None = None
    compact_threshold: float = 80
    auto_compact: bool = True
    compaction_timeout: float | None = 120.0
    attachment_placement: Placement = "head"
    memory_placement: Placement = "head"
    contributor_timeout: float | None = 10.0
    decision_timeout: float | None = 10.0
    approval_timeout: float | None = None
    tool_timeout: float | None = 120.0
    max_result_chars: int = 16_384
    strict_plugins: bool = False
    keep_runs: int = 100
    working_folder: str | None = None
    run: RunConfig = field(default_factory=RunConfig)

    def __post_init__(self) -> None:
        _number(self, "context_window", low=0, whole=True, optional=True)
        _number(self, "compact_threshold", low=1, high=100)
        for name in ("attachment_placement", "memory_placement"):
            if getattr(self, name) not in get_args(Placement):
                raise _refuse(self, name, "'head' or 'tail'")
        for name in _TIMES:
            _number(self, name, above=0, optional=True)
        _number(self, "max_result_chars", low=256, whole=True)
        _number(self, "keep_runs", low=0, whole=True)
        _kind(self, "auto_compact", bool, "True or False")
        _kind(self, "strict_plugins", bool, "True or False")
        _kind(self, "working_folder", (str, NoneType), "a string or None")
        _kind(self, "run", RunConfig, "a RunConfig")


_TIMES = (
    "compaction_timeout",
    "contributor_timeout",
    "decision_timeout",
    "approval_timeout",
    "tool_timeout",
)


def _number(
    config: Any,
    name: str,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    above: float = -math.inf,
    whole: bool = False,
    optional: bool = False,
) -> None:
    """Check one finite number; raises `ConfigError` that names field, value and range."""
    value: Any = getattr(config, name)
    if value is None and optional:
        return
    if type(value) is int or (type(value) is float and not whole):
        number: float = value
        if low <= number <= high and above < number < math.inf:
            return
    wanted = ["a whole number" if whole else "a number"]
    wanted += [f"≥ {low}"] * (low > -math.inf) + [f"≤ {high}"] * (high < math.inf)
    wanted += [f"> {above}"] * (above > -math.inf) + ["or None"] * optional
    raise _refuse(config, name, " ".join(wanted))


def _kind(config: object, name: str, kind: type | tuple[type, ...], wanted: str) -> None:
    """Check the type of one field."""
    if not isinstance(getattr(config, name), kind):
        raise _refuse(config, name, wanted)


def _refuse(config: object, name: str, wanted: str) -> ConfigError:
    value: object = getattr(config, name)
    return ConfigError(f"{type(config).__name__}.{name}={value!r}: must be {wanted}")
