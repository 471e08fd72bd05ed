"""Any value becomes content, and no content is empty or too long."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import math
import pathlib
import unicodedata
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from loopctl._failures import error_text
from loopctl.messages import ImagePart, TextPart
from loopctl.tools.results import DONE, EMPTY, MAX_IMAGES, capped, to_output
from loopctl.tools.types import ToolOutput

PIXEL = ImagePart("image/png", b"pixel")


class Colour(enum.Enum):
    RED = "red"


class Inner(BaseModel):
    when: datetime.date


class Outer(BaseModel):
    inner: Inner


@dataclasses.dataclass
class Point:
    x: float
    tags: set[str]


def _cycle() -> list[Any]:
    found: list[Any] = [1]
    found.append(found)
    return found


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("text", "text"),
        (None, DONE),
        ("", EMPTY),
        (" \n\t", EMPTY),
        (ToolOutput(""), EMPTY),
        (ToolOutput(()), EMPTY),
        (ToolOutput([" ", ""]), EMPTY),
        (0, "0"),
        (False, "false"),
        ([], "[]"),
        ({}, "{}"),
        (["a", 1], '["a",1]'),
        (Colour.RED, "red"),
        (datetime.datetime(2026, 11, 30, 12, 0, tzinfo=datetime.UTC), "2026-11-30T12:00:00+00:00"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (decimal.Decimal("1.50"), "1.50"),
        (pathlib.PurePosixPath("/a/b"), "/a/b"),
        (b"bytes", "bytes"),
        (b"\xff\x00", "/wA="),
        pytest.param({"b", "a"}, '["a","b"]', id="a set"),
        pytest.param(Point(math.nan, {"b", "a"}), '{"x":"nan","tags":["a","b"]}', id="a dataclass"),
        (Outer(inner=Inner(when=datetime.date(2026, 1, 2))), '{"inner":{"when":"2026-01-02"}}'),
        ({1: "a", None: "b", (1, 2): "c"}, '{"1":"a","null":"b","[1,2]":"c"}'),
        (_cycle(), '[1,"<cycle: list>"]'),
        ("\ud83d", "\ud83d"),
        (["\ud83d"], '["\\ud83d"]'),
    ],
    ids=repr,
)
def test_every_value_becomes_text(value: object, text: str) -> None:
    """TOL-5, F4: one tolerant encoder for whatever a tool returns; C2: never empty content."""
    output = to_output(value)
    assert output.content == text
    assert not output.is_error


@pytest.mark.parametrize(
    "value",
    [PIXEL, [PIXEL], (TextPart("see"), PIXEL), ["see", PIXEL], ToolOutput(["see", PIXEL])],
    ids=repr,
)
def test_parts_stay_parts(value: object) -> None:
    """TOL-5: text and image parts go to the model as they are."""
    content = to_output(value).content
    assert isinstance(content, tuple)
    assert content[-1] == PIXEL


def test_blank_text_beside_an_image_is_dropped() -> None:
    """C2: no blank text part is sent."""
    assert to_output(ToolOutput([" ", PIXEL])).content == (PIXEL,)


def test_a_value_that_fails_while_it_is_read_is_still_content() -> None:
    """TOL-5: the encoder survives values whose own code fails."""

    class Broken:
        def __iter__(self) -> Iterator[object]:
            raise OSError("disk gone")

    assert "Broken" in str(to_output(Broken()).content)


def test_output_refuses_what_is_neither_text_nor_part() -> None:
    with pytest.raises(TypeError, match="cannot hold a int"):
        ToolOutput([1])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="not a int"):
        ToolOutput(1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="retention"):
        ToolOutput("x", retention="forever")  # type: ignore[arg-type]


@given(st.text(max_size=2_000), st.integers(256, 1_000))
def test_text_is_cut_to_its_limit_with_head_marker_and_tail(text: str, limit: int) -> None:
    """TOL-11, F10: head, marker with counts, tail, all within the budget."""
    cut = capped(text, limit)
    assert isinstance(cut, str)
    assert len(cut) <= limit
    if len(text) <= limit:
        assert cut == text
        return
    head, _, rest = cut.partition("\n[… ")
    counts, _, tail = rest.partition(" characters left out …]\n")
    left_out, total = (int(n.replace(",", "")) for n in counts.split(" of "))
    assert total == len(text)
    assert left_out == len(text) - len(head) - len(tail)
    assert text == head + text[len(head) : len(head) + left_out] + tail
    assert len(head) > len(tail) > 0


CLUSTERS = ["e\u0301", "\r\n", "👍🏽", "👩\u200d🚀", "🇨🇭", "\ud83d\ude00", "नि"]


@given(
    st.sampled_from(CLUSTERS),
    st.integers(300, 400),
    st.integers(256, 290),
)
def test_no_cut_falls_inside_a_character(cluster: str, times: int, limit: int) -> None:
    """TOL-11: combining marks, joined emoji, flags' halves and surrogate pairs stay together."""
    cut = capped(cluster * times, limit)
    assert isinstance(cut, str)
    head = cut.partition("\n[… ")[0]
    tail = cut.partition(" characters left out …]\n")[2]
    assert head
    assert tail
    if cluster != "🇨🇭":  # a row of flags has no border that two neighbours tell
        assert head == cluster * (len(head) // len(cluster))
        assert tail == cluster * (len(tail) // len(cluster))


def test_a_long_row_of_marks_is_still_cut() -> None:
    """TOL-11: a text without any border is cut all the same."""
    cut = capped("a" + "\u0301" * 5_000, 256)
    assert isinstance(cut, str)
    assert len(cut) <= 256
    assert unicodedata.combining(cut[-1])


def test_parts_share_one_budget_and_images_count_apart() -> None:
    """TOL-11: images neither count as characters nor are they lost."""
    content = (TextPart("a" * 300), PIXEL, TextPart("b" * 300), TextPart("c" * 300))
    cut = capped(content, 400)
    assert isinstance(cut, tuple)
    texts = [part.text for part in cut if isinstance(part, TextPart)]
    assert sum(map(len, texts)) <= 400
    assert PIXEL in cut
    assert texts[0].startswith("aaa")
    assert texts[-1].endswith("ccc")
    assert sum("characters left out" in text for text in texts) == 1
    short = (TextPart("a"), PIXEL)
    assert capped(short, 400) == short


def test_a_flood_of_images_is_thinned_out() -> None:
    """TOL-11, F10: images have a limit of their own."""
    cut = capped(tuple([PIXEL] * 50), 400)
    assert cut == (*[PIXEL] * MAX_IMAGES, TextPart("[30 of 50 images left out]"))


def test_errors_are_told_without_secrets_and_groups_of_one() -> None:
    """TOL-9: type and message; secrets removed; a group of one speaks for its member."""
    assert error_text(ValueError("bad")) == "ValueError: bad"
    assert error_text(ValueError()) == "ValueError"
    assert (
        error_text(ExceptionGroup("g", [ExceptionGroup("h", [KeyError("k")])])) == "KeyError: 'k'"
    )
    assert "sk-abcdefghijkl" not in error_text(ValueError("key sk-abcdefghijkl failed"))

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert error_text(Mute()) == "Mute"
