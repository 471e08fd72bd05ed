"""What several acceptance tests need."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.built_distributions import ROOT, build


@pytest.fixture(scope="session")
def loopctl_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """loopctl's own wheel."""
    (wheel,) = build([ROOT], tmp_path_factory.mktemp("wheel"))
    return wheel
