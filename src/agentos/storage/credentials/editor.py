"""Edits credentials.toml without touching what the user wrote in it."""

import json
import re
from dataclasses import replace
from pathlib import Path

from agentos.core.errors import NothingMatches, UsageError
from agentos.core.text.secrets import Secret
from agentos.storage.credentials.reader import NAME_RULE, CredentialSource, is_name
from agentos.storage.files import Folder


def append_credential(source: CredentialSource, provider: str, key: str, name: str | None) -> None:
    """Appends a `[[credential]]` table. The file is replaced atomically and stays private to its owner."""
    _check(source, key, name)
    path = source.file
    lines = ["", "[[credential]]"]
    if name:
        lines.append(f"name = {json.dumps(name)}")
    lines += [f"provider = {json.dumps(provider)}", f"key = {json.dumps(key)}", ""]
    before = path.read_text("utf-8") if path.exists() else ""
    _write(path, (before + "\n".join(lines)).lstrip("\n"))


def _check(source: CredentialSource, key: str, name: str | None) -> None:
    """Refuses now whatever the reader would refuse later."""
    if not key:
        raise UsageError("the key is empty; nothing was written")
    if any(not "!" <= character <= "~" for character in key):
        raise UsageError("invalid key: expected printable ASCII without spaces; nothing was written")
    if name is not None and not is_name(name):
        raise UsageError(f"invalid name {name!r}: {NAME_RULE}; nothing was written")
    for credential in replace(source, only_file=True).read():
        if credential.secret == Secret(key):
            raise UsageError(f"this key already exists, as {credential.name!r}; nothing was written")
        if credential.name == name:
            raise UsageError(f"a key named {name!r} already exists; choose another --name")


def set_enabled(path: Path, position: int, enabled: str) -> None:
    """Writes `enabled = true` or `false` into the table at this position, counted from 1."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    headers = [number for number, line in enumerate(lines) if re.match(r"\s*\[\[\s*credential\s*\]\]", line)]
    if position > len(headers):
        raise NothingMatches(f"{path} has no [[credential]] table number {position}")
    begin = headers[position - 1] + 1
    end = next(
        (number for number in range(begin, len(lines)) if lines[number].lstrip().startswith("[")), len(lines)
    )
    kept = [line for line in lines[begin:end] if not re.match(r"\s*enabled\s*=", line)]
    _write(path, "\n".join([*lines[:begin], f"enabled = {enabled}", *kept, *lines[end:]]) + "\n")


def _write(path: Path, text: str) -> None:
    Folder(path.parent, file_mode=0o600).write(path.name, text.encode())
