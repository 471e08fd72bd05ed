"""One run in flight: what belongs to it alone, and how it is settled (ENG-16, ENG-18, ENG-20)."""

from __future__ import annotations

import datetime
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import anyio

from loopctl._cancel import native_cancellations
from loopctl.config import RequestOptions, RunConfig
from loopctl.context.contributors import Consultation, ContributorFailure
from loopctl.engine.emitter import Emitter
from loopctl.engine.session import Session
from loopctl.errors import (
    ConfigError,
    ContextExceeded,
    ContextOverflowError,
    FallbackExhausted,
    LoopBusyError,
    LoopError,
    MaxTurnsExceeded,
    ModelError,
    Refused,
    RunCancelled,
)
from loopctl.machine import Outcome, State
from loopctl.messages import Message, ToolCallPart
from loopctl.replies import ModelResponse
from loopctl.runs import CallRecord, Run, TurnRecord
from loopctl.usage import Usage

if TYPE_CHECKING:
    from loopctl.engine.output import OutputType
    from loopctl.engine.telling import Teller
    from loopctl.events import RunEnded
    from loopctl.models.fallback import Asked


@dataclass(slots=True)
class OpenTurn:
    """A turn whose reply is there and whose tool results may still be missing."""

    number: int
    response: ModelResponse
    calls: tuple[ToolCallPart, ...]
    usage: Usage | None
    started: datetime.datetime
    finished: dict[str, CallRecord]


