"""A primary model and its backups, as one client (MOD-18).

Each member retries by its own policy before the chain moves on: its one call is then one failure.
A call goes to the primary while its breaker lets it through, else to the first backup that is fit
for it. The next member serves the same call; what a failed one had said before is void, as after
any other failed attempt (MOD-15).

What is a failure: whatever another model may do better. A call that was cancelled, and one that
the primary refuses for good (a permanent 4xx, a prompt that is too long, an option that it does
not have), is raised as it is and counts for nothing. A backup that refuses is passed over.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias

from loopctl import _json
from loopctl._clock import SYSTEM_CLOCK, Clock
from loopctl._deadline import Deadline
from loopctl.errors import (
    ConfigError,
    ContextOverflowError,
    FallbackExhausted,
    InvalidResponseError,
    ModelError,
)
from loopctl.models.breaker import Breaker, Gate, Tally, Ticket
from loopctl.models.client import ModelClient, ModelRequest
from loopctl.models.resilience import ResilientClient
from loopctl.models.retries import Receive, RetryingClient, RetryPolicy
from loopctl.replies import ModelResponse
from loopctl.tokens import DEFAULT_COUNTER, TokenCounter
from loopctl.usage import Usage
from loopctl.wire.stream_events import AttemptStarted, MessageStop

if TYPE_CHECKING:
    from loopctl.wire.stream_events import StreamEvent


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """Which member a call goes to, and why to that one."""

    model: str
    provider: str
    reason: str


OnAsked: TypeAlias = Callable[[Asked], Awaitable[None] | None]
"""Told of each member before it is asked; what it returns is awaited first."""


class FallbackChain(RetryingClient):
    """A `ModelClient` that asks `primary`, and one of `backups` while that one fails.

    A member that is no `ResilientClient` is made one, with `retry`. Three failed calls in a row
    trip the primary's breaker: it is left alone for 60 seconds, then asked by one call at a time
    and without retries; two successes bring it back. A backup that failed twice in a row is
    skipped for as long. When all have failed, or none is left to ask, `FallbackExhausted` tells
    why.

    Backups may be of other providers. They get the request without the model that it names for
    the primary, and without an `extra_body` that was written for another provider. One that cannot
    honour an option, or whose window cannot hold the request by the estimate of `counter`, is
    passed over. `model`, `provider` and `context_window` are the primary's.

    A chain may serve many sessions at once. Raises `ConfigError` without backups, and for a member
    that is a chain itself.
    """

    def __init__(
        self,
        primary: ModelClient,
        backups: Iterable[ModelClient],
        *,
        retry: RetryPolicy | None = None,
        counter: TokenCounter = DEFAULT_COUNTER,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        def resilient(client: ModelClient) -> ResilientClient:
            if isinstance(client, ResilientClient):
                return client
            return ResilientClient(client, retry, clock=clock)

        first = resilient(primary)
        once = replace(first.policy, retries=0, rate_limit_retries=0)
        probing = ResilientClient(first.client, once, clock=clock)
        self._members = (
            _Member(first, probing, Breaker(clock)),
            *(_Member(made, made, Tally(clock)) for made in map(resilient, backups)),
        )
        if len(self._members) == 1:
            raise ConfigError("a FallbackChain needs at least one backup")
        self._counter = counter

    @property
    def model(self) -> str:
        """The primary's model."""
        return self._members[0].client.model

    @property
    def provider(self) -> str:
        """The primary's provider."""
        return self._members[0].client.provider

    @property
    def context_window(self) -> int | None:
        """The primary's window in tokens, `None` when unknown."""
        return self._members[0].client.context_window

    async def complete(
        self,
        request: ModelRequest,
        *,
        on_failure: Callable[[Usage | None], object] | None = None,
        on_asked: OnAsked | None = None,
    ) -> ModelResponse:
        """The whole reply at once.

        `on_failure` is given what each attempt that is made again had cost, by whatever member;
        the reply's own usage holds its own attempt only. Raises `FallbackExhausted`.
        """
        way = _Way(self._members, request, self._counter, on_asked)
        while True:
            ask = way.next()
            with ask:
                await way.tell(ask)
                if on_failure is not None and way.failure is not None:
                    on_failure(way.failure.usage)
                return await ask.client.complete(ask.request, on_failure=on_failure)

    async def follow(
        self, request: ModelRequest, receive: Receive, *, on_asked: OnAsked | None = None
    ) -> None:
        """The same as `stream`, told event by event, for who reads all of it in one place."""
        way = _Way(self._members, request, self._counter, on_asked)

        def pass_on(event: StreamEvent, deadline: Deadline | None) -> Awaitable[None] | None:
            return receive(way.numbered(event), deadline)

        while True:
            ask = way.next()
            with ask:
                await way.tell(ask)
                anew = way.started_anew()
                if anew is not None and (waiting := receive(anew, None)) is not None:
                    await waiting
                await ask.client.follow(ask.request, pass_on)
                return

    @asynccontextmanager
    async def stream(
        self, request: ModelRequest, *, on_asked: OnAsked | None = None
    ) -> AsyncGenerator[AsyncIterator[StreamEvent]]:
        """The reply as it comes, `AttemptStarted` in front of every attempt but the first."""
        way = _Way(self._members, request, self._counter, on_asked)
        async with aclosing(_events(way)) as told:
            yield told

    async def aclose(self) -> None:
        """Close the members."""
        for member in self._members:
            await member.client.aclose()


