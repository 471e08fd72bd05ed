"""Which model is used when none is named."""

from __future__ import annotations

import pytest

from loopctl.cli import models
from loopctl.errors import ConfigError
from loopctl.models.providers import PROVIDERS


@pytest.fixture(autouse=True)
def nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOOPCTL_MODEL", raising=False)
    for provider in PROVIDERS.values():
        for key in provider.keys:
            monkeypatch.delenv(key, raising=False)
    monkeypatch.setattr(models, "is_installed", lambda: False)


def test_the_choice_goes_from_the_nearest_to_the_farthest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "is_installed", lambda: True)
    assert models.choose() == "local"
    monkeypatch.setenv("DEEPSEEK_API_KEY", "k")
    assert models.choose().startswith("deepseek:")
    monkeypatch.setenv("LOOPCTL_MODEL", "openai-chat:mine")
    assert models.choose() == "openai-chat:mine"
    assert models.choose("groq:other") == "groq:other"


def test_blank_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "is_installed", lambda: True)
    monkeypatch.setenv("LOOPCTL_MODEL", " ")
    assert models.choose("") == "local"


def test_without_any_model_the_choices_are_listed() -> None:
    with pytest.raises(ConfigError) as caught:
        models.choose()
    for word in ("--model", "LOOPCTL_MODEL", "OPENAI_API_KEY", "openai-chat", "local"):
        assert word in str(caught.value)
