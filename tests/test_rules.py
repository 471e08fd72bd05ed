"""Each rule that this release claims to keep has a test whose docstring cites it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent

KNOWN = {"CMP": 20, "CTX": 33, "ENG": 29, "MEM": 10, "MOD": 27, "TOL": 23}
"""How many rules each page of the contract has."""

CLAIMED = {
    "CMP": {*range(1, 16)},
    "CTX": {*range(1, 34)},
    "ENG": {*range(1, 27), 29},
    "MEM": {1, 4, 8},
    "MOD": {*range(1, 16), *range(17, 28)},
    "TOL": {*range(1, 14)},
}
"""The rules that hold today."""

RULE = re.compile(r"\b([A-Z]{3})-(\d+)\b")


def test_every_claimed_rule_is_cited_by_a_test() -> None:
    cited = {rule for docstring in _docstrings() for rule in _rules(docstring)}
    claimed = {(page, number) for page, numbers in CLAIMED.items() for number in numbers}
    assert sorted(f"{page}-{number}" for page, number in claimed - cited) == []


def test_every_rule_that_a_test_cites_exists() -> None:
    unknown = {
        f"{page}-{number}"
        for docstring in _docstrings()
        for page, number in _rules(docstring)
        if not 1 <= number <= KNOWN.get(page, 0)
    }
    assert unknown == set()


def _rules(docstring: str) -> Iterator[tuple[str, int]]:
    for page, number in RULE.findall(docstring):
        if page in KNOWN:
            yield page, int(number)


def _docstrings() -> Iterator[str]:
    """The docstrings of all tests."""
    for path in TESTS.rglob("test_*.py"):
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        functions = (n for n in nodes if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)))
        yield from (ast.get_docstring(n) or "" for n in functions if n.name.startswith("test_"))
