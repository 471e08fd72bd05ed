"""One server of each kind for all tests; clients with the usual options share it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from loopctl.models.local import connect_local
from loopctl.models.local.client import LocalClient
from loopctl.models.local.server import SHARED, LocalServer, ServerOptions


def options_of(client: object) -> ServerOptions:
    """The options of the server that a client would start."""
    return cast(LocalClient, getattr(client, "_client", client))._options


def _kept(options: ServerOptions) -> Iterator[LocalServer]:
    server = SHARED.acquire(options)
    server.start()
    yield server
    if (last := SHARED.release(options)) is not None:
        last.stop()


@pytest.fixture(scope="session")
def native_server() -> Iterator[LocalServer]:
    yield from _kept(options_of(connect_local()))


@pytest.fixture(scope="session")
def emulating_server() -> Iterator[LocalServer]:
    yield from _kept(options_of(connect_local(tools="emulated")))
