"""Submits a failed item again, unchanged, from its checkpoint; does not need the project."""

import json
from dataclasses import dataclass, replace

from psycopg import Connection
from psycopg.rows import DictRow

from agentos.core.planning.submission import ItemTask, SharedTask, thread_id
from agentos.core.protocol.codec import encode, one_line, pack, unpack
from agentos.core.protocol.events import ItemRequeued
from agentos.core.protocol.results import Ending, Outcome
from agentos.storage.postgres.fleet_items import FleetDatabase


@dataclass(frozen=True, slots=True)
class Resubmitted:
    submission: int
    workflow: str
    retries: int


def resubmit_failed(database: FleetDatabase, project: str, item: str, at: float) -> Resubmitted | None:
    """Return None if the item has not failed or was resubmitted in the meantime. An event informs its followers.

    No workflow of the item may be running: a submitted item then lost its start, and keeps its submission.
    """
    connection, thread = database.connection, thread_id(project, item)
    with connection.transaction():
        row = connection.execute(
            "SELECT submission, state, outcome, task, claim::text AS claim FROM agentos_items "
            "WHERE thread_id = %s FOR UPDATE",
            (thread,),
        ).fetchone()
        if row is not None and row["state"] == "submitted":
            return _submitted(connection, row["submission"])
        if row is None or row["state"] != "ended" or not row["outcome"]:
            return None
        if unpack(Outcome, row["outcome"]).ending is not Ending.FAILED:
            return None
        added = connection.execute(
            "INSERT INTO agentos_submissions (project, workflow, shared, code) "
            "SELECT project, workflow, shared, code FROM agentos_submissions WHERE id = %s RETURNING id, shared",
            (row["submission"],),
        ).fetchone()
        assert added is not None
        submission, shared = int(added["id"]), unpack(SharedTask, added["shared"])
        event = {"at": at, "submission": submission, **encode(ItemRequeued(item))}
        connection.execute("SELECT set_config('agentos.claim', %s, true)", (row["claim"],))
        connection.execute(
            "INSERT INTO agentos_events (thread_id, at, event) VALUES (%s, %s, %s)",
            (thread, at, one_line(event)),
        )
        # `--fresh` has already dropped the old checkpoint: continue from the present one.
        task = replace(unpack(ItemTask, row["task"]), fresh=False)
        connection.execute(
            "UPDATE agentos_items SET submission = %s, state = 'submitted', outcome = NULL, task = %s WHERE thread_id = %s",
            (submission, json.dumps(pack(task)), thread),
        )
    return Resubmitted(submission, shared.workflow, shared.retries)


def _submitted(connection: Connection[DictRow], submission: int) -> Resubmitted | None:
    row = connection.execute("SELECT shared FROM agentos_submissions WHERE id = %s", (submission,)).fetchone()
    if row is None:
        return None
    shared = unpack(SharedTask, row["shared"])
    return Resubmitted(submission, shared.workflow, shared.retries)
