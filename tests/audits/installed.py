"""Every installed file against the record that came with its package, without a network."""

import base64
import csv
import hashlib
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

UNRECORDED = (".pyc", "RECORD", "direct_url.json", "INSTALLER", "REQUESTED")


def objections(found: list[Distribution] | None = None) -> Iterator[str]:
    """What is missing, or is not what its package's record says."""
    for distribution in distributions() if found is None else found:
        yield from _of(distribution)


def counted() -> int:
    """How many files have a hash to be held against."""
    return sum(1 for one in distributions() for _ in _recorded(one))


def _of(distribution: Distribution) -> Iterator[str]:
    for name, mode, wanted in _recorded(distribution):
        path = Path(str(distribution.locate_file(name)))
        if not path.is_file():
            yield f"{distribution.name}: {name} is missing"
        elif _digest(path, mode) != wanted:
            yield f"{distribution.name}: {name} is not what was installed"


def _recorded(distribution: Distribution) -> Iterator[tuple[str, str, str]]:
    """Name, kind of hash and hash; read here, since newer Pythons leave off files that are missing."""
    for name, digest, *_ in csv.reader((distribution.read_text("RECORD") or "").splitlines()):
        mode, _, wanted = digest.partition("=")
        if wanted and not name.endswith(UNRECORDED):
            yield name, mode, wanted


def _digest(path: Path, mode: str) -> str:
    digest = hashlib.new(mode, path.read_bytes()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def main() -> int:
    found = list(objections())
    print("\n".join(found) or f"{counted()} installed files are what their records say")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
