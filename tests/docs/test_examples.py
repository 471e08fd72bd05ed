"""Every Python example in the READMEs and docs/ runs, page by page, in a folder of its own.

An example that cannot run says why, in a comment of the page: `<!-- skip: next "reason" -->`.
"""

from __future__ import annotations

import re
from pathlib import Path
from unittest import SkipTest

import pytest
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [ROOT / "README.md", *ROOT.glob("plugins/*/README.md"), *(ROOT / "docs").rglob("*.md")]
)
SYBIL = Sybil(parsers=[PythonCodeBlockParser(), SkipParser()])


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_examples_of_a_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for example in SYBIL.parse(page).examples():
        try:
            example.evaluate()
        except SkipTest:
            continue


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_an_example_is_only_skipped_for_a_reason(page: Path) -> None:
    skips = re.findall(r"<!--\s*skip:.*?-->", page.read_text(encoding="utf-8"), re.DOTALL)
    assert [skip for skip in skips if not re.search(r"\"[^\"]{10,}\"|end", skip)] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s:]+\.\w+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_page_is_listed_on_the_first() -> None:
    index = ROOT / "docs" / "index.md"
    listed = set(re.findall(r"\]\(([^)#\s:]+\.md)\)", index.read_text(encoding="utf-8")))
    pages = {page.relative_to(index.parent).as_posix() for page in index.parent.rglob("*.md")}
    assert listed == pages - {"index.md"}


def test_an_example_that_fails_fails_its_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 1\n```\n\n```python\nassert x == 2\n```\n", encoding="utf-8")
    first, second = SYBIL.parse(page).examples()
    first.evaluate()
    with pytest.raises(AssertionError):
        second.evaluate()
