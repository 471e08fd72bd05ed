"""The pieces that a conversation may be cut into."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given

from loopctl.compaction.units import units_of
from loopctl.messages import Message
from loopctl.testing import conversation_problems, conversations
from tests.compaction.bench import asks, result


def cuts(messages: Sequence[Message]) -> list[tuple[int, int]]:
    return [(unit.start, unit.end) for unit in units_of(messages)]


def test_ten_results_in_ten_messages_belong_to_their_call() -> None:
    """A1, CMP-10: call and results are one piece, however many messages hold them."""
    ids = [f"c{number}" for number in range(10)]
    spread = [Message.user(result(id)) for id in ids]
    messages = [Message.user("go"), asks(*ids), *spread, Message.assistant("done")]
    assert cuts(messages) == [(0, 1), (1, 12), (12, 13)]


def test_an_id_that_comes_again_makes_a_new_pair() -> None:
    """CMP-10: pairing is per occurrence."""
    messages = [Message.user("go")]
    for _ in range(3):
        messages += [asks("c"), Message.user(result("c"))]
    assert cuts(messages) == [(0, 1), (1, 3), (3, 5), (5, 7)]


def test_text_between_results_and_beside_them_stays_in_the_piece() -> None:
    """A3, CMP-10: results may be interleaved with what the user says, in any order."""
    messages = [
        Message.user("go"),
        asks("a", "b"),
        Message.user("first:", result("b")),
        Message.user("wait"),
        Message.user(result("a"), "hurry"),
        Message.user("and more"),
        Message.assistant("done"),
    ]
    assert cuts(messages) == [(0, 1), (1, 5), (5, 6), (6, 7)]


def test_a_call_without_a_result_takes_no_message_of_the_assistants() -> None:
    """A2: what was never answered still ends where the assistant speaks again."""
    messages = [Message.user("go"), asks("a"), Message.user("hm"), Message.assistant("done")]
    assert cuts(messages) == [(0, 1), (1, 3), (3, 4)]


def test_an_empty_conversation_has_no_pieces() -> None:
    assert cuts([]) == []


@given(messages=conversations())
def test_any_choice_of_pieces_has_whole_pairs(messages: list[Message]) -> None:
    """CMP-10: pieces cover everything once, and each is whole by itself."""
    units = units_of(messages)
    assert [i for unit in units for i in unit.indices] == list(range(len(messages)))
    for unit in units:
        piece = [Message.user("go"), *messages[unit.start : unit.end]]
        assert conversation_problems(piece) == []
