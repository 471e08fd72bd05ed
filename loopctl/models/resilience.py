"""The one layer that retries, and the deadlines of an attempt (MOD-14, MOD-15).

Time limits lie around each wait for the inner client and around nothing else: while the reader
of a stream is not asking for more, while a retry backs off and while a `RateLimiter` waits, no
limit runs. Nothing about a call is kept on the client, so calls may overlap.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

from anyio import sleep

from loopctl._clock import SYSTEM_CLOCK, Clock
from loopctl._deadline import Deadline
from loopctl.errors import ConfigError, ModelError
from loopctl.models.client import ModelClient, ModelRequest
from loopctl.models.limiter import ATTEMPT
from loopctl.models.retries import Receive, RetryingClient, RetryPolicy, Tries, stalled
from loopctl.replies import ModelResponse
from loopctl.usage import Usage

if TYPE_CHECKING:
    from loopctl.wire.stream_events import StreamEvent


class ResilientClient(RetryingClient):
    """A `ModelClient` that makes failed calls of another one again.

    Only recoverable errors are retried; any other is raised after its first attempt. A stream
    that failed, before or after visible output, goes on with `AttemptStarted` and the events of
    the next attempt. An error that is raised carries the cost of its own attempt as `usage`.

    Raises `ConfigError` for a client that is resilient already: waits must not multiply.
    """

    def __init__(
        self, client: ModelClient, policy: RetryPolicy | None = None, *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        if isinstance(client, RetryingClient):
            raise ConfigError(
                f"a ResilientClient must not wrap a {type(client).__name__}: one layer retries"
            )
        self.client = client
        self.policy = policy if policy is not None else RetryPolicy()
        self._clock = clock

    @property
    def model(self) -> str:
        """The model's name at its provider."""
        return self.client.model

    @property
    def provider(self) -> str:
        """The provider's name."""
        return self.client.provider

    @property
    def context_window(self) -> int | None:
        """The model's window in tokens, `None` when unknown."""
        return self.client.context_window

    async def complete(
        self,
        request: ModelRequest,
        *,
        on_failure: Callable[[Usage | None], object] | None = None,
    ) -> ModelResponse:
        """The whole reply at once.

        `on_failure` is given what each attempt that is made again had cost; the reply's own usage
        holds its own attempt only.
        """
        tries: Tries | None = None
        while True:
            deadline = Deadline(self.policy.attempt_timeout)
            token = ATTEMPT.set(deadline)
            try:
                with deadline:
                    return await self.client.complete(request)
                failure: ModelError = stalled(self.client, "no reply", self.policy.attempt_timeout)
            except ModelError as error:
                failure = error
            finally:
                ATTEMPT.reset(token)
            tries = tries or Tries(self.policy, self._clock)
            delay = tries.delay_after(failure)
            if delay is None:
                raise failure
            if on_failure is not None:
                on_failure(failure.usage)
            await sleep(delay)

    async def follow(
        self,
        request: ModelRequest,
        receive: Receive,
    ) -> None:
        """The same as `stream`, told event by event, for who reads all of it in one place.

        `receive` takes an event at once, and returns what is to be awaited before the next one, if
        anything. That runs under the attempt's deadline, which `receive` is given: it is to be
        paused while anything but the provider is waited for.
        """
        from loopctl.models.resilient_stream import follow  # loaded with the first stream

        await follow(self.client, self.policy, self._clock, request, receive)

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[StreamEvent]]:
        """The reply as it comes, `AttemptStarted` in front of every attempt but the first."""
        from loopctl.models.resilient_stream import events

        async with aclosing(events(self.client, self.policy, self._clock, request)) as told:
            yield told

    async def aclose(self) -> None:
        """Close the inner client."""
        await self.client.aclose()
