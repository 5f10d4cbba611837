"""A fleet's submissions, items and outcomes in Postgres, for submitting, following, collecting and deciding."""

import json
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg.rows import DictRow

from agentos.core.planning.submission import ItemTask, SharedTask, thread_id
from agentos.core.protocol.codec import CodecError, decode, pack, unpack
from agentos.core.protocol.events import Event
from agentos.core.protocol.results import Ending, Outcome
from agentos.core.text.secrets import Secret
from agentos.core.text.values import natural_order
from agentos.storage.postgres.lasting_connection import LastingConnection

LIVE = ("submitted", "running", "parked")


@dataclass(frozen=True, slots=True)
class FleetItem:
    """The row of one item. `verdict` is that of its text with the digest `verdict_digest`."""

    item: str
    workflow: str
    submission: int
    digest: str
    state: str
    machine: str
    verdict: str
    verdict_digest: str
    outcome: Outcome | None
    done_at: str

    @property
    def is_live(self) -> bool:
        return self.state in LIVE

    @property
    def text(self) -> str:
        """The state in words."""
        where = f" on {self.machine}" if self.state == "running" else ""
        if self.outcome is None or self.is_live:
            return {"parked": "waits for a person: agentos review --fleet"}.get(
                self.state, self.state + where
            )
        return self.outcome.error or str(self.outcome.verdict or self.outcome.ending)


@dataclass(frozen=True, slots=True)
class LoadedTask:
    """What a worker needs to start an item."""

    shared: SharedTask
    task: ItemTask
    verdict_digest: str
    submitted_at: float  # wall time in seconds


@dataclass(frozen=True, slots=True)
class EventCursor:
    """How far a follower has read: transaction and event number."""

    transaction: int
    event: int = 0


@dataclass(frozen=True, slots=True)
class FleetEvent:
    item: str
    at: float
    event: Event
    submission: int = 0


@dataclass(frozen=True, slots=True)
class FleetDocument:
    """A document of a finished item; no content means it was removed. `earlier` are the hashes of its earlier versions."""

    path: str
    content: bytes | None
    earlier: tuple[str, ...]


