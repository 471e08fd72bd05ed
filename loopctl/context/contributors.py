"""Contributors: asked before every turn for one message that rides that request (CTX-1 … CTX-9).

They are consulted one after the other; the next starts when the previous has answered. What one
answers is checked here, what it does wrong costs its own message and nothing else.
"""

from __future__ import annotations

import datetime
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, TypeAlias

from loopctl._calls import without_blanks
from loopctl._deadline import Deadline
from loopctl._failures import error_text, goes_through
from loopctl._threads import Threads
from loopctl.config import Placement
from loopctl.errors import ConfigError, ContributorError
from loopctl.messages import ImagePart, Message, Role, TextPart

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    D = TypeVar("D", default=Any)
else:
    from typing import TypeVar

    D = TypeVar("D")

logger = logging.getLogger("loopctl.plugins")


@dataclass(frozen=True, slots=True)
class Contribution:
    """A message and where it rides: in front of the conversation or behind it."""

    message: Message
    placement: Placement = "head"

    def __post_init__(self) -> None:
        if self.placement not in ("head", "tail"):
            raise ConfigError(
                f"Contribution.placement={self.placement!r}: must be 'head' or 'tail'"
            )


ContributorAnswer: TypeAlias = "Message | Contribution | str | None"


class HasConversation(Protocol):
    """Whoever holds the conversation; asked only by a contributor that reads it."""

    @property
    def conversation(self) -> tuple[Message, ...]:
        """History, then the messages of this run."""
        ...


@dataclass(kw_only=True, slots=True)
class Consultation(Generic[D]):
    """What the contributors of a run are told; `turn` moves on, the rest stays."""

    turn: int
    conversation_of: HasConversation
    deps: D
    run_input: Message | None
    run_id: str
    session_id: str
    working_folder: Path
    now: Callable[[], datetime.datetime]


class ContributorContext(Generic[D]):
    """What one contributor sees of the turn that is about to run (CTX-2).

    It lives for the consultation: reading it afterwards raises `RuntimeError`; it cannot be
    copied or pickled. Messages are immutable, so nothing seen here can be changed.
    """

    __slots__ = ("_consultation",)

    def __init__(self, consultation: Consultation[D]) -> None:
        self._consultation: Consultation[D] | None = consultation

    def _live(self) -> Consultation[D]:
        if self._consultation is None:
            raise RuntimeError(
                "this ContributorContext is over: it lives for one consultation;"
                " keep the values that you need, not the context"
            )
        return self._consultation

    @property
    def turn(self) -> int:
        """The turn about to run, from 0 in each run."""
        return self._live().turn

    @property
    def conversation(self) -> tuple[Message, ...]:
        """What the model will see: history, then the messages of this run."""
        return self._live().conversation_of.conversation

    @property
    def deps(self) -> D:
        """The session's `deps`."""
        return self._live().deps

    @property
    def run_input(self) -> Message | None:
        """The input of this run; `None` when it continues an unfinished one."""
        return self._live().run_input

    @property
    def run_id(self) -> str:
        """The id of this run."""
        return self._live().run_id

    @property
    def session_id(self) -> str:
        """The id of the session."""
        return self._live().session_id

    @property
    def working_folder(self) -> Path:
        """The folder that the session works in."""
        return self._live().working_folder

    @property
    def now(self) -> datetime.datetime:
        """The present moment by the session's clock."""
        return self._live().now()

    def close(self) -> None:
        """End the consultation."""
        self._consultation = None

    def __repr__(self) -> str:
        if self._consultation is None:
            return "<ContributorContext: over>"
        return f"<ContributorContext: turn {self._consultation.turn}>"

    def __copy__(self) -> NoReturn:
        raise TypeError("a ContributorContext cannot be copied")

    def __deepcopy__(self, memo: dict[int, Any]) -> NoReturn:
        raise TypeError("a ContributorContext cannot be copied")

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("a ContributorContext cannot be pickled")


