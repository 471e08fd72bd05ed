"""The boundary of a turn and its model call (CTX-3, CTX-19, CTX-22, CTX-31, CTX-33, ENG-25)."""

from __future__ import annotations

import math
from typing import NamedTuple, cast

from loopctl._cancel import stop_if_cancelled
from loopctl._deadline import Deadline
from loopctl._failures import error_text, goes_through
from loopctl.config import refused_option
from loopctl.context.assembly import assemble
from loopctl.context.contributors import Contributions, consult
from loopctl.engine.flight import Flight, OpenTurn
from loopctl.errors import ConfigError, ContextOverflowError
from loopctl.machine import CallModel, State
from loopctl.messages import Message
from loopctl.models.client import ModelRequest
from loopctl.models.resilience import ResilientClient
from loopctl.models.retries import RetryingClient
from loopctl.replies import ModelResponse, StopReason

_NOBODY = Contributions([], [], [])


class Extras(NamedTuple):
    """What rides one request and vanishes."""

    contributions: Contributions
    attachments: Message | None
    memory: Message | None


async def gather(flight: Flight) -> Extras:
    """Ask the contributors, retrieve from memory, render the attachments (CTX-31, step 4)."""
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
    memory = await _remembered(flight) if session.memory is not None else None
    return Extras(contributions, await session.attachments.message(), memory)


def request_of(flight: Flight, extras: Extras) -> ModelRequest:
    """The request of the turn in flight."""
    session, config = flight.session, flight.session.config
    return assemble(
        session.machine,
        system=flight.system,
        tools=session.registry.schemas,
        options=flight.options,
        contributions=extras.contributions,
        attachments=extras.attachments,
        attachment_placement=config.attachment_placement,
        memory=extras.memory,
        memory_placement=config.memory_placement,
    )


async def model_step(flight: Flight) -> None:
    """Take the turn to its model call and feed what came of it to the machine.

    Where a line of the window, a deferral or a cancellation comes first, it returns before the
    call; the machine's next step says what is due.
    """
    session, machine, tell = flight.session, flight.session.machine, flight.tell
    turn, started = machine.turn, session.clock.now()
    if machine.steering and not machine.passed_here:  # during a pass it waits (CTX-23)
        delivered = machine.deliver()
        if tell is not None:
            await tell.steering_delivered(delivered)
    flight.policy = policy = session.policy(flight.config)
    over_line, raw = 0, 0.0
    if policy.window and machine.figures is None:
        size = _measure(flight)
        if size >= policy.lowest and type(machine.next_step(policy)) is not CallModel:
            return
    extras = await gather(flight)
    if policy.window:
        raw = _weigh(flight, extras)
        step = machine.next_step(policy)
        if type(step) is not CallModel:
            await _deferred(flight)
            return
        over_line = step.over_line
    request = request_of(flight, extras)
    offered = session.offered()  # what this request offers, whatever is registered meanwhile
    await stop_if_cancelled(flight.native_cancellations)
    if tell is not None:
        await tell.turn_started(over_line)
    try:
        response = await _call(flight, request)
    except ContextOverflowError as error:
        _refused(flight, extras, error)
        return
    except ConfigError as error:
        if not _asks_in_words(flight, error):
            raise
        return
    flight.spend(response.usage)
    flight.refusal = None
    if policy.window and response.usage is not None and response.usage.input_tokens:
        _learn(flight, raw, response.usage.input_tokens)
    if flight.scope.cancel_called:
        return
    _note_ending(flight, response)
    objection = None if flight.output is None else flight.output.judge(response)
    machine.reply(response, offered, objection)
    kept = machine.last_message
    calls = kept.calls if kept is not None else ()
    flight.open = opened = OpenTurn(turn, response, calls, response.usage, started, {})
    if machine.state is State.AWAITING_MODEL:  # an answer, and more was said meanwhile
        flight.close_turn()
    if tell is not None:
        await tell.reply(opened)


def _asks_in_words(flight: Flight, error: ConfigError) -> bool:
    """Whether the turn starts anew because the client takes no schema, or not beside tools."""
    output = flight.output
    if output is None or output.in_words or refused_option(error) != "response_schema":
        return False
    output.in_words = True
    if flight.policy.window:
        _measure(flight)  # the system prompt is a longer one now
    return True


def _measure(flight: Flight) -> int:
    """Feed F and C, and give B (CTX-31, step 1)."""
    session = flight.session
    estimate = session.estimate
    fixed = estimate.fixed(flight.system, session.registry.schemas)
    conversation = estimate.conversation(session.machine)
    session.machine.measure(fixed=fixed, conversation=conversation)
    return fixed + conversation


