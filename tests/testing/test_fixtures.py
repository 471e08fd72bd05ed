"""The fixtures, used as a plugin of pytest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FILES = {
    "conftest.py": 'pytest_plugins = ["loopctl.testing.fixtures"]\n',
    "test_them.py": """
import urllib.request

import pytest
from loopctl.testing import FixedClock, respond

opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def test_clock(fixed_clock):
    assert fixed_clock.new_id("run") == "run-1"
    assert isinstance(fixed_clock, FixedClock)


def test_config(strict_config):
    \"\"\"CTX-9: strict is the default under test.\"\"\"
    assert strict_config.strict_plugins


def test_server(byte_server):
    byte_server.play(respond("hi"))
    with opener.open(byte_server.url) as response:
        assert response.read() == b"hi"


def test_unscripted(byte_server):
    with pytest.raises(OSError):
        opener.open(byte_server.url)
""",
}


def test_the_fixtures_are_sync_and_need_no_plugin(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    plugins = ["-p", "no:asyncio", "-p", "no:anyio", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", *plugins, str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=50,
    )
    assert "4 passed, 1 error" in done.stdout, done.stdout
    assert "nothing was scripted for: GET /" in done.stdout


def test_the_kit_does_not_import_pytest() -> None:
    code = "import sys, loopctl.testing; print('pytest' in sys.modules, 'httpx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["False", "False"]


def test_the_public_names_are_sorted_and_there() -> None:
    import loopctl.testing

    assert loopctl.testing.__all__ == sorted(loopctl.testing.__all__)
    assert all(hasattr(loopctl.testing, name) for name in loopctl.testing.__all__)
