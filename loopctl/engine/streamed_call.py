"""One model call that is read along (ENG-22, ENG-25). Loaded with the first stream."""

from __future__ import annotations

from collections.abc import Awaitable

from loopctl._deadline import Deadline
from loopctl.engine.flight import Flight
from loopctl.models.client import ModelRequest
from loopctl.models.fallback import FallbackChain
from loopctl.models.retries import RetryingClient
from loopctl.replies import ModelResponse
from loopctl.wire.accumulator import Accumulator
from loopctl.wire.stream_events import AttemptStarted, PartDelta, StreamEvent


class StreamedCall:
    """Builds the reply of one call from its events and tells each visible piece at once."""

    def __init__(self, flight: Flight) -> None:
        self._flight = flight
        self._accumulator = Accumulator()
        self._attempt = 0

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """The whole reply, told as it comes; only the last attempt counts (MOD-15)."""
        serving = self._flight.session.serving
        if isinstance(serving, FallbackChain):
            await serving.follow(request, self._receive, on_asked=self._flight.asked)
        elif isinstance(serving, RetryingClient):
            await serving.follow(request, self._receive)
        else:
            async with serving.stream(request) as events:
                async for event in events:
                    telling = self._receive(event, None)
                    if telling is not None:
                        await telling
        return self._accumulator.response()

    def _receive(self, event: StreamEvent, deadline: Deadline | None) -> Awaitable[None] | None:
        """Take an event; what is to be told of it, if anything."""
        self._accumulator.feed(event)
        tell = self._flight.tell
        if type(event) is PartDelta:
            if tell is not None and event.text and event.kind != "tool_call":
                return tell.delta(event, self._attempt, deadline)
        elif type(event) is AttemptStarted:
            self._flight.spend(event.failed_usage)
            self._attempt = event.attempt
            return None if tell is None else tell.attempt_reset(event)
        return None
