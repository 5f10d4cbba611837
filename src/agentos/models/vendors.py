"""The vendors by name, each loaded when it is wanted."""

from agentos.core.ports import Provider


def _gemini() -> Provider:
    from agentos.models.gemini import Gemini

    return Gemini()


def _anthropic() -> Provider:
    from agentos.models.anthropic import Anthropic

    return Anthropic()


def _openai() -> Provider:
    from agentos.models.openai import OpenAI

    return OpenAI()


PROVIDERS = {"gemini": _gemini, "anthropic": _anthropic, "openai": _openai}
