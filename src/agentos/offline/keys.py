"""Names keys without telling their secrets."""

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class OfflineKey:
    name: str
    secret: str = field(repr=False)


class KeyRing:
    def __init__(self, keys: Iterable[OfflineKey]) -> None:
        self._names = {key.secret: key.name for key in keys}

    def knows(self, secret: str) -> bool:
        return secret in self._names

    def name(self, secret: str) -> str:
        """The key's name; a stranger's is its fingerprint."""
        return self._names.get(secret) or (fingerprint(secret) if secret else "none")


def fingerprint(secret: str) -> str:
    return f"unknown-{hashlib.sha256(secret.encode()).hexdigest()[:8]}"


def make_keys(number: int) -> tuple[OfflineKey, ...]:
    return tuple(
        OfflineKey(f"key-{n}", f"offline-key-{n}-{secrets.token_hex(4)}") for n in range(1, number + 1)
    )


def parse_key(line: str) -> OfflineKey:
    name, sign, secret = line.strip().partition("=")
    if not (name and sign and secret):
        raise ValueError("a key is written NAME=SECRET; one without a name, a sign or a secret was found")
    return OfflineKey(name, secret)
