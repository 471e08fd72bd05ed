"""A pass at a boundary of a run, and what came of it (CMP-6, CMP-8, CTX-31)."""

from __future__ import annotations

from loopctl._cancel import stop_if_cancelled
from loopctl.engine.flight import Flight
from loopctl.engine.passes import Pass
from loopctl.machine import Compact


async def compact_step(flight: Flight, step: Compact) -> None:
    """Carry out the pass that is due and feed its result to the machine."""
    session, machine = flight.session, flight.session.machine
    machine.start_pass()
    due = Pass(
        session=session,
        reason=step.reason,
        policy=flight.policy,
        system=flight.system,
        reserve=step.reserve,
        refused=step.refused,
        turn=machine.turn,
        run_id=flight.run_id,
        run_start=machine.run_start,
        baseline=flight.native_cancellations,
    )
    report = await due.run(flight.emitter)
    await stop_if_cancelled(flight.native_cancellations)  # the compactor may have swallowed it
    if report.error is not None:
        flight.warn(f"turn {flight.turn}: a pass ({step.reason.value}) failed: {report.why}")
    if not report.changed:
        machine.no_pass()
        return
    machine.compacted(
        due.messages[: due.history],
        due.messages[due.history :],
        policy=flight.policy,
        fixed=due.fixed,
        conversation=report.after,
        reserve=step.reserve,
    )
