"""One model call that is read along (ENG-22, ENG-25). Loaded with the first stream."""

from __future__ import annotations

from loopctl._deadline import Deadline
from loopctl.engine.flight import Flight
from loopctl.models.client import ModelRequest
from loopctl.models.resilience import ResilientClient
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
        if isinstance(serving, ResilientClient):
            await serving.follow(request, self._receive)
        else:
            async with serving.stream(request) as events:
                async for event in events:
                    await self._receive(event, None)
        return self._accumulator.response()

    async def _receive(self, event: StreamEvent, deadline: Deadline | None) -> None:
        if isinstance(event, AttemptStarted):
            self._flight.spend(event.failed_usage)
            self._accumulator, self._attempt = Accumulator(), event.attempt
            if self._flight.tell is not None:
                await self._flight.tell.attempt_reset(event)
            return
        self._accumulator.feed(event)
        tell = self._flight.tell
        if tell is None or type(event) is not PartDelta:
            return
        if event.text and event.kind != "tool_call":
            await tell.delta(event, self._attempt, deadline)
