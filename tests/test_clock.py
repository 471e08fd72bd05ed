"""Time, ids and chance come from one place: ENG-29."""

from __future__ import annotations

import ast
import datetime
import re
from pathlib import Path

import pytest

import loopctl
from loopctl._clock import SYSTEM_CLOCK, Clock, SystemClock
from loopctl.testing import FixedClock

PACKAGE = Path(loopctl.__file__).parent
SOURCES = {
    "datetime": {"now", "utcnow", "today"},
    "time": {"time", "time_ns"},
    "uuid": {"uuid1", "uuid4"},
    "random": {"random", "randint", "choice", "shuffle", "Random", "SystemRandom"},
    "secrets": {"token_hex", "token_urlsafe", "token_bytes", "choice"},
}


def test_the_system_clock_tells_the_time_with_its_zone() -> None:
    """ENG-29: a moment without a zone is a bug elsewhere."""
    assert SYSTEM_CLOCK.now().utcoffset() == datetime.timedelta(0)


def test_ids_are_fresh_and_of_harmless_letters() -> None:
    """ENG-29: they end up in file names and headers."""
    ids = {SYSTEM_CLOCK.new_id("run") for _ in range(1000)}
    assert len(ids) == 1000
    assert all(re.fullmatch(r"run-[0-9a-f]{12}", one) for one in ids)


def test_random_numbers_are_from_nought_to_one() -> None:
    """ENG-29: for jitter."""
    assert all(0 <= SYSTEM_CLOCK.random() < 1 for _ in range(1000))


@pytest.mark.parametrize("make", [SystemClock, FixedClock])
def test_both_clocks_fit_the_protocol(make: type[SystemClock | FixedClock]) -> None:
    """ENG-29: `FixedClock` is public and takes the system's place."""
    clock: Clock = make()
    assert clock.now().tzinfo is not None
    assert isinstance(clock.new_id("run"), str)
    assert 0 <= clock.random() < 1


def test_two_fixed_clocks_agree() -> None:
    """ENG-29: with fixed ones two runs send byte-identical requests."""
    left, right = FixedClock(), FixedClock()
    for _ in range(3):
        assert left.now() == right.now()
        assert left.new_id("run") == right.new_id("run")
        assert left.random() == right.random()


def test_nothing_else_asks_the_system_for_time_ids_or_chance() -> None:
    """ENG-29: one injectable place, so no other module reads a clock or draws a number."""
    offenders = [
        f"{path.relative_to(PACKAGE)}:{node.lineno} {ast.unparse(node)}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.name != "_clock.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and _asks_the_system(node)
        # the key of the local server is a secret, and nobody's to repeat
        and (path.parent.name, ast.unparse(node)) != ("local", "secrets.token_urlsafe")
    ]
    assert offenders == []


def _asks_the_system(node: ast.Attribute) -> bool:
    owner = ast.unparse(node.value).rpartition(".")[2]
    return node.attr in SOURCES.get("datetime" if owner == "date" else owner, set())
