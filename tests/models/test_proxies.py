"""A proxy of the environment never gets what is meant for this machine."""

from __future__ import annotations

import anyio
import pytest

from loopctl import BareLoop, RateLimiter, connect
from loopctl.errors import ConfigError
from loopctl.testing import ByteServer, chat_reply

pytestmark = pytest.mark.anyio


async def test_a_server_on_this_machine_is_asked_without_a_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """MOD-5, MOD-25: HTTP_PROXY and ALL_PROXY point into the void, and the answer comes."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with ByteServer(chat_reply("here")) as server:
        client = connect("openai-chat:m", base_url=server.url, api_key="k")
        with anyio.fail_after(20):
            run = await BareLoop(client, retry=None).run("who?")
        await client.aclose()
    assert run.output == "here"


@pytest.mark.parametrize("option", [{"limiter": RateLimiter(5)}, {"max_connections": 3}])
def test_local_refuses_what_it_would_drop(option: dict[str, int]) -> None:
    """MOD-3, MOD-6: nothing is dropped silently."""
    with pytest.raises(ConfigError, match="limiter"):
        connect("local", **option)  # type: ignore[arg-type]
