"""Messages: MOD-1, MOD-2, and how a call takes its arguments (TOL-4, MOD-9)."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopctl import _json
from loopctl.messages import (
    ImagePart,
    Message,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)

TEXT = st.text(st.characters(exclude_categories=()), max_size=12)
NAME = st.none() | TEXT
TEXTS = st.builds(TextPart, TEXT)
IMAGES = st.builds(ImagePart, st.sampled_from(["image/png", "image/jpeg"]), st.binary(max_size=20))
THINKING = st.builds(ThinkingPart, TEXT, NAME, st.booleans(), NAME, NAME, NAME, NAME)
ARGUMENTS = st.dictionaries(TEXT, st.none() | st.integers() | TEXT, max_size=3) | TEXT
CALLS = st.builds(ToolCallPart, TEXT, TEXT, ARGUMENTS, st.none(), st.booleans())
RESULTS = st.builds(
    ToolResultPart,
    TEXT,
    TEXT,
    TEXT | st.lists(TEXTS | IMAGES, max_size=3),
    st.booleans(),
    st.sampled_from(["executed", "denied", "interrupted", "not_run"]),
    st.sampled_from([None, "durable", "requery"]),
)
MESSAGES = (
    st.builds(Message.user, TEXTS | IMAGES | RESULTS, TEXTS)
    | st.builds(Message, st.just("user"), st.lists(TEXTS | IMAGES | RESULTS, max_size=4))
    | st.builds(Message, st.just("assistant"), st.lists(TEXTS | THINKING | CALLS, max_size=4))
    | st.builds(Message.system, TEXT)
)


@given(MESSAGES)
def test_a_message_loads_back_equal_through_text(message: Message) -> None:
    """MOD-2: also with lone surrogates, images, signatures, unusable and cut-off calls."""
    document = _json.loads(_json.dumps(message.to_json()).encode())
    assert Message.from_json(document) == message


@given(MESSAGES)
def test_every_part_carries_a_type_tag(message: Message) -> None:
    """MOD-2: the document says what each part is."""
    tags = {part["type"] for part in message.to_json()["parts"]}
    assert tags <= {"text", "image", "thinking", "tool_call", "tool_result"}


@given(MESSAGES)
def test_copies_and_pickles_are_equal(message: Message) -> None:
    """MOD-1: values, wherever they travel."""
    assert copy.deepcopy(message) == pickle.loads(pickle.dumps(message)) == message
    assert hash(copy.copy(message)) == hash(message)


@given(MESSAGES)
def test_unknown_fields_are_tolerated(message: Message) -> None:
    """MOD-2: documents of newer versions load."""
    document: dict[str, Any] = message.to_json() | {"later": 1}
    document["parts"] = [part | {"later": {"x": 1}} for part in message.to_json()["parts"]]
    assert Message.from_json(document) == message


@pytest.mark.parametrize(
    "document",
    [
        {},
        [],
        "user",
        {"role": "user"},
        {"role": "nobody", "parts": []},
        {"role": "user", "parts": 3},
        {"role": "user", "parts": ["text"]},
        {"role": "user", "parts": [{"text": "no tag"}]},
        {"role": "user", "parts": [{"type": "film"}]},
        {"role": "user", "parts": [{"type": "text", "text": None}]},
        {"role": "user", "parts": [{"type": "image", "media_type": "image/png", "data": "a"}]},
        {"role": "user", "parts": [{"type": "tool_call", "id": "1", "name": "n"}]},
        {"role": "system", "parts": [{"type": "thinking", "text": ""}]},
        {
            "role": "user",
            "parts": [
                {
                    "type": "tool_result",
                    "call_id": "1",
                    "name": "n",
                    "content": [{"type": "thinking", "text": ""}],
                }
            ],
        },
    ],
)
def test_a_document_that_is_no_message_is_a_value_error(document: Any) -> None:
    """MOD-2: one error for every way to be wrong."""
    with pytest.raises(ValueError):
        Message.from_json(document)


@pytest.mark.parametrize(
    ("message", "role"),
    [
        (Message.user("a", "b"), Role.USER),
        (Message.assistant("a", TextPart("b")), Role.ASSISTANT),
        (Message.system("ab"), Role.SYSTEM),
        (Message("user", "ab"), Role.USER),
        (Message(Role.USER, (part for part in ["a", "b"])), Role.USER),
    ],
)
def test_messages_are_made_of_texts_and_parts(message: Message, role: Role) -> None:
    """MOD-1: strings become text parts; `.text` joins them."""
    assert message.role is role
    assert message.text == "ab"
    assert isinstance(message.parts, tuple)


def test_text_leaves_out_what_is_not_text() -> None:
    """MOD-1: thinking, calls and results are no text; they are found by kind."""
    call = ToolCallPart("1", "f")
    answer = Message.assistant(ThinkingPart("hm"), "a", call, "b")
    assert (answer.text, answer.calls, answer.results) == ("ab", (call,), ())
    parts = (TextPart("x"), ImagePart("image/png", b""), TextPart("y"))
    result = ToolResultPart("1", "f", parts)
    said = Message.user(result, "c")
    assert (said.text, said.calls, said.results) == ("c", (), (result,))
    assert (result.text, ToolResultPart("1", "f", "z").text) == ("x\ny", "z")


CALL = ToolCallPart("1", "f", {"a": [1]})
FORBIDDEN: list[tuple[str, Part]] = [
    ("assistant", ToolResultPart("1", "f", "x")),
    ("user", CALL),
    ("user", ThinkingPart("x")),
    ("system", ImagePart("image/png", b"x")),
    ("system", CALL),
]


@pytest.mark.parametrize(("role", "part"), FORBIDDEN)
def test_a_role_says_only_what_it_can_say(role: str, part: Part) -> None:
    """MOD-1: a result of the assistant's or a call of the user's is refused when it is made."""
    with pytest.raises(TypeError, match=f"a {role} message cannot hold a {type(part).__name__}"):
        Message(role, [part])


def test_parts_refuse_values_of_other_types() -> None:
    """MOD-1: nothing that would fail later in a request."""
    with pytest.raises(TypeError, match="needs a str"):
        TextPart(b"x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="needs bytes"):
        ImagePart("image/png", 5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="cannot hold a ToolCallPart"):
        ToolResultPart("1", "f", (CALL,))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="cannot hold a int"):
        Message("user", [3])  # type: ignore[list-item]


@pytest.mark.parametrize(
    "value",
    [TextPart("a"), ImagePart("image/png", b"a"), ThinkingPart("a"), CALL, Message.user("a"),
     ToolResultPart("1", "f", "x")],
)  # fmt: skip
def test_everything_is_frozen(value: Any) -> None:
    """MOD-1: nothing can change a message."""
    for field in dataclasses.fields(value):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, field.name, None)


def test_what_a_message_was_made_of_may_change_afterwards() -> None:
    """MOD-1: tuples and text inside, so that no alias reaches in."""
    parts: list[Part] = [TextPart("a")]
    given_arguments: dict[str, Any] = {"a": [1]}
    data = bytearray(b"abc")
    content: list[Any] = [TextPart("x")]
    message = Message.assistant(*parts, ToolCallPart("1", "f", given_arguments))
    image = ImagePart("image/png", data)  # type: ignore[arg-type]
    result = ToolResultPart("1", "f", content)  # type: ignore[arg-type]
    parts.clear()
    given_arguments["a"].append(2)
    data[0] = 0
    content.clear()
    assert message.text == "a"
    assert message.calls[0].parse() == {"a": [1]}
    assert (image.data, result.text) == (b"abc", "x")


def test_arguments_are_parsed_afresh() -> None:
    """MOD-1: who changes what it read changes nothing."""
    CALL.parse()["a"].append(2)
    assert CALL.parse() == {"a": [1]}


def test_a_memo_is_no_part_of_the_value() -> None:
    """MOD-1: what is remembered beside a message neither compares nor travels."""
    left, right = Message.user("a"), Message.user("a")
    left.memo["openai"] = b"{}"
    assert left == right
    assert hash(left) == hash(right)
    assert "memo" not in repr(left)
    assert not pickle.loads(pickle.dumps(left)).memo


@pytest.mark.parametrize(
    "text", ['{"b": 1,  "a": "é"}', '{"a":"\\ud83d"}', '{"a": 1e3}', ' {"a": {}}\n']
)
def test_the_models_own_text_is_kept_to_the_letter(text: str) -> None:
    """MOD-1: replaying a valid object keeps the prompt cache."""
    call = ToolCallPart("1", "f", text)
    assert (call.arguments, call.unusable) == (text, None)


@pytest.mark.parametrize("blank", ["", " ", "\n\t", None, {}])
def test_no_arguments_are_an_empty_object(blank: Any) -> None:
    """MOD-9, B14: "", blanks and null for a tool without parameters."""
    call = ToolCallPart("1", "f", blank)
    assert (call.arguments, call.unusable, call.parse()) == ("{}", None, {})


@pytest.mark.parametrize(
    "text",
    ['{"a": "b",}', '"{\\"a\\": \\"b\\"}"', '```json\n{"a": "b"}\n```', '{"a":\n"b",\n}'],
)
def test_known_slips_become_a_valid_object(text: str) -> None:
    """TOL-4, B20: what is replayed is always a valid object."""
    call = ToolCallPart("1", "f", text)
    assert (call.arguments, call.unusable) == ('{"a":"b"}', None)


@pytest.mark.parametrize("text", ["[1]", "null", "rm -rf /", '{"path": "a.t', '{"a": nan}', '"x"'])
def test_unusable_arguments_are_kept_beside_an_empty_object(text: str) -> None:
    """TOL-4, B20: the call is answered with an error that can quote them; the replay is valid."""
    call = ToolCallPart("1", "f", text)
    assert (call.arguments, call.unusable, call.parse()) == ("{}", text, {})


def test_a_number_that_json_has_not_becomes_text() -> None:
    """TOL-4: NaN would make the next request's body invalid."""
    call = ToolCallPart("1", "f", '{"a": NaN, "b": Infinity}')
    assert call.arguments == '{"a":"nan","b":"inf"}'


