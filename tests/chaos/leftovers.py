"""What a run that was killed may have left behind, once another has come to its end."""

from collections.abc import Iterator
from pathlib import Path

from tests.chaos.processes import locked
from tests.scenarios.stage import Stage

KEPT = {".locks", ".gitignore"}
"""The names with a dot that belong there; every other is temporary, and a socket is its run's."""


def leftovers(stage: Stage) -> Iterator[str]:
    """Temporary files, checkpoints, lineages that are still active, locks that are held."""
    for folder in (stage.project, stage.home):
        for path in sorted(folder.rglob("*")):
            if _is_temporary(path):
                yield f"temporary: {path.relative_to(folder.parent)}"
    yield from (f"checkpoint: {name}" for name in stage.databases())
    yield from (f"active lineage: {path.name}" for path in stage.project.glob("docs/lineage/active/*"))
    files = [*stage.project.glob(".locks/*.lock"), *stage.home.rglob("*.lock")]
    yield from (f"held lock: {path.name} by {pid}" for pid, path in locked(files).items())
    yield from (f"a run's sign of life: {path.name}" for path in stage.home.glob("quota/run-*"))


def _is_temporary(path: Path) -> bool:
    return path.name not in KEPT and (path.name.startswith(".") or path.suffix in (".tmp", ".sock"))