class FleetDatabase(LastingConnection):
    """A fleet's tables, for one project. Not thread-safe."""

    def __init__(
        self,
        conninfo: Secret,
        project: str = "",
        name: str = "agentos",
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        super().__init__(conninfo, name, say)
        self._project = project

    # Submitting.

    def submit(self, shared: SharedTask, tasks: Sequence[ItemTask], code: bytes | None) -> int:
        """Store the submission and its items in one transaction; returns its number."""
        connection = self.connection
        with connection.transaction():
            if code is not None and shared.code:
                connection.execute(
                    "INSERT INTO agentos_code VALUES (%s, %s) ON CONFLICT DO NOTHING",
                    (shared.code.digest, code),
                )
            row = connection.execute(
                "INSERT INTO agentos_submissions (project, workflow, shared, code) VALUES (%s, %s, %s, %s) RETURNING id",
                (
                    shared.project,
                    shared.workflow,
                    json.dumps(pack(shared)),
                    shared.code.digest if shared.code else None,
                ),
            ).fetchone()
            assert row is not None
            submission = int(row["id"])
            with connection.cursor() as cursor:
                cursor.executemany(
                    "INSERT INTO agentos_items (thread_id, project, item, workflow, submission, digest, task) "
                    "VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (thread_id) DO UPDATE SET "
                    "workflow = excluded.workflow, submission = excluded.submission, digest = excluded.digest, "
                    "task = excluded.task, state = 'submitted', outcome = NULL",
                    [_item_row(shared, submission, task) for task in tasks],
                )
        return submission

    def items(self, names: Sequence[str] | None = None) -> dict[str, FleetItem]:
        """The project's items, or only those with these names, in natural order."""
        rows = self.connection.execute(
            "SELECT item, workflow, submission, digest, state, machine, verdict, verdict_digest, outcome, done_at "
            "FROM agentos_items WHERE project = %s AND (%s::text[] IS NULL OR item = ANY(%s::text[]))",
            (self._project, names, names),
        )
        ordered = sorted(rows, key=lambda row: natural_order(str(row["item"])))
        return {str(row["item"]): _fleet_item(row) for row in ordered}

    # Working.

    def load(self, thread: str, submission: int) -> LoadedTask | None:
        row = self.connection.execute(
            "SELECT shared, task, verdict_digest, extract(epoch FROM submitted_at)::float8 AS submitted_at "
            "FROM agentos_items JOIN agentos_submissions ON id = %s WHERE thread_id = %s",
            (submission, thread),
        ).fetchone()
        if row is None:
            return None
        return LoadedTask(
            unpack(SharedTask, row["shared"]),
            unpack(ItemTask, row["task"]),
            row["verdict_digest"] or "",
            float(row["submitted_at"]),
        )

    def claim(self, thread: str, claim: tuple[int, int, int], machine: str) -> None:
        """Claim an item whose process cannot claim it, unless the claim is outranked."""
        self.connection.execute(
            "UPDATE agentos_items SET claim = %(claim)s::bigint[], claimed_by = '', machine = %(machine)s "
            "WHERE thread_id = %(thread)s AND claim < %(claim)s::bigint[]",
            {"claim": list(claim), "machine": machine, "thread": thread},
        )

    def code(self, digest: str) -> bytes:
        row = self.connection.execute(
            "SELECT content FROM agentos_code WHERE digest = %s", (digest,)
        ).fetchone()
        return bytes(row["content"]) if row else b""

    # Following.

    def horizon(self) -> EventCursor:
        """The cursor of a follower that has seen everything up to now."""
        row = self.connection.execute(
            "SELECT pg_snapshot_xmin(pg_current_snapshot())::text AS horizon"
        ).fetchone()
        assert row is not None
        return EventCursor(int(row["horizon"]))

    def events_after(
        self, cursor: EventCursor, items: Sequence[str], limit: int = 2000
    ) -> tuple[list[FleetEvent], EventCursor]:
        """The events after the cursor, in their final order, and the new cursor.

        Events of a newer version, which this one cannot read, are skipped.
        """
        rows = self.connection.execute(
            "SELECT id, written::text AS transaction, thread_id, at, event::text AS event, "
            "pg_snapshot_xmin(pg_current_snapshot())::text AS horizon FROM agentos_events "
            "WHERE (written, id) > (%s::xid8, %s) AND thread_id = ANY(%s) ORDER BY written, id LIMIT %s",
            (
                str(cursor.transaction),
                cursor.event if cursor.event else -1,
                [thread_id(self._project, item) for item in items],
                limit,
            ),
        ).fetchall()
        numbered = [EventCursor(int(row["transaction"]), int(row["id"])) for row in rows]
        count = count_settled(numbered, int(rows[0]["horizon"])) if rows else 0
        found = [event for row in rows[:count] if (event := _fleet_event(row))]
        if count and not found:
            return self.events_after(numbered[count - 1], items, limit)
        return found, numbered[count - 1] if count else cursor

    # Collecting.

    def documents(self, item: str, project: str = "") -> list[FleetDocument]:
        """The documents of an item of this project, or of the project named."""
        rows = self.connection.execute(
            "SELECT path, content, earlier FROM agentos_documents WHERE thread_id = %s ORDER BY path",
            (thread_id(project or self._project, item),),
        )
        return [
            FleetDocument(
                str(row["path"]),
                None if row["content"] is None else bytes(row["content"]),
                tuple(row["earlier"]),
            )
            for row in rows
        ]

    def end_unstarted(self, items: Sequence[str], project: str = "") -> list[str]:
        """Record those of these items as stopped that no worker is running; returns them. They belong to this project,
        or to the one named."""
        rows = self.connection.execute(
            "UPDATE agentos_items SET state = 'ended', outcome = %s "
            "WHERE thread_id = ANY(%s) AND state = 'submitted' RETURNING item",
            (
                json.dumps(pack(Outcome(Ending.INTERRUPTED))),
                [thread_id(project or self._project, item) for item in items],
            ),
        ).fetchall()
        return [str(row["item"]) for row in rows]

    def fail(self, item: str, outcome: Outcome) -> None:
        """Record the end of an item when no worker could."""
        self.connection.execute(
            "UPDATE agentos_items SET state = 'ended', outcome = %s WHERE thread_id = %s AND state = ANY(%s)",
            (json.dumps(pack(outcome)), thread_id(self._project, item), list(LIVE)),
        )


def count_settled(found: Sequence[EventCursor], horizon: int) -> int:
    """How many of these events, ordered by transaction and number, are in their final order, so that a follower may read them.

    Numbers of a sequence become visible out of order. Below the horizon of the snapshot that found the events, every
    transaction has ended, so nothing can appear there later.
    """
    return bisect_left(found, horizon, key=lambda event: event.transaction)


def _item_row(shared: SharedTask, submission: int, task: ItemTask) -> tuple[Any, ...]:
    item = task.item
    return (
        thread_id(shared.project, item.id),
        shared.project,
        item.id,
        shared.workflow,
        submission,
        item.digest,
        json.dumps(pack(task)),
    )


def _fleet_event(row: DictRow) -> FleetEvent | None:
    record = json.loads(row["event"])
    item = str(row["thread_id"]).partition("/")[2]
    try:
        return FleetEvent(item, float(row["at"]), decode(record), int(record.get("submission", 0)))
    except CodecError:
        return None


def _fleet_item(row: DictRow) -> FleetItem:
    return FleetItem(
        str(row["item"]),
        str(row["workflow"]),
        int(row["submission"]),
        str(row["digest"]),
        str(row["state"]),
        str(row["machine"]),
        row["verdict"] or "",
        row["verdict_digest"] or "",
        unpack(Outcome, row["outcome"]) if row["outcome"] else None,
        str(row["done_at"] or ""),
    )
