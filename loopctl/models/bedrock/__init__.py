"""Amazon Bedrock's Converse API (MOD-19)."""

from loopctl.models.bedrock.client import BedrockClient

__all__ = ["BedrockClient"]
