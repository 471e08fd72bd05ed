from __future__ import annotations

import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from loopctl.models.local.reply_text import ReplyText

TEXTS = st.text(st.one_of(st.sampled_from('\\"u/\n{}d8'), st.characters()), max_size=30)


@given(TEXTS, st.booleans(), st.lists(st.integers(0, 200), max_size=6))
def test_the_text_of_a_reply_does_not_depend_on_how_it_is_cut(
    text: str, ascii_only: bool, cuts: list[int]
) -> None:
    whole = json.dumps({"text": text}, ensure_ascii=ascii_only)
    places = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    reply = ReplyText()
    pieces = [reply.feed(whole[a:b]) for a, b in pairwise(places)]
    assert "".join(pieces) == text


def test_every_character_of_a_reply_is_said_as_soon_as_it_is_whole() -> None:
    reply = ReplyText()
    assert reply.feed('{"text": "a\\') == "a"
    assert reply.feed("n") == "\n"
    assert reply.feed("\\ud83d") == ""
    assert reply.feed("\\ude00") == "\N{GRINNING FACE}"


def test_half_a_pair_that_stays_alone_is_kept_as_it_is() -> None:
    assert ReplyText().feed('{"text": "\\ud83d!"}') == "\ud83d!"


def test_a_reply_that_was_cut_gives_what_came() -> None:
    assert ReplyText().feed('{"text": "half a sen') == "half a sen"
