"""Tokens that stand for a key, one an item, as long as one gateway runs."""

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass, field

MARK = "agentos"


@dataclass(frozen=True, slots=True)
class TokenSigner:
    """Makes tokens and knows its own; whoever has the same seed makes the same."""

    seed: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)

    def token(self, item: str) -> str:
        name = base64.urlsafe_b64encode(item.encode()).decode().rstrip("=")
        return f"{MARK}.{name}.{self._proof(name)}"

    def item(self, token: str) -> str | None:
        """The item that a token was made for; None for one that was not made here."""
        mark, _, rest = token.partition(".")
        name, _, proof = rest.partition(".")
        if not token.isascii():
            return None
        # In constant time, so that nobody finds a proof out letter by letter.
        if not hmac.compare_digest(proof.encode(), self._proof(name).encode()) or mark != MARK:
            return None
        return base64.urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode()

    def _proof(self, name: str) -> str:
        return hmac.new(self.seed.encode(), name.encode(), hashlib.sha256).hexdigest()[:40]
