"""Google's Gemini: generateContent and streamGenerateContent (MOD-19)."""

from loopctl.models.gemini.client import GeminiClient

__all__ = ["GeminiClient"]
