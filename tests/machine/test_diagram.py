"""The diagram in the docs is the table of the machine (ENG-2)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from loopctl.machine import TRANSITIONS

DOCS = Path(__file__).parents[2] / "docs"


def test_the_diagram_in_the_docs_is_drawn_from_the_table() -> None:
    """ENG-2: the page is checked against TRANSITIONS, and says how to refresh it."""
    checked = subprocess.run(
        [sys.executable, DOCS / "diagram.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert checked.returncode == 0, checked.stderr


def test_the_page_explains_every_feed() -> None:
    """ENG-2: no feed without a line that says what it tells the machine."""
    page = (DOCS / "machine.md").read_text(encoding="utf-8")
    for feed in {feed for row in TRANSITIONS.values() for feed in row}:
        assert f"| `{feed}(" in page
