"""The page about testing: each file on it is run by pytest, as a reader would run it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
FILES = {
    match[2]: match[1]
    for match in re.finditer(
        r"(?ms)^```python\n(# (\w+\.py)\n.*?)^```$",
        PAGE.read_text(encoding="utf-8"),
    )
}
STRICT = ["-o", "asyncio_mode=strict", "-o", "asyncio_default_fixture_loop_scope=function"]
ASYNCIO = {"test_weather_asyncio.py"}


@pytest.mark.parametrize(
    ("plugins", "left_out"),
    [
        pytest.param(["-p", "no:asyncio"], ASYNCIO, id="anyio"),
        pytest.param(
            ["-p", "no:anyio", *STRICT],
            {name for name, text in FILES.items() if "mark.anyio" in text},
            id="pytest-asyncio-strict",
        ),
        pytest.param([*STRICT], set[str](), id="both"),
    ],
)
def test_every_file_on_the_page_passes(
    tmp_path: Path, plugins: list[str], left_out: set[str]
) -> None:
    for name, text in FILES.items():
        if name not in left_out:
            (tmp_path / name).write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *plugins, str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=55,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_has_an_example_of_each_kind() -> None:
    assert {
        "conftest.py",
        "test_weather_anyio.py",
        "test_weather_asyncio.py",
        "test_weather_sync.py",
        "test_my_client.py",
    } <= set(FILES)
