from __future__ import annotations

import datetime

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from loopctl.models.breaker import Breaker, Gate, Tally, Ticket
from loopctl.testing import FixedClock


def seconds(number: float) -> datetime.timedelta:
    return datetime.timedelta(seconds=number)


def taken(gate: Gate) -> Ticket:
    ticket = gate.admit()
    assert ticket is not None
    return ticket


def fail(gate: Gate, times: int = 1) -> None:
    for _ in range(times):
        taken(gate).settle(failed=True)


def test_three_failures_in_a_row_open_it() -> None:
    """MOD-18: a success in between begins anew; what says nothing changes nothing (E7)."""
    breaker = Breaker(FixedClock())
    fail(breaker, 2)
    taken(breaker).settle(failed=False)
    fail(breaker, 2)
    taken(breaker).settle(failed=None)
    fail(breaker)
    assert breaker.admit() is None


def test_after_sixty_seconds_one_probe_at_a_time_and_two_successes_close_it() -> None:
    """MOD-18: the third call waits for no probe any more."""
    clock = FixedClock()
    breaker = Breaker(clock)
    fail(breaker, 3)
    clock.advance(seconds(59.9))
    assert breaker.admit() is None
    clock.advance(seconds(0.1))
    first = taken(breaker)
    assert first.probe
    assert breaker.admit() is None
    first.settle(failed=False)
    second = taken(breaker)
    assert second.probe
    second.settle(failed=False)
    assert not taken(breaker).probe
    fail(breaker, 2)
    assert not taken(breaker).probe


def test_a_failed_probe_opens_it_for_another_pause() -> None:
    """E7: a failure while half open is not forgotten, also after a first success."""
    clock = FixedClock()
    breaker = Breaker(clock)
    fail(breaker, 3)
    clock.advance(seconds(60))
    taken(breaker).settle(failed=False)
    fail(breaker)
    assert breaker.admit() is None
    clock.advance(seconds(60))
    taken(breaker).settle(failed=False)
    assert taken(breaker).probe  # the success before counts no more


def test_a_probe_that_says_nothing_frees_its_place() -> None:
    """E7: cancelled, 401 or 400; the next call may probe at once."""
    clock = FixedClock()
    breaker = Breaker(clock)
    fail(breaker, 3)
    clock.advance(seconds(60))
    taken(breaker).settle(failed=None)
    assert taken(breaker).probe


def test_what_a_call_of_earlier_times_tells_is_old() -> None:
    """MOD-18: calls that began before the breaker turned neither close nor open it."""
    clock = FixedClock()
    breaker = Breaker(clock)
    slow, *slower = [taken(breaker) for _ in range(4)]
    fail(breaker, 3)
    slow.settle(failed=False)
    assert breaker.admit() is None
    clock.advance(seconds(60))
    probe = taken(breaker)
    for ticket in slower:
        ticket.settle(failed=True)
    assert breaker.admit() is None  # the probe is still out
    probe.settle(failed=False)
    assert taken(breaker).probe


def test_what_is_said_first_of_a_call_counts() -> None:
    """E7: freed in any case, settled once."""
    breaker = Breaker(FixedClock())
    for _ in range(2):
        ticket = taken(breaker)
        ticket.settle(failed=True)
        ticket.settle(failed=None)
        ticket.settle(failed=True)
    assert breaker.admit() is not None


def test_a_clock_that_was_set_back_does_not_hold_it_open() -> None:
    """MOD-18: the pause is at most what it is."""
    clock = FixedClock()
    breaker = Breaker(clock)
    fail(breaker, 3)
    clock.advance(seconds(-3600))
    assert taken(breaker).probe


def test_two_failures_in_a_row_are_too_many_for_a_backup() -> None:
    """MOD-18: skipped for as long as a breaker stays open; a success begins anew."""
    clock = FixedClock()
    tally = Tally(clock)
    fail(tally)
    taken(tally).settle(failed=False)
    fail(tally)
    taken(tally).settle(failed=None)
    fail(tally)
    assert tally.admit() is None
    clock.advance(seconds(60))
    fail(tally)
    assert tally.admit() is not None


class AnyCalls(RuleBasedStateMachine):
    """Calls that overlap and end in any way at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FixedClock()
        self.breaker = Breaker(self.clock)
        self.out: list[Ticket] = []

    @rule()
    def ask(self) -> None:
        ticket = self.breaker.admit()
        if ticket is not None:
            self.out.append(ticket)

    @precondition(lambda self: self.out)
    @rule(which=st.integers(0, 100), failed=st.sampled_from([True, True, False, None]))
    def end(self, which: int, failed: bool | None) -> None:
        self.out.pop(which % len(self.out)).settle(failed=failed)

    @rule(by=st.sampled_from([1, 30, 60]))
    def wait(self, by: int) -> None:
        self.clock.advance(seconds(by))

    @invariant()
    def at_most_one_probe_is_out(self) -> None:
        assert sum(ticket.probe for ticket in self.out) <= 1

    def teardown(self) -> None:
        """Whatever happened, it is never wedged: once all calls ended, a pause lets one in."""
        for ticket in self.out:
            ticket.settle(failed=None)
        self.clock.advance(seconds(60))
        assert self.breaker.admit() is not None


class TestAnyCalls(AnyCalls.TestCase):  # type: ignore[misc,valid-type]  # hypothesis makes it
    """E7: a breaker is never wedged half open."""

    settings = settings(max_examples=100, deadline=None)
