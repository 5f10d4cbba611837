"""The vendors by name, each loaded when it is wanted; a transport given to one takes the network's place."""

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
