"""What a session is made of, and the services that it gives to its tools."""

from __future__ import annotations

import logging
import math
import tempfile
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from loopctl._calls import says_something
from loopctl._clock import Clock
from loopctl._threads import Threads
from loopctl.config import RunConfig, SessionConfig
from loopctl.context.attachments import Attachment, AttachmentStore
from loopctl.context.estimate import Estimate
from loopctl.engine.emitter import Emitter
from loopctl.errors import ConfigError
from loopctl.machine import LoopMachine, Policy, State
from loopctl.messages import Message, Role
from loopctl.models.client import ModelClient, ToolSchema
from loopctl.plugins import PluginRegistry
from loopctl.runs import Run
from loopctl.tokens import TokenCounter
from loopctl.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from loopctl.compaction.types import Compactor
    from loopctl.engine.flight import Flight
    from loopctl.memory.types import Memory
    from loopctl.tools.decisions import Approver
    from loopctl.tools.dispatch import Dispatcher
    from loopctl.tools.layers import Layer


logger = logging.getLogger("loopctl")

DEFAULT_WINDOW = 128_000
"""The window in tokens of a model of which nothing is known."""


class Session:
    """One conversation and all that its runs share; `flight` is the run in flight, if any."""

    def __init__(
        self,
        client: ModelClient,
        *,
        registry: ToolRegistry,
        plugins: PluginRegistry,
        config: SessionConfig,
        system: str | None,
        deps: Any,
        attachments: Iterable[Attachment],
        history: Iterable[Message],
        layers: Sequence[Layer],
        approver: Approver | None,
        clock: Clock,
        serving: ModelClient,
        compactor: Compactor | None,
        memory: Memory | None,
        counter: TokenCounter,
    ) -> None:
        self.client = client
        self.serving = serving
        self.asked = f"{client.provider}:{client.model}"
        """The model that was asked last, where several may serve (MOD-18)."""
        self.registry = registry
        self.config = config
        self.system = system
        self.deps = deps
        self.clock = clock
        self.session_id = clock.new_id("session")
        self.working_folder = Path(config.working_folder or Path.cwd())
        self.plugins = plugins
        self.threads = Threads()
        self.attachments = AttachmentStore(attachments)
        self.machine = LoopMachine(history)
        self.compactor = compactor
        """What shrinks the conversation; `None` is the default one, loaded with the first pass."""
        self.memory = memory
        self.estimate = Estimate(counter)
        self.busy_with: str | None = None
        """What is going on between runs that no run may overtake."""
        self.explaining = False
        self.runs: deque[Run[Any]] = deque(maxlen=config.keep_runs)
        self.flight: Flight | None = None
        self._policy: tuple[RunConfig | None, int | None, Policy] = (None, None, Policy())
        self._window_warned = False
        self._window_learnt: float = math.inf
        self._layers = tuple(layers)
        self._approver = approver
        self._dispatcher: Dispatcher | None = None
        self._making_folder = threading.Lock()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._offered: tuple[tuple[ToolSchema, ...], dict[str, str]] = ((), {})

    def policy(self, config: RunConfig) -> Policy:
        """What the machine decides by now (CTX-30): clients may learn their window late."""
        settings, (known_for, told, known) = self.config, self._policy
        tells = settings.context_window
        if tells is None:
            tells = self.client.context_window
        if known_for is config and told == tells:
            return known
        window = self._window(config.options.max_output_tokens or 0)
        policy = Policy(
            max_turns=config.max_turns,
            window=window,
            threshold=settings.compact_threshold,
            auto_compact=settings.auto_compact,
        )
        self._policy = (config, tells, policy)
        return policy

    def _window(self, reserved: int) -> int:
        window = self.config.context_window
        if window is None:
            window = self.client.context_window
        if window is None:
            window = DEFAULT_WINDOW
        if window == 0:
            return 0
        left = window - reserved
        if left <= 0:
            raise ConfigError(
                f"max_output_tokens={reserved} leaves nothing of the window of {window} tokens;"
                " lower it, or set SessionConfig.context_window to what the model has"
            )
        return int(min(left, self._window_learnt))

    def window_warning(self) -> str | None:
        """One warning for each session whose window is a guess."""
        known = self.config.context_window, self.client.context_window
        if self._window_warned or known != (None, None):
            return None
        self._window_warned = True
        warning = (
            f"the window of {self.client.model} is unknown, {DEFAULT_WINDOW} tokens are assumed;"
            " set SessionConfig.context_window"
        )
        logger.warning(warning)
        return warning

    def learn_window(self, refused: int) -> None:
        """A provider found an estimate of `refused` tokens too long (CTX-33)."""
        self._window_learnt = min(self._window_learnt, max(1, refused * 95 // 100))
        self._policy = (None, None, Policy())

    @property
    def dispatcher(self) -> Dispatcher:
        """What runs the tool calls; made for the first one, and told of plugins that came since."""
        if self._dispatcher is None:
            from loopctl.tools.dispatch import Dispatcher

            self._dispatcher = Dispatcher(
                self.registry,
                services=self,
                config=self.config,
                layers=self._layers,
                approver=self._approver,
            )
        self._dispatcher.hooks = self.plugins.decisions
        return self._dispatcher

    def offered(self) -> dict[str, str]:
        """Each offered tool and the fields that it expects, in words."""
        schemas = self.registry.schemas
        if self._offered[0] is not schemas:
            from loopctl.tools.arguments import fields

            self._offered = (schemas, {s.name: fields(s.input_schema) for s in schemas})
        return self._offered[1]

    def steer(self, said: str | Message) -> bool:
        """Say something to the run in flight (`True`), or to the next one (`False`)."""
        message = said if isinstance(said, Message) else Message.user(said)
        if message.role is not Role.USER or message.results or not says_something(message.parts):
            raise ConfigError("steering is text, or a user message of text and images")
        self.machine.steer(message)
        return self.machine.state not in (State.START, State.TERMINAL)

    async def set_attachment(self, attachment: Attachment) -> None:
        """Pin or replace an attachment and tell who listens."""
        self._changed(await self.attachments.set(attachment))

    async def detach_attachment(self, attachment_id: str) -> bool:
        """Take an attachment away; `False` if it was not there."""
        found = await self.attachments.detach(attachment_id)
        if found:
            self._changed(attachment_id)
        return found

    def attachment_ids(self) -> tuple[str, ...]:
        """What is pinned, in riding order."""
        return self.attachments.ids()

    def _changed(self, attachment_id: str) -> None:
        flight = self.flight
        emitter = Emitter(self.plugins.listeners) if flight is None else flight.emitter
        if emitter.active:
            from loopctl.engine.telling import attachments_changed

            attachments_changed(emitter, flight, attachment_id, self.attachments.ids())

    def temporary_folder(self) -> Path:
        """The session's private folder, made when first asked for, removed when it closes."""
        with self._making_folder:  # tools ask from threads of their own
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(
                    prefix="loopctl-", ignore_cleanup_errors=True
                )
            return Path(self._folder.name)

    async def remove_folder(self) -> None:
        """Remove the private folder, if it was made, also when the caller is being cancelled."""
        folder, self._folder = self._folder, None
        if folder is not None:
            with anyio.CancelScope(shield=True):
                await self.threads.run(folder.cleanup)
