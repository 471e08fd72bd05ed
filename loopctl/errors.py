"""Every error that loopctl raises (ENG-16, ENG-17, MOD-11).

    LoopError
    ├── ConfigError               a value, option, tool or plugin that cannot work (also ValueError)
    │   └── MissingExtra          an optional dependency is not installed (also ImportError)
    ├── MachineError              the machine was fed something that its state does not allow
    ├── LoopBusyError             a run is in flight on this session
    ├── AttachmentError           an attachment that cannot be pinned or rendered
    ├── ContributorError          a contributor failed, under strict_plugins
    ├── RunError                  a run that ended without an answer
    │   ├── MaxTurnsExceeded
    │   ├── RunCancelled
    │   ├── ContextExceeded
    │   ├── BudgetExceeded
    │   ├── Refused
    │   ├── OutputInvalid
    │   ├── FallbackExhausted
    │   ├── LoopDetected
    │   └── ToolRecoveryExhausted
    └── ModelError                a model call that failed; carries what the provider said
        ├── AuthError
        ├── RateLimitError
        ├── QuotaError
        ├── OverloadedError
        ├── ContextOverflowError
        ├── BadRequestError
        ├── NotFoundError
        ├── ServerError
        ├── ConnectError
        ├── StreamIncomplete
        ├── StreamStalled
        └── InvalidResponseError

Each builds its text from typed fields and says what to do next. `recoverable` tells whether
another try of the same call makes sense. An error that ended a run carries it as `run`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict, Unpack

if TYPE_CHECKING:
    from loopctl.messages import Message
    from loopctl.runs import Run
    from loopctl.usage import Usage

MAX_UPSTREAM_CHARS = 2_000
"""How much of a provider's own error text an error keeps, in characters."""


class LoopError(Exception):
    """The root of loopctl's errors."""

    recoverable: ClassVar[bool] = False
    run: Run[Any] | None = None
    """The run that this error ended, if it ended one."""

    def __reduce__(self) -> tuple[Any, ...]:
        # The constructors take fields, not text, so a copy is made around them.
        return (_blank, (type(self), self.args), self.__dict__)


def _blank(kind: type[LoopError], args: tuple[Any, ...]) -> LoopError:
    return kind.__new__(kind, *args)


class ConfigError(LoopError, ValueError):
    """Something was configured that cannot work; the text says what would."""


class MissingExtra(ConfigError, ImportError):
    """An optional dependency is missing; `extra` is the extra of loopctl that brings it."""

    def __init__(self, what: str, extra: str, *, hint: str | None = None) -> None:
        self.what = what
        self.extra = extra
        super().__init__(hint or f'{what} needs: pip install "loopctl[{extra}]"')


class MachineError(LoopError):
    """A feed that the machine's state does not allow, or that contradicts what it holds."""

    def __init__(self, feed: str, state: str, reason: str = "") -> None:
        self.feed = feed
        self.state = state
        self.reason = reason
        super().__init__(reason or f"the feed {feed!r} is not allowed in the state {state!r}")


class LoopBusyError(LoopError):
    """A second run, or an edit between runs, while a run is in flight."""

    recoverable = True

    def __init__(self, attempted: str = "run", *, busy_with: str | None = None) -> None:
        self.attempted = attempted
        self.busy_with = busy_with
        what = f"{busy_with} is going on" if busy_with else "a run is in flight"
        super().__init__(
            f"cannot {attempted}: {what} on this session; await it, cancel() it,"
            " or use a second BareLoop"
        )


class AttachmentError(LoopError):
    """An attachment was refused when pinned, or failed to render for a request."""

    def __init__(self, attachment_id: str, reason: str) -> None:
        self.attachment_id = attachment_id
        self.reason = reason
        super().__init__(f"attachment {attachment_id!r}: {reason}")


class ContributorError(LoopError):
    """A contributor failed and `strict_plugins` is on."""

    def __init__(self, contributor: str, distribution: str | None, reason: str) -> None:
        self.contributor = contributor
        self.distribution = distribution
        self.reason = reason
        origin = f" (from {distribution})" if distribution else ""
        super().__init__(
            f"contributor {contributor}{origin} failed: {reason};"
            " fix it, or set strict_plugins=False to run without its message"
        )


class RunError(LoopError):
    """A run ended without an answer. The conversation stays one that every provider accepts."""


class MaxTurnsExceeded(RunError):
    """The run took as many turns as it was allowed; the tools of the last one still ran."""

    recoverable = True

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(
            f"no answer after {limit} turns; run(None) continues,"
            " RunConfig(max_turns=…) allows more"
        )


class RunCancelled(RunError):
    """`cancel()` stopped the run; run(None) continues it."""

    recoverable = True

    def __init__(self) -> None:
        super().__init__("the run was cancelled; run(None) continues it")


class ContextExceeded(RunError):
    """The request does not fit the model's window, in tokens as far as they are known."""

    def __init__(
        self,
        used: int | None = None,
        limit: int | None = None,
        unfinished_input: tuple[Message, ...] = (),
    ) -> None:
        self.used = used
        self.limit = limit
        self.unfinished_input = unfinished_input
        figures = f" ({used} of {limit} tokens)" if used is not None and limit is not None else ""
        super().__init__(
            f"the request does not fit the model's window{figures};"
            " shorten the history, the attachments or the input"
        )


class BudgetExceeded(RunError):
    """The run's budget is spent."""

    def __init__(self, what: str, used: float, limit: float) -> None:
        self.what = what
        self.used = used
        self.limit = limit
        super().__init__(f"the budget of {limit} {what} is spent ({used})")


