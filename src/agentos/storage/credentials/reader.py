"""Credentials from numbered variables and from credentials.toml."""

import re
import stat
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from agentos.core.constants import DAY
from agentos.core.errors import NoCredentials, PreflightError
from agentos.core.quota.credentials import Credential
from agentos.core.ratelimit.limits import Dimension, Rate, quota_day_start
from agentos.core.text.secrets import Secret
from agentos.storage.clock import host_clock

PROVIDERS = ("gemini", "anthropic", "openai")
NO_KEY = """no API key for {provider}. Give one in one of three ways:
  1. export {variable}_1=...     (also _2, _3, ...; or a single {variable})
  2. agentos keys add --provider {provider}   (asks for it, and keeps it in {file})
  3. a [[credential]] table in that file, with key_env = "VARIABLE" or keyring = "service/user"
Or try it without a key: add --offline"""
_KNOWN: dict[str, type] = {
    "name": str,
    "provider": str,
    "key": str,
    "key_env": str,
    "keyring": str,
    "bucket": str,
    "base_url": str,
    "model": str,
    "rpm": int,
    "tpm": int,
    "rpd": int,
    "concurrency": int,
    "enabled": bool,
}
_MOST = 10**12
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
A_NAME = "a name is up to 32 letters, digits, dots, dashes and underscores, the first a letter or digit"
_WORDS: dict[type, str] = {
    str: "text in quotes",
    int: "a whole number",
    bool: "true or false",
    float: "a fraction",
}


@dataclass(frozen=True, slots=True)
class CredentialSource:
    """Where credentials are looked for, and what is changed about all of them."""

    file: Path
    environment: Mapping[str, str]
    limit: int | None = None
    concurrency: int | None = None
    only_file: bool = False
    only_environment: bool = False

    def read(self) -> list[Credential]:
        """Variables, then the file; the same secret is one credential; named in the order found."""
        found = _first_of_each(self._from_environment())
        for secret, credential in _first_of_each(self._from_file()).items():
            found[secret] = _told_more(found[secret], credential) if secret in found else credential
        named = _named(list(found.values()))
        return self.adjusted([replace(one, midnight=_midnight(one.provider)) for one in named])

    def stamp(self) -> tuple[int, int] | None:
        """Changes when the file does."""
        try:
            state = self.file.stat()
        except OSError:
            return None
        return state.st_mtime_ns, state.st_ino

    def adjusted(self, credentials: list[Credential]) -> list[Credential]:
        """With what the environment says of all of them."""
        limited = credentials[: self.limit]
        concurrency = self.concurrency
        return [replace(one, concurrency=concurrency) for one in limited] if concurrency else limited

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
            state = self.file.stat()
            text = self.file.read_text("utf-8")
        except FileNotFoundError:
            return []
        except (OSError, UnicodeDecodeError) as error:
            raise PreflightError(f"{self.file} cannot be read: {error}") from error
        if stat.S_IMODE(state.st_mode) & 0o077:
            raise PreflightError(f"{self.file} may be read by others: type chmod 600 {self.file}")
        try:
            tables = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise PreflightError(f"{self.file}: {error}") from error
        return _Reader(self.file, text, self.environment).read(tables)


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def no_key(provider: str, file: Path) -> NoCredentials:
    """The error that says how to give one."""
    return NoCredentials(NO_KEY.format(provider=provider, variable=f"{provider.upper()}_API_KEY", file=file))


