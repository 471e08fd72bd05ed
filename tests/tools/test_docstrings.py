"""Docstrings in three styles."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopctl.tools.docstrings import Docstring, parse

GOOGLE = """Find books.

    In all shelves.

    Args:
        query (str, optional): What to look for: words,
            or a title.
        limit: How many.

            At most a hundred.
        **rest (dict[str, tuple(int)]): Ignored.

    Returns:
        title: the books
    """
NUMPY = """Find books.

    In all shelves.

    Parameters
    ----------
    query : str
        What to look for: words,
        or a title.
    limit, rest : int, optional
        How many.

    Returns
    -------
    title : str
        The books.
    """
SPHINX = """Find books.

    In all shelves.

    :param str query: What to look for: words,
        or a title.
    :param limit: How many.
    :type limit: int
    :returns: the books
    """


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_the_three_styles_say_the_same(text: str) -> None:
    """TOL-1: Google, NumPy and Sphinx docstrings give prose and parameters."""
    found = parse(text)
    assert found.description == "Find books.\n\nIn all shelves."
    assert found.parameters["query"] == "What to look for: words, or a title."
    assert found.parameters["limit"].startswith("How many.")
    assert "title" not in found.parameters


def test_details_of_google_entries() -> None:
    found = parse(GOOGLE).parameters
    assert found["limit"] == "How many.\n\nAt most a hundred."
    assert found["rest"] == "Ignored."


def test_several_names_share_one_numpy_entry() -> None:
    assert parse(NUMPY).parameters["rest"] == "How many."


def test_sections_may_follow_each_other_without_blank_lines() -> None:
    text = "Do it.\nArgs:\n    a: One.\nKeyword Args:\n    b: Two.\nRaises:\n    KeyError: no."
    assert parse(text).parameters == {"a": "One.", "b": "Two."}


def test_no_docstring_says_nothing() -> None:
    assert parse(None) == parse("") == Docstring()


def test_prose_with_colons_stays_prose() -> None:
    text = "Note: this is prose.\n\nA ratio a:b, and\n:emphasis: too."
    assert parse(text) == Docstring(text)


@given(st.text(alphabet="Args:\n -ab:param(", max_size=80))
def test_no_docstring_breaks_the_reader(text: str) -> None:
    found = parse(text)
    assert all(name and described for name, described in found.parameters.items())
