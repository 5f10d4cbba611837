"""Changing credentials.toml, without touching what a person wrote in it."""

import json
import re
from pathlib import Path

from agentos.core.errors import NothingMatches, UsageError
from agentos.storage.credentials import CredentialSource
from agentos.storage.files import Folder


def append_credential(path: Path, provider: str, key: str, name: str | None) -> None:
    """Adds a table at the end; the file is whole, and its owner's alone, at every moment."""
    if not key or any(character.isspace() for character in key):
        raise UsageError("the key is empty or has spaces in it; nothing was written")
    existing = CredentialSource(path, {}).read() if path.exists() else []
    if name and name in {credential.name for credential in existing}:
        raise UsageError(f"a key called {name!r} is there already; choose another --name")
    lines = ["", "[[credential]]"]
    if name:
        lines.append(f"name = {json.dumps(name)}")
    lines += [f"provider = {json.dumps(provider)}", f"key = {json.dumps(key)}", ""]
    before = path.read_text("utf-8") if path.exists() else ""
    _write(path, (before + "\n".join(lines)).lstrip("\n"))


def set_enabled(path: Path, place: int, enabled: str) -> None:
    """Writes `enabled = true` or `false` into the table of this number, counted from 1."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    heads = [number for number, line in enumerate(lines) if re.match(r"\s*\[\[\s*credential\s*\]\]", line)]
    if place > len(heads):
        raise NothingMatches(f"{path} has no [[credential]] table number {place}")
    begin = heads[place - 1] + 1
    end = next(
        (number for number in range(begin, len(lines)) if lines[number].lstrip().startswith("[")), len(lines)
    )
    kept = [line for line in lines[begin:end] if not re.match(r"\s*enabled\s*=", line)]
    _write(path, "\n".join([*lines[:begin], f"enabled = {enabled}", *kept, *lines[end:]]) + "\n")


def _write(path: Path, text: str) -> None:
    Folder(path.parent, file_mode=0o600).write(path.name, text.encode())
