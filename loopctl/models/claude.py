"""What Claude models accept, whoever serves them: data only (MOD-27).

As of 2026-11-28. A Claude that is not here is sent what the newest ones take.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

AS_OF = "2026-11-28"

LOOKBACK = 20
"""How many blocks in front of a cache mark the server looks at for an earlier entry."""

MAX_STRICT_TOOLS = 20
MAX_OPTIONAL = 24
MAX_UNIONS = 16
"""What the strict tools and the reply's schema of one request may have together."""

Thinking: TypeAlias = Literal["always", "on", "off", "budget", "none"]
"""How a model thinks: always, unless told not to, only when told to, only with a budget of tokens
to do so, or not at all."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Facts:
    """One model: window and output cap in tokens; `None` where it is not known.

    `efforts` maps each effort that is understood to the one that is sent; with `thinking` by
    `"budget"`, `budgets` has the tokens for each, and `efforts` may be empty. `sampling` and
    `forced_choice` say whether there is a temperature and whether tools can be forced; `bound`
    whether reasoning is bound to its prefix, and the server can be asked to drop what has lost its
    own; `structured` whether schemas of replies and strict tools exist.
    """

    window: int | None = 1_000_000
    max_output: int | None = 128_000
    thinking: Thinking = "always"
    efforts: Mapping[str, str] = field(default_factory=dict[str, str])
    budgets: Mapping[str, int] = field(default_factory=dict[str, int])
    sampling: bool = False
    forced_choice: bool = False
    bound: bool = False
    structured: bool = True


def _efforts(*names: str) -> dict[str, str]:
    return {"minimal": names[0], **{name: name for name in names}}


_ALL = _efforts("low", "medium", "high", "xhigh", "max")
_NO_XHIGH = _efforts("low", "medium", "high", "max")
BUDGETS: Mapping[str, int] = {
    "minimal": 1_024,
    "low": 2_048,
    "medium": 8_192,
    "high": 16_384,
    "xhigh": 32_000,
}
"""Tokens to think with, for models that take a budget."""

NEWEST = Facts(efforts=_ALL, bound=True)

_FABLE_5 = Facts(efforts=_ALL, forced_choice=True)
_MYTHOS_5_1 = Facts(efforts=_ALL)
_THINKS = Facts(thinking="on", efforts=_ALL, forced_choice=True)
_HAIKU_5_5 = Facts(thinking="on", efforts=_ALL, forced_choice=True, bound=True)
_ASKED = Facts(thinking="off", efforts=_ALL, forced_choice=True)
_ASKED_4_6 = Facts(thinking="off", efforts=_NO_XHIGH, sampling=True, forced_choice=True)
_OPUS_4_5 = Facts(
    window=200_000,
    max_output=64_000,
    thinking="budget",
    efforts=_efforts("low", "medium", "high"),
    budgets={name: BUDGETS[name] for name in ("minimal", "low", "medium", "high")},
    sampling=True,
    forced_choice=True,
)
_BY_BUDGET = Facts(
    window=200_000,
    max_output=64_000,
    thinking="budget",
    budgets=BUDGETS,
    sampling=True,
    forced_choice=True,
)
_OLD = Facts(
    window=200_000,
    max_output=None,
    thinking="none",
    sampling=True,
    forced_choice=True,
    structured=False,
)

MODELS: Mapping[str, Facts] = {
    "claude-fable-5-2": NEWEST,
    "claude-fable-5-1": NEWEST,
    "claude-fable-5": _FABLE_5,
    "claude-mythos-5-2": NEWEST,
    "claude-mythos-5-1": _MYTHOS_5_1,
    "claude-mythos-5": _FABLE_5,
    "claude-opus-5-5": NEWEST,
    "claude-sonnet-5-5": NEWEST,
    "claude-haiku-5-5": _HAIKU_5_5,
    "claude-opus-5": _THINKS,
    "claude-sonnet-5": _THINKS,
    "claude-opus-4-8": _ASKED,
    "claude-opus-4-7": _ASKED,
    "claude-opus-4-6": _ASKED_4_6,
    "claude-sonnet-4-6": _ASKED_4_6,
    "claude-opus-4-5": _OPUS_4_5,
    "claude-sonnet-4-5": _BY_BUDGET,
    "claude-haiku-4-5": _BY_BUDGET,
}

_SNAPSHOT = re.compile(r"[-@]20\d{6}$")
_GONE = re.compile(r"claude-(?:[12]\b|3\b|instant|(?:opus|sonnet)-4(?:-[01])?$)")


def known_claude(name: str) -> Facts | None:
    """What is known of a Claude; dated snapshots (`name-20260131`) count as their model.

    `None` for a model of another name.
    """
    name = _SNAPSHOT.sub("", name)
    if (known := MODELS.get(name)) is not None:
        return known
    if _GONE.match(name):
        return _OLD
    return NEWEST if name.startswith("claude") else None
