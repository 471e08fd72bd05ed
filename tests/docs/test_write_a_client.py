"""docs/write-a-client.md: its client passes the contract suite, as the page says."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loopctl import BareLoop, RetryPolicy
from loopctl.config import RequestOptions
from loopctl.errors import BadRequestError, ConfigError, ModelError, RateLimitError, ServerError
from loopctl.messages import ImagePart, Message
from loopctl.models.client import ModelRequest
from loopctl.testing import ByteServer, Close, respond

PAGE = (Path(__file__).parents[2] / "docs" / "write-a-client.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"```python\n# (\S+)\n(.*?)```", PAGE, re.DOTALL))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The two files of the page."""
    assert {*FILES} == {"gateway.py", "test_gateway.py"}
    made = tmp_path_factory.mktemp("gateway")
    for name, source in FILES.items():
        (made / name).write_text(source, encoding="utf-8")
    return made


def loaded(folder: Path, name: str) -> Any:
    """A module of the page."""
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_its_own_tests_pass(folder: Path) -> None:
    """MOD-3, MOD-4, MOD-5, MOD-8: the contract, in a pytest of its own; nothing is skipped."""
    quiet = ("-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "--rootdir", str(folder))
    made = subprocess.run(
        [sys.executable, "-m", "pytest", *quiet],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    assert re.search(r"^\d\d passed in", made.stdout, re.MULTILINE), made.stdout


@pytest.mark.anyio
async def test_a_run_goes_through_it(folder: Path) -> None:
    """MOD-14: with a tool, and a reply that broke off and is made again by the session."""
    client = loaded(folder, "gateway").GatewayClient

    def add(a: int) -> int:
        """Add one."""
        return a + 1

    asked = (
        '{"text": "Let me see."}\n',
        '{"call": {"id": "c1", "name": "add", "arguments": {"a": 1}}}\n',
        '{"done": "tool_calls", "tokens": [3, 5]}\n',
    )
    said = ('{"text": "Two."}\n', '{"done": "end", "tokens": [3, 5]}\n')
    scripts = [respond(*asked[:1], Close()), respond(*asked), respond(*said)]
    async with ByteServer(*scripts) as server:
        agent = BareLoop(
            client("m", url=server.url), [add], system="s", retry=RetryPolicy(base_delay=0)
        )
        run = await agent.run("1 + 1?")
        await server.wait_closed()
    assert run.output == "Two."
    assert run.usage.input_tokens == 6
    last = server.requests[-1].json()["messages"]
    assert last[1:] == [
        {"by": "assistant", "text": "Let me see."},
        {"by": "assistant", "call": {"id": "c1", "name": "add", "arguments": {"a": 1}}},
        {"by": "tool", "result": {"id": "c1", "text": "2", "failed": False}},
    ]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("status", "kind"), [(429, RateLimitError), (503, ServerError), (400, BadRequestError)]
)
async def test_its_errors_have_their_kinds(
    folder: Path, status: int, kind: type[ModelError]
) -> None:
    """MOD-11: with what the server said."""
    client = loaded(folder, "gateway").GatewayClient
    async with ByteServer(respond("no", status=status)) as server:
        with pytest.raises(kind, match="no") as caught:
            await client("m", url=server.url).complete(ModelRequest(messages=(Message.user("q"),)))
        await server.wait_closed()
    assert (caught.value.status, caught.value.provider) == (status, "gateway")


@pytest.mark.anyio
async def test_what_it_cannot_send_is_refused(folder: Path) -> None:
    """MOD-3: before any byte is sent."""
    client = loaded(folder, "gateway").GatewayClient("m", url="http://127.0.0.1:1")
    ask = ModelRequest(messages=(Message.user("q"),), options=RequestOptions(stop=("x",)))
    with pytest.raises(ConfigError, match=r"RequestOptions\.stop"):
        await client.complete(ask)
    with pytest.raises(ConfigError, match="ImagePart"):
        image = ImagePart("image/png", b"")
        await client.complete(ModelRequest(messages=(Message.user(image),)))
