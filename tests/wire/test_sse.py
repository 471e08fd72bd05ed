from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopctl.errors import InvalidResponseError, LoopError, StreamIncomplete
from loopctl.wire.sse import EventStreamReader, ServerSentEvent

Outcome = tuple[list[ServerSentEvent], str]


def read(pieces: list[bytes], *, max_line: int = 1000, max_body: int = 10_000) -> Outcome:
    """The events, and the error behind them."""
    reader = EventStreamReader(max_line=max_line, max_body=max_body)
    events: list[ServerSentEvent] = []
    try:
        for piece in pieces:
            events += reader.feed(piece)
        reader.close()
    except LoopError as error:
        return events, f"{type(error).__name__}: {error}"
    return events, ""


def data(body: bytes) -> list[str]:
    events, error = read([body])
    assert not error
    return [event.data for event in events]


BODIES = {
    "unicode separators": 'event: message\ndata: {"text":"Hi\u2028you\u2029\x85\v\f\x1c\x1e"}\n\n',
    "crlf": 'data: {"a":1}\r\n\r\ndata: 2\r\n\r\n',
    "cr": "data: x\r\rdata: y\r\r",
    "mixed ends": "data: a\r\ndata: b\rdata: c\n\r\ndata: d\n\n",
    "wide characters": "data: 你好🙂\n\nid: 🙂\ndata: é\n\n",
    "control frames": "id: 1\ndata: a\n\n: PROCESSING\n\nretry: 3000\n\nid: 7\n\nevent: ping\n\n"
    "data:\n\ndata: : PROCESSING\n\ndata: b\n\n",
    "bom": "\ufeffdata: a\n\n\ufeffdata: b\n\n",
    "several lines": "data: a\ndata\ndata:b\ndata:  c\nfoo: bar\n\n",
    "types": "event: a\ndata: 1\n\ndata: 2\n\nevent: b\n\ndata: 3\n\nid: x\0y\ndata: 4\n\n",
    "unended": "data: a\n\ndata: b\n",
    "unended line": "data: a\n\ndata: b",
}
BROKEN = {
    "not utf-8": b"data: a\n\ndata: \xff\n\ndata: b\n\n",
    "not utf-8 in a comment": b"data: a\n\n:\xc3\x28\n\n",
    "half a character": "data: a\n\ndata: 🙂".encode()[:-1],
    "half a character, then a line end": b"data: a\n\ndata: \xf0\x9f\n\n",
    "long line": b"data: a\n\ndata: " + b"x" * 1000 + b"\n\ndata: b\n\n",
    "long line without an end": b"data: a\n\n" + b"x" * 1001,
    "bad line in front of a long one": b"data: a\n\n\xff\n" + b"x" * 1001 + b"\n",
    "long body": b"data: a\n\n" + b": keep-alive\n" * 1000,
}


@pytest.mark.parametrize("name", [*BODIES, *BROKEN])
def test_the_result_is_the_same_cut_at_every_byte(name: str) -> None:
    """MOD-7, B1, B2, B4, B5: one event for each, wherever the network cut the bytes."""
    body = BODIES[name].encode() if name in BODIES else BROKEN[name]
    whole = read([body])
    places = range(len(body)) if len(body) < 2000 else [*range(300), *range(9900, 10_010)]
    for at in places:
        assert read([body[:at], body[at:]]) == whole, at
    assert read([body[at : at + 1] for at in range(len(body))]) == whole


@given(st.lists(st.sampled_from([b"data: x", b"id:1", b"\n", b"\r", b"\r\n", b":", "é".encode()])))
def test_any_body_reads_the_same_byte_by_byte_and_whole(pieces: list[bytes]) -> None:
    """MOD-7: a property of every body, not of examples."""
    body = b"".join(pieces)
    whole = read([body])
    assert read(pieces) == whole
    assert read([body[at : at + 1] for at in range(len(body))]) == whole


