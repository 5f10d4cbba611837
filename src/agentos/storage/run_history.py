"""What earlier runs of a project were like, read from the newest of their journals."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from agentos.core.forecast.history import ItemTrace, RunHistory, TraceBuilder
from agentos.core.protocol import events
from agentos.core.protocol.codec import type_marker
from agentos.storage.journal import NAME, JournalEntry, read_entry
from agentos.storage.runs import run_folders

MOST_RUNS = 20
ENOUGH_LIVES = 200
# A machine may be busy for once: so many of the newest runs say how long it takes to begin.
RECENT = 3
LARGEST_PART = 1024 * 1024
_TELLING = tuple(
    type_marker(kind)
    for kind in (
        events.ItemStarted,
        events.WorkerStarted,
        events.NodeStarted,
        events.LeaseRequested,
        events.LeaseGranted,
        events.LeaseReleased,
        events.WorkerReported,
        events.WorkerExited,
    )
)


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs are like the one that is planned."""

    workflow: str
    project: str
    offline: bool


def read_run_history(runs: Path, kin: RunFilter) -> RunHistory:
    """From the newest runs, no more than is needed; of a long journal, its first part."""
    traces: list[ItemTrace] = []
    told, warm_ups, pace = 0, list[float](), None
    for run in run_folders(runs)[:MOST_RUNS]:
        chronicle = _chronicle(run, kin)
        if chronicle is None or not chronicle.traces:
            continue
        traces += chronicle.traces
        pace = pace if told else chronicle.pace
        told += 1
        warm_ups.append(chronicle.warm_up)
        if len(traces) >= ENOUGH_LIVES:
            break
    return RunHistory(tuple(traces), told, median(warm_ups[:RECENT]) if warm_ups else 0.0, pace)


def _chronicle(run: Path, kin: RunFilter) -> TraceBuilder | None:
    chronicle = TraceBuilder()
    try:
        with open(run / NAME, "rb") as file:
            first = read_entry(file.readline())
            if first is None or not _is_kin(first.event, kin):
                return None
            chronicle.handle(first.event, first.at)
            for entry in _telling(file.fileno(), file.tell()):
                chronicle.handle(entry.event, entry.at)
                if len(chronicle.traces) >= ENOUGH_LIVES:
                    break
    except OSError:
        return None
    return chronicle


def _is_kin(event: events.Event, kin: RunFilter) -> bool:
    return (
        isinstance(event, events.RunStarted)
        and event.workflow == kin.workflow
        and event.project == kin.project
        and event.offline == kin.offline
    )


def _telling(descriptor: int, begin: int) -> Iterator[JournalEntry]:
    content = os.pread(descriptor, LARGEST_PART, begin)
    # A line that the part ends in the middle of is no JSON, and passed over.
    for line in content.split(b"\n"):
        if any(kind in line for kind in _TELLING) and (entry := read_entry(line)):
            yield entry
