"""Exit codes, and what is said about an error."""

from __future__ import annotations

import pytest

from loopctl.cli.exits import MAX_ERROR, MEANING, Exit, PipeClosed, Stopped, exit_for, explain
from loopctl.errors import (
    AttachmentError,
    AuthError,
    ConfigError,
    ContextExceeded,
    LoopError,
    MaxTurnsExceeded,
    MissingExtra,
    Refused,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (LoopError("no"), 1),
        (AuthError("no"), 1),
        (ContextExceeded(), 1),
        (RuntimeError("a fault"), 1),
        (OSError(28, "No space left on device"), 1),
        (ConfigError("no"), 2),
        (MissingExtra("it", "local"), 2),
        (AttachmentError("file:a", "no"), 2),
        (MaxTurnsExceeded(3), 3),
        (Refused("no"), 4),
        (Stopped("stopped in turn 0"), 130),
        (KeyboardInterrupt(), 130),
        (PipeClosed(), 141),
    ],
)
def test_each_error_has_its_exit_code(error: BaseException, code: int) -> None:
    assert exit_for(error) == code


def test_every_exit_code_is_explained() -> None:
    assert set(MEANING) == set(Exit)


def test_an_error_is_one_line_that_says_what_to_do() -> None:
    assert explain(MaxTurnsExceeded(3)) == "no answer after 3 turns; --max-turns allows more"
    assert explain(LoopError("it\nbroke\x1b[2J")) == "it broke\\x1b[2J"
    assert len(explain(LoopError("x" * 5_000))) == MAX_ERROR
    assert explain(KeyError("x")) == "unexpected KeyError: 'x'; LOOPCTL_DEBUG=1 shows where"
    assert explain(OSError(28, "No space left")) == "cannot go on: [Errno 28] No space left"


def test_commands_to_copy_keep_their_lines() -> None:
    error = MissingExtra("it", "local", hint="it needs:\n    pip install a\n    pip install b")
    assert explain(error).splitlines() == ["it needs:", "    pip install a", "    pip install b"]
