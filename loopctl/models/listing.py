"""What the model lists of compatible servers tell, each under its own names: pure (MOD-3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from loopctl.models.client import ModelInfo

_WINDOWS = ("context_length", "max_context_length", "context_window", "max_model_len")
"""OpenRouter, Mistral, Groq, vLLM."""

_CAPS = ("max_completion_tokens", "max_output_tokens")


def models_of(listed: object) -> list[ModelInfo]:
    """The models of a list, or of an object with a list in `data`; what has no id is left out."""
    if isinstance(listed, Mapping):
        listed = cast("Mapping[str, Any]", listed).get("data")
    given = cast("list[Any]", listed if isinstance(listed, list) else [])
    items = [_mapping(item) for item in given]
    return [
        ModelInfo(
            id=item["id"],
            context_window=_first(item, _WINDOWS),
            max_output=_first(_mapping(item.get("top_provider")), _CAPS) or _first(item, _CAPS),
        )
        for item in items
        if isinstance(item.get("id"), str)
    ]


def _first(item: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    """The first of these that is a number of tokens."""
    found = (item.get(name) for name in names)
    return next((value for value in found if type(value) is int and value > 0), None)


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
