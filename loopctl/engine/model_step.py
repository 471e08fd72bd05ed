"""One model call: consult, assemble, call, feed the reply back (CTX-3, CTX-19, ENG-25)."""

from __future__ import annotations

from loopctl._cancel import stop_if_cancelled
from loopctl.context.assembly import assemble
from loopctl.context.contributors import Consultation, Contributions, consult
from loopctl.engine.flight import Flight, OpenTurn
from loopctl.events import (
    AttemptReset,
    ContributorFailed,
    ReplyReceived,
    TextDelta,
    ThinkingDelta,
    ToolCallRequested,
    TurnEnded,
    TurnStarted,
)
from loopctl.models.client import ModelRequest
from loopctl.models.resilience import ResilientClient
from loopctl.replies import ModelResponse, StopReason
from loopctl.usage import Usage
from loopctl.wire.accumulator import Accumulator
from loopctl.wire.stream_events import AttemptStarted, PartDelta

_NOBODY = Contributions([], [], [])


async def build_request(flight: Flight) -> ModelRequest:
    """Ask the contributors, render the attachments, put the request together."""
    session, config = flight.session, flight.session.config
    contributions = _NOBODY
    if session.plugins.contributors:
        consultation = Consultation(
            turn=flight.turn,
            conversation_of=session.machine,
            deps=session.deps,
            run_input=flight.input,
            run_id=flight.run_id,
            session_id=session.session_id,
            working_folder=session.working_folder,
            now=session.clock.now,
        )
        contributions = await consult(
            session.plugins.contributors,
            consultation,
            timeout=config.contributor_timeout,
            threads=session.threads,
            strict=config.strict_plugins,
        )
        for failure in contributions.failures:
            flight.contributor_failed(failure)
            if flight.emitter.active:
                failed = ContributorFailed(
                    run_id=flight.run_id,
                    turn=flight.turn,
                    contributor=failure.contributor,
                    distribution=failure.distribution,
                    reason=failure.reason,
                )
                await flight.emitter.send(failed)
    return assemble(
        session.machine,
        system=session.system,
        tools=session.registry.schemas,
        options=flight.config.options,
        contributions=contributions,
        attachments=await session.attachments.message(),
        attachment_placement=config.attachment_placement,
    )


async def model_step(flight: Flight, over_line: int) -> None:
    """Run one model call of the flight and feed what came of it to the machine."""
    session, emitter, turn = flight.session, flight.emitter, flight.turn
    started = session.clock.now()
    request = await build_request(flight)
    await stop_if_cancelled(flight.native_cancellations)
    if flight.scope.cancel_called:
        return
    if emitter.active:
        begun = TurnStarted(run_id=flight.run_id, turn=turn, over_line=over_line)
        await emitter.send(begun)
    response, usage = await (_streamed if flight.streaming else _completed)(flight, request)
    if flight.scope.cancel_called:
        return
    _note_ending(flight, response)
    offered = session.offered()
    session.machine.reply(response, offered)
    kept = session.machine.last_message
    calls = kept.calls if kept is not None else ()
    flight.open = OpenTurn(turn, response, calls, usage, started, {})
    if emitter.active:
        await _tell_reply(flight, response, usage, turn)


async def _completed(flight: Flight, request: ModelRequest) -> tuple[ModelResponse, Usage | None]:
    """The reply in one piece: nobody reads along."""
    serving = flight.session.serving
    if isinstance(serving, ResilientClient):
        response = await serving.complete(request, on_failure=flight.spend)
    else:
        response = await serving.complete(request)
    flight.spend(response.usage)
    return response, response.usage


async def _streamed(flight: Flight, request: ModelRequest) -> tuple[ModelResponse, Usage | None]:
    """The reply as it comes, each visible piece told at once."""
    accumulator, attempt = Accumulator(), 0
    async with flight.session.serving.stream(request) as events:
        async for event in events:
            if isinstance(event, AttemptStarted):
                flight.spend(event.failed_usage)
                accumulator, attempt = Accumulator(), event.attempt
                await _tell_reset(flight, event)
                continue
            accumulator.feed(event)
            if isinstance(event, PartDelta) and event.text and event.kind != "tool_call":
                kind = TextDelta if event.kind == "text" else ThinkingDelta
                delta = kind(
                    run_id=flight.run_id, turn=flight.turn, text=event.text, attempt=attempt
                )
                await flight.emitter.send(delta)
    response = accumulator.response()
    flight.spend(response.usage)
    return response, response.usage


async def _tell_reset(flight: Flight, event: AttemptStarted) -> None:
    reset = AttemptReset(
        run_id=flight.run_id, turn=flight.turn, attempt=event.attempt, reason=event.reason
    )
    await flight.emitter.send(reset)


def _note_ending(flight: Flight, response: ModelResponse) -> None:
    """Say what would else pass for an ordinary answer (ENG-15, MOD-13)."""
    if response.stop_reason is StopReason.LENGTH:
        flight.warn(f"turn {flight.turn}: the output limit cut the reply")
    elif response.stop_reason is StopReason.UNKNOWN:
        flight.warn(f"turn {flight.turn}: unknown stop reason {response.raw_stop_reason!r}")


async def _tell_reply(
    flight: Flight, response: ModelResponse, usage: Usage | None, turn: int
) -> None:
    emitter, run_id = flight.emitter, flight.run_id
    message = response.message
    await emitter.send(
        ReplyReceived(
            run_id=run_id,
            turn=turn,
            message=message,
            stop_reason=response.stop_reason,
            usage=usage,
            model=response.model,
        )
    )
    calls = flight.open.calls if flight.open else ()
    for call in calls:
        await emitter.send(ToolCallRequested(run_id=run_id, turn=turn, call=call))
    if not calls:
        await emitter.send(TurnEnded(run_id=run_id, turn=turn, usage=usage))
