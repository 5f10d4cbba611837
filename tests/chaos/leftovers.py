"""Finds files that killed runs left behind after a later run has finished."""

from collections.abc import Iterator
from pathlib import Path

from tests.chaos.processes import locked
from tests.scenarios.harness import RunHarness

KEPT = {".locks", ".gitignore"}
"""Hidden files that belong there; all others are temporary."""


def leftovers(harness: RunHarness) -> Iterator[str]:
    """Temporary files, checkpoints, active lineages, and held locks."""
    for folder in (harness.project, harness.home):
        for path in sorted(folder.rglob("*")):
            if _is_temporary(path):
                yield f"temporary: {path.relative_to(folder.parent)}"
    yield from (f"checkpoint: {name}" for name in harness.databases())
    yield from (f"active lineage: {path.name}" for path in harness.project.glob("docs/lineage/active/*"))
    files = [*harness.project.glob(".locks/*.lock"), *harness.home.rglob("*.lock")]
    yield from (f"held lock: {path.name} by {pid}" for pid, path in locked(files).items())
    yield from (f"liveness file of a run: {path.name}" for path in harness.home.glob("quota/run-*"))


def _is_temporary(path: Path) -> bool:
    return path.name not in KEPT and (path.name.startswith(".") or path.suffix in (".tmp", ".sock"))
