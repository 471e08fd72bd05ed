"""Ollama's own API (MOD-19)."""

from loopctl.models.ollama.client import OllamaClient

__all__ = ["OllamaClient"]
