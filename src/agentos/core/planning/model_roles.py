"""Who plays a role: from words such as `anthropic/claude-sonnet-4-5` to providers and models."""

from collections.abc import Iterable

from agentos.core.errors import PreflightError
from agentos.core.planning.worker_task import RoleModel

DEFAULTS = {"gemini": "gemini-2.5-pro", "anthropic": "claude-sonnet-4-5", "openai": "gpt-5"}
_BEGINNINGS = {"gemini": "gemini", "claude": "anthropic", "gpt": "openai", "o1": "openai", "o3": "openai"}


def resolve_role(role: str, words: tuple[str, ...], providers: Iterable[str]) -> RoleModel:
    """The first word is preferred, the others are fallbacks; without any, each provider's usual model."""
    if not words:
        have = tuple(providers)
        return RoleModel(role, have, tuple(DEFAULTS[provider] for provider in have))
    pairs = dict(_pair(role, word) for word in reversed(words))
    ordered = [provider for word in words if (provider := _pair(role, word)[0])]
    unique = tuple(dict.fromkeys(ordered))
    return RoleModel(role, unique, tuple(pairs[provider] for provider in unique))


def _pair(role: str, word: str) -> tuple[str, str]:
    provider, slash, model = word.partition("/")
    if slash and provider in DEFAULTS and model:
        return provider, model
    for beginning, known in _BEGINNINGS.items():
        if word.startswith(beginning):
            return known, word
    raise PreflightError(
        f"{role} = {word!r}: no provider is known for it; write it as provider/model, "
        f"with one of {', '.join(DEFAULTS)}"
    )
