from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopctl.errors import InvalidResponseError, LoopError, StreamIncomplete
from loopctl.wire.ndjson import NdjsonReader

Outcome = tuple[list[str], str]


def read(pieces: list[bytes], *, max_line: int = 1000, max_body: int = 2_000) -> Outcome:
    """The lines, and the error behind them."""
    reader = NdjsonReader(max_line=max_line, max_body=max_body)
    lines: list[str] = []
    try:
        for piece in pieces:
            lines += reader.feed(piece)
        lines += reader.close()
    except LoopError as error:
        return lines, f"{type(error).__name__}: {error}"
    return lines, ""


BODIES = {
    "unicode separators": '{"text":"Hi\u2028you\u2029\x85\v\f\x1c\x1e"}\n{"a":1}\n',
    "crlf": '{"a":1}\r\n{"b":2}\r\n',
    "wide characters": '{"a":"你好🙂"}\n{"b":"é"}\n',
    "blank lines": '\n\n{"a":1}\n \t\r\n{"b":2}\n\n',
    "no last line end": '{"a":1}\n{"b":"🙂"}',
    "nothing": "",
}
BROKEN = {
    "not utf-8": b'{"a":1}\n{"b":"\xff"}\n{"c":3}\n',
    "not utf-8 in an unended line": b'{"a":1}\n{"b":"\xff"}',
    "half a character": '{"a":1}\n{"b":"🙂'.encode()[:-1],
    "half a character, then a line end": b'{"a":1}\n{"b":"\xf0\x9f\n\n',
    "half a line": b'{"a":1}\n{"b":',
    "long line": b'{"a":1}\n' + b"x" * 1001 + b'\n{"b":2}\n',
    "long line without an end": b'{"a":1}\n' + b"x" * 1001,
    "bad line in front of a long one": b'{"a":1}\n\xff\n' + b"x" * 1001 + b"\n",
    "long body": b'{"a":1}\n' + b" \n" * 1000,
}


@pytest.mark.parametrize("name", [*BODIES, *BROKEN])
def test_the_result_is_the_same_cut_at_every_byte(name: str) -> None:
    """MOD-7, B1, B4: one line for each, wherever the network cut the bytes."""
    body = BODIES[name].encode() if name in BODIES else BROKEN[name]
    whole = read([body])
    assert bool(whole[1]) == (name in BROKEN)
    for at in range(1, len(body)):
        assert read([body[:at], body[at:]]) == whole
    assert read([body[at : at + 1] for at in range(len(body))]) == whole


def test_lines_end_at_lf_alone() -> None:
    """B1, B2: nothing else ends a line; blank ones say nothing."""
    text = BODIES["unicode separators"]
    assert read([text.encode()])[0] == text.removesuffix("\n").split("\n")
    assert read([BODIES["crlf"].encode()])[0] == ['{"a":1}', '{"b":2}']
    assert read([BODIES["blank lines"].encode()])[0] == ['{"a":1}', '{"b":2}']


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("not utf-8", InvalidResponseError),
        ("half a character", StreamIncomplete),
        ("half a line", StreamIncomplete),
        ("long line", InvalidResponseError),
        ("long line without an end", InvalidResponseError),
        ("long body", InvalidResponseError),
    ],
)
def test_what_is_wrong_is_a_typed_error_behind_what_was_right(
    name: str, error: type[LoopError]
) -> None:
    """MOD-7: bounds and encoding; MOD-8: a cut line is no success."""
    lines, told = read([BROKEN[name]])
    assert lines == ['{"a":1}']
    assert told.startswith(error.__name__)


def test_a_line_of_the_greatest_length_is_taken() -> None:
    """MOD-7: the bound is on what is over it."""
    line = b'"' + b"x" * 998 + b'"'
    assert read([line + b"\n"]) == ([line.decode()], "")


@given(st.lists(st.text(alphabet="a\u2028🙂 {}"), max_size=5), st.lists(st.integers(1, 7)))
def test_any_text_comes_through_any_cut(texts: list[str], sizes: list[int]) -> None:
    """MOD-7: lines are what stood between the line ends."""
    body = "".join(f"{text}\n" for text in texts).encode()
    pieces: list[bytes] = []
    rest = body
    for size in sizes:
        pieces.append(rest[:size])
        rest = rest[size:]
    stripped = [text.strip(" \t\r") for text in texts]
    assert read([*pieces, rest]) == ([text for text in stripped if text], "")
