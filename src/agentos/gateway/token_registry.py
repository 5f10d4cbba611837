"""The tokens of a shared gateway, valid across restarts: issued, listed and revoked by name in a file of the home
folder."""

import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agentos.core.errors import NothingMatches, PreflightError, UsageError
from agentos.gateway.tokens import TokenSigner
from agentos.regular_files import open_regular, read_regular
from agentos.storage.credentials.file_parser import NAME_RULE, is_name
from agentos.storage.files import FILE_MODE, Folder, private_folder

FILE_NAME = "tokens.json"
MAX_FILE_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A named token. `serial` counts how often the name was issued again after it was revoked."""

    name: str
    serial: int
    issued_at: float
    revoked_at: float | None = None
    budget: float | None = None  # US dollars

    @property
    def is_valid(self) -> bool:
        return self.revoked_at is None


@dataclass(frozen=True, slots=True)
class _Contents:
    seed: str = field(repr=False)
    tokens: Mapping[str, IssuedToken] = field(default_factory=dict)


class TokenRegistry:
    """Issues, verifies and revokes tokens that stay valid when the gateway restarts.

    The file holds a random seed and the issued names; only its owner may read it. Tokens are signed with the seed, so
    none is stored. A gateway reads the file again whenever it has changed, so a revoked token is refused from the next
    request on.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / FILE_NAME
        self._stamp: tuple[int, int, int] | None = None
        self._contents: _Contents | None = None

    # For the gateway.

    def item(self, token: str) -> str | None:
        """Returns the name for which the token was issued, or None if the token is unknown or revoked."""
        contents = self._current()
        issued = contents.tokens.get(TokenSigner.claimed_item(token)) if contents else None
        if contents is None or issued is None or not issued.is_valid:
            return None
        return _signer(contents, issued).item(token)

    def budget_of(self, name: str) -> float | None:
        """The budget for all calls of this token, in US dollars; None if there is none."""
        contents = self._current()
        issued = contents.tokens.get(name) if contents else None
        return issued.budget if issued else None

    # For the commands.

    def issue(self, name: str, now: float, budget: float | None = None) -> str:
        """Return the valid token of this name, or issue one. `budget` replaces its budget."""
        if not is_name(name):
            raise UsageError(f"invalid token name {name!r}: {NAME_RULE}")
        with self._editing() as contents:
            issued = contents.tokens.get(name)
            if issued is None or not issued.is_valid:
                issued = IssuedToken(name, issued.serial + 1 if issued else 1, now)
            if budget is not None:
                issued = replace(issued, budget=budget)
            self._write(replace(contents, tokens={**contents.tokens, name: issued}))
            return _signer(contents, issued).token(name)

    def revoke(self, name: str, now: float) -> None:
        with self._editing() as contents:
            issued = contents.tokens.get(name)
            if issued is None or not issued.is_valid:
                valid = ", ".join(token.name for token in contents.tokens.values() if token.is_valid)
                raise NothingMatches(
                    f"no valid token {name!r}: {f'choose one of {valid}' if valid else 'there is none'}"
                )
            revoked = replace(issued, revoked_at=now)
            self._write(replace(contents, tokens={**contents.tokens, name: revoked}))

    def tokens(self) -> list[IssuedToken]:
        contents = self._current()
        return sorted(contents.tokens.values(), key=lambda token: token.name) if contents else []

    # The file.

    def _current(self) -> _Contents | None:
        """The file's contents, read again only when the file has changed; None if there is no file yet."""
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            self._stamp = self._contents = None
            return None
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        if stamp != self._stamp:
            if status.st_mode & 0o077:
                raise PreflightError(f"{self._path} can be read by others: run chmod 600 {self._path}")
            self._contents = _parse(read_regular(self._path, limit=MAX_FILE_BYTES), self._path)
            self._stamp = stamp
        return self._contents

    @contextlib.contextmanager
    def _editing(self) -> Iterator[_Contents]:
        """Yield the contents to change, under a lock so that concurrent commands do not lose each other's changes."""
        private_folder(self._folder)
        flags = os.O_WRONLY | os.O_CREAT
        with open(open_regular(self._folder / "tokens.lock", flags=flags, mode=FILE_MODE), "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self._current() or _Contents(secrets.token_hex(32))

    def _write(self, contents: _Contents) -> None:
        tokens = [
            {
                "name": token.name,
                "serial": token.serial,
                "issued_at": token.issued_at,
                "revoked_at": token.revoked_at,
                "budget": token.budget,
            }
            for token in contents.tokens.values()
        ]
        text = json.dumps({"seed": contents.seed, "tokens": tokens}, indent=1) + "\n"
        Folder(self._folder, file_mode=FILE_MODE).write(FILE_NAME, text.encode())


def _signer(contents: _Contents, issued: IssuedToken) -> TokenSigner:
    return TokenSigner(f"{contents.seed} {issued.serial}")


def _parse(text: bytes, path: Path) -> _Contents:
    try:
        found: dict[str, Any] = json.loads(text)
        tokens = [IssuedToken(**token) for token in found["tokens"]]
        return _Contents(str(found["seed"]), {token.name: token for token in tokens})
    except (ValueError, KeyError, TypeError) as error:
        raise PreflightError(
            f"{path} is not a token file of agentos gateway: restore it, or move it away and issue new tokens"
        ) from error
