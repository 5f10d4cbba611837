"""Parses credentials.toml: one credential per [[credential]] table; every error names its line."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agentos.core.constants import DAY
from agentos.core.errors import PreflightError
from agentos.core.quota.credentials import Credential
from agentos.core.ratelimit.limits import Dimension, Rate
from agentos.core.text.secrets import Secret
from agentos.core.text.values import is_web_address, shortened

PROVIDERS = ("gemini", "anthropic", "openai")
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
    "window": int,
    "burst": int,
    "concurrency": int,
    "call_timeout": int,
    "enabled": bool,
}
_TYPE_NAMES: dict[type, str] = {
    str: "a quoted string",
    int: "an integer",
    bool: "true or false",
    float: "a floating-point number",
}
_MAX_INT = 10**12
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
NAME_RULE = (
    "a name has up to 32 letters, digits, dots, dashes and underscores, starting with a letter or digit"
)
URL_RULE = "expected an address such as https://models.example.com/v1"


@dataclass(frozen=True, slots=True)
class CredentialFileParser:
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
            call_timeout=_seconds(entry.get("call_timeout")),
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


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def _rates(entry: dict[str, object]) -> tuple[tuple[Dimension, Rate], ...]:
    """The configured limits. Gemini's tpm limits input tokens, that of the other providers all tokens.

    `window` is the period in which the limits per minute are enforced, `burst` the calls that may be sent at once.
    """
    tokens = Dimension.INPUT if entry.get("provider", "gemini") == "gemini" else Dimension.TOKENS
    window, rates = float(_int(entry.get("window"), 60)), []
    if "rpm" in entry:
        per_second = _int(entry["rpm"], 1) / 60.0
        amount = float(_int(entry.get("burst"), max(1, round(per_second * window))))
        # A token bucket with this burst, or as many calls as one window allows.
        rates.append((Dimension.REQUESTS, Rate(amount, amount / per_second if "burst" in entry else window)))
    if "tpm" in entry:
        rates.append((tokens, Rate(max(1.0, _int(entry["tpm"], 1) * window / 60.0), window)))
    if "rpd" in entry:
        rates.append((Dimension.DAY, Rate(float(_int(entry["rpd"], 1)), DAY)))
    return tuple(rates)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _seconds(value: object) -> float | None:
    return float(value) if isinstance(value, int) else None


def _int(value: object, default: int) -> int:
    return value if isinstance(value, int) else default
