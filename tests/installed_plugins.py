"""Distributions for tests: real metadata folders and modules in a folder on the path."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

GOOD = """
import loopctl

class Plugin:
    def __init__(self, text={text!r}, **more):
        if more:
            raise TypeError(f"unknown settings {{sorted(more)}}")
        self.text = text

    @loopctl.hookimpl
    def contribute(self, ctx):
        return self.text

plugin = Plugin()
"""


class Site:
    """A folder on the path that holds installed distributions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(
        self,
        distribution: str,
        source: str | None = None,
        *,
        entry: str | None = None,
        metadata: str | bytes | None = None,
        entry_points: str | bytes | None = None,
        version: str = "1.0",
        module: str | None = None,
        folder: str | None = None,
    ) -> None:
        """Install `distribution`, by default with a plugin that contributes its name.

        Its module is named after it; `entry` is the line in the group `loopctl`.
        """
        module = module or distribution.replace("-", "_")
        if source is None:
            source = GOOD.format(text=distribution)
        (self.folder / f"{module}.py").write_text(source, encoding="utf-8")
        line = entry or f"{distribution} = {module}:Plugin"
        info = self.folder / (folder or f"{distribution.replace('-', '_')}-{version}.dist-info")
        info.mkdir()
        if metadata is None:
            metadata = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
        if entry_points is None:
            entry_points = f"[loopctl]\n{line}\n"
        _write(info / "METADATA", metadata)
        _write(info / "entry_points.txt", entry_points)
        importlib.invalidate_caches()

    def imported(self) -> set[str]:
        """The modules that were imported from here."""
        return {name for name, module in [*sys.modules.items()] if self._is_here(module)}

    def forget(self) -> None:
        """Have what was imported from here imported anew."""
        for name in self.imported():
            del sys.modules[name]

    def _is_here(self, module: object) -> bool:
        return (getattr(module, "__file__", None) or "").startswith(str(self.folder))


def on_path(folder: Path) -> Iterator[Site]:
    """A site at the front of the path while it is used."""
    before = list(sys.path)
    sys.path.insert(0, str(folder))
    site = Site(folder)
    try:
        yield site
    finally:
        sys.path[:] = before
        site.forget()


def _write(path: Path, content: str | bytes) -> None:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
