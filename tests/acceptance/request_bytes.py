"""A program: the bytes of a run's requests, with plugins that are found in whatever order.

Its arguments are a folder with installed plugins, the backend, and a seed for the order.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import Distribution, distributions
from typing import Any, Literal
from unittest.mock import patch

import anyio

from loopctl import (
    BareLoop,
    FileAttachment,
    MemoryAttachment,
    TodoAttachment,
    TodoItem,
    installed_plugins,
)
from loopctl.models.openai_chat import OpenAIChatClient
from loopctl.testing import FixedClock, ScriptedClient, call


class Unit(Enum):
    """A unit."""

    CELSIUS = "c"
    KELVIN = "k"


@dataclass
class Place:
    """A place, and places inside it."""

    name: str
    inside: list[Place] | None = None


def weather(
    place: Place,
    unit: Unit = Unit.CELSIUS,
    days: Literal[1, 2, 3] = 1,
    tags: frozenset[str] = frozenset({"rain", "snow", "wind"}),
    extra: dict[str, float | None] | None = None,
) -> dict[str, Any]:
    """Tell the weather in a place."""
    return {"place": place.name, "unit": unit, "days": days, "tags": sorted(tags), "é": 1.5e300}


def boom(n: int) -> None:
    """Fail."""
    raise ValueError(n)


async def requests(folder: str, seed: int) -> bytes:
    """The bytes of each request of one run, one on each line."""

    def shuffled() -> Iterable[Distribution]:
        found = list(distributions(path=[folder]))
        random.Random(seed).shuffle(found)
        return found

    with patch("loopctl.installed.distributions", shuffled):
        plugins = installed_plugins(block=["blocked"])
    asked = call("weather", place={"name": "Paris"}), call("boom", n=1), call("gone")
    client = ScriptedClient([*asked], "done")
    agent = BareLoop(
        client,
        [weather, boom],
        system="Be brief.",
        plugins=plugins,
        attachments=[
            TodoAttachment([TodoItem("pack", completed=True), TodoItem("leave")]),
            MemoryAttachment("user", "Ada 日本 🙂"),
            FileAttachment.inline("a.txt", "a\u2028b" * 3000),
        ],
        clock=FixedClock(),
    )
    async with agent:
        await agent.run("Go.")
    encoder = OpenAIChatClient("m", api_key="k", base_url="http://127.0.0.1:9/v1")
    return b"\n".join(encoder.encode(request).body for request in client.requests)


if __name__ == "__main__":
    sys.stdout.buffer.write(anyio.run(requests, sys.argv[1], int(sys.argv[3]), backend=sys.argv[2]))
