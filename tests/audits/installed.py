"""Every installed file against the record that came with its package, without a network."""

import base64
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
    return sum(file.hash is not None for one in distributions() for file in one.files or [])


def _of(distribution: Distribution) -> Iterator[str]:
    for file in distribution.files or []:
        if file.hash is None or str(file).endswith(UNRECORDED):
            continue
        path = Path(str(distribution.locate_file(file)))
        if not path.is_file():
            yield f"{distribution.name}: {file} is missing"
        elif _digest(path, file.hash.mode) != file.hash.value:
            yield f"{distribution.name}: {file} is not what was installed"


def _digest(path: Path, mode: str) -> str:
    digest = hashlib.new(mode, path.read_bytes()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def main() -> int:
    found = list(objections())
    print("\n".join(found) or f"{counted()} installed files are what their records say")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
