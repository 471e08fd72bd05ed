"""MOD-19: one folder for each dialect, its request and stream pure."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import loopctl.models

ROOM = Path(loopctl.models.__file__).parent
DIALECTS = sorted(folder for folder in ROOM.iterdir() if (folder / "request.py").exists())
IMPURE = ("anyio", "asyncio", "httpx", "loopctl._http", "os", "socket", "time")


@pytest.mark.parametrize("folder", DIALECTS, ids=lambda folder: folder.name)
def test_a_dialect_is_a_request_a_stream_and_a_client(folder: Path) -> None:
    """MOD-19: request and stream do no IO; only the client knows HTTP."""
    assert {"request.py", "stream.py", "client.py"} <= {path.name for path in folder.iterdir()}
    for name in ("request.py", "stream.py"):
        tree = ast.parse((folder / name).read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            assert not isinstance(node, (ast.Await, ast.AsyncFunctionDef))
            modules = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
            assert [m for m in modules if m in IMPURE or m.startswith("loopctl._http")] == []


def test_chat_completions_is_a_dialect() -> None:
    """MOD-19: the first of them."""
    assert "openai_chat" in [folder.name for folder in DIALECTS]
