"""Fixtures for pytest: `pytest_plugins = ["loopctl.testing.fixtures"]` in a conftest.py.

All of them are sync, so they work with pytest-asyncio, with anyio's plugin and with no plugin.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from loopctl.config import SessionConfig
from loopctl.testing.byte_server import ThreadedByteServer, threaded
from loopctl.testing.clock import FixedClock


@pytest.fixture
def fixed_clock() -> FixedClock:
    """A clock for `BareLoop(clock=…)`: the same times, ids and jitter in each run."""
    return FixedClock()


@pytest.fixture
def strict_config() -> SessionConfig:
    """Settings for `BareLoop(config=…)` under which a contributor that fails ends the run."""
    return SessionConfig(strict_plugins=True)


@pytest.fixture
def byte_server() -> Iterator[ThreadedByteServer]:
    """A server on loopback, in a thread of its own; script it with `byte_server.play(…)`.

    The test fails at its end when a request came that nothing was scripted for.
    """
    with threaded() as server:
        yield server
