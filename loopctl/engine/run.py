"""A run from take-off to landing: ask the machine, do the step, settle in one place (ENG-16)."""

from __future__ import annotations

from loopctl.engine.flight import Flight
from loopctl.engine.model_step import model_step
from loopctl.engine.tool_step import tool_step
from loopctl.errors import MachineError
from loopctl.machine import CallModel, CallTools, Done, Outcome
from loopctl.runs import Run
from loopctl.tools.failures import unwrapped


async def fly(flight: Flight) -> Run[str]:
    """Carry a flight to its end. Returns its run, or raises what ended it (ENG-16).

    A cancellation from outside does the same bookkeeping and propagates untouched (ENG-19).
    """
    outcome = Outcome(ending="cancelled")
    try:
        with flight.scope:
            outcome = await _steps(flight)
    except Exception as error:
        cause = unwrapped(error)
        run = flight.settle(Outcome(ending="failed", detail=str(cause)), cause)
        ended = run.error or cause
        raise ended from ended.__cause__
    except BaseException as error:
        flight.settle(Outcome(ending="cancelled"), error)
        raise
    run = flight.settle(outcome, None)
    if run.error is not None:
        raise run.error
    return run


async def _steps(flight: Flight) -> Outcome:
    machine, policy = flight.session.machine, flight.policy
    if flight.tell is not None:
        await flight.tell.run_started()
    while True:
        step = machine.next_step(policy)
        if isinstance(step, CallModel):
            await model_step(flight, step.over_line)
        elif isinstance(step, CallTools):
            await tool_step(flight, step)
        elif isinstance(step, Done):
            return step.outcome
        else:
            raise MachineError("next_step", machine.state.value, f"no step for {step}")
