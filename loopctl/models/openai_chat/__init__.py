"""OpenAI Chat Completions and every server that speaks it (MOD-19)."""

from loopctl.models.openai_chat.client import OpenAIChatClient

__all__ = ["OpenAIChatClient"]
