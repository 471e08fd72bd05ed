"""One wave of tool calls after a reply, and the end of its turn (ENG-12, TOL-8)."""

from __future__ import annotations

from loopctl._cancel import stop_if_cancelled
from loopctl.engine.flight import Flight
from loopctl.machine import CallTools


async def tool_step(flight: Flight, step: CallTools) -> None:
    """Run the waiting calls and feed their results to the machine."""
    session, turn, tell = flight.session, flight.open, flight.tell
    assert turn is not None, "a tool step follows a reply"
    await stop_if_cancelled(flight.native_cancellations)  # the client may have swallowed it
    if tell is not None:
        await tell.answered(turn, step.answered)
    if step.calls:
        await session.dispatcher.run(
            step.calls,
            run_id=flight.run_id,
            turn=step.turn,
            run_config=flight.config,
            sink=flight.emitter,
            finished=turn.finished,
        )
    if flight.scope.cancel_called:
        return
    session.machine.results([turn.finished[call.id].result for call in step.calls])
    flight.close_turn()
    if tell is not None:
        await tell.turn_ended(turn)
