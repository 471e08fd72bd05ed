"""The other Pythons of this machine that loopctl supports; as a program, one path on each line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

_ASK = "import sys; print(sys.implementation.name, *sys.version_info[:2])"


def other_pythons() -> dict[tuple[int, int], str]:
    """An interpreter for each minor version but this one, on the path or kept by pyenv."""
    found: dict[tuple[int, int], str] = {}
    for path in _candidates():
        try:
            made = subprocess.run([path, "-c", _ASK], capture_output=True, check=False, text=True)
        except OSError:
            continue
        name, *numbers = made.stdout.split() or [""]
        if made.returncode == 0 and name == "cpython":
            version = (int(numbers[0]), int(numbers[1]))
            if version >= (3, 11) and version != sys.version_info[:2]:
                found.setdefault(version, path)
    return dict(sorted(found.items()))


def _candidates() -> list[str]:
    named = [shutil.which(f"python3.{minor}") for minor in range(11, 20)]
    kept = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    return [*filter(None, named), *map(str, sorted(kept.glob("*/bin/python3")))]


if __name__ == "__main__":
    sys.stdout.write("".join(f"{path}\n" for path in other_pythons().values()))
