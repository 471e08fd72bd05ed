"""One model call: consult, assemble, call, feed the reply back (CTX-3, CTX-19, ENG-25)."""

from __future__ import annotations

from loopctl._cancel import stop_if_cancelled
from loopctl.context.assembly import assemble
from loopctl.context.contributors import Contributions, consult
from loopctl.engine.flight import Flight, OpenTurn
from loopctl.machine import State
from loopctl.models.client import ModelRequest
from loopctl.models.resilience import ResilientClient
from loopctl.replies import ModelResponse, StopReason

_NOBODY = Contributions([], [], [])


async def build_request(flight: Flight) -> ModelRequest:
    """Ask the contributors, render the attachments, put the request together."""
    session, config = flight.session, flight.session.config
    contributions = _NOBODY
    if session.plugins.contributors:
        flight.consultation.turn = flight.turn
        contributions = await consult(
            session.plugins.contributors,
            flight.consultation,
            timeout=config.contributor_timeout,
            threads=session.threads,
            strict=config.strict_plugins,
            baseline=flight.native_cancellations,
        )
        for failure in contributions.failures:
            flight.contributor_failed(failure)
            if flight.tell is not None:
                await flight.tell.contributor_failed(failure)
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
    session, machine, tell = flight.session, flight.session.machine, flight.tell
    turn, started = machine.turn, session.clock.now()
    if machine.steering:
        delivered = machine.deliver()
        if tell is not None:
            await tell.steering_delivered(delivered)
    request = await build_request(flight)
    offered = session.offered()  # what this request offers, whatever is registered meanwhile
    await stop_if_cancelled(flight.native_cancellations)
    if flight.scope.cancel_called:
        return
    if tell is not None:
        await tell.turn_started(over_line)
    response = await _call(flight, request)
    flight.spend(response.usage)
    if flight.scope.cancel_called:
        return
    _note_ending(flight, response)
    machine.reply(response, offered)
    kept = machine.last_message
    calls = kept.calls if kept is not None else ()
    flight.open = opened = OpenTurn(turn, response, calls, response.usage, started, {})
    if machine.state is State.AWAITING_MODEL:  # an answer, and more was said meanwhile
        flight.close_turn()
    if tell is not None:
        await tell.reply(opened)


async def _call(flight: Flight, request: ModelRequest) -> ModelResponse:
    """The reply: read along, or in one piece where nobody does."""
    if flight.streaming:
        from loopctl.engine.streamed_call import StreamedCall

        return await StreamedCall(flight).complete(request)
    serving = flight.session.serving
    if isinstance(serving, ResilientClient):
        return await serving.complete(request, on_failure=flight.spend)
    return await serving.complete(request)


def _note_ending(flight: Flight, response: ModelResponse) -> None:
    """Say what would else pass for an ordinary answer (ENG-15, MOD-13)."""
    if response.stop_reason is StopReason.LENGTH:
        flight.warn(f"turn {flight.turn}: the output limit cut the reply")
    elif response.stop_reason is StopReason.UNKNOWN:
        flight.warn(f"turn {flight.turn}: unknown stop reason {response.raw_stop_reason!r}")