class Refused(RunError):
    """The model or its filter refused; `explanation` is what the provider said."""

    def __init__(self, explanation: str = "", *, reason: str = "refusal") -> None:
        self.explanation = explanation
        self.reason = reason
        super().__init__(f"the provider refused to answer ({reason}): {explanation or 'no reason'}")


class OutputInvalid(RunError):
    """The answer is not of the type that was asked for, also after it was sent back once.

    `text` is the answer, `problems` what is wrong with it; `cut_off` says that the output limit
    ended it, so that it could not be judged.
    """

    recoverable = True

    def __init__(self, text: str, problems: tuple[str, ...], *, cut_off: bool = False) -> None:
        self.text = text
        self.problems = problems
        self.cut_off = cut_off
        super().__init__(
            "the output limit cut the answer off; raise max_output_tokens"
            if cut_off
            else f"the answer is not of the type that was asked for: {'; '.join(problems)}"
        )


class FallbackExhausted(RunError):
    """The primary model and all its backups failed.

    `causes` are their errors, in order; `usage` is what the last call cost, as far as it was
    reported.
    """

    recoverable = True
    usage: Usage | None = None

    def __init__(self, causes: tuple[Exception, ...]) -> None:
        self.causes = causes
        last = f"; the last: {causes[-1]}" if causes else ""
        super().__init__(f"all {len(causes)} models failed{last}")


class LoopDetected(RunError):
    """The run repeated itself without progress."""

    def __init__(self, what: str, times: int) -> None:
        self.what = what
        self.times = times
        super().__init__(f"the run repeats itself: {what}, {times} times with the same result")


class ToolRecoveryExhausted(RunError):
    """A tool kept failing through all the retries that its recovery allowed."""

    def __init__(self, tool: str, retries: int) -> None:
        self.tool = tool
        self.retries = retries
        super().__init__(f"tool {tool!r} still failed after {retries} retries")


class _Facts(TypedDict, total=False):
    provider: str | None
    model: str | None
    status: int | None
    code: str | None
    request_id: str | None
    retry_after: float | None


class ModelError(LoopError):
    """A model call failed.

    `upstream` is the provider's own text, bounded and without secrets; `retry_after` the wait that
    it asked for, in seconds; `usage` what the failed call cost, as far as it was reported.
    """

    hint: ClassVar[str] = ""
    usage: Usage | None = None

    def __init__(
        self,
        upstream: str = "",
        *,
        provider: str | None = None,
        model: str | None = None,
        status: int | None = None,
        code: str | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        self.upstream = without_secrets(upstream)[:MAX_UPSTREAM_CHARS]
        self.provider = provider
        self.model = model
        self.status = status
        self.code = code
        self.request_id = request_id
        self.retry_after = retry_after
        super().__init__(self._text())

    def _text(self) -> str:
        where = ":".join(part for part in (self.provider, self.model) if part)
        facts = [
            f"status {self.status}" if self.status is not None else "",
            self.code or "",
            f"request {self.request_id}" if self.request_id else "",
        ]
        known = ", ".join(fact for fact in facts if fact)
        text = self.upstream or (type(self).__doc__ or "").partition("\n")[0]
        parts = [f"{where}: " if where else "", text, f" ({known})" if known else ""]
        return "".join(parts) + (f"; {self.hint}" if self.hint else "")


class AuthError(ModelError):
    """The key is missing, wrong or not allowed to do this."""

    hint = "check the key and what it may use"


class RateLimitError(ModelError):
    """Too many requests in too short a time."""

    recoverable = True


class QuotaError(ModelError):
    """Money or quota is spent; waiting does not help."""

    hint = "top up the account or raise its limit"


class OverloadedError(ModelError):
    """The provider is overloaded."""

    recoverable = True


class ContextOverflowError(ModelError):
    """The prompt is longer than the model's window; `used` and `limit` in tokens if stated."""

    def __init__(
        self,
        upstream: str = "",
        *,
        used: int | None = None,
        limit: int | None = None,
        **facts: Unpack[_Facts],
    ) -> None:
        self.used = used
        self.limit = limit
        super().__init__(upstream, **facts)


class BadRequestError(ModelError):
    """The provider refused the request as malformed."""


class NotFoundError(ModelError):
    """The model or the address does not exist."""

    hint = "check the model's name and the base URL"


class ServerError(ModelError):
    """The provider failed inside."""

    recoverable = True


class ConnectError(ModelError):
    """The provider could not be reached, or the connection broke."""

    recoverable = True


class StreamIncomplete(ModelError):
    """The reply ended before the provider said that it was complete."""

    recoverable = True


class StreamStalled(ModelError):
    """The provider went silent for longer than a deadline allows."""

    recoverable = True


class InvalidResponseError(ModelError):
    """The reply is not one of this API."""


_SECRETS = re.compile(
    r"(?i)(bearer\s+)[A-Za-z0-9._~+/=-]{8,}"
    r"|\b((?:sk|pk|rk|gsk|xai)[-_])[A-Za-z0-9_-]{8,}"
    r"|\b(key[-_])(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{8,}"
    r"|\b(AIza|AKIA|ghp_|gho_|github_pat_|glpat-|xox[abp]-|eyJ)[0-9A-Za-z_.-]{16,}"
    r"|(https?://)[^/\s@\"']+(?=@)"
    r"|((?:[?&]key|api[-_]?key|authorization|token|secret|password)\\?[\"']?\s*[:=]\s*\\?[\"']?"
    r"(?:(?:bearer|basic)\s+)?)[^\s\"'\\,;&]{6,}"
)


def without_secrets(text: str) -> str:
    """Replace keys and tokens of the usual shapes by `***`."""
    return _SECRETS.sub(lambda m: next(g for g in (*m.groups(), "") if g is not None) + "***", text)
