"""Settings: ENG-14, and the request options of MOD-3."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopctl.config import RequestOptions, RunConfig, SessionConfig
from loopctl.errors import ConfigError, LoopError

CONFIGS = (RequestOptions, RunConfig, SessionConfig)

BAD: list[tuple[type[Any], str, Any, str]] = [
    (RequestOptions, "model", 3, "a string or None"),
    (RequestOptions, "max_output_tokens", 0, "a whole number ≥ 1 or None"),
    (RequestOptions, "max_output_tokens", 1.5, "a whole number ≥ 1 or None"),
    (RequestOptions, "temperature", -0.1, "a number ≥ 0 ≤ 2 or None"),
    (RequestOptions, "temperature", 2.1, "a number ≥ 0 ≤ 2 or None"),
    (RequestOptions, "temperature", math.nan, "a number ≥ 0 ≤ 2 or None"),
    (RequestOptions, "stop", "END", "a tuple of strings"),
    (RequestOptions, "response_schema", "{}", "a mapping or None"),
    (RequestOptions, "tool_choice", ["f"], "a string or None"),
    (RequestOptions, "strict_tools", "no", "True or False"),
    (RequestOptions, "thinking_effort", "extreme", "one of none, minimal, low, medium, high"),
    (RequestOptions, "extra_body", [], "a mapping or None"),
    (RunConfig, "max_turns", 0, "a whole number ≥ 1"),
    (RunConfig, "max_turns", True, "a whole number ≥ 1"),
    (RunConfig, "max_turns", None, "a whole number ≥ 1"),
    (RunConfig, "max_turns", "200", "a whole number ≥ 1"),
    (RunConfig, "parallel_tools", 1, "True or False"),
    (RunConfig, "max_concurrency", -1, "a whole number ≥ 1"),
    (RunConfig, "options", {}, "RequestOptions"),
    (RunConfig, "memory_top_k", -1, "a whole number ≥ 0"),
    (SessionConfig, "context_window", -1, "a whole number ≥ 0 or None"),
    (SessionConfig, "context_window", 8e3, "a whole number ≥ 0 or None"),
    (SessionConfig, "compact_threshold", 0, "a number ≥ 1 ≤ 100"),
    (SessionConfig, "compact_threshold", 101, "a number ≥ 1 ≤ 100"),
    (SessionConfig, "auto_compact", 1, "True or False"),
    (SessionConfig, "compaction_timeout", 0, "a number > 0 or None"),
    (SessionConfig, "memory_placement", "middle", "'head' or 'tail'"),
    (SessionConfig, "attachment_placement", "middle", "'head' or 'tail'"),
    (SessionConfig, "contributor_timeout", 0, "a number > 0 or None"),
    (SessionConfig, "decision_timeout", -1, "a number > 0 or None"),
    (SessionConfig, "approval_timeout", math.inf, "a number > 0 or None"),
    (SessionConfig, "tool_timeout", "1", "a number > 0 or None"),
    (SessionConfig, "max_result_chars", 255, "a whole number ≥ 256"),
    (SessionConfig, "max_result_chars", math.inf, "a whole number ≥ 256"),
    (SessionConfig, "strict_plugins", None, "True or False"),
    (SessionConfig, "keep_runs", -1, "a whole number ≥ 0"),
    (SessionConfig, "working_folder", 3, "a string or None"),
    (SessionConfig, "run", {"max_turns": 1}, "a RunConfig"),
]


@pytest.mark.parametrize(("kind", "name", "value", "wanted"), BAD)
def test_a_bad_value_is_refused_naming_field_value_and_range(
    kind: type[Any], name: str, value: Any, wanted: str
) -> None:
    """ENG-14: a bad value is a `ConfigError` when the settings are made."""
    with pytest.raises(ConfigError) as caught:
        kind(**{name: value})
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, LoopError)
    assert str(caught.value).startswith(f"{kind.__name__}.{name}={value!r}: must be {wanted}")


def test_every_field_that_can_be_wrong_is_refused_when_it_is() -> None:
    """ENG-14: no field goes unchecked."""
    fields = {(kind, field.name) for kind in CONFIGS for field in dataclasses.fields(kind)}
    assert fields == {(kind, name) for kind, name, _, _ in BAD}


def test_the_defaults_are_those_of_the_contract() -> None:
    """ENG-14: 200 turns, 8 at once, 100 runs kept, nothing strict."""
    session = SessionConfig()
    assert session.run == RunConfig(max_turns=200, parallel_tools=True, max_concurrency=8)
    assert (session.keep_runs, session.strict_plugins) == (100, False)
    assert (session.tool_timeout, session.max_result_chars) == (120, 16_384)
    assert session.attachment_placement == "head"
    assert session.run.options == RequestOptions()


@pytest.mark.parametrize("kind", CONFIGS)
def test_settings_are_frozen_and_keyword_only(kind: type[Any]) -> None:
    """ENG-14: values, made in one go."""
    config = kind()
    assert config == kind() == dataclasses.replace(config)
    for field in dataclasses.fields(kind):
        assert field.kw_only
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(config, field.name, None)


@given(st.integers(1), st.floats(0, 2), st.lists(st.text()))
def test_values_in_range_are_taken_as_they_are(turns: int, heat: float, stop: list[str]) -> None:
    """ENG-14: whole numbers of any size, and any iterable of stop sequences."""
    options = RequestOptions(temperature=heat, stop=stop, max_output_tokens=turns)  # type: ignore[arg-type]
    assert RunConfig(max_turns=turns, options=options).max_turns == turns
    assert (options.temperature, options.stop) == (heat, tuple(stop))


def test_a_whole_number_beyond_floating_point_is_still_a_number() -> None:
    """ENG-14: no range check overflows."""
    assert RunConfig(max_turns=10**400).max_turns == 10**400
    with pytest.raises(ConfigError, match="temperature"):
        RequestOptions(temperature=10**400)


def test_time_limits_can_be_switched_off() -> None:
    """ENG-14: `None` is no limit."""
    off = SessionConfig(contributor_timeout=None, decision_timeout=None, tool_timeout=None)
    assert (off.contributor_timeout, off.decision_timeout, off.tool_timeout) == (None, None, None)
