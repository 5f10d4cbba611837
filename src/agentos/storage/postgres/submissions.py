"""Reads a fleet's submissions with their items and events; writes nothing."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from psycopg.rows import DictRow

from agentos.core.protocol.codec import WIRE_NAMES, unpack
from agentos.core.protocol.results import Outcome
from agentos.storage.postgres.fleet_items import LIVE, EventCursor, FleetDatabase, count_settled

MAX_LISTED = 100  # submissions
PAGE = 2000  # events per query


@dataclass(frozen=True, slots=True)
class SubmissionRow:
    """One submission. `items` and `live` count the items that no later submission has taken over."""

    number: int
    project: str
    workflow: str
    at: float
    items: int
    live: int


@dataclass(frozen=True, slots=True)
class SubmittedItem:
    """The row of an item. `submission` is the newest one that has it; `outcome` is None while it is live."""

    item: str
    thread: str
    submission: int
    state: str
    machine: str
    outcome: Outcome | None

    @property
    def is_live(self) -> bool:
        return self.state in LIVE

    @property
    def text(self) -> str:
        """The state in words."""
        return str(self.outcome.verdict or self.outcome.ending) if self.outcome else self.state


@dataclass(frozen=True, slots=True)
class ItemRows:
    """All rows in one snapshot. Every transaction that it shows has a lower number than `horizon`."""

    items: dict[str, SubmittedItem]
    horizon: int


@dataclass(frozen=True, slots=True)
class EventRow:
    """An event as its worker wrote it, a JSON object as text."""

    item: str
    at: float
    text: str


@dataclass(frozen=True, slots=True)
class MachineItem:
    """The machine that runs an item, or ran it last."""

    machine: str
    project: str
    item: str
    submission: int
    is_running: bool


class SubmissionReader:
    """Queries on a connection that reconnects when it breaks. Not thread-safe."""

    def __init__(self, database: FleetDatabase) -> None:
        self._database = database

    def submissions(self, numbers: Sequence[int] | None = None) -> list[SubmissionRow]:
        """The newest submissions, or those with these numbers; newest first."""
        rows = self._database.connection.execute(
            "SELECT id, s.project, s.workflow, extract(epoch FROM submitted_at)::float8 AS at, count(item) AS items, "
            "count(item) FILTER (WHERE state = ANY(%s)) AS live "
            "FROM (SELECT * FROM agentos_submissions WHERE %s::bigint[] IS NULL OR id = ANY(%s::bigint[]) "
            "ORDER BY id DESC LIMIT %s) AS s LEFT JOIN agentos_items ON submission = id "
            "GROUP BY id, s.project, s.workflow, submitted_at ORDER BY id DESC",
            (list(LIVE), numbers, numbers, MAX_LISTED),
        )
        return [
            SubmissionRow(
                *(int(row["id"]), str(row["project"]), str(row["workflow"]), float(row["at"])),
                *(int(row["items"]), int(row["live"])),
            )
            for row in rows
        ]

    def items(self, submission: SubmissionRow) -> ItemRows:
        """The submission's items, and its project's items in later submissions, which may have been in this one too."""
        rows = self._database.connection.execute(
            "SELECT item, thread_id, submission, state, machine, outcome, "
            "pg_snapshot_xmax(pg_current_snapshot())::text AS horizon FROM agentos_items "
            "WHERE project = %s AND workflow = %s AND submission >= %s",
            (submission.project, submission.workflow, submission.number),
        ).fetchall()
        found = sorted((_submitted_item(row) for row in rows), key=lambda item: _sort_key(item.item))
        return ItemRows(
            {item.item: item for item in found}, int(rows[0]["horizon"]) if rows else self.horizon()
        )

    def titles(self, threads: Iterable[str]) -> dict[str, str]:
        """Item -> title. Parsed here, because Postgres rejects some valid JSON texts, such as an escaped NUL."""
        rows = self._database.connection.execute(
            "SELECT item, task::text AS task FROM agentos_items WHERE thread_id = ANY(%s)", (list(threads),)
        )
        return {str(row["item"]): str(json.loads(row["task"])["item"].get("title", "")) for row in rows}

    def horizon(self) -> int:
        """Every transaction with a lower number has ended, so no further events of it will appear."""
        return self._database.horizon().transaction

    def events(
        self, submission: int, threads: Iterable[str], cursor: EventCursor, kinds: Sequence[type] = ()
    ) -> tuple[list[EventRow], EventCursor]:
        """The submission's events after the cursor, only of these kinds if any are named, in their final order.

        Returns only events below the snapshot's horizon: see `count_settled`.
        """
        marks = [f'%"type":"{WIRE_NAMES[kind]}"%' for kind in kinds] or ["%"]
        rows = self._database.connection.execute(
            "SELECT id, written::text AS transaction, thread_id, at, event::text AS event, "
            "pg_snapshot_xmin(pg_current_snapshot())::text AS horizon FROM agentos_events "
            "WHERE (written, id) > (%s::xid8, %s) AND thread_id = ANY(%s) AND event::text LIKE %s AND event::text LIKE ANY(%s) "
            "ORDER BY written, id LIMIT %s",
            (
                *(str(cursor.transaction), cursor.event if cursor.event else -1, list(threads)),
                *(f'%"submission":{submission},%', marks, PAGE),
            ),
        ).fetchall()
        numbered = [EventCursor(int(row["transaction"]), int(row["id"])) for row in rows]
        count = count_settled(numbered, int(rows[0]["horizon"])) if rows else 0
        found = [
            EventRow(str(row["thread_id"]).partition("/")[2], float(row["at"]), str(row["event"]))
            for row in rows[:count]
            if _submission_of(row["event"]) == submission
        ]
        return found, numbered[count - 1] if count else cursor

    def machine_items(self) -> list[MachineItem]:
        """Every item that a machine runs or ran."""
        rows = self._database.connection.execute(
            "SELECT machine, project, item, submission, state = 'running' AS running FROM agentos_items "
            "WHERE machine <> '' ORDER BY machine, project, item"
        )
        return [
            MachineItem(
                *(str(row["machine"]), str(row["project"]), str(row["item"])),
                *(int(row["submission"]), bool(row["running"])),
            )
            for row in rows
        ]

    def projects_with_parked_items(self) -> list[str]:
        rows = self._database.connection.execute(
            "SELECT DISTINCT project FROM agentos_items WHERE state = 'parked' ORDER BY project"
        )
        return [str(row["project"]) for row in rows]


def _submitted_item(row: DictRow) -> SubmittedItem:
    outcome = unpack(Outcome, row["outcome"]) if row["outcome"] else None
    return SubmittedItem(
        *(str(row["item"]), str(row["thread_id"]), int(row["submission"])),
        *(str(row["state"]), str(row["machine"]), outcome),
    )


def _submission_of(event: str) -> int:
    try:
        return int(json.loads(event).get("submission", 0))
    except (ValueError, TypeError, AttributeError):
        return 0


def _sort_key(item: str) -> tuple[str, int, str]:
    prefix, _, number = item.rpartition("-")
    return prefix, int(number) if number.isdigit() else 0, item
