"""A run from take-off to landing: ask the machine, do the step, settle in one place (ENG-16)."""

from __future__ import annotations

from typing import Any, NoReturn

from loopctl._cancel import cancellation_pending, native_cancellations, stop_if_cancelled
from loopctl._failures import error_text, goes_through, unwrapped
from loopctl.engine.flight import Flight
from loopctl.engine.model_step import model_step
from loopctl.engine.tool_step import tool_step
from loopctl.errors import LoopError
from loopctl.machine import CallModel, CallTools, Done, Outcome
from loopctl.runs import Run


async def fly(flight: Flight) -> Run[Any]:
    """Carry a flight to its end. Returns its run, or raises what ended it (ENG-16).

    A cancellation from outside does the same bookkeeping and propagates untouched (ENG-19).
    """
    outcome = Outcome(ending="cancelled")
    flight.native_cancellations = native_cancellations()
    try:
        with flight.scope:
            outcome = await _steps(flight)
    except BaseException as error:
        await _land_on_error(flight, error)
    run = flight.settle(outcome, None)
    if run.error is not None:
        raise run.error
    return run


async def _land_on_error(flight: Flight, error: BaseException) -> NoReturn:
    """Settle a run that an error ended, and raise what it stands for, bare."""
    baseline = flight.native_cancellations
    passing = goes_through(error, baseline)
    if passing is not None:
        flight.settle(Outcome(ending="cancelled"), passing)
        raise passing
    cause = unwrapped(error)
    if flight.scope.cancel_called or cancellation_pending(baseline):
        # what foreign code made of a cancellation ends the run as cancelled all the same
        run = flight.settle(Outcome(ending="cancelled"), None)
        await stop_if_cancelled(baseline)
    else:
        if not isinstance(cause, Exception):
            cause = LoopError(
                "the run was ended by a cancellation that nobody asked for; its cause says where"
            )
            cause.__cause__ = error
        run = flight.settle(Outcome(ending="failed", detail=error_text(cause)), cause)
    ended = run.error or cause
    raise ended from ended.__cause__ or (None if ended is cause else cause)


async def _steps(flight: Flight) -> Outcome:
    machine = flight.session.machine
    if flight.tell is not None:
        await flight.tell.run_started()
    while True:
        step = machine.next_step(flight.policy)
        if isinstance(step, CallModel):
            await model_step(flight)
        elif isinstance(step, CallTools):
            await tool_step(flight, step)
        elif isinstance(step, Done):
            return step.outcome
        else:
            from loopctl.engine.compact_step import compact_step  # and all that a pass needs

            await compact_step(flight, step)