@dataclass(frozen=True, slots=True)
class _Reader:
    """Turns the file's tables into credentials; an error names the line."""

    path: Path
    text: str
    environment: Mapping[str, str]

    def read(self, tables: dict[str, object]) -> list[Credential]:
        entries = tables.pop("credential", [])
        if tables:
            name = next(iter(tables))
            raise self._error(0, name, f"unknown {name!r}; expected [[credential]] tables")
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise self._error(0, "credential", "expected [[credential]] tables, in double brackets")
        credentials = [self._credential(number, entry) for number, entry in enumerate(entries, 1)]
        names = [credential.name for credential in credentials]
        for number, name in enumerate(names, 1):
            if name and name in names[: number - 1]:
                raise self._error(number, "name", f"the name {name!r} is given twice")
        return credentials

    def _credential(self, number: int, entry: dict[str, object]) -> Credential:
        for name, value in entry.items():
            self._check(number, name, value)
        secret = self._secret(number, entry)
        return Credential(
            name=str(entry.get("name", "")),
            provider=str(entry.get("provider", "gemini")),
            secret=Secret(secret),
            base_url=_text(entry.get("base_url")),
            model=_text(entry.get("model")),
            bucket=str(entry.get("bucket", "")),
            concurrency=_whole(entry.get("concurrency"), 1),
            enabled=bool(entry.get("enabled", True)),
            rates=_rates(entry),
        )

    def _check(self, number: int, name: str, value: object) -> None:
        kind = _KNOWN.get(name)
        if kind is None:
            raise self._error(number, name, f"unknown {name!r}; known: {', '.join(_KNOWN)}")
        if type(value) is not kind:
            raise self._error(
                number,
                name,
                f"{name} is {_WORDS.get(type(value), 'something else')}, expected {_WORDS[kind]}",
            )
        if kind is int and isinstance(value, int) and not 0 < value <= _MOST:
            raise self._error(number, name, f"{name} = {value}, expected a number from 1 to {_MOST:,}")
        if name == "provider" and value not in PROVIDERS:
            raise self._error(
                number,
                name,
                f"provider {value!r} is unknown; known: {', '.join(PROVIDERS)}",
            )
        if name == "name" and not is_name(str(value)):
            raise self._error(number, name, A_NAME)

    def _secret(self, number: int, entry: dict[str, object]) -> str:
        given = [name for name in ("key", "key_env", "keyring") if name in entry]
        if len(given) > 1:
            raise self._error(number, given[1], f"{' and '.join(given)} are given; keep one")
        if "keyring" in entry:
            return self._from_keyring(number, str(entry["keyring"]))
        if "key_env" in entry:
            variable = str(entry["key_env"])
            if not self.environment.get(variable):
                raise self._error(number, "key_env", f"the variable {variable} is not set")
            return self.environment[variable].strip()
        if not str(entry.get("key", "")).strip():
            raise self._error(number, "key", "no key: give key, key_env or keyring")
        return str(entry["key"]).strip()

    def _from_keyring(self, number: int, entry: str) -> str:
        service, _, user = entry.partition("/")
        try:
            import keyring
        except ImportError as error:
            raise self._error(number, "keyring", "needs the package keyring: pip install keyring") from error
        if not (found := keyring.get_password(service, user)):
            raise self._error(number, "keyring", f"no entry {entry!r}; expected service/user")
        return str(found)

    def _error(self, number: int, name: str, problem: str) -> PreflightError:
        return PreflightError(f"{self.path}, line {self._line(number, name)}: {problem}")

    def _line(self, number: int, name: str) -> int:
        """The line of a name in the table of this number; of the table if the name is not there."""
        table, seen = 1, 0
        for line_number, line in enumerate(self.text.splitlines(), 1):
            if line.strip().startswith("["):
                seen += "credential" in line
                table = line_number if seen == number else table
            if seen == number and re.match(rf'\s*\[*\s*"?{re.escape(name)}"?\s*[\]=]', line):
                return line_number
        return table


def _first_of_each(credentials: Iterable[Credential]) -> dict[Secret, Credential]:
    found: dict[Secret, Credential] = {}
    for credential in credentials:
        found.setdefault(credential.secret, credential)
    return found


def _told_more(variable: Credential, file: Credential) -> Credential:
    """A key of a variable that the file says more about, such as that it is disabled."""
    return replace(file, base_url=file.base_url or variable.base_url, model=file.model or variable.model)


def _numbered(provider: str, environment: Mapping[str, str]) -> Iterator[Credential]:
    pattern = re.compile(rf"{provider.upper()}_API_KEY_(\d+)")
    numbers = [found[1] for name in environment if (found := pattern.fullmatch(name))]
    for number in sorted(numbers, key=int):
        if value := environment[f"{provider.upper()}_API_KEY_{number}"].strip():
            yield _from_variables(provider, value, f"_{number}", environment)


def _from_variables(provider: str, key: str, suffix: str, environment: Mapping[str, str]) -> Credential:
    base_url = environment.get(f"{provider.upper()}_BASE_URL{suffix}")
    model = environment.get(f"{provider.upper()}_MODEL{suffix}")
    return Credential("", provider, Secret(key), base_url or None, model or None)


def _named(credentials: list[Credential]) -> list[Credential]:
    """key-1, key-2 ...; with several providers gemini-1, anthropic-1 ...; a given name stays."""
    several = len({credential.provider for credential in credentials}) > 1
    taken = {credential.name for credential in credentials}
    counts: dict[str, int] = {}
    named = []
    for credential in credentials:
        word = credential.provider if several else "key"
        counts[word] = counts.get(word, 0) + 1
        while not credential.name and f"{word}-{counts[word]}" in taken:
            counts[word] += 1
        named.append(replace(credential, name=credential.name or f"{word}-{counts[word]}"))
    return named


def _midnight(provider: str) -> float | None:
    """By the host's clock, which jumps with nobody's hand on the wall's."""
    wall = time.time()
    began = quota_day_start(provider, wall)
    return None if began is None else host_clock() - (wall - began)


def _rates(entry: dict[str, object]) -> tuple[tuple[Dimension, Rate], ...]:
    """Gemini counts the tokens that go in, the others all of them."""
    tokens = Dimension.INPUT if entry.get("provider", "gemini") == "gemini" else Dimension.TOKENS
    named = {"rpm": (Dimension.REQUESTS, 60.0), "tpm": (tokens, 60.0), "rpd": (Dimension.DAY, DAY)}
    return tuple(
        (dimension, Rate(float(_whole(entry[name], 1)), seconds))
        for name, (dimension, seconds) in named.items()
        if name in entry
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _whole(value: object, default: int) -> int:
    return value if isinstance(value, int) else default
