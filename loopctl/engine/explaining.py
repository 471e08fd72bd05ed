"""`explain`: what the next request would hold, without calling a model (ENG-26)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

from loopctl._backend import running_clock
from loopctl._cancel import native_cancellations
from loopctl._failures import error_text, goes_through
from loopctl._steps import CallModel, Compact, Done, Policy
from loopctl.config import RunConfig
from loopctl.context.assembly import assemble
from loopctl.context.attachments import rendered
from loopctl.context.contributors import Consultation, Contributions, consult
from loopctl.context.explanation import Block, Decision, Explanation, Place
from loopctl.engine.session import Session
from loopctl.machine import LoopMachine
from loopctl.messages import Message

RUN_ID = "explain"
"""The run id that contributors are shown: the next run's own is not known yet."""


async def explain(session: Session, input: Message | None, config: RunConfig) -> Explanation:
    """Put the request of a run's first turn together and say where each block comes from.

    The contributors are consulted and the memory is asked as for a turn; nothing else happens.
    """
    machine = LoopMachine.load(session.machine.dump())
    machine.begin(input)
    explaining = _Explaining(session, machine, input, config)
    return await explaining.result()


class _Explaining:
    def __init__(
        self, session: Session, machine: LoopMachine, input: Message | None, config: RunConfig
    ) -> None:
        self._session, self._machine = session, machine
        self._input, self._config = input, config
        self._baseline = native_cancellations()
        self._given = Contributions([], [], [])
        self._said: list[Block] = []
        self._quiet: list[Block] = []
        self._warnings: list[str] = []
        session.attachments.here()

    async def result(self) -> Explanation:
        session, machine, estimate = self._session, self._machine, self._session.estimate
        system, tools = session.system, session.registry.schemas
        policy = session.policy(self._config)
        fixed = estimate.fixed(system, tools)
        conversation = estimate.messages(machine.conversation)
        machine.measure(fixed=fixed, conversation=conversation)
        decision = _decision(machine, policy)
        await self._consult()
        memory, remembered = await self._recall()
        attachments = await session.attachments.message()
        pinned = self._pinned() if attachments is not None else []
        extras = [*self._given.head, *self._given.tail]
        extras += [message for message in (memory, attachments) if message is not None]
        transients = estimate.messages(extras)
        if decision == "call":
            weight = 0 if attachments is None else estimate.messages((attachments,))
            machine.weigh(transients, attachments=weight)
            decision = _decision(machine, policy)
        placed = {"head": [b for b in self._said if b.place == "head"]}
        placed["tail"] = [b for b in self._said if b.place == "tail"]
        where = session.config
        placed[where.memory_placement] += remembered
        at_head = where.attachment_placement == "head"
        head = [*(pinned if at_head else []), *placed["head"]]
        tail = [*placed["tail"], *([] if at_head else pinned)]
        request = assemble(
            machine,
            system=system,
            tools=tools,
            options=self._config.options,
            contributions=self._given,
            attachments=attachments,
            attachment_placement=where.attachment_placement,
            memory=memory,
            memory_placement=where.memory_placement,
        )
        return Explanation(
            request=request,
            blocks=(*self._beside(), *head, *self._conversation(), *tail),
            quiet=tuple(self._quiet),
            failures=tuple(self._given.failures),
            warnings=tuple(self._warnings),
            fixed=fixed,
            conversation=conversation,
            transients=transients,
            window=policy.window,
            threshold=math.floor(policy.soft_line),
            emergency=math.ceil(policy.emergency_line),
            decision=decision,
            calibration=estimate.calibration,
        )

    def _beside(self) -> list[Block]:
        session, estimate = self._session, self._session.estimate
        found: list[Block] = []
        if session.system:
            tokens = estimate.fixed(session.system, ())
            found.append(Block(origin="system", name="system", place="beside", tokens=tokens))
        for tool in session.registry.schemas:
            tokens = estimate.fixed(None, (tool,))
            source = session.registry.origin(tool.name)
            found.append(
                Block(origin="tool", name=tool.name, place="beside", tokens=tokens, source=source)
            )
        return found

    def _conversation(self) -> list[Block]:
        estimate, new = self._session.estimate, self._machine.split
        return [
            Block(
                origin="input" if number >= new else "conversation",
                name="tool results" if message.results else message.role.value,
                place="conversation",
                tokens=estimate.messages((message,)),
                message=message,
            )
            for number, message in enumerate(self._machine.conversation)
        ]

    def _pinned(self) -> list[Block]:
        session = self._session
        count: Callable[[str], float] = session.estimate.counter.count_text
        place: Place = session.config.attachment_placement
        found: list[Block] = []
        for attachment in session.attachments.pinned():
            text = rendered(attachment, attachment.id)
            tokens, message = math.ceil(count(text)), Message.user(text)
            found.append(
                Block(
                    origin="attachment",
                    name=attachment.id,
                    place=place,
                    tokens=tokens,
                    message=message,
                )
            )
        return found

    async def _consult(self) -> None:
        session, now = self._session, running_clock()
        consultation = Consultation[object](
            turn=0,
            conversation_of=self._machine,
            deps=session.deps,
            run_input=self._input,
            run_id=RUN_ID,
            session_id=session.session_id,
            working_folder=session.working_folder,
            now=session.clock.now,
        )
        for contributor in session.plugins.contributors:
            began = now()
            given = await consult(
                (contributor,),
                consultation,
                timeout=session.config.contributor_timeout,
                threads=session.threads,
                strict=session.config.strict_plugins,
                baseline=self._baseline,
            )
            took = (now() - began) * 1000
            self._given.head += given.head
            self._given.tail += given.tail
            self._given.failures += given.failures
            message = next(iter((*given.head, *given.tail)), None)
            block = Block(
                origin="contributor",
                name=contributor.name,
                source=contributor.distribution,
                place="tail" if given.tail else "head",
                tokens=0 if message is None else session.estimate.messages((message,)),
                milliseconds=took,
                message=message,
            )
            if message is not None:
                self._said.append(block)
            elif not given.failures:
                self._quiet.append(block)

    async def _recall(self) -> tuple[Message | None, list[Block]]:
        session, limit, now = self._session, self._config.memory_top_k, running_clock()
        if session.memory is None or not limit:
            return None, []
        from loopctl.context.recall import query_for, recall

        query = query_for(self._input, self._machine, 0)
        if not query:
            return None, []
        began = now()
        try:
            message = await recall(session.memory, query, limit)
        except BaseException as error:
            passing = goes_through(error, self._baseline)
            if passing is not None:
                raise passing from None
            self._warnings.append(f"memory failed to retrieve: {error_text(error)}")
            return None, []
        if message is None:
            return None, []
        block = Block(
            origin="memory",
            name=type(session.memory).__name__,
            place=session.config.memory_placement,
            tokens=session.estimate.messages((message,)),
            milliseconds=(now() - began) * 1000,
            message=message,
        )
        return message, [block]


def _decision(machine: LoopMachine, policy: Policy) -> Decision:
    """What would be done at the machine's figures."""
    step = machine.next_step(policy)
    if isinstance(step, CallModel):
        return "call"
    if isinstance(step, Compact):
        return cast("Decision", step.reason.value)
    assert isinstance(step, Done), "a boundary has no tools that wait"
    return cast("Decision", step.outcome.ending)
