"""What a run that was killed may have left behind, once another has come to its end."""

from collections.abc import Iterator
from pathlib import Path

from tests.chaos.processes import locked
from tests.scenarios.harness import RunHarness

KEPT = {".locks", ".gitignore"}
"""The names with a dot that belong there; every other is temporary, and a socket is its run's."""


def leftovers(harness: RunHarness) -> Iterator[str]:
    """Temporary files, checkpoints, lineages that are still active, locks that are held."""
    for folder in (harness.project, harness.home):
        for path in sorted(folder.rglob("*")):
            if _is_temporary(path):
                yield f"temporary: {path.relative_to(folder.parent)}"
    yield from (f"checkpoint: {name}" for name in harness.databases())
    yield from (f"active lineage: {path.name}" for path in harness.project.glob("docs/lineage/active/*"))
    files = [*harness.project.glob(".locks/*.lock"), *harness.home.rglob("*.lock")]
    yield from (f"held lock: {path.name} by {pid}" for pid, path in locked(files).items())
    yield from (f"a run's sign of life: {path.name}" for path in harness.home.glob("quota/run-*"))


def _is_temporary(path: Path) -> bool:
    return path.name not in KEPT and (path.name.startswith(".") or path.suffix in (".tmp", ".sock"))
