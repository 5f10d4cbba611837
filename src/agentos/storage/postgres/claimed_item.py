"""The item store of a fleet: one item in Postgres, over one connection, protected by its claim."""

import contextlib
import hashlib
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg import AsyncConnection, OperationalError
from psycopg.rows import DictRow

from agentos.core.planning.claims import ClaimResult, HeldClaim, decide_claim
from agentos.core.planning.items import ItemStatus
from agentos.core.planning.worker_task import FleetTask, WorkerTask
from agentos.core.protocol.ports import Documents
from agentos.core.protocol.results import Ending, Outcome, Verdict
from agentos.storage.item_store import Claim, IsRedo, Tidy
from agentos.storage.postgres.connecting import (
    address_text,
    connect_async,
    is_away,
    is_outranked,
    refusal_text,
)
from agentos.storage.postgres.documents import ScratchDocuments
from agentos.storage.task_writes import whole_output

TAKEN_OVER = Outcome(Ending.HELD_BY_OTHER_RUN, error="another worker of the fleet has taken it over")


class PostgresItemStore:
    """Everything stored about one item. `claim` connects; calls reconnect after a broken connection."""

    def __init__(self, task: WorkerTask, access: FleetTask) -> None:
        self._scratch = ScratchDocuments(Path(task.project))
        self.documents: Documents = self._scratch
        self.thread_id = access.thread_id
        self.place = address_text(access.conninfo)
        self._item = task.item
        self._is_redo = task.redo
        self._access = access
        self._by = (
            uuid.uuid4().hex
        )  # distinguishes our claim from another worker's if its commit was not confirmed
        self._connection: AsyncConnection[DictRow] | None = None
        self._saver: AsyncPostgresSaver | None = None

    async def claim(self) -> Claim | Outcome:
        connection = await self._connected()
        async with connection.transaction():
            result = decide_claim(await self._held_claim(connection), self._access.claim, self._by)
            if result is ClaimResult.OUTRANKED:
                return TAKEN_OVER
            await connection.execute(
                "UPDATE agentos_items SET claim = %s::bigint[], claimed_by = %s, state = 'running', machine = %s "
                "WHERE thread_id = %s",
                (list(self._access.claim), self._by, self._access.machine, self.thread_id),
            )
            if self._is_redo and result is ClaimResult.FIRST:
                # Later turns and attempts must not take the earlier verdict for that of the redo.
                await connection.execute(
                    "UPDATE agentos_items SET verdict = NULL, verdict_digest = NULL WHERE thread_id = %s",
                    (self.thread_id,),
                )
        is_repeated = result is ClaimResult.REPEATED
        rows = await connection.execute(
            "SELECT path, content FROM agentos_documents WHERE thread_id = %s AND content IS NOT NULL",
            (self.thread_id,),
        )
        kept = {str(row["path"]): bytes(row["content"]) for row in await rows.fetchall()}
        self._scratch.load({**dict(self._access.files()), **kept})
        return Claim(is_retry=is_repeated, is_first=not is_repeated)

    async def _held_claim(self, connection: AsyncConnection[DictRow]) -> HeldClaim | None:
        """The claim in the item's row, which stays locked for the rest of the transaction."""
        cursor = await connection.execute(
            "SELECT claim, claimed_by FROM agentos_items WHERE thread_id = %s FOR UPDATE", (self.thread_id,)
        )
        row = await cursor.fetchone()
        if row is None:
            return None
        submission, turn, attempt = row["claim"]
        return HeldClaim((submission, turn, attempt), row["claimed_by"])

    async def release(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(Exception):
                await self._connection.close()
            self._connection = None

    async def earlier_verdict(self, status: Callable[[], ItemStatus], is_redo: IsRedo) -> Verdict | None:
        """What Postgres has recorded, whatever files exist. An item whose text has changed is not done."""
        connection = await self._connected()
        cursor = await connection.execute(
            "SELECT verdict FROM agentos_items WHERE thread_id = %s AND verdict_digest = %s",
            (self.thread_id, self._item.digest),
        )
        row = await cursor.fetchone()
        return Verdict(row["verdict"]) if row and row["verdict"] else None

    async def check(self) -> str:
        return ""

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator["PostgresCheckpoint"]:
        saver = _DocumentsFirstSaver(await self._connected(), self)
        self._saver = saver
        try:
            yield PostgresCheckpoint(self, saver)
        finally:
            self._saver = None

    async def clean_up(self, tidy: Tidy) -> None:
        tidy(self.documents)
        await self._in_transaction(self._delete_checkpoint)

    async def finish(self, tidy: Tidy, outcome: Outcome) -> None:
        """Write documents and verdict and clean up in one transaction: the row decides whether the item is done."""
        tidy(self.documents)

        async def finish(connection: AsyncConnection[DictRow]) -> None:
            await connection.execute(
                "UPDATE agentos_items SET verdict = %s, verdict_digest = %s, done_at = now() WHERE thread_id = %s",
                (
                    outcome.verdict.value if outcome.verdict else Verdict.APPROVED.value,
                    self._item.digest,
                    self.thread_id,
                ),
            )
            await self._delete_checkpoint(connection)

        await self._in_transaction(finish)

    def is_unavailable(self, error: BaseException) -> bool:
        return is_away(error)

    def is_lost(self, error: BaseException) -> bool:
        return is_outranked(error)

    def kept_answers(self) -> list[str]:
        """Which machine paid for them is not known here."""
        return []

    async def unavailable(self) -> str:
        try:
            connection = await self._connected()
            await connection.execute("SELECT 1")
        except Exception as error:
            if not is_away(error):
                raise
            return self.place
        return ""

    async def flush_documents(self) -> None:
        changes = self._scratch.take_changes()
        if not changes:
            return
        try:
            connection = await self._connected()
            async with connection.transaction():
                await self._write_documents(connection, changes)
        except BaseException:
            self._scratch.put_back(changes)
            raise

    async def run(self, statement: bytes, values: tuple[Any, ...]) -> list[DictRow]:
        connection = await self._connected()
        cursor = await connection.execute(statement, values)
        return await cursor.fetchall() if cursor.description else []

    async def _connected(self) -> AsyncConnection[DictRow]:
        """The item's connection. A new one carries the claim, and the open saver continues with it."""
        if self._connection is None or self._connection.closed:
            try:
                connection = await connect_async(self._access.conninfo)
            except OperationalError as error:
                reason = refusal_text(error)  # for example because no connection is free
                self.place = address_text(self._access.conninfo) + (f" ({reason})" if reason else "")
                raise
            claim = "{" + ",".join(map(str, self._access.claim)) + "}"
            await connection.execute("SELECT set_config('agentos.claim', %s, false)", (claim,))
            self._connection = connection
            if self._saver is not None:
                self._saver.conn = connection
        return self._connection

    async def _in_transaction(self, write: Callable[[AsyncConnection[DictRow]], Any]) -> None:
        changes = self._scratch.take_changes()
        try:
            connection = await self._connected()
            async with connection.transaction():
                await self._check_claim(connection)
                await self._write_documents(connection, changes)
                await write(connection)
        except BaseException:
            self._scratch.put_back(changes)
            raise

    async def _check_claim(self, connection: AsyncConnection[DictRow]) -> None:
        """Check the claim before writing to the item's own row, which has no trigger."""
        await connection.execute("SELECT agentos_check_claim(%s)", (self.thread_id,))

    async def _write_documents(
        self, connection: AsyncConnection[DictRow], changes: list[tuple[str, bytes | None]]
    ) -> None:
        """Write each document with the hashes of its earlier versions, including the project's at submission."""
        submitted = self._access.files()
        for path, content in changes:
            earlier = [hashlib.sha256(submitted[path]).hexdigest()] if path in submitted else []
            await connection.execute(
                "INSERT INTO agentos_documents AS old (thread_id, path, content, earlier) VALUES (%s, %s, %s, %s) "
                "ON CONFLICT (thread_id, path) DO UPDATE SET content = excluded.content, earlier = CASE "
                "WHEN old.content IS NULL THEN old.earlier "
                "ELSE array_append(old.earlier, encode(sha256(old.content), 'hex')) END || excluded.earlier",
                (self.thread_id, path, content, earlier),
            )

    async def _delete_checkpoint(self, connection: AsyncConnection[DictRow]) -> None:
        for statement in (
            b"DELETE FROM checkpoints WHERE thread_id = %s",
            b"DELETE FROM checkpoint_blobs WHERE thread_id = %s",
            b"DELETE FROM checkpoint_writes WHERE thread_id = %s",
            b"DELETE FROM agentos_notes WHERE thread_id = %s",
        ):
            await connection.execute(statement, (self.thread_id,))


@dataclass(frozen=True, slots=True)
class PostgresCheckpoint:
    """The open checkpoint of one item. Writing a note reconnects if the connection is broken."""

    store: PostgresItemStore
    saver: AsyncPostgresSaver

    async def note(self, name: str, text: str) -> None:
        async with self.saver.lock:
            await self.store.run(
                b"INSERT INTO agentos_notes VALUES (%s, %s, %s) "
                b"ON CONFLICT (thread_id, name) DO UPDATE SET text = excluded.text",
                (self.store.thread_id, name, text.replace("\x00", "")),
            )

    async def noted(self, name: str) -> str | None:
        async with self.saver.lock:
            rows = await self.store.run(
                b"SELECT text FROM agentos_notes WHERE thread_id = %s AND name = %s",
                (self.store.thread_id, name),
            )
        return str(rows[0]["text"]) if rows else None

    async def forget(self, name: str) -> None:
        async with self.saver.lock:
            await self.store.run(
                b"DELETE FROM agentos_notes WHERE thread_id = %s AND name = %s", (self.store.thread_id, name)
            )

    async def count_answers(self) -> int:
        async with self.saver.lock:
            rows = await self.store.run(
                b"SELECT count(*) AS number FROM agentos_notes WHERE thread_id = %s AND name LIKE 'answer %%'",
                (self.store.thread_id,),
            )
        return int(rows[0]["number"])


class _DocumentsFirstSaver(AsyncPostgresSaver):
    """LangGraph's saver. Writes a node's documents to Postgres before the node's checkpoint."""

    def __init__(self, connection: AsyncConnection[DictRow], store: PostgresItemStore) -> None:
        super().__init__(connection)
        self._store = store
        # A transaction instead of a pipeline: whatever interrupts it, all writes of a task are stored or none.
        self.supports_pipeline = False

    async def aput(self, *args: Any, **kwargs: Any) -> Any:
        await self._flush()
        return await super().aput(*args, **kwargs)

    async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        await self._flush()
        await super().aput_writes(config, whole_output(writes), task_id, task_path)

    async def _flush(self) -> None:
        async with self.lock:
            await self._store.flush_documents()
