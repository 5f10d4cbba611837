"""Replays what the workers have written about items, from the start of each item's newest submission."""

from collections.abc import Callable, Mapping, Sequence

from agentos.core.planning.submission import thread_id
from agentos.core.protocol import events
from agentos.core.run_state.run_stats import RunStats
from agentos.storage.postgres.fleet_items import EventCursor, FleetDatabase, FleetEvent, FleetItem
from agentos.storage.postgres.submissions import SubmissionReader

_COMMANDS = {"lld": "lld-workflow", "issue": "issue-workflow"}


def replay(
    database: FleetDatabase, floors: Mapping[str, int], handle: Callable[[FleetEvent], None]
) -> EventCursor:
    """Pass on every event of these items, oldest first; returns the position to continue from.

    `floors` is the submission of each item: events of earlier ones are skipped.
    """
    cursor = EventCursor(0)
    while True:
        found, cursor = database.events_after(cursor, list(floors))
        for entry in found:
            if entry.submission >= floors[entry.item]:
                handle(entry)
        if not found:
            return cursor


def load_stats(database: FleetDatabase, started: events.RunStarted, rows: Sequence[FleetItem]) -> RunStats:
    """The statistics of these items, as those of a run."""
    stats = RunStats()
    stats.handle(started, 0.0)

    def handle(entry: FleetEvent) -> None:
        stats.handle(entry.event, entry.at)
        stats.began = stats.began or entry.at

    replay(database, {row.item: row.submission for row in rows}, handle)
    return stats


def as_run(
    database: FleetDatabase, project: str, folder: str, rows: Sequence[FleetItem]
) -> events.RunStarted:
    """The start event of a run with these items, for the displays."""
    names = tuple(row.item for row in rows)
    workflows = sorted({row.workflow for row in rows})
    commands = [f"{_COMMANDS.get(name, f'agentos run {name}')} --all --fleet" for name in workflows]
    titles = SubmissionReader(database).titles(thread_id(project, name) for name in names)
    return events.RunStarted(
        run=", ".join(sorted({f"S{row.submission}" for row in rows})),
        workflow=", ".join(workflows),
        project=folder,
        items=names,
        workers=len(names),
        keys=(),
        command=commands[0] if commands else "",
        cwd=folder,
        titles=tuple(titles.get(name, "") for name in names),
        has_review=any(name in _COMMANDS for name in workflows),
    )
