"""Anthropic's Messages API and the servers that speak it (MOD-19)."""

from loopctl.models.anthropic.client import AnthropicClient

__all__ = ["AnthropicClient"]
