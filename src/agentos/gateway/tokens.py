"""Access tokens of the gateway, and the environment variables that hand them to agents."""

import base64
import hashlib
import hmac
import secrets
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

PREFIX = "agentos"
# SDKs, command-line agents and LiteLLM read different names for the same value.
_BASE_URLS = {
    "gemini": (("GEMINI_BASE_URL", "GOOGLE_GEMINI_BASE_URL", "GEMINI_API_BASE"), "/gemini"),
    "anthropic": (("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE"), "/anthropic"),
    "openai": (("OPENAI_BASE_URL", "OPENAI_API_BASE"), "/openai/v1"),
}
# Not GOOGLE_API_KEY: everything that reads it reads GEMINI_API_KEY too, and Google's SDK warns if both are set.
_API_KEYS = {
    "gemini": ("GEMINI_API_KEY",),
    "anthropic": ("ANTHROPIC_API_KEY",),
    "openai": ("OPENAI_API_KEY", "CODEX_API_KEY"),
}
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class TokenVerifier(Protocol):
    """Tells whose token this is, for one gateway process or from a registry that outlives it."""

    def item(self, token: str) -> str | None:
        """Returns the item that the token was issued for, or None if the token is invalid."""
        ...


@dataclass(frozen=True, slots=True)
class TokenSigner:
    """Issues and verifies tokens, each bound to one item.

    A token contains the item's name and an HMAC of it, so nothing has to be stored. Signers with the same seed
    accept each other's tokens.
    """

    seed: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)

    def token(self, item: str) -> str:
        name = base64.urlsafe_b64encode(item.encode()).decode().rstrip("=")
        return f"{PREFIX}.{name}.{self._signature(name)}"

    def item(self, token: str) -> str | None:
        """Returns the item that the token was issued for, or None if the token is invalid."""
        prefix, _, rest = token.partition(".")
        name, _, signature = rest.partition(".")
        if not token.isascii():
            return None
        # Constant time, so that a signature cannot be guessed character by character.
        if not hmac.compare_digest(signature.encode(), self._signature(name).encode()) or prefix != PREFIX:
            return None
        return base64.urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode()

    @staticmethod
    def claimed_item(token: str) -> str:
        """The item that a token names, before its signature is verified; empty if it names none."""
        name = token.partition(".")[2].partition(".")[0]
        try:
            return base64.urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode()
        except ValueError:
            return ""

    def _signature(self, name: str) -> str:
        return hmac.new(self.seed.encode(), name.encode(), hashlib.sha256).hexdigest()[:40]


def base_url(url: str, provider: str) -> str:
    """Where the gateway at `url` serves a provider."""
    return f"{url}{_BASE_URLS[provider][1]}"


def client_variables(
    url: str, providers: Iterable[str], token: str, environment: Mapping[str, str]
) -> dict[str, str]:
    """The variables that make an agent's SDKs for these providers use the gateway, bypassing any proxy in `environment`."""
    wanted = set(providers)
    variables = {}
    for provider, (names, _) in _BASE_URLS.items():
        if provider in wanted:
            variables.update(dict.fromkeys(names, base_url(url, provider)))
            variables.update(dict.fromkeys(_API_KEYS[provider], token))
    # Some programs read one spelling, some the other; a proxy would see tokens and prompts.
    direct = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    gateway = urlsplit(url).hostname or ""
    hosts = dict.fromkeys([*(host for host in direct.split(",") if host.strip()), *_LOOPBACK, gateway])
    return variables | dict.fromkeys(("NO_PROXY", "no_proxy"), ",".join(hosts))


def shell_exports(variables: Mapping[str, str]) -> str:
    """Lines for a shell. Google's SDK would prefer a GOOGLE_API_KEY of the user's own to the token."""
    unset = "unset GOOGLE_API_KEY\n" if "GEMINI_API_KEY" in variables else ""
    return unset + "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
