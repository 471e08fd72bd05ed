"""What a tool is, what it may return, and what it is given when it runs (TOL-1, TOL-5, TOL-6)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Protocol,
    TypeVarTuple,
    cast,
    get_args,
    runtime_checkable,
)

from loopctl import _threads
from loopctl._cancel import cancellation_pending
from loopctl._deadline import Deadline
from loopctl.messages import ImagePart, Retention, TextPart

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from loopctl.events import EventSink

    D_co = TypeVar("D_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    D_co = TypeVar("D_co", covariant=True)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a tool answers: text, or a sequence of text and image parts (strings become text).

    `is_error` marks a soft failure that the model reads; `display_hint` is advice to user
    interfaces and never reaches the model; `retention` tells compaction that the result must stay
    (`"durable"`) or that asking again would give it back (`"requery"`).
    """

    content: str | tuple[TextPart | ImagePart, ...]
    is_error: bool = False
    display_hint: str | None = None
    retention: Retention | None = None

    def __init__(
        self,
        content: str | TextPart | ImagePart | Iterable[str | TextPart | ImagePart],
        is_error: bool = False,
        display_hint: str | None = None,
        retention: Retention | None = None,
    ) -> None:
        if retention is not None and retention not in get_args(Retention):
            raise ValueError(f"retention={retention!r}: must be 'durable', 'requery' or None")
        if not isinstance(content, str):
            content = _parts(content)
        object.__setattr__(self, "content", content)
        object.__setattr__(self, "is_error", is_error)
        object.__setattr__(self, "display_hint", display_hint)
        object.__setattr__(self, "retention", retention)


class ToolServices(Protocol):
    """What a session offers to the contexts of its tools.

    `temporary_folder` may be called from a tool's thread; the rest runs on the event loop.
    """

    @property
    def deps(self) -> Any:
        """The object that the app gave to the session for its tools."""
        ...

    @property
    def session_id(self) -> str:
        """The session's id."""
        ...

    @property
    def working_folder(self) -> Path:
        """The folder that relative paths start from."""
        ...

    def temporary_folder(self) -> Path:
        """A private folder, made at the first call and removed when the session closes."""
        ...

    def steer(self, said: Any, /) -> bool:
        """Say something to the run in flight; whether it has it."""
        ...

    # The attachments' room lies above this one, so their type has no name here.
    async def set_attachment(self, attachment: Any, /) -> None:
        """Pin an attachment, or replace the one with its id."""
        ...

    async def detach_attachment(self, attachment_id: str, /) -> bool:
        """Let an attachment go; whether it was there."""
        ...

    def attachment_ids(self) -> tuple[str, ...]:
        """The ids of what is pinned, in riding order."""
        ...


