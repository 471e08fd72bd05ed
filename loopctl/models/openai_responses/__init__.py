"""OpenAI's Responses API and the servers that speak it (MOD-19)."""

from loopctl.models.openai_responses.client import OpenAIResponsesClient

__all__ = ["OpenAIResponsesClient"]
