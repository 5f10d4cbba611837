"""Cuts the power at every call of a recorded run and checks what survives."""

import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.reader import EVIDENCE, FILED, flaw
from tests.faults.power import Call, Disk, Names, read_record, sent_events
from tests.faults.shim import Shim
from tests.scenarios.harness import RunHarness

NEEDED = {"review-1": "answer draft-1"}
"""A lease request for the first call means that the answer to the second has been saved."""
NOTES = "quota/notes.jsonl"
"""What earlier runs learned about the keys."""


@dataclass(slots=True)
class PowerCuts:
    """The result of all power cuts over one recorded run."""

    calls: int = 0
    cuts: int = 0
    promises: int = 0
    violations: list[str] = field(default_factory=list)


def cut_everywhere(
    harness: RunHarness, shim: Shim, program: str = "lld-workflow", every: int = 1
) -> PowerCuts:
    """Record one run, then cut the power after its calls, with both outcomes for directory entries."""
    disk = Disk(harness.project, harness.home)
    known = {NOTES} if (harness.home / NOTES).exists() else set()
    done = harness.run("--all", program=program, **shim.environment(record=shim.record))
    assert done.code == 0, done.out + done.err
    result, target = PowerCuts(), harness.root / "after-the-cut"
    promised: dict[str, set[str]] = {"ended": set(), "kept": set(), "known": known}
    for number, call in enumerate(read_record(shim.record)):
        disk.apply(call)
        result.calls += 1
        new = _add_promises(call, promised)
        result.promises += new
        if new or number % every == 0 or ("/docs/l" in call.path and "lineage" not in call.path):
            for names in Names:
                result.cuts += 1
                disk.cut(target, names)
                result.violations += [
                    f"after call {number} ({call.operation} {Path(call.path).name}, names {names.value}): {problem}"
                    for problem in _check(harness, target, promised)
                ]
                shutil.rmtree(target)
    return result


def _add_promises(call: Call, promised: dict[str, set[str]]) -> int:
    before = sum(map(len, promised.values()))
    for event in sent_events(call):
        if event["type"] == "worker_reported" and '"finished"' in call.data.decode():
            promised["ended"].add(str(event["item"]))
        if event["type"] == "lease_requested" and (needed := NEEDED.get(str(event["call"]))):
            promised["kept"].add(f"{event['item']}/{needed}")
    return sum(map(len, promised.values())) - before


def _check(harness: RunHarness, target: Path, promised: dict[str, set[str]]) -> Iterator[str]:
    project, home = (target / str(path).lstrip("/") for path in (harness.project, harness.home))
    original_names = {path.name for path in (harness.project / "issues").glob("*-thing.md")}
    for path in project.glob("docs/*/*/[!.]*.md"):
        if "lineage" not in path.parts and (problem := flaw(path.read_bytes(), EVIDENCE)):
            yield f"{path.name} is {problem}"
    for path in project.glob("issues/[!.]*.md"):
        if path.name not in original_names and (problem := flaw(path.read_bytes(), FILED)):
            yield f"{path.name} is {problem}"
    yield from (f"{name} is empty" for name in promised["known"] if not (home / name).read_bytes())
    for item in promised["ended"]:
        if not list(project.glob(f"docs/lld/*/{item.replace('-', '-0')}.md")) and item.startswith("LLD"):
            yield f"{item} was acknowledged but is lost"
        if item.startswith("ISSUE") and not _is_filed(project, item):
            yield f"{item} was acknowledged but is not filed"
    for kept in promised["kept"]:
        item, _, name = kept.partition("/")
        if (
            item not in promised["ended"]
            and not _is_written(project, item)
            and not _is_saved(home, item, name)
        ):
            yield f"{item}: {name} was paid for but is lost"


def _is_filed(project: Path, item: str) -> bool:
    return any(f'origin: "{item}"' in path.read_text() for path in project.glob("issues/*.md"))


def _is_written(project: Path, item: str) -> bool:
    """Whether the document exists, so that the checkpoint may be gone."""
    number = item.partition("-")[2]
    return bool(list(project.glob(f"docs/*/*/*-0{number}.md"))) or _is_filed(project, item)


def _is_saved(home: Path, item: str, name: str) -> bool:
    workflow, _, number = item.partition("-")
    for database in home.glob(f"checkpoints/*/{workflow.casefold()}_workflow_{number}.db"):
        with contextlib.closing(sqlite3.connect(database)) as connection, contextlib.suppress(sqlite3.Error):
            is_intact = connection.execute("PRAGMA quick_check").fetchone()[0] == "ok"
            row = connection.execute(
                "SELECT 1 FROM agentos_notes WHERE name LIKE ?", (f"{name} %",)
            ).fetchone()
            return is_intact and row is not None
    return False
