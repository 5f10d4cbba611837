"""Reads every document over and over while it may be written."""

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
PAUSE = 0.005
_DATE = re.compile(rb"^date: .*$", re.MULTILINE)


class Reader:
    """A thread of its own; its findings are for others to read once it is stopped."""

    def __init__(self, project: Path) -> None:
        self._project = project
        self._given = set((project / "issues").iterdir())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read_on, name="reader")
        self._digests: dict[Path, bytes] = {}
        self.reads = 0
        self.to_the_end = False
        self.broken: list[str] = []
        self.rewritten: list[str] = []
        self.first_seen: dict[Path, float] = {}
        """When a document was there at the latest, by the clock on the wall."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)

    def _read_on(self) -> None:
        while not self._stop.wait(PAUSE):
            self._sweep()
        self.to_the_end = True

    def _sweep(self) -> None:
        for path, names in self._documents():
            with contextlib.suppress(FileNotFoundError):
                self._look(path, names)

    def _documents(self) -> Iterator[tuple[Path, set[str]]]:
        """Each with the names that its front matter must have; what was given is nobody's work."""
        for path in verdict_documents(self._project):
            yield path, EVIDENCE
        for path in sorted((self._project / "issues").glob("[!.]*.md")):
            if path not in self._given and not is_added(int(path.name.partition("-")[0])):
                yield path, FILED
        for folder in (self._project / "docs/lineage/active").glob("*"):
            yield from ((path, set()) for path in _pages(folder))

    def _look(self, path: Path, names: set[str]) -> None:
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
    """None once the folder has been moved away."""
    with contextlib.suppress(FileNotFoundError):
        return list(folder.glob("[!.]*.md"))
    return []


def flaw(content: bytes, names: set[str]) -> str | None:
    """What shows that a document is not whole."""
    if not content:
        return "empty"
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return "cut within a character"
    if not names:
        return None
    if missing := names - set(front_matter(text)):
        return f"front matter without {', '.join(sorted(missing))}"
    return None if text.endswith("\n") and "\n# " in text else "cut in its text"
