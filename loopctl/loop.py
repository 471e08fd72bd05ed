"""BareLoop: one session of an agent loop (ENG-9 … ENG-22).

It runs turns: model call, tool calls, repeat. What it asks of the rooms below is all it knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, overload

import anyio

from loopctl._calls import says_something, unpaired
from loopctl._clock import SYSTEM_CLOCK, Clock
from loopctl.config import RunConfig, SessionConfig
from loopctl.context.attachments import Attachment
from loopctl.engine.emitter import Emitter
from loopctl.engine.flight import Flight
from loopctl.engine.run import fly
from loopctl.engine.session import Session
from loopctl.errors import ConfigError, LoopBusyError
from loopctl.messages import Message, Role
from loopctl.models.client import ModelClient
from loopctl.models.resilience import ResilientClient
from loopctl.models.retries import RetryingClient, RetryPolicy
from loopctl.plugins import PluginRegistry
from loopctl.runs import Run
from loopctl.tokens import DEFAULT_COUNTER, TokenCounter
from loopctl.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from anyio.abc import TaskGroup
    from anyio.streams.memory import MemoryObjectSendStream
    from typing_extensions import TypeVar

    from loopctl.compaction.types import Compactor
    from loopctl.context.explanation import Explanation
    from loopctl.engine.output import OutputType
    from loopctl.engine.passes import PassReport
    from loopctl.engine.stream import EventStream
    from loopctl.events import Event
    from loopctl.memory.types import Memory
    from loopctl.tools.decisions import Approver
    from loopctl.tools.layers import Layer

    D = TypeVar("D", default=None)
    T = TypeVar("T")
else:
    from typing import TypeVar

    D = TypeVar("D")
    T = TypeVar("T")


class BareLoop(Generic[D]):
    """A session: its settings, its conversation, its runs.

    `client` is a `ModelClient` or a string for `connect`, such as `"openai-chat:gpt-5.4"` or
    `"local"`, also with a prefix that one of `plugins` brings. `tools` are functions, `@tool`s or
    `Tool`s; `system` the system prompt; `deps` whatever your tools and contributors need;
    `plugins` are registered in the order given, before the client is made; `attachments` are
    pinned from the start; `history` is a conversation to go on from; `layers` wrap tool calls, the
    first outermost; `approver` answers `Ask`; `retry` is the policy for failed model calls, `None`
    for none; `compactor` shrinks the conversation when it must be (`TruncatingCompactor()` unless
    you give another); `memory` is what each turn retrieves from; `counter` estimates tokens;
    `clock` is where time and ids come from.

    Constructing opens nothing and starts nothing. One run at a time; two sessions share nothing
    but what they are given. Methods may be called from other tasks of the same event loop; from
    another thread go through `anyio.from_thread`.
    """

    def __init__(
        self,
        client: ModelClient | str,
        tools: Iterable[Any] = (),
        config: SessionConfig | None = None,
        *,
        system: str | None = None,
        deps: D = None,  # type: ignore[assignment]  # the default of D is None
        plugins: Iterable[object] = (),
        attachments: Iterable[Attachment] = (),
        history: Iterable[Message] = (),
        layers: Sequence[Layer] = (),
        approver: Approver | None = None,
        retry: RetryPolicy | None = RetryPolicy(),  # noqa: B008  # frozen
        compactor: Compactor | None = None,
        memory: Memory | None = None,
        counter: TokenCounter = DEFAULT_COUNTER,
        clock: Clock | None = None,
    ) -> None:
        self._made_client = isinstance(client, str)
        registry = ToolRegistry(tools)
        hooks = PluginRegistry(registry)
        for plugin in plugins:
            hooks.add_plugin(plugin)
        given = _connected(client, hooks) if isinstance(client, str) else client
        if not isinstance(given, ModelClient):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(
                f"client={client!r}: give a ModelClient or a string such as 'openai-chat:gpt-5.4'"
            )
        history = _sound(history)
        wrapped = retry is not None and not isinstance(given, RetryingClient)
        clock = clock or SYSTEM_CLOCK
        self._session = Session(
            given,
            serving=ResilientClient(given, retry, clock=clock) if wrapped else given,
            registry=registry,
            plugins=hooks,
            config=config or SessionConfig(),
            system=system,
            deps=deps,
            attachments=attachments,
            history=history,
            layers=layers,
            approver=approver,
            clock=clock,
            compactor=compactor,
            memory=memory,
            counter=counter,
        )

    # -- running ------------------------------------------------------------------------------

    @overload
    async def run(
        self, input: str | Message | None, run_config: RunConfig | None = None
    ) -> Run[str]: ...

    @overload
    async def run(
        self, input: str | Message | None, run_config: RunConfig | None = None, *, output: type[T]
    ) -> Run[T]: ...

    async def run(
        self,
        input: str | Message | None,
        run_config: RunConfig | None = None,
        *,
        output: type[Any] = str,
    ) -> Run[Any]:
        """Answer one input: turns until a reply asks for no tool.

        `None` continues an unfinished run. `output` is the type that the answer must have: any
        that pydantic validates; tools stay usable in the turns before it. Returns the `Run`; raises
        what ended it otherwise, with the run as its `.run` (ENG-16): `OutputInvalid` for an answer
        that does not fit, also after it was sent back once. Raises `LoopBusyError` while another
        run is in flight.
        """
        session, config = self._session, run_config or self.config.run
        emitter = Emitter(session.plugins.listeners)
        wanted = None if output is str else _typed(output, config)
        return await fly(Flight(session, _message(input), config, emitter, output=wanted))

    @overload
    def run_sync(
        self, input: str | Message | None, run_config: RunConfig | None = None
    ) -> Run[str]: ...

    @overload
    def run_sync(
        self, input: str | Message | None, run_config: RunConfig | None = None, *, output: type[T]
    ) -> Run[T]: ...

    def run_sync(
        self,
        input: str | Message | None,
        run_config: RunConfig | None = None,
        *,
        output: type[Any] = str,
    ) -> Run[Any]:
        """`run` for scripts: starts an event loop of its own. Not for use inside one."""

        async def once() -> Run[Any]:
            try:
                return await self.run(input, run_config, output=output)
            finally:
                if self._made_client:
                    await self._session.client.aclose()

        return anyio.run(once)

    @overload
    def stream(
        self,
        input: str | Message | None,
        run_config: RunConfig | None = None,
        *,
        task_group: TaskGroup | None = None,
    ) -> EventStream[str]: ...

    @overload
    def stream(
        self,
        input: str | Message | None,
        run_config: RunConfig | None = None,
        *,
        output: type[T],
        task_group: TaskGroup | None = None,
    ) -> EventStream[T]: ...

    def stream(
        self,
        input: str | Message | None,
        run_config: RunConfig | None = None,
        *,
        output: type[Any] = str,
        task_group: TaskGroup | None = None,
    ) -> EventStream[Any]:
        """The same run, read along: `async with agent.stream("…") as stream: async for event …`.

        Without `task_group` the block owns one and must be left in the task that entered it. With
        one, the run lives there; its errors never reach the group (ENG-21).
        """
        from loopctl.engine.stream import EventStream  # and what it needs, when it is first used

        message, config, session = _message(input), run_config or self.config.run, self._session

        def take_off(send: MemoryObjectSendStream[Event]) -> Flight:
            emitter = Emitter(session.plugins.listeners, send)
            wanted = None if output is str else _typed(output, config)
            return Flight(session, message, config, emitter, streaming=True, output=wanted)

        return EventStream(take_off, task_group)

    def cancel(self) -> bool:
        """Stop the run in flight, whatever it is doing; `False` and no effect without one."""
        return self._session.flight is not None and self._session.flight.cancel()

    def steer(self, said: str | Message) -> bool:
        """Say something to the run that works: text, or a user message of text and images.

        `True`: the run in flight has it and delivers it at its next boundary, behind complete tool
        results; a run that is writing its answer goes on for another turn. `False`: it is kept and
        becomes part of the next input. Sync, so that no word is lost with a forgotten `await`.
        Raises `ConfigError` for what says nothing (CTX-23).
        """
        return self._session.steer(said)

    # -- context ------------------------------------------------------------------------------

    def add_contributor(self, contributor: Any) -> None:
        """Register an object with `contribute(ctx)`, or a function of `ctx` (CTX-1)."""
        self._session.plugins.add_contributor(contributor)

    def add_plugin(self, plugin: object) -> None:
        """Register an object with hooks marked by `@loopctl.hookimpl` (CTX-24)."""
        self._session.plugins.add_plugin(plugin)

    async def set_attachment(self, attachment: Attachment) -> None:
        """Pin an attachment, or replace in place the one with its id (CTX-15)."""
        await self._session.set_attachment(attachment)

    async def detach_attachment(self, attachment_id: str) -> bool:
        """Take an attachment away; `False` if it was not pinned."""
        return await self._session.detach_attachment(attachment_id)

    def attachment_ids(self) -> tuple[str, ...]:
        """What is pinned, in the order in which it rides."""
        return self._session.attachment_ids()

    async def explain(
        self, input: str | Message | None, run_config: RunConfig | None = None
    ) -> Explanation:
        """Exactly what the next request would hold if `run(input)` began now; calls no model.

        Contributors are consulted and memory is asked for it as for a turn; their clock and their
        order are a turn's, their `run_id` is `"explain"`. Raises `LoopBusyError` while a run is in
        flight or another explanation is made, `ConfigError` for an input that `run` would refuse
        (ENG-26).
        """
        from loopctl.engine.explaining import explain

        self._check_idle("explain")
        message, session = _message(input), self._session
        if message is None and not self.unfinished:
            raise ConfigError("there is no unfinished run to continue; give an input")
        if session.explaining:  # a contributor that explains would be asked without end
            raise LoopBusyError("explain", busy_with="an explanation")
        session.explaining = True
        try:
            return await explain(session, message, run_config or self.config.run)
        finally:
            session.explaining = False

    # -- the history --------------------------------------------------------------------------

    async def compact(self, instructions: str | None = None) -> PassReport:
        """Shrink the conversation now, between runs; says what came of it (CMP-7).

        `instructions` reach compactors that can read. Raises `LoopBusyError` while a run is in
        flight; a compactor that fails is told of in the report, and the history stays.
        """
        from loopctl.engine.passes import compact_by_hand

        session = self._session
        self._check_idle("compact")
        session.busy_with = "a pass"
        try:
            return await compact_by_hand(session, instructions)
        finally:
            session.busy_with = None

    def clear(self) -> None:
        """Forget the conversation, between runs; what is pinned stays."""
        self.replace_history(())

    def replace_history(self, messages: Iterable[Message]) -> None:
        """Edit the history by hand, between runs.

        Raises `ConfigError` for a history that no provider would take, `LoopBusyError` while a run
        is in flight.
        """
        history = _sound(messages)
        self._check_idle("edit the history")
        self._session.machine.replace(history)

    def _check_idle(self, attempted: str) -> None:
        session = self._session
        if session.flight is not None or session.busy_with is not None:
            raise LoopBusyError(attempted, busy_with=session.busy_with)

    # -- reading ------------------------------------------------------------------------------

    @property
    def config(self) -> SessionConfig:
        """The session's settings."""
        return self._session.config

    @property
    def client(self) -> ModelClient:
        """The client as given, or as made from a string."""
        return self._session.client

    @property
    def tools(self) -> ToolRegistry:
        """The tools; what is registered or taken away shows in the next request."""
        return self._session.registry

    @property
    def deps(self) -> D:
        """What was given as `deps`."""
        return self._session.deps  # type: ignore[no-any-return]

    @property
    def session_id(self) -> str:
        """The id of this session."""
        return self._session.session_id

    @property
    def history(self) -> tuple[Message, ...]:
        """The committed messages."""
        return self._session.machine.history

    @property
    def conversation(self) -> tuple[Message, ...]:
        """History, then the messages of the run in flight."""
        return self._session.machine.conversation

    @property
    def unfinished(self) -> bool:
        """Whether `run(None)` has something to continue."""
        return self._session.machine.unfinished

    @property
    def runs(self) -> tuple[Run[Any], ...]:
        """The audit trail: the last `keep_runs` runs, the oldest first (ENG-20)."""
        return tuple(self._session.runs)

    # -- closing ------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Cancel a run in flight and close what the session made (ENG-11).

        Plugins in reverse order, the temporary folder, a client made from a string; never a
        client that was given.
        """
        flight = self._session.flight
        try:
            if flight is not None:
                flight.cancel()
                await flight.landed()
        finally:
            try:
                await self._session.plugins.aclose()
            finally:
                await self._session.remove_folder()
                if self._made_client:
                    await self._session.client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _connected(spec: str, plugins: PluginRegistry) -> ModelClient:
    from loopctl.models.connect import connect  # a session with a client of its own does without

    return connect(spec, prefixes=plugins.prefixes)


def _typed(output: type[T], config: RunConfig) -> OutputType[T]:
    from loopctl.engine.output import OutputType  # and pydantic, when it is first used

    return OutputType(output, config.options)


def _sound(history: Iterable[Message]) -> tuple[Message, ...]:
    """A history that a session may go on from; `ConfigError` for another."""
    messages = tuple(history)
    problem = unpaired(messages)
    if problem is not None:
        raise ConfigError(f"history: {problem}; every provider would refuse it")
    return messages


def _message(input: str | Message | None) -> Message | None:
    if input is None or isinstance(input, Message):
        message = input
    elif isinstance(input, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        message = Message.user(input)
    else:
        raise ConfigError(f"input={input!r}: give text, a user Message, or None to continue")
    if message is not None and (message.role is not Role.USER or message.results):
        raise ConfigError("a run's input is a user message of text and images")
    if message is not None and not says_something(message.parts):
        raise ConfigError("a run's input must say something; None continues an unfinished run")
    return message
