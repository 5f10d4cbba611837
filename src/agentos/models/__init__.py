"""Model providers: the vendors' SDKs behind one interface, each call with a leased key."""

import importlib.util

CHARS_PER_TOKEN = 4  # rough estimate for English text
_SDK_PACKAGES = {"gemini": "google.genai", "anthropic": "anthropic", "openai": "openai"}


def has_sdk(provider: str) -> bool:
    """Whether the provider's SDK is installed; only Gemini's always is."""
    return importlib.util.find_spec(_SDK_PACKAGES[provider]) is not None
