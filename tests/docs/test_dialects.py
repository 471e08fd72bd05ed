"""The tables of docs/models.md say what the clients do (MOD-6, MOD-19, MOD-27)."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest

from loopctl.config import RequestOptions
from loopctl.errors import ConfigError
from loopctl.models.anthropic import AnthropicClient
from loopctl.models.bedrock import BedrockClient
from loopctl.models.client import HttpRequest, ModelRequest
from loopctl.models.providers import PROVIDERS

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "docs" / "dialects.py"
SPEC = importlib.util.spec_from_file_location("dialects", SCRIPT)
assert SPEC is not None
dialects: ModuleType = importlib.util.module_from_spec(SPEC)
sys.modules["dialects"] = dialects
assert SPEC.loader is not None
SPEC.loader.exec_module(dialects)

TABLES: dict[str, str] = dialects.tables()


def cells(table: str) -> dict[str, dict[str, str]]:
    """A table's rows by their first cell, each by the names of the columns."""
    head, _, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()
    ]
    return {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in rows}


TAKES, KEEPS = cells(TABLES["takes"]), cells(TABLES["keeps"])
with mock.patch.dict("os.environ", clear=True):
    CLIENTS: set[str] = {type(row.client).__name__ for row in dialects.rows()}
OF = {row.split(":")[0].strip("`") for row in TAKES}


def test_the_tables_are_those_of_today() -> None:
    """MOD-27: the page is written from the clients, whatever the environment says."""
    checked = subprocess.run(
        [sys.executable, SCRIPT, "--check"],
        check=False,
        capture_output=True,
        text=True,
        env={"OPENAI_BASE_URL": "http://elsewhere", "AWS_REGION": "eu-west-1"},
    )
    assert checked.returncode == 0, checked.stderr


def test_a_page_of_yesterday_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "models.md"
    text: str = dialects.PAGE.read_text(encoding="utf-8")
    page.write_text(text.replace("| bound |", "| no |", 1), encoding="utf-8")
    monkeypatch.setattr(dialects, "PAGE", page)
    assert dialects.main(["--check"]) == 1
    assert dialects.main([]) == 0
    assert dialects.main(["--check"]) == 0
    assert page.read_text(encoding="utf-8") == text
    page.write_text(text.replace("<!-- /keeps -->", ""), encoding="utf-8")
    with pytest.raises(SystemExit, match="markers"):
        dialects.main([])


def test_every_prefix_is_in_every_table() -> None:
    """MOD-6: with the variables that its key and its address may come from."""
    assert {*PROVIDERS} == OF
    assert {*TAKES} == {*KEEPS}
    for prefix, provider in PROVIDERS.items():
        (line,) = [each for each in TABLES["prefixes"].splitlines() if f"| `{prefix}:` |" in each]
        for name in (*provider.keys, *provider.urls):
            assert f"`{name}`" in line


