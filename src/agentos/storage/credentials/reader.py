"""Reads credentials from numbered environment variables and from credentials.toml, and notices changes to it."""

import re
import stat
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from agentos.core.errors import NoCredentials, PreflightError, UsageError
from agentos.core.quota.credentials import Credential
from agentos.core.ratelimit.limits import quota_day_start
from agentos.core.text.secrets import Secret
from agentos.core.text.values import is_web_address, shortened
from agentos.platform_support import host_clock
from agentos.regular_files import read_regular
from agentos.storage.credentials.file_parser import PROVIDERS, URL_RULE, CredentialFileParser

if TYPE_CHECKING:
    from agentos.core.protocol.events import CredentialsRejected

NO_KEY = """no API key for {provider}. Provide one in one of three ways:
  1. export {variable}_1=...     (also _2, _3, ...; or a single {variable})
  2. agentos keys add --provider {provider}   (asks for it and stores it in {file})
  3. a [[credential]] table in that file, with key_env = "VARIABLE" or keyring = "service/user"
Or try it without a key: add --offline"""


@dataclass(frozen=True, slots=True)
class CredentialSource:
    """Where to read credentials from, and overrides that apply to all of them.

    `limit` is the number of keys to use, the first ones (AGENTOS_CREDENTIAL_LIMIT), `concurrency` sets the number of simultaneous calls
    per key (AGENTOS_KEY_CONCURRENCY).
    """

    file: Path
    environment: Mapping[str, str]
    limit: int | None = None
    concurrency: int | None = None
    only_file: bool = False
    only_environment: bool = False

    def read(self) -> list[Credential]:
        """Environment variables first, then the file. Duplicate keys are merged; unnamed ones are numbered.

        One secret for two providers is two keys: some services accept it in the formats of several.
        """
        found = _by_fingerprint(self._from_environment())
        for key, credential in _by_fingerprint(self._from_file()).items():
            found[key] = _merge(found[key], credential) if key in found else credential
        named = _with_names(list(found.values()))
        return self.adjusted([replace(each, midnight=_midnight(each.provider)) for each in named])

    def tables(self) -> list[Credential]:
        """One credential per table of the file, in the order of the file: duplicates too, names only where given."""
        return self._from_file()

    def default_name(self, provider: str, key: str) -> str:
        """The name given to a key that has none, or that it would be given when it is stored."""
        known = self.read()
        new = Credential("", provider, Secret(key))
        same = [credential for credential in known if credential.fingerprint == new.fingerprint]
        return (same or _with_names([*known, new]))[-1].name

    def stamp(self) -> tuple[int, int] | None:
        """A value that changes whenever the file does."""
        try:
            state = self.file.stat()
        except OSError:
            return None
        return state.st_mtime_ns, state.st_ino

    def adjusted(self, credentials: list[Credential]) -> list[Credential]:
        """The credentials with the overrides applied."""
        limited = credentials[: self.limit]
        concurrency = self.concurrency
        return [replace(each, concurrency=concurrency) for each in limited] if concurrency else limited

    def _from_environment(self) -> Iterator[Credential]:
        for provider in () if self.only_file else PROVIDERS:
            numbered = list(_numbered(provider, self.environment))
            plain = self.environment.get(f"{provider.upper()}_API_KEY", "").strip()
            if not numbered and plain:
                numbered = [_from_variables(provider, plain, "", self.environment)]
            yield from numbered

    def _from_file(self) -> list[Credential]:
        if self.only_environment:
            return []
        try:
            # It may be a link: only its owner can create it, often with a program that manages such files.
            text = read_regular(self.file, follow=True).decode("utf-8")
            state = self.file.stat()
        except FileNotFoundError:
            return []
        except (OSError, UnicodeDecodeError) as error:
            raise PreflightError(f"cannot read {self.file}: {error}") from error
        if stat.S_IMODE(state.st_mode) & 0o077:
            raise PreflightError(f"{self.file} is readable by others: run chmod 600 {self.file}")
        try:
            tables = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise PreflightError(f"{self.file}: {error}") from error
        return CredentialFileParser(self.file, text, self.environment).parse(tables)


class CredentialWatch:
    """Each call returns the credentials if the file has changed since the last call, and None otherwise.

    `usable` selects the credentials that the run can use. For a file that cannot be read it returns CredentialsRejected.
    """

    def __init__(
        self,
        source: CredentialSource,
        usable: Callable[[list[Credential]], list[Credential]],
    ) -> None:
        self._source = source
        self._usable = usable
        self._stamp = source.stamp()

    def __call__(self) -> "list[Credential] | CredentialsRejected | None":
        stamp = self._source.stamp()
        if stamp == self._stamp:
            return None
        self._stamp = stamp
        try:
            return self._usable(self._source.read())
        except (PreflightError, NoCredentials) as error:
            # Imported here because credentials are read before the fork server starts, and the import would delay that.
            from agentos.core.protocol.events import CredentialsRejected

            return CredentialsRejected(str(error).splitlines()[0])


def no_key(provider: str, file: Path) -> NoCredentials:
    """The error that explains how to provide a key."""
    return NoCredentials(NO_KEY.format(provider=provider, variable=f"{provider.upper()}_API_KEY", file=file))


def _by_fingerprint(credentials: Iterable[Credential]) -> dict[str, Credential]:
    found: dict[str, Credential] = {}
    for credential in credentials:
        found.setdefault(credential.fingerprint, credential)
    return found


def _merge(variable: Credential, file: Credential) -> Credential:
    """A key that is both in a variable and in the file, where the file may disable it or set limits."""
    return replace(file, base_url=file.base_url or variable.base_url, model=file.model or variable.model)


def _numbered(provider: str, environment: Mapping[str, str]) -> Iterator[Credential]:
    pattern = re.compile(rf"{provider.upper()}_API_KEY_([0-9]{{1,9}})")
    numbers = [found[1] for name in environment if (found := pattern.fullmatch(name))]
    for number in sorted(numbers, key=int):
        if value := environment[f"{provider.upper()}_API_KEY_{number}"].strip():
            yield _from_variables(provider, value, f"_{number}", environment)


def _from_variables(provider: str, key: str, suffix: str, environment: Mapping[str, str]) -> Credential:
    variable = f"{provider.upper()}_BASE_URL{suffix}"
    base_url = environment.get(variable)
    if base_url and not is_web_address(base_url):
        raise UsageError(f"invalid {variable}={shortened(base_url)}: {URL_RULE}")
    model = environment.get(f"{provider.upper()}_MODEL{suffix}")
    return Credential("", provider, Secret(key), base_url or None, model or None)


def _with_names(credentials: list[Credential]) -> list[Credential]:
    """Names unnamed keys key-1, key-2, ... or, with several providers, gemini-1, anthropic-1, ..."""
    several = len({credential.provider for credential in credentials}) > 1
    taken = {credential.name for credential in credentials}
    counts: dict[str, int] = {}
    named = []
    for credential in credentials:
        base = credential.provider if several else "key"
        counts[base] = counts.get(base, 0) + 1
        while not credential.name and f"{base}-{counts[base]}" in taken:
            counts[base] += 1
        named.append(replace(credential, name=credential.name or f"{base}-{counts[base]}"))
    return named


def _midnight(provider: str) -> float | None:
    """The start of the provider's quota day by the host clock, which changes to the wall clock do not affect."""
    wall = time.time()
    began = quota_day_start(provider, wall)
    return None if began is None else host_clock() - (wall - began)
