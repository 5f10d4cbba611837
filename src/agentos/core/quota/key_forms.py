"""Recognises the provider of an API key by how the key begins."""

# Longer beginnings first: every Anthropic key also begins as an OpenAI key does.
_BEGINNINGS = (("sk-ant-", "anthropic"), ("AIza", "gemini"), ("sk-", "openai"))


def provider_of(key: str) -> str | None:
    """The provider whose keys look like this one; None if it could be anybody's."""
    return next((provider for beginning, provider in _BEGINNINGS if key.startswith(beginning)), None)