def test_what_the_page_says_of_all_holds_for_all() -> None:
    """MOD-19: each streams and calls tools in parallel by the contract of its own tests."""
    for row in (*TAKES.values(), *KEEPS.values()):
        assert row.get("images", "yes") == row.get("lists models", "yes") == "yes"
    suites = [path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    suites = [text for text in suites if "(ModelClientContract)" in text]
    for name in CLIENTS:
        assert any(f"{name}(" in text for text in suites), name


ROWS: dict[str, tuple[str, ...]] = {
    "`openai:gpt-6-sol`": ("yes", "schema", "yes", "yes", "bound", "key", "yes"),
    "`openai-chat:gpt-5.4`": ("beside it", "schema", "yes", "yes", "no", "key", "no"),
    "`anthropic:claude-sonnet-5-5`": ("yes", "schema", "yes", "no", "bound", "marks", "yes"),
    "`deepseek:deepseek-v4-pro`": ("beside it", "in words", "no", "no", "yes", "nothing", "no"),
    "`gemini:gemini-4-argon`": ("yes", "schema", "yes", "yes", "yes", "nothing", "yes"),
    "`bedrock:us.amazon.nova-2-lite-v1:0`": (
        *("yes", "forced tool", "no", "yes"),
        *("yes", "marks", "yes"),
    ),
    "`ollama:qwen3`": ("beside it", "in words", "no", "no", "yes", "nothing", "no"),
}
"""Images in results, typed answers, strict tools, forced calls; reasoning, cache, counting."""


@pytest.mark.parametrize("name", ROWS)
def test_what_is_asked_of_a_client_is_what_its_vendor_says(name: str) -> None:
    """MOD-27: some rows by hand, so that a question that asks the wrong thing is found."""
    columns = ("images in results", "typed answers", "strict tools", "forced calls")
    kept = ("reasoning goes back", "prompt cache is told", "counts tokens")
    found = [TAKES[name][column] for column in columns] + [KEEPS[name][column] for column in kept]
    assert tuple(found) == ROWS[name]


class Forgetful:
    """A client that has nothing of what others have, or all but one thing."""

    provider, model, context_window = "p", "m", None

    def __init__(self, body: bytes = b"{}", prefix: str | None = None, refuses: str = "") -> None:
        self._request = HttpRequest(method="POST", url="u", headers={}, body=body, prefix=prefix)
        self._refuses = refuses

    def encode(self, request: ModelRequest) -> HttpRequest:
        asked: Any = getattr(request.options, self._refuses, None)
        if self._refuses and asked not in (None, False, ()):
            raise ConfigError(f"RequestOptions.{self._refuses}: no")
        return self._request


def test_each_cell_follows_its_client() -> None:
    """MOD-3, MOD-27: another client gives another cell, for each question."""
    has_not = dialects.Row("", Forgetful())
    for question, expected in {
        "images": "no",
        "result_images": "no",
        "reasoning": "no",
        "cache": "nothing",
        "counts": "no",
        "lists": "no",
        "window": "—",
    }.items():
        assert getattr(has_not, question)() == expected
    for question, option, refused, taken in (
        ("typed", "response_schema", "in words", "schema"),
        ("strict", "strict_tools", "no", "yes"),
        ("forced", "tool_choice", "no", "yes"),
        ("temperature", "temperature", "no", "yes"),
        ("stop", "stop", "no", "yes"),
    ):
        assert option in RequestOptions.__slots__
        assert getattr(dialects.Row("", Forgetful(refuses=option)), question)() == refused
        assert getattr(has_not, question)() == taken
    assert dialects.Row("", Forgetful(refuses="thinking_effort")).efforts() == "none to choose"
    sealed = f'"{dialects.SEALED}"'.encode()
    assert dialects.Row("", Forgetful(sealed)).reasoning() == "yes"
    assert dialects.Row("", Forgetful(sealed, prefix="x")).reasoning() == "bound"
    assert dialects.Row("", Forgetful(b'{"name":"structured_reply"}')).typed() == "forced tool"
    for body, told in ((b'{"cache_control":1}', "marks"), (b'{"prompt_cache_key":1}', "key")):
        assert dialects.Row("", Forgetful(body)).cache() == told


def test_older_models_have_cells_of_their_own() -> None:
    """MOD-27: the questions are put to a model, not to an API."""
    old = dialects.Row("", AnthropicClient("claude-sonnet-4-5"))
    assert (old.temperature(), old.forced(), old.reasoning()) == ("yes", "yes", "yes")
    llama = BedrockClient("meta.llama3-3-70b-instruct-v1:0", region="us-east-1")
    row = dialects.Row("", llama)
    assert (row.typed(), row.forced(), row.cache()) == ("in words", "no", "nothing")
    mistral = BedrockClient("mistral.mistral-large-2407-v1:0", region="us-east-1")
    assert dialects.Row("", mistral).forced() == "any"
