"""Distributions that are built and installed for real; no registry is asked."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]

# A build backend builds what is in its current folder.
_BUILD = """
import os, sys
from hatchling.build import build_wheel
for folder in sys.argv[2:]:
    os.chdir(folder)
    print(os.path.join(sys.argv[1], build_wheel(sys.argv[1])))
"""

_PROJECT = """
[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "1.0"
dependencies = ["loopctl"]

[project.entry-points.loopctl]
{entry}

[tool.hatch.build.targets.wheel]
only-include = ["{module}.py"]
"""


def project(folder: Path, name: str, entry: str, source: str) -> Path:
    """Write a project of one module, named after it, with an entry point of loopctl's."""
    module = name.replace("-", "_")
    made = folder / name
    made.mkdir()
    text = _PROJECT.format(name=name, entry=entry, module=module)
    (made / "pyproject.toml").write_text(text, encoding="utf-8")
    (made / f"{module}.py").write_text(source, encoding="utf-8")
    return made


def build(projects: Iterable[Path], out: Path) -> list[Path]:
    """The wheel of each project, by the backend that each of them names."""
    said = _run([sys.executable, "-c", _BUILD, str(out), *map(str, projects)])
    return [Path(line) for line in said.splitlines()]


class Environment:
    """A new virtual environment that sees this one's packages behind its own.

    `loopctl` and plugins are installed into it; what they stand on it finds here.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        _run(["uv", "venv", "--quiet", "--python", sys.executable, str(folder)])
        self.bin = folder / ("Scripts" if os.name == "nt" else "bin")
        self.packages = Path(
            sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
        )
        behind = self.packages / "behind.pth"
        behind.write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")

    def install(self, wheels: Iterable[Path]) -> None:
        """Install wheels, and nothing else."""
        offline = ["--no-deps", "--no-index", "--offline", "--no-cache", "--no-config"]
        command = [
            "uv",
            "pip",
            "install",
            "--quiet",
            *offline,
            "--python",
            str(self.bin / "python"),
        ]
        _run([*command, *map(str, wheels)])

    def run(
        self, *command: str, folder: Path, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of it in a folder; `variables` are added to the environment's."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "LOOPCTL_"))}
        return subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            cwd=folder,
            env=kept | variables,
            capture_output=True,
            check=False,
            text=True,
            timeout=50,
        )


def _run(command: list[str]) -> str:
    made = subprocess.run(command, capture_output=True, check=False, text=True, timeout=50)
    assert made.returncode == 0, made.stderr
    return made.stdout
