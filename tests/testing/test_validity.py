"""The validator: whole conversations pass, each kind of damage is found."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from loopctl.config import RequestOptions
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
from loopctl.models.client import ModelRequest, ToolSchema
from loopctl.testing import (
    assert_valid_conversation,
    assert_valid_request,
    conversation_problems,
    request_problems,
)

few = settings(max_examples=25)
IMAGE = ImagePart("image/png", b"png")
says = st.sampled_from([TextPart("a"), TextPart(" b\n"), TextPart("\u2028é")])
names = st.sampled_from(["add", "get_weather", "_x", "B-2", "n" * 64])
ids = st.lists(st.sampled_from(["c1", "c2", "call_3", "toolu-4", "5"]), max_size=4, unique=True)
thinks = st.sampled_from([ThinkingPart("hm"), ThinkingPart("", signature="S1")])
contents: st.SearchStrategy[Any] = st.sampled_from(["ok", (IMAGE,), (TextPart("ok"), IMAGE)])


@st.composite
def turns(draw: st.DrawFn) -> list[Message]:
    """An assistant's message, and the answers to its calls, in one message or several."""
    calls = [ToolCallPart(id, draw(names), '{"a": 1}') for id in draw(ids)]
    spoken: list[Part] = [*draw(st.lists(thinks, max_size=2)), *draw(st.lists(says, max_size=2))]
    if not calls:
        spoken.append(draw(says))
    results = [ToolResultPart(call.id, call.name, draw(contents)) for call in calls]
    cut = draw(st.integers(0, len(results)))
    halves = [half for half in (results[:cut], results[cut:]) if half]
    return [Message.assistant(*spoken, *calls), *(Message.user(*half) for half in halves)]


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """Any conversation that every provider takes."""
    messages = [Message.system(draw(says)) for _ in range(draw(st.integers(0, 2)))]
    for _ in range(draw(st.integers(1, 4))):
        messages += [
            Message.user(draw(says | st.just(IMAGE))) for _ in range(draw(st.integers(1, 2)))
        ]
        for _ in range(draw(st.integers(0, 3))):
            turn = draw(turns())
            if messages[-1].role is Role.ASSISTANT:
                break
            messages += turn
    return messages


@given(conversations())
def test_a_whole_conversation_has_no_problems(messages: list[Message]) -> None:
    """MOD-20: what every dialect can send is not complained about."""
    assert conversation_problems(messages) == []
    assert_valid_conversation(messages)


def swap(message: Message, parts: Any) -> Message:
    return Message(message.role, tuple(parts))


def edit(
    messages: list[Message], kind: type, change: Callable[[Any], Any], at: int
) -> list[Message]:
    """Replace one part of a kind by what `change` makes of it (nothing, one part or several)."""
    places = [
        (m, p)
        for m, msg in enumerate(messages)
        for p, part in enumerate(msg.parts)
        if isinstance(part, kind)
    ]
    assume(places)
    m, p = places[at % len(places)]
    parts: list[Any] = list(messages[m].parts)
    parts[p : p + 1] = change(parts[p])
    return [*messages[:m], swap(messages[m], parts), *messages[m + 1 :]]


def broken_arguments(call: ToolCallPart) -> list[ToolCallPart]:
    copy = dataclasses.replace(call)
    object.__setattr__(copy, "arguments", "[1]")
    return [copy]


DAMAGE: dict[str, tuple[type, Callable[[Any], list[Any]], str]] = {
    "a result is lost": (ToolResultPart, lambda _: [], "are answered"),
    "a result comes twice": (ToolResultPart, lambda r: [r, r], "no open call"),
    "a result is of another call": (
        ToolResultPart,
        lambda r: [dataclasses.replace(r, call_id="never-made")],
        "no open call",
    ),
    "a result is of another tool": (
        ToolResultPart,
        lambda r: [dataclasses.replace(r, name="other")],
        "for a call of",
    ),
    "a result is empty": (
        ToolResultPart,
        lambda r: [dataclasses.replace(r, content="")],
        "empty result",
    ),
    "a result is blank": (
        ToolResultPart,
        lambda r: [dataclasses.replace(r, content=" \n")],
        "empty result",
    ),
    "a result has no parts": (
        ToolResultPart,
        lambda r: [dataclasses.replace(r, content=())],
        "empty result",
    ),
    "a result has a blank part": (
        ToolResultPart,
        lambda r: [dataclasses.replace(r, content=(TextPart(" "), IMAGE))],
        "blank text",
    ),
    "text stands before a result": (
        ToolResultPart,
        lambda r: [TextPart("wait"), r],
        "speaks before",
    ),
    "a call is lost": (ToolCallPart, lambda _: [], ""),
    "a call comes twice": (ToolCallPart, lambda c: [c, c], "calls with the id"),
    "a call has no id": (ToolCallPart, lambda c: [dataclasses.replace(c, id="")], "without an id"),
    "a call has an odd name": (
        ToolCallPart,
        lambda c: [dataclasses.replace(c, name="get weather")],
        "a name that",
    ),
    "a call has no name": (
        ToolCallPart,
        lambda c: [dataclasses.replace(c, name="")],
        "a name that",
    ),
    "a call has a long name": (
        ToolCallPart,
        lambda c: [dataclasses.replace(c, name="n" * 65)],
        "a name that",
    ),
    "arguments are no object": (ToolCallPart, broken_arguments, "no JSON object"),
    "a text is blank": (TextPart, lambda _: [TextPart(" \n")], "blank text"),
}


