"""What one model call gave back: the message, why it stopped, what it cost."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from loopctl.messages import Message
from loopctl.usage import Usage


class StopReason(StrEnum):
    """Why the model stopped. Providers' own words are mapped to these; others are `UNKNOWN`."""

    END = "end"
    """The model was done."""
    TOOL_CALLS = "tool_calls"
    """It wants tools to run. The calls in the message decide, not this label (ENG-15)."""
    LENGTH = "length"
    """The output limit, or the window, cut the reply."""
    STOP_SEQUENCE = "stop_sequence"
    """A stop sequence of the request was met."""
    REFUSAL = "refusal"
    """The model refused."""
    FILTER = "filter"
    """A filter of the provider's stopped the reply."""
    PAUSE = "pause"
    """The provider paused a long turn of its own tools; sending it back continues it."""
    UNKNOWN = "unknown"
    """A reason that this version does not know."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelResponse:
    """A complete reply.

    `raw_stop_reason` is the provider's own word, `refusal` what it said when it refused, `model`
    the model that served, `usage` is `None` when the provider reported none.
    """

    message: Message
    stop_reason: StopReason = StopReason.END
    raw_stop_reason: str | None = None
    refusal: str | None = None
    usage: Usage | None = None
    model: str | None = None
    response_id: str | None = None
    request_id: str | None = None
