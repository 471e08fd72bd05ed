"""The compactor of the page passes the contract, as the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "compaction.md"


def test_the_pages_compactor_passes_its_suite(tmp_path: Path) -> None:
    """CMP-2, CMP-9 … CMP-13: the example is one that may be copied."""
    found = re.search(r"(?ms)^```python\n# (test_\w+\.py)\n(.*?)^```$", PAGE.read_text("utf-8"))
    assert found is not None
    (tmp_path / found[1]).write_text(found[2], encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    made = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, text=True)
    assert made.returncode == 0, made.stdout
    assert "7 passed" in made.stdout
