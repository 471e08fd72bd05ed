"""One pass of compaction: ask, shorten what is pinned, compact, judge (CMP-1 … CMP-9).

A pass ends with the old messages or with new ones that hold; nothing is changed here. What the
compactor says of its own work is not believed: sizes are measured with one counter before and
after.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from loopctl._cancel import native_cancellations
from loopctl._deadline import Deadline
from loopctl._failures import error_text, goes_through
from loopctl._steps import CompactReason, Policy
from loopctl.compaction.judge import judge, split
from loopctl.compaction.pinned import pinned_in, shortened
from loopctl.compaction.target import target_for
from loopctl.compaction.truncating import TruncatingCompactor
from loopctl.compaction.types import CompactionAdvice, CompactionContext
from loopctl.engine.emitter import Emitter
from loopctl.messages import Message

if TYPE_CHECKING:
    from loopctl.engine.session import Session
    from loopctl.events import Event

logger = logging.getLogger("loopctl.compaction")


@dataclass(frozen=True, kw_only=True, slots=True)
class PassReport:
    """What came of one pass, in tokens of the conversation.

    `changed` says whether the messages are new ones; `why` says why not; `error` is what failed.
    """

    reason: CompactReason
    target: int
    before: int
    after: int
    changed: bool = False
    why: str = ""
    error: Exception | None = None


@dataclass(kw_only=True, slots=True)
class Pass:
    """One pass over a session's conversation. After `run` the new messages stand in `messages`."""

    session: Session
    reason: CompactReason
    policy: Policy
    system: str | None
    reserve: int = 0
    refused: int = 0
    instructions: str | None = None
    turn: int = 0
    run_id: str = ""
    run_start: int
    """Where the run's own messages begin: what the user says from there on is pinned (CMP-9)."""
    baseline: int = 0
    """`native_cancellations()` from before the run: older requests do not count."""
    messages: Sequence[Message] = ()
    history: int = 0
    """How many of the new messages are history (CMP-8)."""
    fixed: int = 0

    async def run(self, emitter: Emitter) -> PassReport:
        """Carry the pass out. Raises cancellations and nothing else."""
        session, machine = self.session, self.session.machine
        before = machine.conversation
        size = session.estimate.conversation(machine)
        self.fixed = session.estimate.fixed(self.system, session.registry.schemas)
        target = target_for(
            self.reason,
            policy=self.policy,
            fixed=self.fixed,
            size=size,
            reserve=self.reserve,
            refused=self.refused,
        )
        report = PassReport(reason=self.reason, target=target, before=size, after=size)
        if emitter.active:
            from loopctl.engine.telling import pass_started

            await emitter.send(pass_started(self.run_id, self.turn, report))
        try:
            report = await self._attempt(before, report)
        except BaseException:
            if emitter.active:
                cut = replace(report, why="cancelled", error=RuntimeError("cancelled"))
                emitter.tell(_ended(self.run_id, self.turn, cut))
            raise
        if emitter.active:
            await emitter.send(_ended(self.run_id, self.turn, report))
        return report

    async def _attempt(self, before: Sequence[Message], report: PassReport) -> PassReport:
        session = self.session
        counter = session.estimate.counter
        indices = pinned_in(before, self.run_start)
        given, pinned = shortened(before, indices, report.target, counter)
        ctx = CompactionContext(
            reason=self.reason,
            turn=self.turn,
            window=self.policy.window,
            size=report.before,
            reserve=self.reserve,
            counter=counter,
            pinned=pinned,
            instructions=self.instructions,
        )
        advised = await self._advised(ctx)
        if isinstance(advised, str):
            return replace(report, why=advised)
        compactor = session.compactor or TruncatingCompactor()
        timeout = session.config.compaction_timeout
        after: Any = None
        try:
            with Deadline(timeout) as deadline:
                after = await compactor.compact(given, report.target, advised)
            if deadline.expired:
                raise TimeoutError(f"no result within {timeout:g} s")
            problem = judge(before, after, pinned=pinned, counter=counter)
        except BaseException as error:
            failure = _own(error, self.baseline)
            logger.warning("a pass (%s) failed", self.reason.value, exc_info=failure)
            return replace(report, why=error_text(failure), error=failure)
        if problem is not None:
            return replace(report, why=problem)
        self.messages = tuple(after)
        self.history = split(session.machine.split, given, self.messages)
        return replace(report, after=session.estimate.messages(self.messages), changed=True)

    async def _advised(self, ctx: CompactionContext) -> CompactionContext | str:
        """The context with what the hooks asked for, or why one of them vetoed (CMP-5)."""
        for name, ask in self.session.plugins.advisers:
            try:
                answer: Any = ask(ctx)
                if inspect.isawaitable(answer):
                    with Deadline(self.session.config.contributor_timeout) as deadline:
                        answer = await answer
                    if deadline.expired:
                        raise TimeoutError("no answer in time")
                if answer is None:
                    continue
                if not isinstance(answer, CompactionAdvice):
                    raise TypeError(f"returned {type(answer).__name__}, not CompactionAdvice")
            except BaseException as error:
                failure = _own(error, self.baseline)
                logger.warning("before_compaction of plugin %s failed", name, exc_info=failure)
                continue
            if answer.veto is not None:
                return f"vetoed by {name}: {answer.veto}"
            if answer.instructions is not None:
                ctx = replace(ctx, instructions=answer.instructions)
            if answer.context is not None:
                ctx = replace(ctx, added=(*ctx.added, answer.context))
        return ctx


def _own(error: BaseException, baseline: int) -> Exception:
    """The failure that foreign code keeps for itself; raises what passes through."""
    if isinstance(error, Exception):
        return error
    passing = goes_through(error, baseline)
    if passing is not None:
        raise passing from None
    return RuntimeError("it raised a cancellation that nobody asked for")


def _ended(run_id: str, turn: int, report: PassReport) -> Event:
    from loopctl.engine.telling import pass_ended

    return pass_ended(run_id, turn, report)


async def compact_by_hand(session: Session, instructions: str | None) -> PassReport:
    """A manual pass between runs (CMP-7)."""
    machine = session.machine
    manual = Pass(
        session=session,
        reason=CompactReason.MANUAL,
        policy=session.policy(session.config.run),
        system=session.system,
        run_start=machine.run_start if machine.unfinished else machine.count,
        instructions=instructions,
        baseline=native_cancellations(),
    )
    report = await manual.run(Emitter(session.plugins.listeners))
    if report.changed:
        machine.replace(manual.messages, unfinished=machine.unfinished)
    return report