class ContextContributor(Protocol[D]):
    """Any object with this method; a plain function of `ctx` serves as well (CTX-1)."""

    def contribute(
        self, ctx: ContributorContext[D], /
    ) -> ContributorAnswer | Awaitable[ContributorAnswer]:
        """One message for this turn, or `None` to stay quiet; a `str` is a system message."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Contributor:
    """A registered contributor: what to call, and who it is in reports."""

    name: str
    distribution: str | None
    ask: Callable[[Any], Any]
    offload: bool = False


@dataclass(frozen=True, slots=True)
class ContributorFailure:
    """A contributor that lost its message for this turn, and why."""

    contributor: str
    distribution: str | None
    reason: str
    error: BaseException | None


@dataclass(slots=True)
class Contributions:
    """What the contributors of one boundary gave, in registration order."""

    head: list[Message]
    tail: list[Message]
    failures: list[ContributorFailure]


async def consult(
    contributors: Sequence[Contributor],
    consultation: Consultation[Any],
    *,
    timeout: float | None,
    threads: Threads,
    strict: bool = False,
    baseline: int = 0,
) -> Contributions:
    """Ask every contributor in order. `strict` raises `ContributorError` at the first failure.

    `baseline` is `native_cancellations()` from before the run: older requests do not count.
    """
    given = Contributions([], [], [])
    for contributor in contributors:
        ctx = ContributorContext(consultation)
        try:
            if contributor.offload:
                answer = await threads.run(partial(contributor.ask, ctx))
            else:
                answer = contributor.ask(ctx)
            if answer is not None and not isinstance(answer, _ANSWERS):
                answer = await _in_time(answer, timeout)
            accepted = None if answer is None else _accepted(answer)
        except BaseException as error:
            failure = _failure(contributor, error, baseline)
            _note(failure, strict=strict)
            given.failures.append(failure)
            continue
        finally:
            ctx.close()
        if accepted is not None:
            message, placement = accepted
            (given.head if placement == "head" else given.tail).append(message)
    return given


_ANSWERS = (str, Message, Contribution)


async def _in_time(answer: object, timeout: float | None) -> object:
    """What an async contributor answers; whatever is not awaitable comes back as it is."""
    if not inspect.isawaitable(answer):
        return answer
    with Deadline(timeout) as deadline:
        return await answer
    if deadline.expired:
        raise _TooLateError(f"no answer within {timeout:g} s")
    return None


class _TooLateError(Exception):
    """An async contributor outlasted its time."""


def _failure(contributor: Contributor, error: BaseException, baseline: int) -> ContributorFailure:
    """What a contributor did wrong; raises what is not its own to keep (CTX-9)."""
    reason = str(error) if isinstance(error, _TooLateError) else error_text(error)
    if not isinstance(error, Exception):
        passing = goes_through(error, baseline)
        if passing is not None:
            raise passing from None
        reason = "it raised a cancellation that nobody asked for"
    return ContributorFailure(contributor.name, contributor.distribution, reason, error)


def _note(failure: ContributorFailure, *, strict: bool) -> None:
    """Log a failure; `strict` makes it an error."""
    origin = f" (from {failure.distribution})" if failure.distribution else ""
    logger.warning(
        "contributor %s%s failed: %s",
        failure.contributor,
        origin,
        failure.reason,
        exc_info=failure.error,
    )
    if strict:
        error = ContributorError(failure.contributor, failure.distribution, failure.reason)
        raise error from failure.error


def _accepted(answer: object) -> tuple[Message, Placement] | None:
    """The message and its place if it may ride a request, `None` if it is blank (CTX-8)."""
    placement: Placement = "head"
    if isinstance(answer, str):
        return (Message(Role.SYSTEM, answer), placement) if answer.strip() else None
    if isinstance(answer, Contribution):
        placement, answer = answer.placement, answer.message
        if not isinstance(answer, Message):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a Contribution holds a Message, not {type(answer).__name__}")
    if not isinstance(answer, Message):
        wanted = "a Message, a Contribution, a str or None"
        raise TypeError(f"returned {type(answer).__name__}, wanted {wanted}")
    if answer.role is Role.ASSISTANT:
        raise ValueError("returned an assistant message; only system and user messages ride")
    for part in answer.parts:
        if not isinstance(part, (TextPart, ImagePart)):
            raise ValueError(f"returned a {type(part).__name__}; only text and images ride")
    message = without_blanks(answer)
    return (message, placement) if message.parts else None
