"""Reads all documents repeatedly while runs write them."""

import contextlib
import hashlib
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tests.chaos.backlog import front_matter, is_added, verdict_documents

EVIDENCE = {"item", "status", "rounds", "drafter", "reviewer", "date", "source", "source_sha256"}
FILED = {"number", "title", "state", "labels", "origin"}
INTERVAL = 0.005  # seconds
_DATE = re.compile(rb"^date: .*$", re.MULTILINE)


class Reader:
    """Reads in its own thread; its findings may be read after `stop`."""

    def __init__(self, project: Path) -> None:
        self._project = project
        self._originals = set((project / "issues").iterdir())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader")
        self._digests: dict[Path, bytes] = {}
        self.reads = 0
        self.completed = False
        self.broken: list[str] = []
        self.rewritten: list[str] = []
        self.first_seen: dict[Path, float] = {}
        """The wall-clock time at which each document was first read."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL):
            self._sweep()
        self.completed = True

    def _sweep(self) -> None:
        for path, names in self._documents():
            with contextlib.suppress(FileNotFoundError):
                self._read(path, names)

    def _documents(self) -> Iterator[tuple[Path, set[str]]]:
        """Each document with the fields its front matter must have; the original input is left out."""
        for path in verdict_documents(self._project):
            yield path, EVIDENCE
        for path in sorted((self._project / "issues").glob("[!.]*.md")):
            if path not in self._originals and not is_added(int(path.name.partition("-")[0])):
                yield path, FILED
        for folder in (self._project / "docs/lineage/active").glob("*"):
            yield from ((path, set()) for path in _pages(folder))

    def _read(self, path: Path, names: set[str]) -> None:
        content = path.read_bytes()
        self.reads += 1
        name = str(path.relative_to(self._project))
        if problem := flaw(content, names):
            self.broken.append(f"{name}: {problem}")
        digest = hashlib.sha256(_DATE.sub(b"", content)).digest()
        if self._digests.setdefault(path, digest) != digest:
            self._digests[path] = digest
            self.rewritten.append(name)
        self.first_seen.setdefault(path, time.time())


def _pages(folder: Path) -> list[Path]:
    """The pages of a lineage folder; empty once the folder has been moved."""
    with contextlib.suppress(FileNotFoundError):
        return list(folder.glob("[!.]*.md"))
    return []


def flaw(content: bytes, names: set[str]) -> str | None:
    """The first sign that a document is incomplete, or None."""
    if not content:
        return "empty"
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return "truncated within a character"
    if not names:
        return None
    if missing := names - set(front_matter(text)):
        return f"front matter without {', '.join(sorted(missing))}"
    return None if text.endswith("\n") and "\n# " in text else "truncated text"
