"""A project's items on a fleet, for planning and review."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from agentos.core.protocol.ports import Documents
from agentos.storage.item_store import ParkedRecord
from agentos.storage.postgres.documents import ScratchDocuments
from agentos.storage.postgres.fleet_items import FleetDatabase
from agentos.storage.review_notes import review_state


class PostgresItems:
    """The ProjectItems port. An active item is not held: whoever submits it too joins its run."""

    def __init__(self, database: FleetDatabase, project: str, scratch: Path) -> None:
        self._database = database
        self._project = project
        self._scratch = ScratchDocuments(scratch)
        self.documents: Documents = self._scratch

    def key(self, workflow: str, number: int) -> str:
        row = self._database.connection.execute(
            "SELECT thread_id FROM agentos_items WHERE project = %s AND workflow = %s AND item LIKE %s",
            (self._project, workflow, f"%-{number}"),
        ).fetchone()
        return str(row["thread_id"]) if row else ""

    def keys(self) -> set[str]:
        rows = self._database.connection.execute(
            "SELECT DISTINCT thread_id FROM agentos_notes WHERE starts_with(thread_id, %s)",
            (f"{self._project}/",),
        )
        return {str(row["thread_id"]) for row in rows}

    def held(self) -> dict[str, str]:
        return {}

    def notes(self, key: str) -> Mapping[str, str]:
        rows = self._database.connection.execute(
            "SELECT name, text FROM agentos_notes WHERE thread_id = %s AND name NOT LIKE 'answer %%'", (key,)
        )
        return {str(row["name"]): str(row["text"]) for row in rows}

    def parked(self) -> list[ParkedRecord]:
        records = self.parked_records()
        self._scratch.load(
            {
                document.path: document.content
                for record in records
                for document in self._database.documents(record.state.parked_item.item, self._project)
                if document.content is not None
            }
        )
        return records

    def decided(self) -> list[str]:
        """The keys of parked items that have a decision but have not continued yet."""
        return [record.key for record in self.parked_records() if record.state.decision]

    def parked_records(self) -> list[ParkedRecord]:
        """The parked items without their documents."""
        rows = self._database.connection.execute(
            "SELECT thread_id FROM agentos_items WHERE project = %s AND state = 'parked' ORDER BY thread_id",
            (self._project,),
        ).fetchall()
        found = ((str(row["thread_id"]), review_state(self.notes(str(row["thread_id"])))) for row in rows)
        return [ParkedRecord(key, state) for key, state in found if state]

    @contextlib.contextmanager
    def deciding(self, key: str, item: str) -> Iterator[Mapping[str, str] | None]:
        """Lock the item's row and write with its claim: a worker that wants to claim it waits, or has already outranked us."""
        connection = self._database.connection
        with connection.transaction():
            row = connection.execute(
                "SELECT claim::text AS claim FROM agentos_items WHERE thread_id = %s AND state = 'parked' FOR UPDATE",
                (key,),
            ).fetchone()
            if row is None:
                yield None
                return
            connection.execute("SELECT set_config('agentos.claim', %s, true)", (row["claim"],))
            yield self.notes(key)

    def write_note(self, key: str, name: str, text: str) -> None:
        self._database.connection.execute(
            "INSERT INTO agentos_notes VALUES (%s, %s, %s) "
            "ON CONFLICT (thread_id, name) DO UPDATE SET text = excluded.text",
            (key, name, text),
        )

    def clean_finished(self, finished: Mapping[str, str], tidy: Callable[[str], None]) -> None:
        """Nothing to do: an item is cleaned up in the transaction that finishes it."""
