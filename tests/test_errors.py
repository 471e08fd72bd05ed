"""The error tree: ENG-16, ENG-17, MOD-11."""

from __future__ import annotations

import copy
import inspect
import pickle
import re

import pytest

from loopctl import errors
from loopctl.errors import (
    AttachmentError,
    BudgetExceeded,
    ConfigError,
    ContextExceeded,
    ContributorError,
    FallbackExhausted,
    LoopBusyError,
    LoopDetected,
    LoopError,
    MachineError,
    MaxTurnsExceeded,
    MissingExtra,
    ModelError,
    RateLimitError,
    Refused,
    RunCancelled,
    RunError,
    ServerError,
    ToolRecoveryExhausted,
    without_secrets,
)
from loopctl.messages import Message

ALL = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, LoopError) and kind.__module__ == errors.__name__
]
MODEL = [kind for kind in ALL if issubclass(kind, ModelError)]

INPUT = (Message.user("a"),)
EXAMPLES: list[tuple[LoopError, dict[str, object], str]] = [
    (
        MissingExtra("the CLI", "cli"),
        {"what": "the CLI", "extra": "cli"},
        'pip install "loopctl[cli]"',
    ),
    (MachineError("reply", "Start"), {"feed": "reply", "state": "Start", "reason": ""}, "'Start'"),
    (LoopBusyError("run"), {"attempted": "run"}, "cancel() it"),
    (AttachmentError("plan", "empty"), {"attachment_id": "plan", "reason": "empty"}, "'plan'"),
    (
        ContributorError("clock", "loopctl-clock", "no time"),
        {"contributor": "clock", "distribution": "loopctl-clock", "reason": "no time"},
        "strict_plugins=False",
    ),
    (MaxTurnsExceeded(3), {"limit": 3}, "RunConfig(max_turns="),
    (RunCancelled(), {}, "run(None) continues"),
    (
        ContextExceeded(9, 8, INPUT),
        {"used": 9, "limit": 8, "unfinished_input": INPUT},
        "(9 of 8 tokens); shorten",
    ),
    (BudgetExceeded("tokens", 9, 8), {"what": "tokens", "used": 9, "limit": 8}, "of 8 tokens"),
    (Refused("no", reason="filter"), {"explanation": "no", "reason": "filter"}, "(filter): no"),
    (FallbackExhausted(()), {"causes": ()}, "all 0 models failed"),
    (LoopDetected("read a", 3), {"what": "read a", "times": 3}, "3 times"),
    (ToolRecoveryExhausted("f", 5), {"tool": "f", "retries": 5}, "after 5 retries"),
]  # fmt: skip


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    """ENG-17: all errors derive from `LoopError`, as drawn."""
    lines = re.findall(r"^ {4}([ │├└─]*)(\w+)", errors.__doc__ or "", re.MULTILINE)
    drawn = [(len(indent) // 4, name) for indent, name in lines]
    assert drawn == list(_walk(LoopError, 0))


def _walk(kind: type[LoopError], depth: int) -> list[tuple[int, str]]:
    branches = [inner for child in kind.__subclasses__() for inner in _walk(child, depth + 1)]
    return [(depth, kind.__name__), *branches]


@pytest.mark.parametrize(("error", "fields", "says"), EXAMPLES, ids=lambda v: type(v).__name__)
def test_an_error_carries_fields_and_says_what_to_do(
    error: LoopError, fields: dict[str, object], says: str
) -> None:
    """ENG-17: the message is built from typed fields."""
    assert {name: getattr(error, name) for name in fields} == fields
    assert says in str(error)


@pytest.mark.parametrize("error", [e for e, _, _ in EXAMPLES] + [kind("no") for kind in MODEL])
def test_an_error_survives_copying_and_pickling(error: LoopError) -> None:
    """ENG-17: with its text, its fields and its notes, also across processes."""
    error.add_note("seen in a worker")
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        assert vars(twin) == vars(error)


RECOVERABLE = {
    "LoopBusyError", "MaxTurnsExceeded", "RunCancelled", "FallbackExhausted", "OutputInvalid",
    "RateLimitError", "OverloadedError", "ServerError", "ConnectError", "StreamIncomplete",
    "StreamStalled",
}  # fmt: skip


def test_recoverable_tells_whether_another_try_makes_sense() -> None:
    """ENG-17, MOD-11: permanent failures get one attempt."""
    assert {kind.__name__ for kind in ALL if kind.recoverable} == RECOVERABLE


def test_every_error_of_a_run_can_carry_its_run() -> None:
    """ENG-16: `.run` is there, `None` until a run ended by it."""
    assert [kind.run for kind in ALL] == [None] * len(ALL)


def test_errors_fit_the_builtin_ones_that_people_catch() -> None:
    """ENG-17: a bad value is a ValueError, a missing extra an ImportError."""
    assert issubclass(ConfigError, ValueError)
    assert issubclass(MissingExtra, ImportError)
    assert not issubclass(ModelError, RunError)


@pytest.mark.parametrize("kind", MODEL)
def test_a_model_error_carries_what_the_provider_said(kind: type[ModelError]) -> None:
    """MOD-11: provider, model, status, code, request id, the upstream text."""
    error = kind(
        "no room", provider="acme", model="m1", status=418, code="teapot", request_id="r-1"
    )
    assert (error.provider, error.model, error.status) == ("acme", "m1", 418)
    assert (error.code, error.request_id, error.upstream) == ("teapot", "r-1", "no room")
    assert str(error).startswith("acme:m1: no room (status 418, teapot, request r-1)")
    assert kind.hint in str(error)


@pytest.mark.parametrize("kind", MODEL)
def test_a_model_error_without_upstream_text_explains_itself(kind: type[ModelError]) -> None:
    """MOD-11: an empty body is no reason for an empty message."""
    assert len(str(kind())) > 10


def test_rate_limits_and_failures_say_how_long_to_wait_if_known() -> None:
    """MOD-11: `retry_after` in seconds."""
    assert RateLimitError("slow down").retry_after is None
    assert RateLimitError("slow down", retry_after=2.5).retry_after == 2.5
    assert ServerError("later", retry_after=1).retry_after == 1


def test_an_overflow_says_the_tokens_if_known() -> None:
    """MOD-12: `used` and `limit` as the provider stated them."""
    error = errors.ContextOverflowError("too long", status=400, used=9, limit=8)
    assert (error.used, error.limit, error.status) == (9, 8, 400)
    assert errors.ContextOverflowError("too long").used is None


def test_upstream_text_is_bounded() -> None:
    """MOD-11: a page of HTML is not an error message."""
    assert len(ModelError("x" * 10_000).upstream) == errors.MAX_UPSTREAM_CHARS


SECRET = "abcDEF123456789_-xyz"
LEAKS = [
    f"Authorization: Bearer {SECRET}",
    f'"authorization": "Bearer {SECRET}"',
    f"authorization: Basic {SECRET}=",
    f"bearer {SECRET}",
    f"Incorrect API key provided: sk-{SECRET}.",
    f"x-api-key: {SECRET}",
    f'{{"api_key": "{SECRET}"}}',
    f'{{\\"api_key\\": \\"{SECRET}\\"}}',
    f"https://host/v1?key={SECRET}&alt=sse",
    f"AIza{SECRET}{SECRET}",
    f"password={SECRET}",
    f"client_secret: {SECRET}",
]


@pytest.mark.parametrize("text", LEAKS)
def test_secrets_are_removed_from_what_a_provider_said(text: str) -> None:
    """MOD-11: a server that echoes the key does not put it into a log."""
    error = ModelError(text)
    assert SECRET not in error.upstream
    assert SECRET not in str(error)
    assert "***" in error.upstream


@pytest.mark.parametrize(
    "text",
    [
        "This model's maximum context length is 8192 tokens; you requested 9000 tokens.",
        "max_tokens: 100000 is too large",
        "the key of the map is missing",
        "tokenizer failed",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    """MOD-12: what classification reads must survive."""
    assert without_secrets(text) == text


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("http://user:s3cretpassw@host/v1 is down", "http://***@host/v1 is down"),
        ("got ghp_0123456789abcdefghijABCD", "got ghp_***"),
        ("got AKIA0123456789ABCDEF", "got AKIA***"),
        ("got eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc", "got eyJ***"),
        ("key-0123456789ab", "key-***"),
        ("key_error_in_table", "key_error_in_table"),
    ],
)
def test_more_secrets_are_hidden_and_plain_words_are_not(text: str, kept: str) -> None:
    """MOD-11: passwords in addresses, tokens of the usual shapes."""
    assert without_secrets(text) == kept