def test_a_call_that_was_cut_off_is_never_repaired() -> None:
    """TOL-4, B16: where the output limit cut, even a known slip stays unusable."""
    cut = ToolCallPart("1", "f", '{"a": 1,}', truncated=True)
    assert (cut.arguments, cut.unusable, cut.truncated) == ("{}", '{"a": 1,}', True)
    whole = ToolCallPart("1", "f", '{"a": 1}', truncated=True)
    assert (whole.arguments, whole.unusable, whole.truncated) == ('{"a": 1}', None, True)


def test_arguments_of_any_value_become_json() -> None:
    """TOL-5: a mapping goes through the tolerant encoder."""
    assert ToolCallPart("1", "f", {"a": {2, 1}, "b": b"x"}).arguments == '{"a":[1,2],"b":"x"}'


def test_a_character_that_a_stream_cut_in_two_is_whole_again() -> None:
    """MOD-2: each half alone is a lone surrogate; joined they are the character."""
    high, low = json.loads('"\\ud83d"'), json.loads('"\\ude42"')
    assert TextPart(high + low).text == "🙂"
    assert ThinkingPart(high + low).text == "🙂"
    assert ToolResultPart("1", "f", high + low).text == "🙂"
    assert ToolCallPart("1", "f", f'{{"a":"{high + low}"}}').parse() == {"a": "🙂"}
    assert TextPart(high).text == high
