"""loopctl: an agent loop with context that you control.

The names below are the public surface; each is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loopctl.compaction.truncating import TruncatingCompactor
    from loopctl.compaction.types import CompactionAdvice, CompactionContext, Compactor
    from loopctl.config import RequestOptions, RunConfig, SessionConfig
    from loopctl.context.attachments import Attachment, AttachmentKind
    from loopctl.context.contributors import (
        ContextContributor,
        Contribution,
        ContributorContext,
    )
    from loopctl.context.explanation import Explanation
    from loopctl.context.pins import FileAttachment, MemoryAttachment, TodoAttachment, TodoItem
    from loopctl.engine.passes import PassReport
    from loopctl.engine.stream import EventStream
    from loopctl.errors import LoopError
    from loopctl.hookspecs import hookimpl
    from loopctl.installed import installed_plugins
    from loopctl.loop import BareLoop
    from loopctl.machine import CompactReason, LoopMachine
    from loopctl.memory.in_memory import InMemoryStore
    from loopctl.memory.types import Memory, MemoryCategory, MemoryEntry
    from loopctl.messages import (
        ImagePart,
        Message,
        Role,
        TextPart,
        ThinkingPart,
        ToolCallPart,
        ToolResultPart,
    )
    from loopctl.models.client import ModelClient, ModelRequest
    from loopctl.models.connect import connect
    from loopctl.models.fallback import FallbackChain
    from loopctl.models.limiter import RateLimiter
    from loopctl.models.resilience import ResilientClient
    from loopctl.models.retries import RetryPolicy
    from loopctl.replies import ModelResponse, StopReason
    from loopctl.runs import Run
    from loopctl.tokens import HeuristicTokenCounter, RatioTokenCounter, TokenCounter
    from loopctl.tools.decisions import Allow, ApprovalRequest, Ask, Deny, Modify, ToolCallContext
    from loopctl.tools.function import tool
    from loopctl.tools.layers import Layer, rewritten
    from loopctl.tools.registry import ToolRegistry
    from loopctl.tools.types import Tool, ToolContext, ToolOutput
    from loopctl.usage import Usage

_HOMES = {
    "Allow": "tools.decisions",
    "ApprovalRequest": "tools.decisions",
    "Ask": "tools.decisions",
    "Attachment": "context.attachments",
    "AttachmentKind": "context.attachments",
    "BareLoop": "loop",
    "CompactReason": "machine",
    "CompactionAdvice": "compaction.types",
    "CompactionContext": "compaction.types",
    "Compactor": "compaction.types",
    "ContextContributor": "context.contributors",
    "Contribution": "context.contributors",
    "ContributorContext": "context.contributors",
    "Deny": "tools.decisions",
    "EventStream": "engine.stream",
    "Explanation": "context.explanation",
    "FallbackChain": "models.fallback",
    "FileAttachment": "context.pins",
    "HeuristicTokenCounter": "tokens",
    "ImagePart": "messages",
    "InMemoryStore": "memory.in_memory",
    "Layer": "tools.layers",
    "LoopError": "errors",
    "LoopMachine": "machine",
    "Memory": "memory.types",
    "MemoryAttachment": "context.pins",
    "MemoryCategory": "memory.types",
    "MemoryEntry": "memory.types",
    "Message": "messages",
    "ModelClient": "models.client",
    "ModelRequest": "models.client",
    "ModelResponse": "replies",
    "Modify": "tools.decisions",
    "PassReport": "engine.passes",
    "RateLimiter": "models.limiter",
    "RatioTokenCounter": "tokens",
    "RequestOptions": "config",
    "ResilientClient": "models.resilience",
    "RetryPolicy": "models.retries",
    "Role": "messages",
    "Run": "runs",
    "RunConfig": "config",
    "SessionConfig": "config",
    "StopReason": "replies",
    "TextPart": "messages",
    "ThinkingPart": "messages",
    "TodoAttachment": "context.pins",
    "TodoItem": "context.pins",
    "TokenCounter": "tokens",
    "Tool": "tools.types",
    "ToolCallContext": "tools.decisions",
    "ToolCallPart": "messages",
    "ToolContext": "tools.types",
    "ToolOutput": "tools.types",
    "ToolRegistry": "tools.registry",
    "ToolResultPart": "messages",
    "TruncatingCompactor": "compaction.truncating",
    "Usage": "usage",
    "connect": "models.connect",
    "hookimpl": "hookspecs",
    "installed_plugins": "installed",
    "rewritten": "tools.layers",
    "tool": "tools.function",
}
"""Each public name and the module that it lives in."""

__all__ = [  # sorted as _HOMES is
    "Allow",
    "ApprovalRequest",
    "Ask",
    "Attachment",
    "AttachmentKind",
    "BareLoop",
    "CompactReason",
    "CompactionAdvice",
    "CompactionContext",
    "Compactor",
    "ContextContributor",
    "Contribution",
    "ContributorContext",
    "Deny",
    "EventStream",
    "Explanation",
    "FallbackChain",
    "FileAttachment",
    "HeuristicTokenCounter",
    "ImagePart",
    "InMemoryStore",
    "Layer",
    "LoopError",
    "LoopMachine",
    "Memory",
    "MemoryAttachment",
    "MemoryCategory",
    "MemoryEntry",
    "Message",
    "ModelClient",
    "ModelRequest",
    "ModelResponse",
    "Modify",
    "PassReport",
    "RateLimiter",
    "RatioTokenCounter",
    "RequestOptions",
    "ResilientClient",
    "RetryPolicy",
    "Role",
    "Run",
    "RunConfig",
    "SessionConfig",
    "StopReason",
    "TextPart",
    "ThinkingPart",
    "TodoAttachment",
    "TodoItem",
    "TokenCounter",
    "Tool",
    "ToolCallContext",
    "ToolCallPart",
    "ToolContext",
    "ToolOutput",
    "ToolRegistry",
    "ToolResultPart",
    "TruncatingCompactor",
    "Usage",
    "connect",
    "hookimpl",
    "installed_plugins",
    "rewritten",
    "tool",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'loopctl' has no attribute {name!r}")
    value = getattr(import_module(f"loopctl.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
