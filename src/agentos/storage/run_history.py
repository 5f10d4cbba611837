"""Reads the history of similar earlier runs from their journals, as input for forecasts."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from agentos.core.forecast.history import ItemTrace, RunHistory, TraceBuilder
from agentos.core.protocol import events
from agentos.core.protocol.codec import type_marker
from agentos.regular_files import UnsafeFile, open_regular
from agentos.storage.journal import NAME, JournalEntry, read_entry
from agentos.storage.runs import run_folders

MAX_RUNS = 20
ENOUGH_TRACES = 200
# The warm-up time is the median of this many runs, because the machine may have been busy during one of them.
WARM_UP_RUNS = 3
MAX_READ = 1024 * 1024  # bytes of each journal
_TRACE_EVENTS = tuple(
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
    """Selects the runs that resemble a planned one."""

    workflow: str
    project: str
    offline: bool


def read_run_history(runs: Path, wanted: RunFilter) -> RunHistory:
    """Read the newest matching runs until there are enough traces, and only the first part of a long journal."""
    traces: list[ItemTrace] = []
    used, warm_ups, calls_per_second = 0, list[float](), None
    for run in run_folders(runs)[:MAX_RUNS]:
        builder = _build_traces(run, wanted)
        if builder is None or not builder.traces:
            continue
        traces += builder.traces
        calls_per_second = calls_per_second if used else builder.calls_per_second
        used += 1
        warm_ups.append(builder.warm_up)
        if len(traces) >= ENOUGH_TRACES:
            break
    return RunHistory(
        tuple(traces), used, median(warm_ups[:WARM_UP_RUNS]) if warm_ups else 0.0, calls_per_second
    )


def _build_traces(run: Path, wanted: RunFilter) -> TraceBuilder | None:
    builder = TraceBuilder()
    try:
        with open(open_regular(run / NAME), "rb") as file:
            first = read_entry(file.readline())
            if first is None or not _matches(first.event, wanted):
                return None
            builder.handle(first.event, first.at)
            for entry in _trace_entries(file.fileno(), file.tell()):
                builder.handle(entry.event, entry.at)
                if len(builder.traces) >= ENOUGH_TRACES:
                    break
    except (OSError, UnsafeFile):
        return None
    return builder


def _matches(event: events.Event, wanted: RunFilter) -> bool:
    return (
        isinstance(event, events.RunStarted)
        and event.workflow == wanted.workflow
        and event.project == wanted.project
        and event.offline == wanted.offline
    )


def _trace_entries(descriptor: int, offset: int) -> Iterator[JournalEntry]:
    content = os.pread(descriptor, MAX_READ, offset)
    # The last line may be cut off; then it is not valid JSON and is skipped.
    for line in content.split(b"\n"):
        if any(kind in line for kind in _TRACE_EVENTS) and (entry := read_entry(line)):
            yield entry