@pytest.mark.parametrize("kind", DAMAGE)
@few
@given(messages=conversations(), at=st.integers(0, 50))
def test_damage_to_a_part_is_found(kind: str, messages: list[Message], at: int) -> None:
    """A1, A2, A3, B18, C1, C2: orphans, lost, doubled and empty parts do not pass."""
    part, change, said = DAMAGE[kind]
    problems = conversation_problems(edit(messages, part, change, at))
    assert any(said in problem for problem in problems), problems


def move(
    messages: list[Message],
    where: Callable[[int], bool],
    change: Callable[[int], list[Message]],
    at: int,
) -> list[Message]:
    places = [number for number in range(len(messages)) if where(number)]
    assume(places)
    return change(places[at % len(places)])


@few
@given(conversations(), st.integers(0, 50), st.sampled_from(["user", "system", "assistant"]))
def test_a_message_between_calls_and_results_is_found(
    messages: list[Message], at: int, role: str
) -> None:
    """C3, D10: nothing is said between a call and its result, by nobody."""
    note = Message(role, "note")
    damaged = move(
        messages,
        lambda n: bool(messages[n].calls),
        lambda n: [*messages[: n + 1], note, *messages[n + 1 :]],
        at,
    )
    assert any("before the calls" in problem for problem in conversation_problems(damaged))


@few
@given(conversations(), st.integers(0, 50))
def test_results_in_another_order_are_found(messages: list[Message], at: int) -> None:
    damaged = move(
        messages,
        lambda n: len(messages[n].results) > 1,
        lambda n: [*messages[:n], swap(messages[n], messages[n].parts[::-1]), *messages[n + 1 :]],
        at,
    )
    assert any("against the order" in problem for problem in conversation_problems(damaged))


@few
@given(conversations(), st.integers(0, 50))
def test_an_empty_message_is_found(messages: list[Message], at: int) -> None:
    """C2: empty turns are refused."""
    at %= len(messages)
    damaged = [*messages[:at], swap(messages[at], ()), *messages[at + 1 :]]
    assert any("is empty" in problem for problem in conversation_problems(damaged))


@few
@given(conversations(), st.booleans())
def test_two_assistant_messages_in_a_row_are_found(messages: list[Message], note: bool) -> None:
    """C4: roles alternate, whatever the system says in between."""
    between = [Message.system("note")] if note else []
    assume(messages[-1].role is Role.ASSISTANT)
    damaged = [*messages, *between, Message.assistant("more")]
    assert any("both the assistant's" in problem for problem in conversation_problems(damaged))


@few
@given(conversations())
def test_an_opening_by_the_assistant_is_found(messages: list[Message]) -> None:
    first = next(n for n, m in enumerate(messages) if m.role is not Role.SYSTEM)
    damaged = [*messages[:first], Message.assistant("me first"), *messages[first:]]
    assert any("opens the conversation" in problem for problem in conversation_problems(damaged))


def test_thinking_alone_is_no_message() -> None:
    messages = [Message.user("x"), Message.assistant(ThinkingPart("hm"))]
    assert conversation_problems(messages) == ["message 1 has nothing but thinking"]


def test_an_empty_signed_thinking_part_is_no_problem() -> None:
    """A13: an empty signed block is valid."""
    messages = [Message.user("x"), Message.assistant(ThinkingPart("", signature="S"), "so")]
    assert conversation_problems(messages) == []


def test_no_conversation_is_no_problem_but_no_request() -> None:
    assert conversation_problems([]) == []
    assert request_problems(ModelRequest(messages=())) == [
        "the request has no message of the user's"
    ]
    only_system = ModelRequest(messages=(Message.system("x"),))
    assert request_problems(only_system) == ["the request has no message of the user's"]


def test_a_request_ends_with_the_user_whatever_the_system_adds() -> None:
    asked = (Message.user("x"), Message.system("tail"))
    assert_valid_request(ModelRequest(messages=asked))
    answered = (Message.user("x"), Message.assistant("y"), Message.system("tail"))
    assert "nothing to answer" in request_problems(ModelRequest(messages=answered))[0]


def schema(name: str, type: str = "object") -> ToolSchema:
    return ToolSchema(name=name, description="", input_schema={"type": type})


@pytest.mark.parametrize(
    ("tools", "choice", "said"),
    [
        ([schema("a b")], None, "a name that"),
        ([schema("a"), schema("a")], None, "2 tools are called 'a'"),
        ([schema("a", "array")], None, "not of an object"),
        ([schema("a")], "b", "tool_choice='b'"),
        ([], "required", "tool_choice='required'"),
    ],
)
def test_tools_that_a_provider_refuses_are_found(
    tools: list[ToolSchema], choice: str | None, said: str
) -> None:
    request = ModelRequest(
        messages=(Message.user("x"),),
        tools=tuple(tools),
        options=RequestOptions(tool_choice=choice),
    )
    assert [said in problem for problem in request_problems(request)] == [True]


@pytest.mark.parametrize("choice", [None, "auto", "none", "required", "a"])
def test_tools_that_are_there_may_be_chosen(choice: str | None) -> None:
    request = ModelRequest(
        messages=(Message.user("x"),),
        tools=(schema("a"),),
        options=RequestOptions(tool_choice=choice),
    )
    assert_valid_request(request)


def test_an_assertion_lists_the_problems_and_the_messages() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_valid_conversation([Message.assistant("me first"), Message.user()])
    text = str(caught.value)
    assert "- message 0 opens" in text
    assert "- message 1 is empty" in text
    assert "me first" in text
    with pytest.raises(AssertionError, match="no message"):
        assert_valid_request(ModelRequest(messages=()))