def test_only_lf_cr_and_crlf_end_a_line() -> None:
    """B1: JSON that carries line separators of Unicode stays in one piece."""
    body = BODIES["unicode separators"].encode()
    assert data(body) == ['{"text":"Hi\u2028you\u2029\x85\v\f\x1c\x1e"}']


def test_carriage_returns_end_lines_and_make_one_event_each() -> None:
    """B2: CRLF cut in two, and bare CR."""
    assert data(BODIES["crlf"].encode()) == ['{"a":1}', "2"]
    assert read([b"data: x\r", b"\n\r\n"]) == ([ServerSentEvent("x")], "")
    assert data(BODIES["cr"].encode()) == ["x", "y"]
    assert data(BODIES["mixed ends"].encode()) == ["a\nb\nc", "d"]


def test_an_event_that_ends_in_bare_cr_is_not_held_back() -> None:
    """B2: nothing waits for a line feed that may never come."""
    assert EventStreamReader().feed(b"data: x\r\r") == [ServerSentEvent("x")]


def test_comments_and_control_frames_are_no_events() -> None:
    """B5: keep-alives pass; a field without data dispatches nothing; the last id stays."""
    events, error = read([BODIES["control frames"].encode()])
    assert not error
    assert events == [
        ServerSentEvent("a", id="1"),
        ServerSentEvent("", id="7"),
        ServerSentEvent(": PROCESSING", id="7"),
        ServerSentEvent("b", id="7"),
    ]


def test_a_byte_order_mark_is_dropped_at_the_start_only() -> None:
    """MOD-7: the second one makes a field that nobody knows."""
    assert data(BODIES["bom"].encode()) == ["a"]


def test_fields_follow_the_standard() -> None:
    """MOD-7: lines join, one blank goes, a bare name is empty, an id with NUL does not count."""
    assert data(BODIES["several lines"].encode()) == ["a\n\nb\n c"]
    events, _ = read([BODIES["types"].encode()])
    assert events == [
        ServerSentEvent("1", "a"),
        ServerSentEvent("2"),
        ServerSentEvent("3"),
        ServerSentEvent("4"),
    ]


def test_an_event_without_its_empty_line_is_not_dispatched() -> None:
    """MOD-8: what the end of the body cut off is not an event."""
    assert data(BODIES["unended"].encode()) == ["a"]
    assert data(BODIES["unended line"].encode()) == ["a"]


@pytest.mark.parametrize("name", BROKEN)
def test_a_fault_is_typed_and_comes_behind_the_events_before_it(name: str) -> None:
    """MOD-7, B4: bad UTF-8, long lines and bodies are errors; half a character is a cut."""
    kind = StreamIncomplete if name == "half a character" else InvalidResponseError
    events, error = read([BROKEN[name]])
    assert [event.data for event in events] == ["a"]
    assert error.startswith(kind.__name__)


def test_a_fault_is_raised_again_by_every_later_call() -> None:
    """MOD-7: a reader that failed stays failed."""
    reader = EventStreamReader()
    for _ in range(2):
        with pytest.raises(InvalidResponseError):
            reader.feed(b"\xff\n")
    with pytest.raises(InvalidResponseError):
        reader.close()


def test_the_default_limits_are_those_of_the_contract() -> None:
    """MOD-7: a line of 1 MiB and a body of 10 MiB pass, one byte more does not."""
    line = b":" * 1024 * 1024
    reader = EventStreamReader()
    reader.feed(line + b"\n")
    with pytest.raises(InvalidResponseError, match="line"):
        reader.feed(line + b":\n")
    reader = EventStreamReader()
    for _ in range(10):
        reader.feed(line[:-1] + b"\n")
    with pytest.raises(InvalidResponseError, match="body"):
        reader.feed(b"\n")


def test_a_long_line_in_small_pieces_costs_no_more_than_its_length() -> None:
    """MOD-7: nothing is copied again for each piece."""
    reader = EventStreamReader()
    for _ in range(1000):
        assert reader.feed(b"x" * 1000) == []
    assert reader.feed(b"\n\n") == []
