from __future__ import annotations

import struct
import uuid
from binascii import crc32
from collections.abc import Mapping
from typing import Any

import pytest
from botocore.eventstream import EventStreamBuffer, ParserError
from hypothesis import given
from hypothesis import strategies as st

from loopctl.errors import InvalidResponseError, ModelError, StreamIncomplete
from loopctl.wire.eventstream import MAX_HEADERS, EventFrame, EventFrameReader

NUMBERS = {2: "!b", 3: "!h", 4: "!i", 5: "!q", 8: "!q"}


def header(name: str, kind: int, value: Any) -> bytes:
    raw = name.encode()
    head: bytes = bytes([len(raw)]) + raw + bytes([kind])
    if kind in NUMBERS:
        return head + struct.pack(NUMBERS[kind], value)
    if kind in (6, 7):
        data: bytes = value.encode() if kind == 7 else value
        return head + struct.pack("!H", len(data)) + data
    return head + bytes(value if kind == 9 else b"")


def packed(headers: bytes, payload: bytes) -> bytes:
    prelude = struct.pack("!II", len(headers) + len(payload) + 16, len(headers))
    body = prelude + struct.pack("!I", crc32(prelude)) + headers + payload
    return body + struct.pack("!I", crc32(body))


def said(payload: bytes = b"{}", event: str = "x") -> bytes:
    return packed(header(":event-type", 7, event), payload)


def read(data: bytes, *cuts: int, **limits: int) -> list[EventFrame]:
    reader = EventFrameReader(**limits)
    frames: list[EventFrame] = []
    for begin, end in zip((0, *cuts), (*cuts, len(data)), strict=True):
        frames += reader.feed(data[begin:end])
    reader.close()
    return frames


def theirs(data: bytes) -> list[tuple[Mapping[str, Any], bytes]]:
    buffer = EventStreamBuffer()
    buffer.add_data(data)
    return [(message.headers, message.payload) for message in buffer]


TEXTS = st.text(max_size=12)
HEADERS = st.one_of(
    st.tuples(st.sampled_from([0, 1]), st.none()),
    st.tuples(st.just(2), st.integers(-(2**7), 2**7 - 1)),
    st.tuples(st.just(3), st.integers(-(2**15), 2**15 - 1)),
    st.tuples(st.just(4), st.integers(-(2**31), 2**31 - 1)),
    st.tuples(st.sampled_from([5, 8]), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just(6), st.binary(max_size=40)),
    st.tuples(st.just(7), TEXTS),
    st.tuples(st.just(9), st.uuids().map(lambda value: value.bytes)),
)
FRAMES = st.builds(
    lambda headers, payload: packed(
        b"".join(header(name, *value) for name, value in headers.items()), payload
    ),
    st.dictionaries(TEXTS, HEADERS, max_size=5),
    st.binary(max_size=200),
)


@given(frames=st.lists(FRAMES, max_size=5), data=st.data())
def test_frames_are_those_of_the_official_library_however_they_are_cut(
    frames: list[bytes], data: st.DataObject
) -> None:
    """MOD-7, MOD-24: headers of every type, empty payloads, cuts anywhere."""
    stream = b"".join(frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    made = [(frame.headers, frame.payload) for frame in read(stream, *cuts)]
    assert made == theirs(stream)
    kinds = [[type(value) for value in headers.values()] for headers, _ in made]
    assert kinds == [[type(value) for value in headers.values()] for headers, _ in theirs(stream)]


def test_every_single_byte_may_come_alone() -> None:
    """MOD-7, B4: a cut behind each byte."""
    stream = said('{"a":"你"}'.encode()) + said(b"")
    assert read(stream, *range(1, len(stream))) == read(stream)
    assert read(stream)[0].text(":event-type") == "x"
    assert read(stream)[0].text(":nope") == ""


@given(frame=FRAMES, place=st.integers(0), bit=st.integers(0, 7))
def test_a_flipped_bit_is_never_read_over(frame: bytes, place: int, bit: int) -> None:
    """MOD-7: each checksum is checked; the frame in front of the damage is still given."""
    whole = said(event="first")
    damaged = bytearray(frame)
    damaged[place % len(frame)] ^= 1 << bit
    reader = EventFrameReader()
    assert [frame.text(":event-type") for frame in reader.feed(whole + bytes(damaged))] == ["first"]
    with pytest.raises((InvalidResponseError, StreamIncomplete)):
        reader.close()
    with pytest.raises((ParserError, StopIteration)):
        buffer = EventStreamBuffer()
        buffer.add_data(bytes(damaged))
        next(buffer)


BROKEN: dict[str, tuple[bytes, type[ModelError]]] = {
    "another protocol": (b"data: {}\n\nmore of it", InvalidResponseError),
    "a page": (b"<html><body>sorry</body></html>", InvalidResponseError),
    "cut in the prelude": (said()[:5], StreamIncomplete),
    "cut in the payload": (said()[:-6], StreamIncomplete),
    "cut in the checksum": (said()[:-1], StreamIncomplete),
    "a header twice": (packed(header("a", 7, "1") * 2, b""), InvalidResponseError),
    "an unknown type": (packed(header("a", 10, None), b""), InvalidResponseError),
    "a name beyond the headers": (packed(b"\xffa", b""), InvalidResponseError),
    "a value beyond the headers": (packed(b"\1a\7\0\5ab", b""), InvalidResponseError),
    "a number beyond the headers": (packed(b"\1a\5\0", b""), InvalidResponseError),
    "a uuid beyond the headers": (packed(b"\1a\x09" + uuid.uuid4().bytes[:9], b""), ModelError),
    "no type": (packed(b"\1a", b""), InvalidResponseError),
    "no text": (packed(b"\1a\7\0\1\xff", b""), InvalidResponseError),
    "long headers": (packed(b"x" * (MAX_HEADERS + 1), b""), InvalidResponseError),
    "a long payload": (said(b"x" * 101), InvalidResponseError),
    "a long body": (said(b"x" * 90) * 2, InvalidResponseError),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_frame_is_a_typed_error_however_it_is_cut(name: str) -> None:
    """MOD-7, MOD-8: limits, damage and an early end, behind a good frame."""
    data, kind = BROKEN[name]
    for cuts in ((), range(1, len(data), max(1, len(data) // 100))):
        with pytest.raises(kind):
            read(data, *cuts, max_payload=100, max_body=200)


def test_headers_longer_than_their_frame_are_refused() -> None:
    """MOD-7: a length that contradicts another, under a checksum that is right."""
    prelude = struct.pack("!II", 20, 30)
    with pytest.raises(InvalidResponseError, match="shorter"):
        read(prelude + struct.pack("!I", crc32(prelude)) + bytes(20))


def test_a_long_frame_is_refused_before_it_is_read() -> None:
    """MOD-7: its length is known from its first bytes; nothing is kept until then."""
    with pytest.raises(InvalidResponseError, match="checksum"):
        EventFrameReader().feed(struct.pack("!III", 100, 20, 1))
    prelude = struct.pack("!II", 2**31, 0)
    reader = EventFrameReader()
    with pytest.raises(InvalidResponseError, match="payload"):
        reader.feed(prelude + struct.pack("!I", crc32(prelude)))
    with pytest.raises(InvalidResponseError, match="payload"):
        reader.feed(b"more")
    with pytest.raises(InvalidResponseError, match="payload"):
        reader.close()
