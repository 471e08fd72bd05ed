"""How the command ends: its exit codes, and what it says about an error."""

from __future__ import annotations

from enum import IntEnum

from loopctl.cli.screen import one_line, visible
from loopctl.errors import (
    AttachmentError,
    ConfigError,
    LoopError,
    MaxTurnsExceeded,
    MissingExtra,
    Refused,
)

MAX_ERROR = 1_000
"""How long the line about an error may be, in characters."""


class Exit(IntEnum):
    """The exit codes."""

    COMPLETED = 0
    FAILED = 1
    USAGE = 2
    MAX_TURNS = 3
    REFUSED = 4
    CANCELLED = 130
    PIPE_CLOSED = 141


MEANING = {
    Exit.COMPLETED: "the run completed; its answer is on standard output",
    Exit.FAILED: "no answer: a model call failed, or something broke",
    Exit.USAGE: "an option, a file, a tool or a model cannot be used as given",
    Exit.MAX_TURNS: "no answer after --max-turns turns",
    Exit.REFUSED: "the model, or a filter of its provider, refused to answer",
    Exit.CANCELLED: "stopped by Ctrl-C",
    Exit.PIPE_CLOSED: "whoever read the output closed it, as `head` does",
}
"""What each exit code means."""


class Stopped(Exception):
    """The run was cancelled; the text says where."""


class PipeClosed(Exception):
    """Nobody reads the output any more; click would make an exit code of its own of the cause."""


def exit_for(error: BaseException) -> Exit:
    """The exit code that stands for an error."""
    match error:
        case Stopped() | KeyboardInterrupt():
            return Exit.CANCELLED
        case PipeClosed():
            return Exit.PIPE_CLOSED
        case ConfigError() | AttachmentError():
            return Exit.USAGE
        case MaxTurnsExceeded():
            return Exit.MAX_TURNS
        case Refused():
            return Exit.REFUSED
        case _:
            return Exit.FAILED


def explain(error: BaseException) -> str:
    """An error in words for a person at a terminal."""
    match error:
        case MissingExtra():  # commands to copy, each on a line of its own
            return visible(str(error))
        case MaxTurnsExceeded(limit=limit):
            return f"no answer after {limit} turns; --max-turns allows more"
        case KeyboardInterrupt():
            return "stopped before the run began"
        case LoopError() | Stopped():
            return one_line(str(error), MAX_ERROR)
        case OSError():
            return one_line(f"cannot go on: {error}", MAX_ERROR)
        case _:
            said = one_line(f"{type(error).__name__}: {error}", MAX_ERROR)
            return f"unexpected {said}; LOOPCTL_DEBUG=1 shows where"
