"""Running the tool calls of one reply (TOL-4, TOL-8 … TOL-14).

Each call goes through the layers to the core: its arguments are validated, the hooks decide, the
tool runs under its deadline, and what came of it is made a result. One failing tool costs its own
result and nobody else's. The common case, one call without hooks and layers, costs one deadline
and no task.

A call that is cancelled, or over its deadline, gets a cancellation at every place where it waits.
An async tool that shields itself is waited for, because nothing can end it; a sync one is
abandoned in its thread.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio

from loopctl._cancel import native_cancellations, stop_if_cancelled
from loopctl._clock import stopwatch
from loopctl._deadline import Deadline
from loopctl._failures import error_text, goes_through
from loopctl._threads import Threads
from loopctl.config import RunConfig, SessionConfig
from loopctl.errors import RunError
from loopctl.messages import ToolCallPart, ToolOutcome, ToolResultPart
from loopctl.runs import CallRecord
from loopctl.tools.arguments import ArgumentsInvalid, invalid_text, unknown_text, unusable_text
from loopctl.tools.decisions import Allow, Approver, Ask, DecisionHook, Deny, ToolCallContext
from loopctl.tools.layers import CallOutput, Layer
from loopctl.tools.registry import Entry, ToolRegistry
from loopctl.tools.results import capped, to_output
from loopctl.tools.types import ToolContext, ToolServices
from loopctl.tools.verdicts import Council
from loopctl.tools.waves import Slot, plan

if TYPE_CHECKING:
    from loopctl.events import EventSink

_LOG = logging.getLogger("loopctl.tools")


class Dispatcher:
    """What runs a session's tool calls.

    `hooks` are asked before each call, in order; set them anew when the plugins change.
    Layers wrap each call, the first one outermost. `approver` answers what a hook asks.
    """

    def __init__(
        self,
        registry: ToolRegistry,
        *,
        services: ToolServices,
        config: SessionConfig,
        layers: Sequence[Layer] = (),
        approver: Approver | None = None,
    ) -> None:
        self.hooks: tuple[DecisionHook, ...] = ()
        self._registry = registry
        self._services = services
        self._config = config
        self._layers = tuple(layers)
        self._approver = approver
        self._threads = Threads()

    async def run(
        self,
        calls: Sequence[ToolCallPart],
        *,
        run_id: str,
        turn: int,
        run_config: RunConfig,
        sink: EventSink,
        finished: dict[str, CallRecord],
    ) -> None:
        """Run the calls of one reply; each record is put into `finished` under its call's id.

        A record is there before its `ToolFinished` is told. Returns when all are there. When it
        is cancelled or interrupted, what was finished stays; the error comes out bare. A
        `RunError` that a layer raises ends the batch too.
        """
        batch = _Batch(run_id, turn, sink, finished)
        if len(calls) == 1:
            await self._one(calls[0], batch)
            return
        baseline = native_cancellations()
        slots = [self._slot(call) for call in calls]
        waves = plan(slots, parallel=run_config.parallel_tools, limit=run_config.max_concurrency)
        for wave in waves:
            if wave.start:  # a tool may have swallowed the cancellation that was to end the run
                await stop_if_cancelled(baseline)
            if len(wave) == 1:
                await self._one(calls[wave.start], batch)
            else:
                await self._together([calls[index] for index in wave], batch)

    async def _together(self, calls: Sequence[ToolCallPart], batch: _Batch) -> None:
        """Run calls side by side; what ends one of them hard ends all, and comes out bare."""
        hard: list[BaseException] = []
        try:
            async with anyio.create_task_group() as group:
                for call in calls:
                    group.start_soon(self._member, call, batch, hard, group.cancel_scope)
        except BaseException:
            if hard:
                raise hard[0] from None
            raise
        if hard:
            raise hard[0]

    async def _member(
        self,
        call: ToolCallPart,
        batch: _Batch,
        hard: list[BaseException],
        scope: anyio.CancelScope,
    ) -> None:
        try:
            await self._one(call, batch)
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:
            hard.append(error)
            scope.cancel()

    def _slot(self, call: ToolCallPart) -> Slot:
        """What planning must know; a call whose resource cannot be told runs alone."""
        entry = self._registry.entry(call.name)
        if entry is None or call.truncated or call.unusable is not None:
            return Slot(safe=True)
        resource = entry.resource
        if not entry.concurrency_safe or resource is None or isinstance(resource, str):
            return Slot(entry.concurrency_safe, resource if isinstance(resource, str) else None)
        try:
            key = resource(call.parse())
        except Exception as error:
            _LOG.error("the resource of the tool %s failed", call.name, exc_info=error)
            return Slot(safe=False)
        return Slot(safe=True, resource=None if key is None else str(key))

    async def _one(self, call: ToolCallPart, batch: _Batch) -> None:
        """Answer one call and record it."""
        started = stopwatch()
        state = _State(call, batch, native_cancellations())
        if call.truncated or call.unusable is not None:
            entry = self._registry.entry(call.name)
            schema = None if entry is None else entry.schema.input_schema
            output = state.settle("not_run", unusable_text(call, schema))
        elif self._layers:
            output = await self._through(0, state, call)
        else:
            output = await self._core(state, call)
        result = ToolResultPart(
            call.id,
            call.name,
            capped(output.content, self._config.max_result_chars),
            output.is_error or state.outcome != "executed",
            state.outcome,
            output.retention,
        )
        seconds = stopwatch() - started
        batch.finished[call.id] = CallRecord(call=call, result=result, seconds=seconds)
        if batch.sink.active:
            from loopctl.events import ToolFinished

            event = ToolFinished(
                run_id=batch.run_id,
                turn=batch.turn,
                result=result,
                seconds=seconds,
                display_hint=output.display_hint,
            )
            await batch.sink.send(event)

    async def _through(self, depth: int, state: _State, call: ToolCallPart) -> CallOutput:
        """Pass a call through the layers from `depth` inwards; no tool's and no layer's error."""
        if depth == len(self._layers):
            return await self._core(state, call)

        async def inner(ctx: ToolCallContext[Any]) -> CallOutput:
            return await self._through(depth + 1, state, ctx.call)

        layer = self._layers[depth]
        try:
            value = await layer(self._view(call, state), inner)
        except RunError:
            raise
        except BaseException as error:
            _reraise(error, state.baseline)
            _LOG.error("a layer around the tool %s failed", call.name, exc_info=error)
            return CallOutput(content=error_text(error), is_error=True, outcome=state.outcome)
        if isinstance(value, CallOutput):
            content = to_output(value.content).content
            return dataclasses.replace(value, content=content, outcome=state.outcome)
        return _as_call_output(value, state.outcome)

    async def _core(self, state: _State, call: ToolCallPart) -> CallOutput:
        """Validate, decide, run."""
        entry = self._registry.entry(call.name)
        if entry is None:
            return state.settle("not_run", unknown_text(call.name, self._registry.names))
        if call.id != state.call.id:
            call = ToolCallPart(state.call.id, call.name, call.arguments)
        try:
            values = entry.prepare(call.arguments)
        except ArgumentsInvalid as error:
            text = invalid_text(entry.schema.name, error.problems, entry.schema.input_schema)
            return state.settle("not_run", text)
        except Exception as error:
            _LOG.error("checking arguments of the tool %s failed", call.name, exc_info=error)
            return state.settle("not_run", error_text(error))
        if self.hooks:
            verdict, decided = await self._decide(entry, state, call)
            await stop_if_cancelled(state.baseline)
            if isinstance(verdict, Deny):
                return state.settle("denied", _denial(entry.schema.name, verdict.reason))
            if decided is not call:
                call = decided
                values = entry.prepare(call.arguments)
        if state.batch.sink.active:
            from loopctl.events import ToolStarted

            batch = state.batch
            await batch.sink.send(ToolStarted(run_id=batch.run_id, turn=batch.turn, call=call))
            await stop_if_cancelled(state.baseline)
        return await self._execute(entry, state, values)

    async def _execute(self, entry: Entry, state: _State, values: dict[str, Any]) -> CallOutput:
        """Run the tool under its deadline."""
        seconds = self._config.tool_timeout if entry.timeout is None else entry.timeout
        deadline = Deadline(seconds)
        batch = state.batch
        ctx: ToolContext[Any] = ToolContext(
            self._services,
            run_id=batch.run_id,
            turn=batch.turn,
            call_id=state.call.id,
            name=entry.schema.name,
            sink=batch.sink,
            deadline=deadline,
            baseline=state.baseline,
        )
        failure: BaseException | None = None
        value: object = None
        try:
            with deadline:
                try:
                    if entry.function is not None:
                        value = await entry.function.invoke(values, ctx, self._threads)
                    else:
                        value = await entry.tool.call(values, ctx)
                except BaseException as error:
                    _reraise(error, state.baseline)
                    failure = error
        finally:
            ctx.end()
        if deadline.scope.cancel_called:
            return state.settle("interrupted", _timeout(entry.schema.name, seconds))
        if failure is not None:
            _LOG.error("the tool %s failed", entry.schema.name, exc_info=failure)
            return state.settle("executed", error_text(failure))
        state.outcome = "executed"
        return _as_call_output(value, "executed")

    async def _decide(
        self, entry: Entry, state: _State, call: ToolCallPart
    ) -> tuple[Allow | Deny, ToolCallPart]:
        """The verdict on a call, and the call that it is about."""
        council = Council(
            self.hooks,
            validate=entry.prepare,
            timeout=self._config.decision_timeout,
            baseline=state.baseline,
        )
        ctx = self._view(call, state)
        verdict, ctx = await council.decide(ctx)
        if not isinstance(verdict, Ask):
            return verdict, ctx.call
        batch = state.batch
        prompt = verdict.prompt
        if batch.sink.active:
            from loopctl.events import ApprovalRequested

            await batch.sink.send(
                ApprovalRequested(
                    run_id=batch.run_id, turn=batch.turn, call=ctx.call, prompt=prompt
                )
            )
        answer, ctx = await council.approve(
            ctx, prompt, self._approver, self._config.approval_timeout
        )
        if batch.sink.active:
            from loopctl.events import ApprovalSettled

            await batch.sink.send(
                ApprovalSettled(
                    run_id=batch.run_id,
                    turn=batch.turn,
                    call_id=state.call.id,
                    approved=not isinstance(answer, Deny),
                    reason=answer.reason if isinstance(answer, Deny) else "",
                )
            )
        return answer, ctx.call

    def _view(self, call: ToolCallPart, state: _State) -> ToolCallContext[Any]:
        entry = self._registry.entry(call.name)
        return ToolCallContext(
            call=call,
            tool=None if entry is None else entry.tool,
            run_id=state.batch.run_id,
            turn=state.batch.turn,
            services=self._services,
        )


@dataclass(slots=True)
class _Batch:
    """What the calls of one reply share."""

    run_id: str
    turn: int
    sink: EventSink
    finished: dict[str, CallRecord]


class _State:
    """One call on its way: what the model asked for, and what became of it so far."""

    __slots__ = ("baseline", "batch", "call", "outcome")

    def __init__(self, call: ToolCallPart, batch: _Batch, baseline: int) -> None:
        self.call = call
        self.batch = batch
        self.baseline = baseline
        self.outcome: ToolOutcome = "executed"

    def settle(self, outcome: ToolOutcome, text: str) -> CallOutput:
        """Record what became of the call, and say it as an error."""
        self.outcome = outcome
        return CallOutput(content=text, is_error=True, outcome=outcome)


def _as_call_output(value: object, outcome: ToolOutcome) -> CallOutput:
    if type(value) is str and not value.isspace() and value:
        return CallOutput(content=value, outcome=outcome)
    output = to_output(value)
    return CallOutput(
        content=output.content,
        is_error=output.is_error,
        display_hint=output.display_hint,
        retention=output.retention,
        outcome=outcome,
    )


def _reraise(error: BaseException, baseline: int) -> None:
    """Raise what must go on, bare; return when the error is only the failing code's own."""
    passing = goes_through(error, baseline)
    if passing is error:
        raise error
    if passing is not None:
        raise passing from None


def _denial(name: str, reason: str) -> str:
    return (
        f"Not executed: the call of {name!r} was denied. Reason: {reason.strip() or 'none given'}"
    )


def _timeout(name: str, seconds: float | None) -> str:
    return (
        f"The tool {name!r} did not finish within its deadline of {seconds:g} s and was stopped;"
        " its effects are unknown."
    )