def _weigh(flight: Flight, extras: Extras) -> float:
    """Feed X, and give it without calibration."""
    estimate = flight.session.estimate
    pinned = estimate.raw_messages((extras.attachments,)) if extras.attachments else 0.0
    raw = pinned + estimate.raw_messages(extras.contributions.head)
    if extras.contributions.tail:
        raw += estimate.raw_messages(extras.contributions.tail)
    if extras.memory is not None:
        raw += estimate.raw_messages((extras.memory,))
    factor = estimate.calibration
    transients = math.ceil(raw * factor)
    flight.session.machine.weigh(transients, attachments=math.ceil(pinned * factor))
    return raw


def _learn(flight: Flight, transients: float, reported: int) -> None:
    """What the provider counted for a request, next to our own figure of it (CTX-28)."""
    session, estimate = flight.session, flight.session.estimate
    fixed = estimate.raw_fixed(flight.system, session.registry.schemas)
    raw = fixed + estimate.raw_conversation(session.machine) + transients
    estimate.learn(reported, raw)


async def _deferred(flight: Flight) -> None:
    """Tell that the turn waits for a pass, if that is what stands in its way."""
    figures = flight.session.machine.figures
    if flight.tell is None or figures is None or flight.scope.cancel_called:
        return
    tokens = figures.fixed + figures.conversation + (figures.transients or 0)
    await flight.tell.turn_deferred(tokens, math.ceil(flight.policy.line))


def _refused(flight: Flight, extras: Extras, error: ContextOverflowError) -> None:
    """The provider found the prompt too long: the machine decides what that means (CTX-33)."""
    machine = flight.session.machine
    if machine.figures is None or machine.figures.transients is None:
        _measure(flight)
        _weigh(flight, extras)
    figures = machine.figures
    assert figures is not None, "measured"
    flight.refused(error, figures.fixed + figures.conversation + (figures.transients or 0))


async def _remembered(flight: Flight) -> Message | None:
    """What memory gives for this turn, retrieved once; a failing store costs an event (CTX-22)."""
    from loopctl.context.recall import query_for, recall

    session, turn, limit = flight.session, flight.turn, flight.config.memory_top_k
    if flight.recalled is not None and flight.recalled[0] == turn:
        return flight.recalled[1]
    memory = session.memory
    query = query_for(flight.input, session.machine, turn) if limit else ""
    if memory is None or not query:
        return None
    found: Message | None = None
    try:
        with Deadline(session.config.contributor_timeout) as deadline:
            found = await recall(memory, query, limit)
        if deadline.expired:
            raise TimeoutError("no answer in time")
    except BaseException as error:
        passing = goes_through(error, flight.native_cancellations)
        if passing is not None:
            raise passing from None
        reason = error_text(error)
        flight.warn(f"memory failed to retrieve: {reason}")
        if flight.tell is not None:
            await flight.tell.memory_failed("retrieve", reason)
    flight.recalled = (turn, found)
    return found


async def _call(flight: Flight, request: ModelRequest) -> ModelResponse:
    """The reply: read along, or in one piece where nobody does."""
    if flight.streaming:
        from loopctl.engine.streamed_call import StreamedCall

        return await StreamedCall(flight).complete(request)
    client = flight.session.serving
    serving = cast("object", client)  # a class of its own, or one of ours that knows more
    if isinstance(serving, ResilientClient):
        return await serving.complete(request, on_failure=flight.spend)
    if not isinstance(serving, RetryingClient):
        return await client.complete(request)
    from loopctl.models.fallback import FallbackChain  # who retries otherwise has imported it

    if isinstance(serving, FallbackChain):
        return await serving.complete(request, on_failure=flight.spend, on_asked=flight.asked)
    return await serving.complete(request, on_failure=flight.spend)


def _note_ending(flight: Flight, response: ModelResponse) -> None:
    """Say what would else pass for an ordinary answer (ENG-15, MOD-13)."""
    if response.stop_reason is StopReason.LENGTH:
        flight.warn(f"turn {flight.turn}: the output limit cut the reply")
    elif response.stop_reason is StopReason.UNKNOWN:
        flight.warn(f"turn {flight.turn}: unknown stop reason {response.raw_stop_reason!r}")
    elif response.stop_reason is StopReason.PAUSE:
        flight.warn(f"turn {flight.turn}: the provider paused the reply and did not end it")
