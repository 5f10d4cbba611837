"""Factories of the vendors' clients by provider; an SDK is imported when its client is first needed."""

from typing import Any

from agentos.core.protocol.ports import Provider


def _gemini(transport: Any = None) -> Provider:
    from agentos.models.gemini.client import Gemini

    return Gemini(transport=transport)


def _anthropic(transport: Any = None) -> Provider:
    from agentos.models.anthropic.client import Anthropic

    return Anthropic(transport=transport)


def _openai(transport: Any = None) -> Provider:
    from agentos.models.openai.client import OpenAI

    return OpenAI(transport=transport)


PROVIDERS = {"gemini": _gemini, "anthropic": _anthropic, "openai": _openai}
"""Each takes a transport that replaces the network, for tests and for warming up."""
