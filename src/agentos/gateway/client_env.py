"""What an agent finds in its environment, so that it comes to the gateway by itself."""

import shlex
from collections.abc import Iterable, Mapping

_BASES = {
    "gemini": (("GEMINI_BASE_URL", "GOOGLE_GEMINI_BASE_URL"), "/gemini"),
    "anthropic": (("ANTHROPIC_BASE_URL",), "/anthropic"),
    "openai": (("OPENAI_BASE_URL",), "/openai/v1"),
}
_KEYS = {
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "anthropic": ("ANTHROPIC_API_KEY",),
    "openai": ("OPENAI_API_KEY",),
}


def client_variables(url: str, providers: Iterable[str], token: str) -> dict[str, str]:
    """For the providers that there are keys of."""
    found = {}
    for provider in (name for name in _BASES if name in set(providers)):
        names, path = _BASES[provider]
        found.update(dict.fromkeys(names, f"{url}{path}"))
        found.update(dict.fromkeys(_KEYS[provider], token))
    return found


def exports(found: Mapping[str, str]) -> str:
    """For a shell."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in found.items())
