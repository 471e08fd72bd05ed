"""The one encoder: MOD-2, TOL-4, TOL-5, CTX-20, and the faults F4 and H4."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import decimal
import enum
import itertools
import json
import math
import pathlib
import subprocess
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr, computed_field

from loopctl import _json

# Python text with every code point; two lone halves side by side are one character in JSON.
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=20).map(_json.joined)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(PLAIN)
def test_a_document_loads_back_equal_whatever_text_it_holds(value: Any) -> None:
    """MOD-2, H4: also lone surrogates survive a file in UTF-8."""
    text = _json.dumps(value)
    assert _json.loads(text.encode()) == value


@given(PLAIN)
def test_the_wire_is_always_utf8_and_json(value: Any) -> None:
    """MOD-2: a request never fails because of the text in it."""
    json.loads(_json.wire(value).decode())


@given(PLAIN)
def test_plain_json_passes_through_to_plain_unchanged(value: Any) -> None:
    """TOL-5: the tolerant encoder leaves alone what is plain already."""
    assert _json.to_plain(value) == value


def test_a_lone_surrogate_is_escaped_in_documents_and_replaced_on_the_wire() -> None:
    """H4: "\\ud83d" alone, "⚙", U+2028."""
    text = "\ud83d ⚙ \u2028"
    assert _json.dumps(text) == '"\\ud83d ⚙ \u2028"'
    assert _json.wire(text).decode() == '"\N{REPLACEMENT CHARACTER} ⚙ \u2028"'


def test_halves_of_one_character_are_one_character_on_the_wire() -> None:
    """MOD-2: a stream may cut an escaped character in two; joined again it is that character."""
    assert _json.wire("\ud83d" + "\ude42") == '"🙂"'.encode()
    assert _json.joined("a\ud83d" + "\ude42\ud83d") == "a🙂\ud83d"


def test_documents_are_compact_and_keep_the_order_of_keys() -> None:
    """CTX-20: the same state gives the same bytes."""
    assert _json.dumps({"b": [1, {"a": None}], "a": True}) == '{"b":[1,{"a":null}],"a":true}'
    assert _json.wire({"b": 1, "a": "é"}) == '{"b":1,"a":"é"}'.encode()


def test_numbers_that_json_has_not_are_written_as_text() -> None:
    """F4: NaN, the infinities, integers of thousands of digits."""
    assert _json.dumps([math.nan, -math.inf]) == '["nan","-inf"]'
    assert _json.wire({"x": math.inf}) == b'{"x":"inf"}'
    assert _json.loads(_json.dumps(10**5000)) == hex(10**5000)


@pytest.mark.parametrize("text", ["NaN", '{"a":Infinity}', "[1,]", "", "{" * 100_000, "[" * 9])
def test_what_is_no_json_is_a_value_error(text: str) -> None:
    """MOD-2: whatever is read, the only error is a `ValueError`."""
    with pytest.raises(ValueError):
        _json.loads(text)
    assert _json.parse_object(text) is None


def test_only_an_object_is_an_object() -> None:
    """TOL-4: strict JSON first."""
    assert _json.parse_object(' {"a": 1} ') == {"a": 1}
    for text in ("[]", "1", '"{}"', "null"):
        assert _json.parse_object(text) is None


FENCE = "`" * 3
SLIPS = {
    "code fence": f'{FENCE}json\n{{"a": "b, c"}}\n{FENCE}',
    "bare fence": f'  {FENCE}{{"a": "b, c"}}{FENCE}  ',
    "double encoding": json.dumps(json.dumps({"a": "b, c"})),
    "fence around double encoding": f"{FENCE}\n{json.dumps(json.dumps({'a': 'b, c'}))}\n{FENCE}",
    "fence inside double encoding": json.dumps(f'{FENCE}\n{{"a": "b, c"}}\n{FENCE}'),
    "trailing comma": '{"a": "b, c" , }',
    "trailing comma inside double encoding": json.dumps('{"a": "b, c",}'),
}


@pytest.mark.parametrize("text", SLIPS.values(), ids=SLIPS)
def test_known_slips_of_models_are_repaired(text: str) -> None:
    """TOL-4: code fences, double encoding, trailing commas."""
    assert _json.repair_object(text) == {"a": "b, c"}


def test_raw_control_characters_inside_strings_are_repaired() -> None:
    """TOL-4: a model writes a newline where JSON wants its escape."""
    assert _json.repair_object('{"a": "x\ny\tz",}') == {"a": "x\ny\tz"}


def test_repair_never_touches_commas_inside_strings() -> None:
    """TOL-4: the text of an argument is not ours to change."""
    text = r'{"a": ",}", "b": "\",]", "c": [1, 2, ], }'
    assert _json.repair_object(text) == {"a": ",}", "b": '",]', "c": [1, 2]}


@given(st.data())
def test_what_was_cut_off_is_never_completed(data: st.DataObject) -> None:
    """TOL-4: a call that was cut off must not run, wherever the cut is."""
    whole = _json.dumps({"path": "a.txt", "lines": [1, 2, {"x": "y, z"}]})
    cut = data.draw(st.integers(0, len(whole) - 1))
    assert _json.repair_object(whole[:cut]) is None


@pytest.mark.parametrize(
    "text", ["[1]", "3", "rm -rf", '"text"', "{'a': 1}", '{"a" 1}', "{" * 9999]
)
def test_other_rubbish_is_not_repaired(text: str) -> None:
    """TOL-4: only known slips; a guess could run the wrong thing."""
    assert _json.repair_object(text) is None


@pytest.mark.parametrize("text", ['"' + '\\"' * 200_000, "," * 400_000, "{," + " " * 400_000 + "x"])
def test_repair_reads_each_character_a_bounded_number_of_times(text: str) -> None:
    """TOL-4: half a million hostile characters take no time; a square of them would time out."""
    assert _json.repair_object(text) is None


class Colour(enum.Enum):
    RED = "red"
    NONE = None
    MANY = (1, 2)


class Level(enum.IntEnum):
    LOW = 1


class Name(str):
    def __str__(self) -> str:
        raise RuntimeError


@dataclasses.dataclass
class Point:
    x: int
    seen: set[str]


class Inner(BaseModel):
    when: datetime.date


class Outer(BaseModel):
    inner: Inner
    ratio: float
    secret: SecretStr
    tags: set[str]

    @computed_field  # type: ignore[prop-decorator] # the form that pydantic documents
    @property
    def double(self) -> float:
        return self.ratio * 2


ID = uuid.UUID(int=5)
ODD: dict[str, tuple[Any, Any]] = {
    "datetime": (
        datetime.datetime(2026, 1, 2, 3, 4, tzinfo=datetime.UTC),
        "2026-01-02T03:04:00+00:00",
    ),
    "date": (datetime.date(2026, 1, 2), "2026-01-02"),
    "time": (datetime.time(3, 4), "03:04:00"),
    "timedelta": (datetime.timedelta(seconds=90), "0:01:30"),
    "uuid": (ID, str(ID)),
    "decimal": (decimal.Decimal("1.10"), "1.10"),
    "path": (pathlib.PurePosixPath("a/b"), "a/b"),
    "enum": (Colour.RED, "red"),
    "enum of None": (Colour.NONE, None),
    "enum of a tuple": (Colour.MANY, [1, 2]),
    "int enum": (Level.LOW, 1),
    "set": ({"b", "a", "c"}, ["a", "b", "c"]),
    "mixed set": (frozenset({2, "1", None}), ["1", 2, None]),
    "tuple": ((1, (2,)), [1, [2]]),
    "text bytes": ("né".encode(), "né"),
    "other bytes": (b"\xff\x00", base64.b64encode(b"\xff\x00").decode()),
    "memoryview": (memoryview(b"ab"), "ab"),
    "dataclass": (Point(1, {"b", "a"}), {"x": 1, "seen": ["a", "b"]}),
    "model": (
        Outer(
            inner=Inner(when=datetime.date(2026, 1, 2)),
            ratio=math.nan,
            secret=SecretStr("hush"),
            tags={"b", "a"},
        ),
        {
            "inner": {"when": "2026-01-02"},
            "ratio": "nan",
            "secret": "**********",
            "tags": ["a", "b"],
            "double": "nan",
        },
    ),
    "model without validation": (
        Inner.model_construct(when=b"\xff"),
        {"when": base64.b64encode(b"\xff").decode()},
    ),
    "odd keys": (
        {1: "a", None: "b", Colour.RED: "d", ID: "e", (1, 2): "f", math.inf: "g"},
        {"1": "a", "null": "b", "red": "d", str(ID): "e", "[1,2]": "f", "inf": "g"},
    ),
    "generator": ((n * n for n in range(3)), [0, 1, 4]),
    "str subclass": (Name("x"), "x"),
    "exception": (ValueError("no"), "no"),
}


@pytest.mark.parametrize(("value", "plain"), ODD.values(), ids=ODD)
def test_any_value_becomes_plain_json(value: Any, plain: Any) -> None:
    """TOL-5, F4: one tolerant encoder for results, logs and trajectories."""
    made = _json.to_plain(value)
    assert made == plain
    assert json.loads(json.dumps(made, allow_nan=False)) == plain


def test_cycles_and_depth_end_in_a_marker() -> None:
    """F4: a cycle does not hang and does not raise."""
    loop: list[Any] = [1]
    loop.append({"again": loop})
    assert _json.to_plain(loop) == [1, {"again": "<cycle: list>"}]
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    assert "<too deep: list>" in json.dumps(_json.to_plain(deep))


def test_a_value_that_appears_twice_is_no_cycle() -> None:
    """F4: only what holds itself is a cycle."""
    shared = [1]
    assert _json.to_plain([shared, shared]) == [[1], [1]]


def test_an_iterable_without_end_is_cut() -> None:
    """TOL-5: the encoder always comes back."""
    plain = _json.to_plain(itertools.count())
    assert isinstance(plain, list)
    assert len(plain) == _json.MAX_ITEMS


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    def __iter__(self) -> Iterator[int]:
        raise RuntimeError("no items")


class HostileKey:
    def __str__(self) -> str:
        raise RuntimeError


def test_values_that_fight_back_become_their_type() -> None:
    """TOL-5: the encoder never raises, and a bad item costs only itself."""
    assert _json.to_plain([1, Hostile(), HostileKey()]) == [1, "<Hostile>", "<HostileKey>"]
    assert _json.to_plain({HostileKey(): 1}) == {"<HostileKey>": 1}


def test_a_set_reads_the_same_in_every_process() -> None:
    """CTX-20: the order of a set is not left to the hash seed."""
    code = "from loopctl import _json; print(_json.dumps(_json.to_plain({'x', 'yy', 'zzz', 'a'})))"
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert seen == {'["a","x","yy","zzz"]\n'}
