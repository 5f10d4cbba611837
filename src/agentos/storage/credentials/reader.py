"""Reads credentials from numbered environment variables and from credentials.toml."""

import re
import stat
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from agentos.core.constants import DAY
from agentos.core.errors import NoCredentials, PreflightError, UsageError
from agentos.core.quota.credentials import Credential
from agentos.core.ratelimit.limits import Dimension, Rate, quota_day_start
from agentos.core.text.secrets import Secret
from agentos.core.text.values import is_web_address, shortened
from agentos.regular_files import read_regular
from agentos.storage.clock import host_clock

PROVIDERS = ("gemini", "anthropic", "openai")
NO_KEY = """no API key for {provider}. Provide one in one of three ways:
  1. export {variable}_1=...     (also _2, _3, ...; or a single {variable})
  2. agentos keys add --provider {provider}   (asks for it and stores it in {file})
  3. a [[credential]] table in that file, with key_env = "VARIABLE" or keyring = "service/user"
Or try it without a key: add --offline"""
_FIELDS: dict[str, type] = {
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
_MAX_INT = 10**12
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
NAME_RULE = (
    "a name has up to 32 letters, digits, dots, dashes and underscores, starting with a letter or digit"
)
URL_RULE = "expected an address such as https://models.example.com/v1"
_TYPE_NAMES: dict[type, str] = {
    str: "a quoted string",
    int: "an integer",
    bool: "true or false",
    float: "a floating-point number",
}


@dataclass(frozen=True, slots=True)
class CredentialSource:
    """Where to read credentials from, and overrides that apply to all of them.

    `limit` uses only the first so many (AGENTOS_CREDENTIAL_LIMIT), `concurrency` sets the number of simultaneous calls
    per key (AGENTOS_KEY_CONCURRENCY).
    """

    file: Path
    environment: Mapping[str, str]
    limit: int | None = None
    concurrency: int | None = None
    only_file: bool = False
    only_environment: bool = False

    def read(self) -> list[Credential]:
        """Environment variables first, then the file. Duplicate secrets are merged; unnamed keys are numbered."""
        found = _by_secret(self._from_environment())
        for secret, credential in _by_secret(self._from_file()).items():
            found[secret] = _merge(found[secret], credential) if secret in found else credential
        named = _with_names(list(found.values()))
        return self.adjusted([replace(each, midnight=_midnight(each.provider)) for each in named])

    def tables(self) -> list[Credential]:
        """One credential per table of the file, in the order of the file: duplicates too, names only where given."""
        return self._from_file()

    def stamp(self) -> tuple[int, int] | None:
        """Changes whenever the file does."""
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
            # It may be a link: only its owner puts it there, often by a program that manages such files.
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
        return _FileParser(self.file, text, self.environment).parse(tables)


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def no_key(provider: str, file: Path) -> NoCredentials:
    """The error that explains how to provide a key."""
    return NoCredentials(NO_KEY.format(provider=provider, variable=f"{provider.upper()}_API_KEY", file=file))


@dataclass(frozen=True, slots=True)
class _FileParser:
    """Turns the file's tables into credentials; every error names its line."""

    path: Path
    text: str
    environment: Mapping[str, str]

    def parse(self, tables: dict[str, object]) -> list[Credential]:
        entries = tables.pop("credential", [])
        if tables:
            name = next(iter(tables))
            raise self._error(0, name, f"unknown {name!r}; expected [[credential]] tables")
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise self._error(0, "credential", "expected [[credential]] tables, with double brackets")
        credentials = [self._credential(number, entry) for number, entry in enumerate(entries, 1)]
        names = [credential.name for credential in credentials]
        for number, name in enumerate(names, 1):
            if name and name in names[: number - 1]:
                raise self._error(number, "name", f"duplicate name {name!r}")
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
            concurrency=_int(entry.get("concurrency"), 1),
            enabled=bool(entry.get("enabled", True)),
            rates=_rates(entry),
        )

    def _check(self, number: int, name: str, value: object) -> None:
        kind = _FIELDS.get(name)
        if kind is None:
            raise self._error(number, name, f"unknown {name!r}; expected one of {', '.join(_FIELDS)}")
        if type(value) is not kind:
            raise self._error(
                number,
                name,
                f"{name} is {_TYPE_NAMES.get(type(value), 'of another type')}, expected {_TYPE_NAMES[kind]}",
            )
        if kind is int and isinstance(value, int) and not 0 < value <= _MAX_INT:
            raise self._error(number, name, f"{name} = {value}; expected an integer from 1 to {_MAX_INT:,}")
        if name == "provider" and value not in PROVIDERS:
            raise self._error(
                number,
                name,
                f"unknown provider {value!r}; expected one of {', '.join(PROVIDERS)}",
            )
        if name == "name" and not is_name(str(value)):
            raise self._error(number, name, NAME_RULE)
        if name == "base_url" and value and not is_web_address(str(value)):
            raise self._error(number, name, f"invalid base_url {shortened(str(value))!r}: {URL_RULE}")

    def _secret(self, number: int, entry: dict[str, object]) -> str:
        given = [name for name in ("key", "key_env", "keyring") if name in entry]
        if len(given) > 1:
            raise self._error(number, given[1], f"both {' and '.join(given)} are set; keep one")
        if "keyring" in entry:
            return self._from_keyring(number, str(entry["keyring"]))
        if "key_env" in entry:
            variable = str(entry["key_env"])
            if not self.environment.get(variable):
                raise self._error(number, "key_env", f"the variable {variable} is not set")
            return self.environment[variable].strip()
        if not str(entry.get("key", "")).strip():
            raise self._error(number, "key", "no key: set key, key_env or keyring")
        return str(entry["key"]).strip()

    def _from_keyring(self, number: int, entry: str) -> str:
        service, _, user = entry.partition("/")
        try:
            import keyring
        except ImportError as error:
            raise self._error(
                number, "keyring", "the keyring package is not installed: run pip install keyring"
            ) from error
        if not (found := keyring.get_password(service, user)):
            raise self._error(number, "keyring", f"no keyring entry {entry!r}; expected service/user")
        return str(found)

    def _error(self, number: int, name: str, problem: str) -> PreflightError:
        return PreflightError(f"{self.path}, line {self._line(number, name)}: {problem}")

    def _line(self, number: int, name: str) -> int:
        """The line of a field in a table, counted from 1; the table's own line if the field is missing."""
        table_line, seen = 1, 0
        for line_number, line in enumerate(self.text.splitlines(), 1):
            if line.strip().startswith("["):
                seen += "credential" in line
                table_line = line_number if seen == number else table_line
            if seen == number and re.match(rf'\s*\[*\s*"?{re.escape(name)}"?\s*[\]=]', line):
                return line_number
        return table_line


def _by_secret(credentials: Iterable[Credential]) -> dict[Secret, Credential]:
    found: dict[Secret, Credential] = {}
    for credential in credentials:
        found.setdefault(credential.secret, credential)
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


def _rates(entry: dict[str, object]) -> tuple[tuple[Dimension, Rate], ...]:
    """Gemini's tpm limits input tokens, that of the other providers all tokens."""
    tokens = Dimension.INPUT if entry.get("provider", "gemini") == "gemini" else Dimension.TOKENS
    fields = {"rpm": (Dimension.REQUESTS, 60.0), "tpm": (tokens, 60.0), "rpd": (Dimension.DAY, DAY)}
    return tuple(
        (dimension, Rate(float(_int(entry[name], 1)), seconds))
        for name, (dimension, seconds) in fields.items()
        if name in entry
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _int(value: object, default: int) -> int:
    return value if isinstance(value, int) else default
