"""Keys in, lines out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from loopctl.cli.line_editor import LineEditor, View

UP, DOWN, LEFT, RIGHT, DELETE = b"\x1b[A", b"\x1bOB", b"\x1b[D", b"\x1bOC", b"\x1b[3~"


def typed(*keys: bytes) -> LineEditor:
    line = LineEditor()
    for key in keys:
        assert line.feed(key) == []
    return line


def test_enter_completes_a_line() -> None:
    line = LineEditor()
    assert line.feed("wie sp\u00e4t?\rund".encode()) == ["wie spät?"]
    assert line.text == "und"
    assert line.feed(b"\n\n") == ["und", ""]


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        (b"abc\x7f", "ab"),
        (b"\x7f\x08abc\x08", "ab"),
        (b"abc" + LEFT + LEFT + b"X", "aXbc"),
        (b"abc" + LEFT * 9 + b"X" + RIGHT * 9 + b"Y", "XabcY"),
        (b"abc\x01X\x05Y", "XabcY"),
        (b"abc\x1b[HX\x1b[FY\x1b[1~Z\x1b[4~!", "ZXabcY!"),
        (b"abc" + LEFT + b"\x04" + LEFT + DELETE, "a"),
        (b"one two  \x17", "one "),
        (b"one two\x1b\x7f\x17\x17", ""),
        (b"one two" + LEFT * 3 + b"\x15", "two"),
        (b"one two" + LEFT * 3 + b"\x0b", "one "),
        (b"a\x1b[1;5Cb\x1b[38;5;1mc\x1bxd\x1b[200z", "abcd"),
        (b"a\x07\x00\x1fb\t", "ab"),
        ("aß\x7f".encode(), "a"),
        (b"a\xffb", "a\ufffdb"),
    ],
)
def test_keys_edit_the_line(keys: bytes, text: str) -> None:
    assert typed(keys).text == text


def test_up_and_down_go_through_what_was_entered() -> None:
    line = LineEditor()
    line.feed(b"one\rtwo\rtwo\r \r")
    seen: list[str] = []
    for key in (b"dra", UP, UP, UP, DOWN, DOWN, DOWN, b"ft"):
        line.feed(key)
        seen.append(line.text)
    assert seen == ["dra", "two", "one", "one", "two", "dra", "dra", "draft"]
    assert line.feed(UP + b"!\r" + UP) == ["two!"]
    assert line.text == "two!"


def test_ctrl_d_ends_only_an_empty_line() -> None:
    line = LineEditor()
    assert line.feed(b"a\x04\x01\x04\x04") == [None]


def test_a_paste_of_several_lines_is_one_entry() -> None:
    line = typed(b"> \x1b[200~one\r\ttwo\x1b[Dx\x1b[201~")
    assert line.text == "> one\n\ttwox"
    assert line.feed(b"\r") == ["> one\n\ttwox"]
    assert line.feed(b"back\r") == ["back"]


def test_text_that_is_given_back_stands_in_front() -> None:
    line = typed(b"then")
    line.put("first, ")
    assert line.text == "first, then"
    assert line.clear()
    assert not line.clear()
    assert line.text == ""


@given(st.binary(max_size=40), st.integers(0, 40))
def test_it_does_not_matter_how_keys_are_cut(keys: bytes, cut: int) -> None:
    whole, parts = LineEditor(), LineEditor()
    given_whole = whole.feed(keys)
    assert parts.feed(keys[:cut]) + parts.feed(keys[cut:]) == given_whole
    assert (parts.text, parts.view(9)) == (whole.text, whole.view(9))


@given(st.text(max_size=60), st.integers(0, 60), st.integers(4, 30))
def test_a_view_fits_its_columns_and_cannot_steer_the_terminal(
    text: str, back: int, columns: int
) -> None:
    line = LineEditor()
    line.put(text)
    line.feed(LEFT * back)
    view = line.view(columns)
    assert view.text.isprintable()
    assert cell_len(view.text) <= columns
    assert 0 <= view.cursor < columns
    assert view.cursor <= cell_len(view.text)


def test_a_view_follows_the_cursor() -> None:
    line = typed(b"abcdefghij")
    assert line.view(20) == View("abcdefghij", 10)
    assert line.view(5) == View("ghij", 4)
    line.feed(LEFT * 5)
    assert line.view(5) == View("bcdef", 4)
    line.feed(b"\x01")
    assert line.view(5) == View("abcde", 0)
    wide = LineEditor()
    wide.put("日本語")
    assert wide.view(6) == View("本語", 4)


def test_an_escape_sequence_without_end_is_given_up() -> None:
    assert typed(b"\x1b[" + b"1" * 100).text == "1" * 37
