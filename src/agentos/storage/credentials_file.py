"""Adding to credentials.toml."""

import json
from pathlib import Path

from agentos.core.errors import UsageError
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
    Folder(path.parent, file_mode=0o600).write(path.name, (before + "\n".join(lines)).lstrip("\n").encode())
