"""The folders of runs, newest first."""

import contextlib
import json
import os
import shutil
import stat
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from agentos.core.constants import DAY
from agentos.core.errors import UnsupportedFormat
from agentos.core.protocol import events
from agentos.core.protocol.codec import type_marker
from agentos.core.protocol.results import Ending
from agentos.core.run_state.run_record import RunRecord
from agentos.core.run_state.run_stats import RunStats
from agentos.storage.files import TMP_PREFIX, private_folder
from agentos.storage.journal import (
    JournalEntry,
    check_format,
    lines_with,
    read_first_record,
    read_journal,
    read_lines,
)
from agentos.storage.locks import LockFile, is_locked, stopped_holder

LATEST = "latest"
LOCK = "run.lock"


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """How much of the past stays."""

    runs: int = 50
    bytes: int = 1024**3
    seconds: float = 90 * DAY


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The records of one run, while it runs: its lock says that it lives."""

    path: Path
    lock: LockFile

    @property
    def id(self) -> str:
        return self.path.name

    def close(self) -> None:
        self.lock.release()


def new_run(runs: Path, wall: float) -> RunFolder:
    """A folder by the time of its beginning, in UTC, with a suffix when there is one already."""
    private_folder(runs)
    stamp = datetime.fromtimestamp(wall, UTC).strftime("%Y%m%dT%H%M%SZ")
    for suffix in ("", *(f"-{number}" for number in range(2, 1000))):
        with contextlib.suppress(FileExistsError):
            path = runs / f"{stamp}{suffix}"
            path.mkdir(mode=0o700)
            lock = LockFile(path / LOCK)
            lock.acquire()
            _point_at(path)
            return RunFolder(path, lock)
    raise FileExistsError(f"{runs}/{stamp} and 998 more")


def run_folders(runs: Path) -> list[Path]:
    """Newest first."""
    if not runs.is_dir():
        return []
    # In this order: a link that is renamed meanwhile is neither.
    found = [path for path in runs.iterdir() if not path.is_symlink() and path.is_dir()]
    return sorted(found, key=lambda path: _order(path.name), reverse=True)


def is_alive(run: Path) -> bool:
    """Whether the run's own process still holds its lock; asked without taking it."""
    return is_locked(run / LOCK)


def stopped_process(run: Path) -> int | None:
    """The run's own process if it stands still: Ctrl-Z, or a SIGSTOP that it could not even note."""
    return stopped_holder(run / LOCK)


def load_run_stats(run: Path) -> RunStats:
    """What the run's journal adds up to."""
    stats = RunStats()
    with contextlib.suppress(FileNotFoundError):
        for entry in read_journal(run):
            with contextlib.suppress(KeyError):
                stats.handle(entry.event, entry.at)
    return stats


def last_run_of(runs: Path, workflow: str, project: Path) -> RunStats | None:
    """The newest run of this workflow on this project. Raises UnsupportedFormat."""
    found = _newest(runs, workflow, project)
    return load_run_stats(found) if found else None


def failed_before(runs: Path, workflow: str, project: Path, *, required: bool = False) -> set[str]:
    """The items that the newest run of this workflow on this project left failed.

    If another version wrote that run: raises UnsupportedFormat when the answer is `required`, else nothing failed.
    """
    found = _newest(runs, workflow, project)
    if found is None:
        return set()
    try:
        check_format(found)
    except UnsupportedFormat:
        if required:
            raise
        return set()
    return {item for item, ending in _endings(found).items() if ending == Ending.FAILED}


def _newest(runs: Path, workflow: str, project: Path) -> Path | None:
    return next((run for run in run_folders(runs) if _is_of(run, workflow, project)), None)


def _endings(run: Path) -> dict[str, str]:
    """How each item ended, without reading anything else of a journal that may be long."""
    found = {}
    for line in lines_with(run, type_marker(events.ItemEnded)):
        with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
            record = json.loads(line)
            found[str(record["item"])] = str(record["outcome"]["ending"])
    return found


@dataclass(frozen=True, slots=True)
class OldRun:
    """A run that is beyond what is kept, and why."""

    path: Path
    bytes: int
    seconds: float
    reason: str


def old_runs(runs: Path, keep: RetentionPolicy, now: float) -> list[OldRun]:
    """The oldest runs beyond what is kept, newest first; never one that lives, never the newest."""
    found, size = [], 0
    for number, run in enumerate(run_folders(runs)):
        with contextlib.suppress(FileNotFoundError):  # another run removes it at this moment
            own, age = _size(run), max(0.0, now - run.stat().st_mtime)
            size += own
            reason = _reason(keep, number, size, age)
            if number and reason and not is_alive(run):
                found.append(OldRun(run, own, age, reason))
    return found


def prune(runs: Path, keep: RetentionPolicy, now: float) -> list[Path]:
    """Removes them; gives those that are gone. What stays of runs that were killed is tidied up."""
    old = old_runs(runs, keep, now)
    finalize_killed_runs(runs)
    for run in old:
        shutil.rmtree(run.path, ignore_errors=True)
    return [run.path for run in old if not run.path.exists()]


def finalize_killed_runs(runs: Path) -> None:
    """Of a run that was killed: what it gathered gets the name it was to have, the rest is removed."""
    for run in run_folders(runs):
        left = _half_done(run)
        if left and not is_alive(run):
            for path in left:
                with contextlib.suppress(OSError):  # another run does the same
                    _settle(path)


def _half_done(run: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        entries = list(os.scandir(run))
        return [Path(one.path) for one in entries if one.name.startswith(".") or _is_socket(one)]
    return []


def _is_socket(entry: os.DirEntry[str]) -> bool:
    return not entry.is_file() and stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)


def _settle(path: Path) -> None:
    final = path.with_name(path.name.removeprefix("."))
    if path == final or path.name.startswith(TMP_PREFIX) or final.exists():
        path.unlink()
    else:
        path.rename(final)


def _size(run: Path) -> int:
    return sum(entry.stat().st_size for entry in os.scandir(run) if entry.is_file(follow_symlinks=False))


def _reason(keep: RetentionPolicy, number: int, size: int, seconds: float) -> str:
    if number >= keep.runs:
        return "too many"
    if size > keep.bytes:
        return "too large together"
    return "too old" if seconds > keep.seconds else ""


def _is_of(run: Path, workflow: str, project: Path) -> bool:
    try:
        started = read_first_record(run)
    except OSError:
        return False
    return started.get("workflow") == workflow and started.get("project") == str(project)


def _order(name: str) -> tuple[str, int]:
    stamp, _, suffix = name.partition("-")
    return stamp, int(suffix) if suffix.isdigit() else 1


def _point_at(run: Path) -> None:
    """Under the run's lock; what a run that died in the middle of this has left is removed."""
    mark = f".{LATEST}-"
    for left in run.parent.glob(f"{mark}*"):
        if not is_alive(run.with_name(left.name.removeprefix(mark))):
            left.unlink(missing_ok=True)
    tmp = run.with_name(f"{mark}{run.name}")
    os.symlink(run.name, tmp)
    os.replace(tmp, run.with_name(LATEST))


def load_run_record(run: Path) -> RunRecord:
    """Of a run that is under way, has ended or was killed; a line that cannot be read is counted."""
    record = RunRecord(run.resolve().name, is_alive(run))
    for line in read_lines(run):
        if isinstance(line, JournalEntry):
            record.handle(line.event, line.at)
        elif not (line.torn and record.alive):  # it is just being written
            record.unread += 1
            record.torn = record.torn or line.torn
    return record