@dataclass(slots=True, eq=False)
class _Member:
    """A client, the one that makes its probes, what lets calls through to it, its last error."""

    client: ResilientClient
    probing: ResilientClient
    gate: Gate
    last: ModelError | ConfigError | None = None


class _Way:
    """One call's way through the chain.

    `failure` is the error of the attempt that the next member makes again, `None` while there was
    none.
    """

    def __init__(
        self,
        members: tuple[_Member, ...],
        request: ModelRequest,
        counter: TokenCounter,
        on_asked: OnAsked | None,
    ) -> None:
        self.failure: ModelError | None = None
        self._members = members
        self._request = request
        self._counter = counter
        self._on_asked = on_asked
        self._asks = self._in_order()
        self._causes: list[Exception] = []
        self._earlier = 0  # attempts of the members before
        self._made = 0
        self._size: float | None = None

    def next(self) -> _Ask:
        """The member to ask now; raises `FallbackExhausted` when none is left."""
        ask = next(self._asks, None)
        if ask is None:
            exhausted = FallbackExhausted(tuple(self._causes))
            exhausted.usage = self.failure.usage if self.failure is not None else None
            raise exhausted
        return ask

    async def tell(self, ask: _Ask) -> None:
        """Say who is asked."""
        if self._on_asked is not None:
            client = ask.client
            told = self._on_asked(
                Asked(model=client.model, provider=client.provider, reason=self._reason(ask))
            )
            if told is not None:
                await told

    def started_anew(self) -> AttemptStarted | None:
        """What voids the attempt of the member before, if it made one."""
        if self.failure is None:
            return None
        self._made += 1
        self._earlier = self._made
        return AttemptStarted(self._made, str(self.failure), self.failure.usage)

    def numbered(self, event: StreamEvent) -> StreamEvent:
        """A member's event, its attempts counted on from those of the members before."""
        if type(event) is AttemptStarted:
            self._made = self._earlier + event.attempt
            return replace(event, attempt=self._made)
        return event

    def failed(self, ask: _Ask, error: ModelError | ConfigError) -> bool:
        """`ask` ended in an error; whether the next member is to serve the call."""
        counts = _counts(error)
        ask.ticket.settle(failed=True if counts else None)
        if not counts and ask.member is self._members[0]:
            return False
        ask.member.last = error
        self._causes.append(error)
        self.failure = error if isinstance(error, ModelError) else None
        return True

    def _in_order(self) -> Iterator[_Ask]:
        for member in self._members:
            backup = member is not self._members[0]
            if backup and (lack := self._lack(member)) is not None:
                self._causes.append(lack)
                continue
            ticket = member.gate.admit()
            if ticket is None:
                if member.last is not None:
                    self._causes.append(member.last)
                continue
            request = self._for_backup(member) if backup else self._request
            yield _Ask(self, member, request, ticket)

    def _lack(self, member: _Member) -> ContextOverflowError | None:
        """Why a backup's window cannot hold the request, as far as both are known."""
        client, window = member.client, member.client.context_window
        if window is None:
            return None
        if self._size is None:
            self._size = _size(self._request, self._counter)
        if self._size <= window:
            return None
        return ContextOverflowError(
            "the request is too long for this backup",
            used=round(self._size),
            limit=window,
            provider=client.provider,
            model=client.model,
        )

    def _for_backup(self, member: _Member) -> ModelRequest:
        options = replace(self._request.options, model=None)
        if member.client.provider != self._members[0].client.provider:
            options = replace(options, extra_body=None)
        return replace(self._request, options=options)

    def _reason(self, ask: _Ask) -> str:
        primary = self._members[0]
        if ask.member is not primary:
            return str(self._causes[-1])
        return "its pause is over" if ask.ticket.probe else "it is the primary"


class _Ask:
    """One member that is asked. As a block around the call it settles the ticket however it ends.

    An error that the next member may mend is kept from leaving the block.
    """

    def __init__(self, way: _Way, member: _Member, request: ModelRequest, ticket: Ticket) -> None:
        self.member = member
        self.client = member.probing if ticket.probe else member.client
        self.request = request
        self.ticket = ticket
        self._way = way

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if isinstance(error, (ModelError, ConfigError)):
            return self._way.failed(self, error)
        self.ticket.settle(failed=False if error is None else None)
        return False


async def _events(way: _Way) -> AsyncGenerator[StreamEvent]:
    while True:
        ask = way.next()
        with ask:
            await way.tell(ask)
            if anew := way.started_anew():
                yield anew
            async with ask.client.stream(ask.request) as source:
                async for event in source:
                    if type(event) is MessageStop:
                        ask.ticket.settle(failed=False)  # readers may leave here
                    yield way.numbered(event)
            return


def _counts(error: ModelError | ConfigError) -> bool:
    """Whether an error is the fault of the model or its server, and not of the request."""
    return error.recoverable or isinstance(error, InvalidResponseError)


def _size(request: ModelRequest, counter: TokenCounter) -> float:
    """What a request and its reply take of a window, in tokens."""
    size = sum(counter.count(message) for message in request.messages)
    size += counter.count_text(request.system or "")
    for tool in request.tools:
        schema = _json.dumps(_json.to_plain(tool.input_schema))
        size += counter.count_text(f"{tool.name} {tool.description} {schema}")
    return size + (request.options.max_output_tokens or 0)
