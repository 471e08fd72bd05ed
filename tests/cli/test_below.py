"""The line that is typed stays below the output, whatever comes above it."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopctl.cli.line_editor import View
from loopctl.cli.screen import Line, Place
from loopctl.cli.terminal import Terminal, column_after
from loopctl.events import TextDelta

WIDTH = 12


class Grid(io.StringIO):
    """What a terminal of `WIDTH` columns shows, endless below; it knows what `Terminal` sends."""

    encoding = "utf-8"

    def __init__(self) -> None:
        super().__init__()
        self.rows = [""]
        self.row = self.column = 0

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        for number, final, plain in re.findall(r"\x1b\[\??(\d*)([A-Za-z])|(.)", text, re.DOTALL):
            if plain:
                self._plain(plain)
            elif final == "A":
                self.row -= 1
                self.column = min(self.column, WIDTH - 1)
            elif final == "C":
                self.column = min(self.column + int(number), WIDTH - 1)
            elif final == "J":
                del self.rows[self.row + 1 :]
                self.rows[self.row] = self.rows[self.row][: self.column]
            elif final == "K":
                self.rows[self.row] = ""
            else:
                assert final in "mhl", (number, final)
        return len(text)

    def _plain(self, character: str) -> None:
        if character == "\r":
            self.column = 0
        elif character == "\n":  # the driver of the terminal goes back to the first column
            self._down()
        else:
            if self.column == WIDTH:
                self._down()
            row = self.rows[self.row].ljust(self.column)
            self.rows[self.row] = row[: self.column] + character + row[self.column + 1 :]
            self.column += 1

    def _down(self) -> None:
        self.row, self.column = self.row + 1, 0
        if self.row == len(self.rows):
            self.rows.append("")


@pytest.fixture(autouse=True, scope="module")
def narrow() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(WIDTH))
        patch.setenv("TERM", "xterm")
        patch.setattr(Terminal, "_spin", lambda *_: None)  # its thread keeps a time of its own
        yield


def terminal() -> tuple[Grid, Terminal]:
    grid = Grid()
    return grid, Terminal(grid, grid)


def say(screen: Terminal, text: str) -> None:
    screen.show(TextDelta(run_id="r", turn=0, text=text), Place(0, "the model answers"))


STEP = st.one_of(
    st.text(st.sampled_from("ab \n"), min_size=1, max_size=30),
    st.sampled_from([View("", 0), View("typed", 3), View("abcdefghi", 9), None]),
    st.just(Line("a line")),
)


@given(st.lists(STEP, max_size=12))
def test_output_and_what_is_typed_do_not_disturb_each_other(steps: list[object]) -> None:
    grid, screen = terminal()
    said, typed = "", None
    for step in steps:
        if isinstance(step, str):
            said += step
            say(screen, step)
        elif isinstance(step, Line):
            said += ("" if said.endswith("\n") or not said else "\n") + step.text + "\n"
            screen.say(step)
        else:
            assert step is None or isinstance(step, View)
            typed = step
            screen.under(step)
    rows = [row for line in said.split("\n") for row in _wrapped(line)]
    shown = [row.rstrip() for row in grid.rows]
    if typed is not None:
        assert shown.pop() == f"> {typed.text}".rstrip()
        assert (grid.row, grid.column) == (len(grid.rows) - 1, 2 + typed.cursor)
    # Text that ends with its row may have left an empty one below.
    assert [row for row in shown if row] == [row.rstrip() for row in rows if row.strip()]


def _wrapped(line: str) -> list[str]:
    return [line[i : i + WIDTH] for i in range(0, len(line), WIDTH)]


def test_an_unfinished_line_goes_on_where_it_was() -> None:
    grid, screen = terminal()
    say(screen, "It is ")
    screen.under(View("be", 2))
    say(screen, "42, I ")
    assert grid.rows == ["It is 42, I ", "> be"]
    say(screen, "think")
    screen.under(None)
    say(screen, ".")
    assert grid.rows[0] == "It is 42, I "
    assert "".join(grid.rows[1:]) == "think."


def test_a_full_row_goes_on_in_the_next_one_however_often_keys_come() -> None:
    grid, screen = terminal()
    say(screen, "x" * WIDTH)
    for cursor in range(4):
        screen.under(View("abc", cursor))
    screen.under(None)
    say(screen, "more")
    assert grid.rows[:2] == ["x" * WIDTH, "more"]


def test_closing_takes_the_typed_line_away() -> None:
    grid, screen = terminal()
    screen.under(View("typed", 5))
    screen.close()
    assert grid.rows == [""]


@pytest.mark.parametrize(
    ("text", "column", "after"),
    [
        *[("abc", 0, 3), ("abc", 11, 2), ("a", 11, 12), ("a", 12, 1), ("x\nab", 7, 2)],
        *[("日", 10, 12), ("日", 11, 2), ("\t", 0, 8), ("\t", 8, 11), ("", 4, 4), ("\n", 5, 0)],
        ("e\u0301", 0, 1),
    ],
)
def test_the_column_after_a_text(text: str, column: int, after: int) -> None:
    assert column_after(text, column, WIDTH) == after
