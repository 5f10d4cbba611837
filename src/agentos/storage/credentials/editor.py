"""Edits credentials.toml without touching what the user wrote in it."""

import json
import re
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

from agentos.core.errors import NothingMatches, UsageError
from agentos.core.text.secrets import Secret
from agentos.regular_files import read_regular
from agentos.storage.credentials.file_parser import NAME_RULE, is_name
from agentos.storage.credentials.reader import CredentialSource
from agentos.storage.files import Folder


@dataclass(frozen=True, slots=True)
class NewCredential:
    """The fields of a `[[credential]]` table to be added, named as in the file; None is left out."""

    provider: str
    key: str
    name: str | None = None
    base_url: str | None = None
    model: str | None = None
    bucket: str | None = None
    rpm: int | None = None
    tpm: int | None = None
    rpd: int | None = None
    concurrency: int | None = None

    def lines(self) -> list[str]:
        fields = {
            "name": self.name,
            "provider": self.provider,
            "key": self.key,
            "base_url": self.base_url,
            "model": self.model,
            "bucket": self.bucket,
            "rpm": self.rpm,
            "tpm": self.tpm,
            "rpd": self.rpd,
            "concurrency": self.concurrency,
        }
        # A JSON string or integer is also valid TOML.
        return [f"{name} = {json.dumps(value)}" for name, value in fields.items() if value is not None]


def append_credential(source: CredentialSource, new: NewCredential) -> None:
    """Append a `[[credential]]` table. The file is replaced atomically and stays private to its owner."""
    check_new(source, new.key, new.name, new.provider)
    path = source.file
    before = _read(path)
    gap = "\n" if before and not before.endswith("\n") else ""
    _write(path, (before + gap + "\n".join(["", "[[credential]]", *new.lines(), ""])).lstrip("\n"))


def check_new(source: CredentialSource, key: str, name: str | None, provider: str | None) -> None:
    """Refuse now whatever the reader would refuse later."""
    if not key:
        raise UsageError("the key is empty; nothing was written")
    if any(not "!" <= character <= "~" for character in key):
        raise UsageError("invalid key: expected printable ASCII without spaces; nothing was written")
    if name is not None and not is_name(name):
        raise UsageError(f"invalid name {name!r}: {NAME_RULE}; nothing was written")
    for credential in replace(source, only_file=True).read():
        if credential.secret == Secret(key) and provider in (None, credential.provider):
            raise UsageError(f"this key already exists, as {credential.name!r}; nothing was written")
        if credential.name == name:
            raise UsageError(f"a key named {name!r} already exists; choose another --name")


def set_enabled(path: Path, position: int, *, enabled: bool) -> None:
    """Write `enabled = true` or `false` into the table at this position, counted from 1."""
    table = _find_table(path, position)
    lines, begin, end = table.lines, table.begin, table.end
    kept = [line for line in lines[begin:end] if not re.match(r"\s*enabled\s*=", line)]
    _write(path, "\n".join([*lines[:begin], f"enabled = {str(enabled).lower()}", *kept, *lines[end:]]) + "\n")


def remove_credential(path: Path, position: int) -> None:
    """Remove the table at this position, counted from 1; comments above the next table stay."""
    table = _find_table(path, position)
    lines, begin, end = table.lines, table.begin, table.end
    while end < len(lines) and end > begin and re.match(r"\s*(#|$)", lines[end - 1]):
        end -= 1
    before = tomllib.loads("\n".join(lines))["credential"]
    text = "\n".join([*lines[: begin - 1], *lines[end:]]).strip("\n") + "\n"
    if tomllib.loads(text).get("credential", []) != before[: position - 1] + before[position:]:
        raise UsageError(f"{path} is written in a way that cannot be edited safely: remove the table by hand")
    _write(path, text.lstrip("\n"))


@dataclass(frozen=True, slots=True)
class _Table:
    """The lines of a file, and where the fields of one of its tables begin and end."""

    lines: list[str]
    begin: int
    end: int


def _find_table(path: Path, position: int) -> _Table:
    lines = _read(path).splitlines()
    headers = [number for number, line in enumerate(lines) if re.match(r"\s*\[\[\s*credential\s*\]\]", line)]
    if position > len(headers):
        raise NothingMatches(f"{path} has no [[credential]] table number {position}")
    begin = headers[position - 1] + 1
    following = (number for number in range(begin, len(lines)) if lines[number].lstrip().startswith("["))
    return _Table(lines, begin, next(following, len(lines)))


def _read(path: Path) -> str:
    return read_regular(path, follow=True).decode("utf-8") if path.exists() else ""


def _write(path: Path, text: str) -> None:
    Folder(path.parent, file_mode=0o600).write(path.name, text.encode())