class ToolContext(Generic[D_co]):
    """What a running call may know and do. Annotate a parameter with it to be given one.

    It belongs to one call. After the call has ended `cancelled` is true and `progress` does
    nothing; attachments and folders belong to the session and go on working.
    """

    __slots__ = (
        "_baseline",
        "_deadline",
        "_ended",
        "_services",
        "_sink",
        "call_id",
        "name",
        "run_id",
        "turn",
    )

    def __init__(
        self,
        services: ToolServices,
        *,
        run_id: str,
        turn: int,
        call_id: str,
        name: str,
        sink: EventSink | None = None,
        deadline: Deadline | None = None,
        baseline: int = 0,
    ) -> None:
        self._services = services
        self._sink = sink
        self._deadline = deadline
        self._baseline = baseline
        self._ended = False
        self.run_id = run_id
        self.turn = turn
        self.call_id = call_id
        self.name = name

    @property
    def deps(self) -> D_co:
        """The object that the app gave to the session for its tools."""
        return cast("D_co", self._services.deps)

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self._services.session_id

    @property
    def working_folder(self) -> Path:
        """The folder that relative paths start from."""
        return self._services.working_folder

    @property
    def temporary_folder(self) -> Path:
        """The session's private folder: made when first asked for, removed when it closes."""
        return self._services.temporary_folder()

    @property
    def cancelled(self) -> bool:
        """Whether the call is no longer wanted: cancelled, over its deadline, or ended.

        A sync tool should look at it now and then: its thread cannot be stopped from outside.
        """
        if self._ended:
            return True
        try:
            return cancellation_pending(self._baseline)
        except RuntimeError:  # in the tool's own thread, where no event loop runs
            return False

    async def progress(self, text: str, fraction: float | None = None) -> None:
        """Tell how far the call is, as a `ToolProgress` event; `fraction` goes from 0 to 1.

        Waiting for a slow reader does not use up the call's deadline.
        """
        sink = self._sink
        if sink is None or self._ended or not sink.active:
            return
        from loopctl.events import ToolProgress  # loaded when somebody listens

        event = ToolProgress(
            run_id=self.run_id,
            turn=self.turn,
            call_id=self.call_id,
            name=self.name,
            text=text,
            fraction=fraction,
        )
        await sink.send(event, self._deadline)

    async def set_attachment(self, attachment: Any) -> None:
        """Pin an attachment for every later request, or replace the one with its id."""
        await self._services.set_attachment(attachment)

    async def detach_attachment(self, attachment_id: str) -> bool:
        """Let an attachment go; whether it was there."""
        return await self._services.detach_attachment(attachment_id)

    def attachment_ids(self) -> tuple[str, ...]:
        """The ids of what is pinned, in riding order."""
        return self._services.attachment_ids()

    def steer(self, said: Any) -> bool:
        """Say something to the run, as a user would: text, or a user message (CTX-23)."""
        return self._services.steer(said)

    def from_thread(self, function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        """Run an async function on the session's event loop from a sync tool, and wait for it.

        `ctx.from_thread(ctx.progress, "half way", 0.5)`. Raises `RuntimeError` once the call has
        ended, so that an abandoned thread stops at its next word.
        """
        if self._ended:
            raise RuntimeError(f"the call of {self.name!r} has ended")

        import anyio.from_thread

        async def run() -> T:
            return await function(*args)

        return anyio.from_thread.run(run, token=_threads.token())

    def end(self) -> None:
        """Mark the call as ended; the engine does this, whatever became of it."""
        self._ended = True


@runtime_checkable
class Tool(Protocol):
    """What the model may call. `@tool` makes one of a function; a class may be one itself.

    Besides these it may have: `read_only` (False: it may change things), `concurrency_safe`
    (False: it runs alone), `timeout` (seconds, None for the session's), `resource` (a key, or a
    function from the arguments to a key or None; calls with the same key never run together).
    """

    @property
    def name(self) -> str:
        """1 to 64 letters, digits, `_` or `-`."""
        ...

    @property
    def description(self) -> str:
        """What the model is told about it."""
        ...

    @property
    def input_schema(self) -> Mapping[str, Any]:
        """The JSON schema of its arguments: an object."""
        ...

    async def call(self, arguments: dict[str, Any], ctx: ToolContext[Any]) -> ToolOutput:
        """Run it with plain JSON arguments. An exception becomes an error result."""
        ...


def _parts(content: object) -> tuple[TextPart | ImagePart, ...]:
    if isinstance(content, (TextPart, ImagePart)):
        return (content,)
    if not isinstance(content, Iterable):
        raise TypeError(
            f"ToolOutput takes text or parts, not a {type(content).__name__};"
            " return the value itself to have it encoded"
        )
    made: list[TextPart | ImagePart] = []
    for part in cast("Iterable[object]", content):
        if isinstance(part, str):
            part = TextPart(part)
        if not isinstance(part, (TextPart, ImagePart)):
            raise TypeError(f"a tool's output cannot hold a {type(part).__name__}")
        made.append(part)
    return tuple(made)
