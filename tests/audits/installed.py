"""Compares every installed file with the RECORD of its package: `python -m tests.audits.installed`."""

import base64
import csv
import hashlib
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

UNRECORDED = (".pyc", "RECORD", "direct_url.json", "INSTALLER", "REQUESTED")


def problems(found: list[Distribution] | None = None) -> Iterator[str]:
    """Files that are missing or differ from the hash in RECORD."""
    for distribution in distributions() if found is None else found:
        yield from _of(distribution)


def counted() -> int:
    """The number of installed files whose hash is recorded."""
    return sum(1 for distribution in distributions() for _ in _recorded(distribution))


def _of(distribution: Distribution) -> Iterator[str]:
    for name, mode, expected in _recorded(distribution):
        path = Path(str(distribution.locate_file(name)))
        if not path.is_file():
            yield f"{distribution.name}: {name} is missing"
        elif _digest(path, mode) != expected:
            yield f"{distribution.name}: {name} was changed after the installation"


def _recorded(distribution: Distribution) -> Iterator[tuple[str, str, str]]:
    """Name, hash algorithm and hash. importlib.metadata is not used: newer Pythons omit missing files."""
    for name, digest, *_ in csv.reader((distribution.read_text("RECORD") or "").splitlines()):
        mode, _, expected = digest.partition("=")
        if expected and not name.endswith(UNRECORDED):
            yield name, mode, expected


def _digest(path: Path, mode: str) -> str:
    digest = hashlib.new(mode, path.read_bytes()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def main() -> int:
    found = list(problems())
    print("\n".join(found) or f"{counted()} installed files match their records")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
