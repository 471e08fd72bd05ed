"""Asking one contributor, the way the engine asks it (CTX-1, CTX-2, CTX-8, CTX-9)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loopctl._clock import Clock
from loopctl._threads import Threads
from loopctl.context import contributors
from loopctl.errors import ConfigError
from loopctl.messages import Message
from loopctl.plugins import PluginRegistry
from loopctl.testing.clock import FixedClock

_MARK = "loopctl_impl"


class _Conversation:
    def __init__(self, messages: Sequence[Message]) -> None:
        self.conversation = tuple(messages)


async def consult(
    contributor: object,
    *,
    turn: int = 0,
    conversation: Sequence[Message] = (),
    deps: Any = None,
    run_input: Message | str | None = None,
    run_id: str = "run-1",
    session_id: str = "session-1",
    working_folder: Path | str = ".",
    clock: Clock | None = None,
    timeout: float | None = 10.0,
) -> Message | None:
    """The message that `contributor` would add to turn `turn`; `None` when it stays quiet.

    `contributor` is what a session takes: a plugin with a marked `contribute`, an object with that
    method, or a function of `ctx`. The other arguments are what its context shows; without a
    `clock` time stands still at the start of a `FixedClock`.

    Raises `ContributorError` when it fails, as a strict session does, and `ConfigError` when a
    session would not take it or when it contributes nothing at all.
    """
    registry = PluginRegistry()
    function = getattr(contributor, "contribute", None)
    if hasattr(function, _MARK) or (function is None and not callable(contributor)):
        registry.add_plugin(contributor)
    else:
        registry.add_contributor(contributor)
    if not registry.contributors:
        raise ConfigError(f"{contributor!r} has no hook contribute(ctx) to consult")
    given = await contributors.consult(
        registry.contributors,
        contributors.Consultation(
            turn=turn,
            conversation_of=_Conversation(conversation),
            deps=deps,
            run_input=Message.user(run_input) if isinstance(run_input, str) else run_input,
            run_id=run_id,
            session_id=session_id,
            working_folder=_absolute(working_folder),
            now=(clock or FixedClock()).now,
        ),
        timeout=timeout,
        threads=Threads(),
        strict=True,
    )
    return next(iter([*given.head, *given.tail]), None)


def _absolute(folder: Path | str) -> Path:
    return Path(folder).absolute()
