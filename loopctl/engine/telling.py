"""The events of a run, made where somebody listens (ENG-24). Loaded with the first listener."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loopctl._failures import error_text
from loopctl.events import (
    AttachmentsChanged,
    AttemptReset,
    CompactionFailed,
    CompactionFinished,
    CompactionSkipped,
    CompactionStarted,
    ContributorFailed,
    Event,
    MemoryFailed,
    ModelSwitched,
    ReplyReceived,
    RunEnded,
    RunStarted,
    SteeringDelivered,
    TextDelta,
    ThinkingDelta,
    ToolCallRequested,
    ToolFinished,
    TurnDeferred,
    TurnEnded,
    TurnStarted,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loopctl._deadline import Deadline
    from loopctl.context.contributors import ContributorFailure
    from loopctl.engine.emitter import Emitter
    from loopctl.engine.flight import Flight, OpenTurn
    from loopctl.engine.passes import PassReport
    from loopctl.messages import Message, ToolResultPart
    from loopctl.runs import Run
    from loopctl.wire.stream_events import AttemptStarted, PartDelta


class Teller:
    """Tells the steps of one flight to its emitter."""

    def __init__(self, flight: Flight) -> None:
        self._flight = flight
        self._send = flight.emitter.send
        self._run_id = flight.run_id

    async def run_started(self) -> None:
        """The run begins."""
        await self._send(RunStarted(run_id=self._run_id, turn=0, input=self._flight.input))

    async def contributor_failed(self, failure: ContributorFailure) -> None:
        """A contributor lost its message for this turn."""
        failed = ContributorFailed(
            run_id=self._run_id,
            turn=self._flight.turn,
            contributor=failure.contributor,
            distribution=failure.distribution,
            reason=failure.reason,
        )
        await self._send(failed)

    async def steering_delivered(self, messages: tuple[Message, ...]) -> None:
        """What users said is part of the conversation now."""
        turn = self._flight.turn
        await self._send(SteeringDelivered(run_id=self._run_id, turn=turn, messages=messages))

    async def memory_failed(self, operation: str, reason: str) -> None:
        """The memory store failed; the turn goes on without it."""
        turn = self._flight.turn
        failed = MemoryFailed(run_id=self._run_id, turn=turn, operation=operation, reason=reason)
        await self._send(failed)

    async def turn_deferred(self, tokens: int, line: int) -> None:
        """The turn waits for a pass: its payload crossed the line."""
        turn = self._flight.turn
        await self._send(TurnDeferred(run_id=self._run_id, turn=turn, tokens=tokens, line=line))

    async def turn_started(self, over_line: int) -> None:
        """The model is about to be called."""
        turn = self._flight.turn
        await self._send(TurnStarted(run_id=self._run_id, turn=turn, over_line=over_line))

    async def delta(self, delta: PartDelta, attempt: int, deadline: Deadline | None) -> None:
        """A visible piece of the reply; `deadline` stands still for a slow reader."""
        kind = TextDelta if delta.kind == "text" else ThinkingDelta
        turn = self._flight.turn
        event = kind(run_id=self._run_id, turn=turn, text=delta.text, attempt=attempt)
        await self._send(event, deadline)

    async def attempt_reset(self, started: AttemptStarted) -> None:
        """The call is made again; what was shown of it is void."""
        reset = AttemptReset(
            run_id=self._run_id,
            turn=self._flight.turn,
            attempt=started.attempt,
            reason=started.reason,
        )
        await self._send(reset)

    async def model_switched(self, model: str, previous: str, reason: str) -> None:
        """Another model serves from now on."""
        turn = self._flight.turn
        switched = ModelSwitched(
            run_id=self._run_id, turn=turn, model=model, previous=previous, reason=reason
        )
        await self._send(switched)

    async def reply(self, turn: OpenTurn) -> None:
        """The reply is complete, and these are its calls."""
        response, run_id, number = turn.response, self._run_id, turn.number
        received = ReplyReceived(
            run_id=run_id,
            turn=number,
            message=response.message,
            stop_reason=response.stop_reason,
            usage=turn.usage,
            model=response.model,
        )
        await self._send(received)
        for call in turn.calls:
            await self._send(ToolCallRequested(run_id=run_id, turn=number, call=call))
        if not turn.calls:
            await self.turn_ended(turn)

    async def answered(self, turn: OpenTurn, results: Iterable[ToolResultPart]) -> None:
        """These calls had their result without running."""
        for result in results:
            told = ToolFinished(run_id=self._run_id, turn=turn.number, result=result, seconds=0.0)
            await self._send(told)

    async def turn_ended(self, turn: OpenTurn) -> None:
        """The turn is complete."""
        await self._send(TurnEnded(run_id=self._run_id, turn=turn.number, usage=turn.usage))


def run_ended(run: Run[Any], text: str | None) -> RunEnded:
    """The last event of a run; `text` is its answer as the model wrote it."""
    error = run.error
    return RunEnded(
        run_id=run.id,
        turn=max(0, len(run.turns) - 1),
        ending=run.ending,
        output=text,
        usage=run.usage,
        turns=len(run.turns),
        error=None if error is None else error_text(error),
    )


def pass_started(run_id: str, turn: int, report: PassReport) -> Event:
    """A pass begins."""
    return CompactionStarted(
        run_id=run_id,
        turn=turn,
        reason=report.reason.value,
        tokens=report.before,
        target=report.target,
    )


def pass_ended(run_id: str, turn: int, report: PassReport) -> Event:
    """What came of a pass."""
    reason = report.reason.value
    if report.error is not None:
        return CompactionFailed(run_id=run_id, turn=turn, reason=reason, error=report.why)
    if not report.changed:
        return CompactionSkipped(run_id=run_id, turn=turn, reason=reason, why=report.why)
    before, after = report.before, report.after
    return CompactionFinished(run_id=run_id, turn=turn, reason=reason, before=before, after=after)


def attachments_changed(
    emitter: Emitter, flight: Flight | None, attachment_id: str, ids: tuple[str, ...]
) -> None:
    """An attachment was pinned, replaced or detached, in a run or between runs."""
    changed = AttachmentsChanged(
        run_id="" if flight is None else flight.run_id,
        turn=0 if flight is None else flight.turn,
        attachment_id=attachment_id,
        ids=ids,
    )
    emitter.tell(changed)