class Flight:
    """One run: its input, its events, its cancel scope, its records.

    Made by the caller's own code before anything is awaited, so that a second run is refused
    before it touches anything (ENG-13).
    """

    def __init__(
        self,
        session: Session,
        input: Message | None,
        config: RunConfig,
        emitter: Emitter,
        *,
        streaming: bool = False,
        output: OutputType[Any] | None = None,
    ) -> None:
        if session.flight is not None or session.busy_with is not None:
            raise LoopBusyError(busy_with=session.busy_with)
        if input is None and not session.machine.unfinished:
            raise ConfigError("there is no unfinished run to continue; give an input")
        session.attachments.here()
        self.session = session
        self.input = input
        self.config = config
        self.emitter = emitter
        self.streaming = streaming
        self.output = output
        """What the answer must be; `None` for text."""
        self.policy = session.policy(config)
        self.run_id = session.clock.new_id("run")
        self.started = session.clock.now()
        self.scope = anyio.CancelScope()
        self.native_cancellations = native_cancellations()
        self.consultation = Consultation(
            turn=0,
            conversation_of=session.machine,
            deps=session.deps,
            run_input=input,
            run_id=self.run_id,
            session_id=session.session_id,
            working_folder=session.working_folder,
            now=session.clock.now,
        )
        self.turns: list[TurnRecord] = []
        self.open: OpenTurn | None = None
        self.usage = Usage()
        self.warnings: list[str] = []
        self.recalled: tuple[int, Message | None] | None = None
        """A turn and what memory gave for it, kept for its retry (CTX-22)."""
        self.refusal: ContextOverflowError | None = None
        """What the provider said of a prompt that it found too long, until one is taken."""
        self.run: Run[Any] | None = None
        self.ended: RunEnded | None = None
        self.tell: Teller | None = None
        self._landed: anyio.Event | None = None
        if emitter.active:
            from loopctl.engine.telling import Teller

            self.tell = Teller(self)
        session.machine.begin(input)
        session.flight = self
        guess = session.window_warning()
        if guess is not None:
            self.warn(guess)

    @property
    def options(self) -> RequestOptions:
        """What rides on the requests of this run."""
        return self.config.options if self.output is None else self.output.options

    @property
    def system(self) -> str | None:
        """The system prompt of this run's requests."""
        system = self.session.system
        return system if self.output is None else self.output.system(system)

    @property
    def turn(self) -> int:
        """The turn in flight."""
        return self.session.machine.turn

    def cancel(self) -> bool:
        """Stop the run now; `False` if it has ended.

        One that has its answer and only waits for a slow reader still ends completed.
        """
        if self.run is not None:
            return False
        if self.session.machine.state is not State.TERMINAL:
            self.session.machine.cancel()
        self.scope.cancel()
        return True

    async def landed(self) -> None:
        """Return when the run is settled."""
        if self.run is None:
            self._landed = self._landed or anyio.Event()
            await self._landed.wait()

    def spend(self, usage: Usage | None) -> None:
        """Count the tokens of one attempt."""
        self.usage = self.usage + usage

    def asked(self, asked: Asked) -> Awaitable[None] | None:
        """Take note of the model that a chain is about to ask; tell of another than before."""
        model, before = f"{asked.provider}:{asked.model}", self.session.asked
        self.session.asked = model
        if model == before or self.tell is None:
            return None
        return self.tell.model_switched(model, before, asked.reason)

    def warn(self, text: str) -> None:
        """Note what went wrong without ending the run."""
        self.warnings.append(text)

    def refused(self, error: ContextOverflowError, estimate: int) -> None:
        """Take note that a prompt of `estimate` tokens was too long (CTX-33)."""
        self.spend(error.usage)
        self.refusal = error
        self.warn(f"turn {self.turn}: the provider refused a prompt of about {estimate} tokens")
        self.session.learn_window(estimate)
        self.policy = self.session.policy(self.config)
        self.session.machine.overflow(estimate)

    def contributor_failed(self, failure: ContributorFailure) -> None:
        """Note a contributor that lost its message."""
        origin = f" (from {failure.distribution})" if failure.distribution else ""
        self.warn(f"contributor {failure.contributor}{origin} failed: {failure.reason}")

    def close_turn(self) -> None:
        """Record the open turn with the results that its calls have now."""
        turn, self.open = self.open, None
        if turn is None:
            return
        finished = turn.finished
        if len(finished) == len(turn.calls):
            records = tuple([finished[call.id] for call in turn.calls])
        else:
            records = self._answered(turn)
        self.turns.append(
            TurnRecord(
                number=turn.number,
                text=turn.response.message.text,
                calls=records,
                usage=turn.usage,
                stop_reason=turn.response.stop_reason,
                model=turn.response.model,
                started=turn.started,
                seconds=(self.session.clock.now() - turn.started).total_seconds(),
            )
        )

    def _answered(self, turn: OpenTurn) -> tuple[CallRecord, ...]:
        """The records of a turn in which the machine itself answered some calls."""
        kept = self.session.machine.run_messages  # empty when the run was taken back
        results = {result.call_id: result for result in kept[-1].results} if kept else {}
        return tuple(
            turn.finished.get(call.id) or CallRecord(call=call, result=results[call.id])
            for call in turn.calls
            if call.id in results
        )

    def settle(self, outcome: Outcome, cause: BaseException | None) -> Run[Any]:
        """The one exit of every run. Synchronous: nothing can come between its steps (ENG-18)."""
        session, machine = self.session, self.session.machine
        if isinstance(cause, (ModelError, FallbackExhausted)):
            self.spend(cause.usage)
        if outcome.ending == "context_exceeded":
            cause, outcome = self.refusal, _as_the_provider_said(outcome, self.refusal)
        if machine.state is not State.TERMINAL:
            finished = self.open.finished if self.open else {}
            machine.end(outcome, [record.result for record in finished.values()])
        else:
            outcome = machine.outcome or outcome
        self.close_turn()
        asked = () if self.input is None else (self.input,)
        error = _error(outcome, cause, (*asked, *machine.delivered))
        answer: Any = None
        text: str | None = None
        if outcome.ending == "completed":
            answer = text = self.turns[-1].text if self.turns else ""
            if self.output is not None:
                answer = self.output.value
        self.run = Run(
            id=self.run_id,
            input=self.input,
            output=answer,
            messages=machine.run_messages,
            turns=tuple(self.turns),
            usage=self.usage,
            warnings=tuple(self.warnings),
            ending=outcome.ending,
            started=self.started,
            ended=session.clock.now(),
            error=error,
        )
        if isinstance(error, LoopError):
            error.run = self.run
        session.runs.append(self.run)
        session.flight = None
        if self._landed is not None:
            self._landed.set()
        try:
            if self.tell is not None:
                from loopctl.engine.telling import run_ended

                self.ended = run_ended(self.run, text)
                self.emitter.tell_listeners(self.ended)
        finally:
            self.emitter.close()
        return self.run


def _as_the_provider_said(outcome: Outcome, refusal: ContextOverflowError | None) -> Outcome:
    if refusal is None or refusal.used is None or refusal.limit is None:
        return outcome
    return replace(outcome, used=refusal.used, limit=refusal.limit)


def _error(
    outcome: Outcome, cause: BaseException | None, asked: tuple[Message, ...]
) -> BaseException | None:
    """The exception that stands for an outcome; `cause` itself where it is the outcome."""
    match outcome.ending:
        case "completed":
            return None
        case "max_turns":
            return MaxTurnsExceeded(outcome.limit or 0)
        case "cancelled":
            return cause or RunCancelled()
        case "refused":
            return Refused(outcome.detail)
        case "context_exceeded":
            error = ContextExceeded(outcome.used, outcome.limit, asked)
            error.__cause__ = cause
            return error
        case _:
            return cause
