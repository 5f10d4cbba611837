"""Every requirement in a lock file is pinned and hashed, and no lock file names a host."""

import re
from collections.abc import Iterator

from .tree import ROOT

PINNED = re.compile(r"[A-Za-z0-9._-]+==\S+")


def problems() -> Iterator[str]:
    files = sorted((ROOT / "requirements").glob("*.txt"))
    if not files:
        yield "requirements/ has no lock file"
    for file in files:
        text = file.read_text("utf-8")
        if "://" in text or "--index-url" in text or "--extra-index-url" in text:
            yield f"requirements/{file.name} names a host"
        entries = [entry for entry in text.replace("\\\n", " ").splitlines() if entry.strip()]
        for entry in entries:
            if not PINNED.match(entry) or "--hash=sha256:" not in entry:
                yield f"requirements/{file.name}: {entry.split()[0]} is not pinned with a hash"
