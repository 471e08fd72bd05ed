"""CTX-5, CTX-20: the same state gives the same bytes, wherever and in whatever order."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance import request_bytes
from tests.built_distributions import ROOT
from tests.installed_plugins import GOOD, Site
from tests.other_pythons import other_pythons

PROGRAM = request_bytes.__file__
TOOLS = """
    @loopctl.hookimpl
    def register_tools(self, register):
        register(self.{name})

    def {name}(self, text: str, count: int | None = None) -> str:
        '''Do {name}.'''
        return text

plugin ="""


@pytest.fixture
def plugins(tmp_path: Path) -> str:
    """A folder with installed plugins; some bring tools."""
    folder = tmp_path / "site"
    folder.mkdir()
    site = Site(folder)
    for name in ("Zeta", "alpha", "beta.x", "beta-a", "m", "blocked"):
        module = name.replace("-", "_").replace(".", "_").lower()
        source = GOOD.format(text=name).replace("\nplugin =", TOOLS.format(name=f"do_{module}"))
        site.install(name, source, module=module, entry=f"{name} = {module}:Plugin")
    site.install("broken", "raise OSError")
    return str(folder)


def produced(python: str, plugins: str, backend: str = "asyncio", seed: int = 0) -> bytes:
    """What the program prints under an interpreter, each time with another order of hashes."""
    given = {"PYTHONPATH": os.pathsep.join((plugins, str(ROOT))), "PYTHONHASHSEED": str(seed)}
    made = subprocess.run(
        [python, PROGRAM, plugins, backend, str(seed)],
        env={**os.environ, **given},
        capture_output=True,
        check=False,
        timeout=50,
    )
    assert made.returncode == 0, made.stderr.decode()
    return made.stdout


def test_the_order_of_discovery_and_the_backend_change_no_byte(plugins: str) -> None:
    """CTX-5, CTX-20, G7: in processes of their own."""
    first = produced(sys.executable, plugins)
    contributed = [f"]\\n{name}\\n" for name in ("alpha", "beta-a", "beta.x", "m", "Zeta")]
    tools = [f'"do_{module}"' for module in ("alpha", "beta_a", "beta_x", "m", "zeta")]
    for expected in (contributed, tools):
        places = [first.index(text.encode()) for text in expected]
        assert places == sorted(places)
    assert b"blocked" not in first
    for seed, backend in ((1, "trio"), (2, "asyncio"), (3, "trio")):
        assert produced(sys.executable, plugins, backend, seed) == first


OTHERS = other_pythons()


@pytest.mark.skipif(not OTHERS, reason="there is no other Python of 3.11 or newer here")
@pytest.mark.parametrize("version", [pytest.param(v, id=f"3.{v[1]}") for v in OTHERS])
def test_another_python_sends_the_same_bytes(
    version: tuple[int, int], plugins: str, tmp_path: Path
) -> None:
    """CTX-20: with the same versions of the packages below."""
    python = tmp_path / "environment" / "bin" / "python"
    constraints = ["--constraints", str(ROOT / "constraints.txt")]
    for command in (
        ["venv", "--quiet", "--python", OTHERS[version], str(tmp_path / "environment")],
        ["pip", "install", "--quiet", "--offline", "--python", str(python), *constraints, *NEEDED],
    ):
        made = subprocess.run(["uv", *command], capture_output=True, check=False, text=True)
        if made.returncode:
            pytest.skip(
                f"its packages are not in uv's cache, where .ci/run puts them: {made.stderr}"
            )
    first = produced(sys.executable, plugins)
    assert produced(str(python), plugins, "trio", 4) == first


NEEDED = ("anyio", "httpx", "pluggy", "pydantic", "trio")
"""The core's dependencies, and the second backend."""
