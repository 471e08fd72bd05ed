"""How long a response asks to wait, in all the forms that servers use (MOD-14)."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from loopctl._clock import SYSTEM_CLOCK

_RESET = re.compile(r"(?P<who>x|anthropic)-ratelimit-(?:reset(?:-(?P<of>.+))?|(?P<named>.+)-reset)")
_UNITS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[dhms]))+")
_PIECE = re.compile(r"(\d+(?:\.\d+)?)(ms|[dhms])")
_EPOCH = 1e9
"""From here on a number is a moment, in seconds or, from a thousand times it, milliseconds."""


def retry_after(
    headers: Mapping[str, str], now: datetime.datetime | None = None, *, limited: bool = False
) -> float | None:
    """The wait that a response asks for, in seconds from `now`, at least 0; `None` if none.

    Reads `retry-after-ms` and `retry-after`: seconds, decimals too, or an HTTP date. Where those
    say nothing and the response says that a rate limit was hit (`limited`), the reset of the
    limit that is spent, or the next one: `x-ratelimit-reset-…`, `anthropic-ratelimit-…-reset`.
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        given = headers.get(name)
        if given is None:
            continue
        try:
            seconds = float(given) * unit
        except ValueError:
            seconds = _until(given, now)
        if math.isfinite(seconds):
            return max(seconds, 0.0)
    return _reset(headers, now) if limited else None


def _reset(headers: Mapping[str, str], now: datetime.datetime | None) -> float | None:
    spent: list[float] = []
    others: list[float] = []
    for name, given in headers.items():
        found = _RESET.fullmatch(name)
        if found is None:
            continue
        seconds = _moment(given.strip(), now)
        if not (math.isfinite(seconds) and seconds >= 0):
            continue  # some servers write -1 for what they do not know
        left = headers.get(_remaining(found))
        (spent if left is not None and left.strip() == "0" else others).append(seconds)
    return max(spent) if spent else min(others, default=None)


def _remaining(reset: re.Match[str]) -> str:
    """The header that says how much is left of what `reset` is about."""
    limits = f"{reset['who']}-ratelimit"
    if reset["named"]:
        return f"{limits}-{reset['named']}-remaining"
    return f"{limits}-remaining-{reset['of']}" if reset["of"] else f"{limits}-remaining"


def _moment(given: str, now: datetime.datetime | None) -> float:
    """Seconds until what a reset header says: a duration, a number, a moment."""
    if _DURATION.fullmatch(given):
        return sum(float(number) * _UNITS[unit] for number, unit in _PIECE.findall(given))
    present = now or SYSTEM_CLOCK.now()
    try:
        number = float(given)
    except ValueError:
        pass
    else:
        if number < _EPOCH:
            return number
        return number / (1000.0 if number >= _EPOCH * 1000 else 1.0) - present.timestamp()
    try:
        moment = datetime.datetime.fromisoformat(given)
    except ValueError:
        return _until(given, now)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return (moment - present).total_seconds()


def _until(date: str, now: datetime.datetime | None) -> float:
    try:
        moment = parsedate_to_datetime(date)
    except (ValueError, TypeError, OverflowError):
        return math.nan
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return (moment - (now or SYSTEM_CLOCK.now())).total_seconds()
