"""The protocol that every model client keeps, and the request that it is given (MOD-3)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from loopctl.config import RequestOptions
from loopctl.messages import Message
from loopctl.replies import ModelResponse

if TYPE_CHECKING:
    from loopctl.wire.stream_events import StreamEvent


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ToolSchema:
    """A tool as the model sees it: name, description, JSON schema of its arguments."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    memo: dict[Any, Any] = field(default_factory=dict[Any, Any], init=False, repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelRequest:
    """Everything that one model call sends.

    `messages` are head transients, conversation, tail transients, in that order (CTX-19);
    `head` and `tail` count the transients at each end. `system` and `tools` travel beside them.
    """

    messages: tuple[Message, ...]
    system: str | None = None
    tools: tuple[ToolSchema, ...] = ()
    options: RequestOptions = field(default_factory=RequestOptions)
    head: int = 0
    tail: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpRequest:
    """The exact request of a dialect; `headers` without the key, `body` to the byte.

    `prefix` is the digest of all that it sends, which reasoning in its reply is bound to, `None`
    where the dialect binds none (MOD-26).
    """

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes
    prefix: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelInfo:
    """A model that a provider offers; window and output cap in tokens, `None` where not told."""

    id: str
    context_window: int | None = None
    max_output: int | None = None


@runtime_checkable
class ModelClient(Protocol):
    """What a session needs of a model.

    A client may serve many sessions at once. It raises `ModelError`s for failed calls and
    `ConfigError` for an option that it cannot honour, before any byte is sent.
    """

    @property
    def model(self) -> str:
        """The model's name at its provider."""
        ...

    @property
    def provider(self) -> str:
        """The provider's name, as in `connect("provider:model")`."""
        ...

    @property
    def context_window(self) -> int | None:
        """The model's window in tokens, `None` when unknown."""
        ...

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """The whole reply at once."""
        ...

    def stream(
        self, request: ModelRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[StreamEvent]]:
        """The reply as it comes; leaving the block closes the connection at once."""
        ...

    async def aclose(self) -> None:
        """Close what the client opened; it may be used again afterwards."""
        ...
