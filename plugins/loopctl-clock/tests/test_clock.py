"""The clock contributes the session's time in a zone."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from loopctl import BareLoop, Message
from loopctl.errors import ConfigError
from loopctl.testing import FixedClock, ScriptedClient, consult
from loopctl_clock import Clock


def told(clock: Clock) -> str:
    async def ask() -> Message | None:
        return await consult(clock, clock=FixedClock())

    message = anyio.run(ask)
    assert message is not None
    return message.text


def test_a_fixed_clock_freezes_it() -> None:
    now = FixedClock().now()
    expected = now.strftime("%A, %Y-%m-%d %H:%M")
    assert told(Clock()) == f"The current date and time: {expected} (UTC)"
    assert told(Clock()) == told(Clock())


def test_zone_and_format_are_settings() -> None:
    text = told(Clock(timezone="Asia/Tokyo", format="%z"))
    assert text == "The current date and time: +0900 (Asia/Tokyo)"


@pytest.mark.parametrize(("placement", "place"), [("head", 0), ("tail", -1)])
def test_it_rides_where_it_is_told_to(placement: Any, place: int) -> None:
    client = ScriptedClient("done")
    BareLoop(client, plugins=[Clock(placement=placement)], clock=FixedClock()).run_sync("go")
    texts = [message.text for message in client.requests[0].messages]
    assert texts[place].startswith("The current date and time: ")
    assert len(texts) == 2


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"timezone": "Europe/Pariss"}, "no such zone"),
        ({"timezone": "../etc"}, "no such zone"),
        ({"timezone": 3}, "no such zone"),
        ({"format": " "}, "format is empty"),
        ({"placement": "middle"}, "must be 'head' or 'tail'"),
    ],
)
def test_a_setting_that_cannot_be_used_says_what_can(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Clock(**settings)
