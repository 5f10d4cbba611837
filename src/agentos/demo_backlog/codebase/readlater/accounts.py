"""Accounts, and who is signed in."""

import hashlib
import secrets
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ReaderAccount:
    id: int
    mail: str
    password_hash: str


@dataclass(slots=True)
class SignedInReaders:
    """Signed-in browsers: a random token for each."""

    _accounts: dict[str, int] = field(default_factory=dict)

    def sign_in(self, account: ReaderAccount, password: str) -> str | None:
        if hash_password(password, account.mail) != account.password_hash:
            return None
        token = secrets.token_urlsafe(32)
        self._accounts[token] = account.id
        return token

    def account_of(self, token: str) -> int | None:
        return self._accounts.get(token)

    def sign_out(self, token: str) -> None:
        self._accounts.pop(token, None)


def hash_password(password: str, salt: str) -> str:
    return hashlib.scrypt(password.encode(), salt=salt.encode(), n=2**14, r=8, p=1).hex()
