"""CTX-28: how large messages are taken to be."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopctl import (
    HeuristicTokenCounter,
    ImagePart,
    Message,
    RatioTokenCounter,
    ThinkingPart,
    TokenCounter,
    ToolCallPart,
    ToolResultPart,
)
from loopctl.errors import ConfigError
from loopctl.tokens import IMAGE_TOKENS, OVERHEAD


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("abcdefgh", 2),
        ("é" * 8, 2),
        ("你好世界", 4),
        ("日本語のテスト", 7),
        ("안녕하세요", 5),
        ("你好 and more", 2 + 9 / 4),
        ("“naïve” — ☃ Привет ", 19 / 4),
        ("ｆｕｌｌ。", 5),
        ("\U00020000\U00020001", 2),
        ("😀😀", 2),
        ("\ud83d", 1),
    ],
)
def test_about_four_latin_characters_or_one_cjk_character_make_a_token(
    text: str, tokens: float
) -> None:
    """CTX-28: the default's figures."""
    assert HeuristicTokenCounter().count_text(text) == tokens


def test_an_image_costs_the_same_whatever_its_size() -> None:
    """CTX-28, J1: never its base64 length; in a message and in a tool's result."""
    counter = HeuristicTokenCounter()
    for size in (1, 100_000, 5_000_000):
        image = ImagePart("image/png", b"x" * size)
        assert counter.count(Message.user(image)) == OVERHEAD + IMAGE_TOKENS
        result = ToolResultPart("a", "look", (image,))
        assert counter.count(Message.user(result)) == OVERHEAD + IMAGE_TOKENS


def test_calls_results_and_thinking_count() -> None:
    """CTX-29, J2: everything that the provider will receive."""
    counter = RatioTokenCounter(1, per_message=0)
    call = ToolCallPart("c", "look", '{"a":1}')
    assert counter.count(Message.assistant("hi", call)) == 2 + 4 + 7
    assert counter.count(Message.assistant(ThinkingPart("hm", signature="sig"))) == 5
    assert counter.count(Message.user(ToolResultPart("c", "look", "four"), "five!")) == 9
    assert counter.count(Message.user()) == 0


@given(st.text(), st.text())
def test_more_text_never_counts_less(left: str, right: str) -> None:
    """CTX-28: whatever the characters."""
    for counter in (HeuristicTokenCounter(), RatioTokenCounter(3.5)):
        assert counter.count_text(left + right) == pytest.approx(
            counter.count_text(left) + counter.count_text(right)
        )


@pytest.mark.parametrize("ratio", [0, -1, math.nan, math.inf, -math.inf])
def test_a_ratio_that_measures_nothing_is_refused(ratio: float) -> None:
    """CTX-28: NaN, infinite and non-positive."""
    with pytest.raises(ConfigError, match="chars_per_token"):
        RatioTokenCounter(ratio)


@pytest.mark.parametrize("overhead", [-1, math.nan, math.inf])
def test_an_overhead_that_measures_nothing_is_refused(overhead: float) -> None:
    """CTX-28: per message."""
    with pytest.raises(ConfigError, match="per_message"):
        RatioTokenCounter(4, per_message=overhead)


def test_both_fit_the_protocol() -> None:
    """CTX-28: one counter serves every decision."""
    counters: list[TokenCounter] = [HeuristicTokenCounter(), RatioTokenCounter(4)]
    assert all(counter.count(Message.user("hello")) > 4 for counter in counters)
