"""Cuts the power at every call of a recorded run, and looks at what is left."""

import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.reader import EVIDENCE, FILED, flaw
from tests.faults.power import Call, Disk, Names, read_record, told
from tests.faults.shim import Shim
from tests.scenarios.harness import RunHarness

NEEDED = {"review-1": "answer draft-1"}
"""Whoever asks for the first has been told that the second is kept."""
NOTES = "quota/notes.jsonl"
"""What earlier runs have found out about the keys."""


@dataclass(slots=True)
class PowerCuts:
    """What one recording showed."""

    calls: int = 0
    cuts: int = 0
    promises: int = 0
    violations: list[str] = field(default_factory=list)


def cut_everywhere(
    harness: RunHarness, shim: Shim, program: str = "lld-workflow", every: int = 1
) -> PowerCuts:
    """One run is recorded; after each of its calls the power is cut, in both ways."""
    disk = Disk(harness.project, harness.home)
    known = {NOTES} if (harness.home / NOTES).exists() else set()
    done = harness.run("--all", program=program, **shim.environment(record=shim.record))
    assert done.code == 0, done.out + done.err
    found, place = PowerCuts(), harness.root / "after-the-cut"
    promised: dict[str, set[str]] = {"ended": set(), "kept": set(), "known": known}
    for number, call in enumerate(read_record(shim.record)):
        disk.apply(call)
        found.calls += 1
        news = _promises(call, promised)
        found.promises += news
        if news or number % every == 0 or ("/docs/l" in call.path and "lineage" not in call.path):
            for names in Names:
                found.cuts += 1
                disk.cut(place, names)
                found.violations += [
                    f"after call {number} ({call.what} {Path(call.path).name}, names {names.value}): {one}"
                    for one in _look(harness, place, promised)
                ]
                shutil.rmtree(place)
    return found


def _promises(call: Call, promised: dict[str, set[str]]) -> int:
    before = sum(map(len, promised.values()))
    for event in told(call):
        if event["type"] == "worker_reported" and '"finished"' in call.data.decode():
            promised["ended"].add(str(event["item"]))
        if event["type"] == "lease_requested" and (needed := NEEDED.get(str(event["call"]))):
            promised["kept"].add(f"{event['item']}/{needed}")
    return sum(map(len, promised.values())) - before


def _look(harness: RunHarness, place: Path, promised: dict[str, set[str]]) -> Iterator[str]:
    project, home = (place / str(path).lstrip("/") for path in (harness.project, harness.home))
    given = {path.name for path in (harness.project / "issues").glob("*-thing.md")}
    for path in project.glob("docs/*/*/[!.]*.md"):
        if "lineage" not in path.parts and (problem := flaw(path.read_bytes(), EVIDENCE)):
            yield f"{path.name} is {problem}"
    for path in project.glob("issues/[!.]*.md"):
        if path.name not in given and (problem := flaw(path.read_bytes(), FILED)):
            yield f"{path.name} is {problem}"
    yield from (f"{name} is empty" for name in promised["known"] if not (home / name).read_bytes())
    for item in promised["ended"]:
        if not list(project.glob(f"docs/lld/*/{item.replace('-', '-0')}.md")) and item.startswith("LLD"):
            yield f"{item} was acknowledged, and is lost"
        if item.startswith("ISSUE") and not _is_filed(project, item):
            yield f"{item} was acknowledged, and is not filed"
    for kept in promised["kept"]:
        item, _, name = kept.partition("/")
        if item not in promised["ended"] and not _written(project, item) and not _noted(home, item, name):
            yield f"{item}: {name} was paid for, and is lost"


def _is_filed(project: Path, item: str) -> bool:
    return any(f'origin: "{item}"' in path.read_text() for path in project.glob("issues/*.md"))


def _written(project: Path, item: str) -> bool:
    """Its document is there already: the checkpoint may go."""
    number = item.partition("-")[2]
    return bool(list(project.glob(f"docs/*/*/*-0{number}.md"))) or _is_filed(project, item)


def _noted(home: Path, item: str, name: str) -> bool:
    workflow, _, number = item.partition("-")
    for database in home.glob(f"checkpoints/*/{workflow.casefold()}_workflow_{number}.db"):
        with contextlib.closing(sqlite3.connect(database)) as opened, contextlib.suppress(sqlite3.Error):
            sound = opened.execute("PRAGMA quick_check").fetchone()[0] == "ok"
            row = opened.execute("SELECT 1 FROM agentos_notes WHERE name = ?", (name,)).fetchone()
            return sound and row is not None
    return False
