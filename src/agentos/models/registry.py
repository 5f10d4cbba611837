"""Factories of the vendors' clients by provider, and the TLS context that the clients share.

An SDK is imported when its client is first needed.
"""

import functools
import ssl
from collections.abc import Callable, Mapping
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


Providers = Mapping[str, Callable[[], Provider]]
PROVIDERS = {"gemini": _gemini, "anthropic": _anthropic, "openai": _openai}
"""Each factory takes a transport that replaces the network, for tests and for warming up."""


@functools.cache
def tls_context() -> ssl.SSLContext | bool:
    """The TLS context that the SDKs' HTTP library would otherwise create for each client, which is slow."""
    try:
        import httpx2
    except ImportError:
        return True
    return httpx2.create_ssl_context()
