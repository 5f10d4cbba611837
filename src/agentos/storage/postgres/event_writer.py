"""Writes the events and outcomes of a worker's items to Postgres in batches, each checked against its item's claim."""

import contextlib
import queue
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

import psycopg
from psycopg import Connection
from psycopg.rows import DictRow

from agentos.core.protocol.codec import encode, one_line, pack
from agentos.core.protocol.events import Event
from agentos.core.protocol.results import Outcome
from agentos.core.text.secrets import Secret
from agentos.storage.postgres.connecting import is_away, is_outranked, reconnect

BATCH_INTERVAL = 0.15  # seconds
RETRY_INTERVAL = 0.5  # seconds
MAX_EARLY = 200  # events of one item
_SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class ItemClaim:
    thread_id: str
    claim: tuple[int, int, int]

    @property
    def text(self) -> str:
        return "{" + ",".join(map(str, self.claim)) + "}"


@dataclass(frozen=True, slots=True)
class _Written:
    claim: ItemClaim
    at: float
    event: Event


@dataclass(frozen=True, slots=True)
class _Ended:
    claim: ItemClaim
    state: str
    outcome: Outcome | None
    done: "Future[bool]"


class EventWriter:
    """A thread with its own connection. While Postgres is unreachable, entries wait in memory, in order."""

    def __init__(self, conninfo: Secret, redact: Callable[[str], str]) -> None:
        self._conninfo = conninfo
        self._redact = redact
        self._queue: queue.SimpleQueue[_Written | _Ended | None] = queue.SimpleQueue()
        self._connection: Connection[DictRow] | None = None
        self._early: dict[ItemClaim, list[_Written | _Ended]] = {}
        self._transaction: str | None = (
            None  # the last transaction that was begun and is not known to have ended
        )
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)
        self._thread.start()

    def write(self, claim: ItemClaim, event: Event, at: float) -> None:
        self._queue.put(_Written(claim, at, event))

    def end(self, claim: ItemClaim, state: str, outcome: Outcome | None) -> "Future[bool]":
        """Record the item's state and outcome after all its events so far. The result is False if the claim was outranked."""
        done: Future[bool] = Future()
        self._queue.put(_Ended(claim, state, outcome, done))
        return done

    def close(self, timeout: float) -> None:
        self._queue.put(None)
        self._thread.join(timeout)

    def _run(self) -> None:
        is_open = True
        while is_open:
            batch = [self._queue.get()]
            if isinstance(batch[0], _Written):
                time.sleep(BATCH_INTERVAL)
            while not self._queue.empty():
                batch.append(self._queue.get())
            is_open = None not in batch
            self._write_batch([entry for entry in batch if entry is not None])
        if self._connection is not None:
            self._connection.close()

    def _write_batch(self, batch: list[_Written | _Ended]) -> None:
        """Write one transaction per item, with its entries in order."""
        by_claim: dict[ItemClaim, list[_Written | _Ended]] = {}
        for entry in batch:
            by_claim.setdefault(entry.claim, []).append(entry)
        for claim, new in by_claim.items():
            entries = self._early.pop(claim, []) + new
            # The waiting task may have been cancelled; the entry is written all the same.
            waiting = [
                entry.done
                for entry in entries
                if isinstance(entry, _Ended) and entry.done.set_running_or_notify_cancel()
            ]
            try:
                is_written = self._write_item(claim, entries)
            except Exception as error:  # affects only this item: the thread serves all the others
                for done in waiting:
                    done.set_exception(error)
            else:
                if not is_written and not any(isinstance(entry, _Ended) for entry in entries):
                    self._keep_early(claim, entries)
                for done in waiting:
                    done.set_result(is_written)

    def _keep_early(self, claim: ItemClaim, entries: list[_Written | _Ended]) -> None:
        """A machine reports an item before its process has claimed it. Such events are kept until there is more to write."""
        if self._connection is None or len(entries) > MAX_EARLY:
            return
        with contextlib.suppress(psycopg.Error):
            row = self._connection.execute(
                "SELECT claim < %s::bigint[] AS unclaimed FROM agentos_items WHERE thread_id = %s",
                (claim.text, claim.thread_id),
            ).fetchone()
            if row and row["unclaimed"]:
                self._early[claim] = entries

    def _write_item(self, claim: ItemClaim, entries: list[_Written | _Ended]) -> bool:
        while True:
            try:
                if not self._is_committed():
                    self._write_transaction(claim, entries)
                self._transaction = None
                return True
            except Exception as error:
                if is_outranked(error):
                    self._transaction = None
                    return False
                if not is_away(error):
                    self._transaction = None
                    raise
            time.sleep(RETRY_INTERVAL)

    def _is_committed(self) -> bool:
        """Whether the last transaction was committed although the connection broke before the confirmation."""
        if self._transaction is None:
            return False
        while True:
            query = "SELECT pg_xact_status(%s::xid8) AS status"
            row = self._connected().execute(query, (self._transaction,)).fetchone()
            if row is None or row["status"] != "in progress":
                return row is not None and row["status"] == "committed"
            time.sleep(RETRY_INTERVAL)  # the server has not noticed yet that the connection is gone

    def _connected(self) -> Connection[DictRow]:
        if self._connection is None or self._connection.closed:
            self._connection = reconnect(self._conninfo)
        return self._connection

    def _write_transaction(self, claim: ItemClaim, entries: list[_Written | _Ended]) -> None:
        connection = self._connected()
        with connection.transaction(), connection.cursor() as cursor:
            cursor.execute("SELECT set_config('agentos.claim', %s, true)", (claim.text,))
            cursor.execute(
                "SELECT agentos_check_claim(%s), pg_current_xact_id()::text AS number", (claim.thread_id,)
            )
            row = cursor.fetchone()
            self._transaction = row["number"] if row else None
            rows = [
                (claim.thread_id, entry.at, self._line(entry))
                for entry in entries
                if isinstance(entry, _Written)
            ]
            if rows:
                cursor.executemany(
                    "INSERT INTO agentos_events (thread_id, at, event) VALUES (%s, %s, %s)", rows
                )
            for entry in entries:
                if isinstance(entry, _Ended):
                    cursor.execute(
                        "UPDATE agentos_items SET state = %s, outcome = %s WHERE thread_id = %s",
                        (
                            entry.state,
                            self._json(pack(entry.outcome)) if entry.outcome else None,
                            claim.thread_id,
                        ),
                    )

    def _line(self, entry: _Written) -> str:
        """The event with its submission, so that a follower of a later one skips it."""
        return self._json({"at": entry.at, "submission": entry.claim.claim[0], **encode(entry.event)})

    def _json(self, value: object) -> str:
        """The redacted event, with lone surrogates escaped, because they cannot be encoded as UTF-8."""
        line = self._redact(one_line(value))
        return _SURROGATES.sub(lambda found: f"\\\\u{ord(found[0]):04x}", line)
