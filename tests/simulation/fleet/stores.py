"""What workers and followers see of the imagined Postgres, behind the product's own ports."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

from agentos.core.planning.claims import ClaimNumber, ClaimResult, HeldClaim, decide_claim, outranks
from agentos.core.planning.items import Item
from agentos.core.planning.submission import ItemTask, SharedTask, thread_id
from agentos.core.planning.worker_task import FleetTask
from agentos.core.protocol import events
from agentos.core.protocol.ports import Documents
from agentos.core.protocol.results import Outcome, Verdict
from agentos.storage.item_store import Claim
from agentos.storage.postgres.claimed_item import TAKEN_OVER
from agentos.storage.postgres.connecting import is_away, is_outranked
from agentos.storage.postgres.event_writer import BATCH_INTERVAL, RETRY_INTERVAL, ItemClaim
from agentos.storage.postgres.fleet_items import (
    EventCursor,
    FleetEvent,
    FleetItem,
    LoadedTask,
    count_settled,
)

from .network import Machine
from .postgres import ItemRow, Postgres, Unconfirmed, Writes

PROJECT = "shop"


class SimulatedItemStore:
    """The item store of one process. Every write is a fenced transaction, as in `PostgresItemStore`."""

    documents: Documents
    place = "Postgres"

    def __init__(self, postgres: Postgres, machine: Machine, access: FleetTask) -> None:
        self.postgres = postgres
        self.thread_id = access.thread_id
        self.row = postgres.rows[access.thread_id]
        self._machine = machine
        self._access = access
        self._by = f"{machine.name} {access.claim}"
        self.documents = cast(Any, SimpleNamespace(root=None))

    async def claim(self) -> Claim | Outcome:
        def decide(writes: Writes) -> ClaimResult:
            result = decide_claim(writes.row.held, self._access.claim, self._by)
            if result is not ClaimResult.OUTRANKED:
                writes.change(self._take)
            return result

        result = await self.postgres.transaction(self._machine, self.row, decide, exclusive=True)
        if result is ClaimResult.OUTRANKED:
            return TAKEN_OVER
        is_repeated = result is ClaimResult.REPEATED
        return Claim(is_retry=is_repeated, is_first=not is_repeated)

    def _take(self, row: ItemRow) -> None:
        row.held, row.state, row.machine = (
            HeldClaim(self._access.claim, self._by),
            "running",
            self._machine.name,
        )

    async def release(self) -> None:
        pass

    async def earlier_verdict(self, status: object, is_redo: object) -> Verdict | None:
        await self.postgres.read(self._machine)
        return self.row.verdict

    async def check(self) -> str:
        return ""

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator["SimulatedCheckpoint"]:
        yield SimulatedCheckpoint(self)

    async def clean_up(self, tidy: object) -> None:
        await self.write(_delete_checkpoint)

    async def finish(self, tidy: object, outcome: Outcome) -> None:
        violations = self.postgres.violations

        def finish(row: ItemRow) -> None:
            row.verdict = outcome.verdict
            violations.finished[row.item] += 1
            _delete_checkpoint(row)

        await self.write(finish)

    def is_unavailable(self, error: BaseException) -> bool:
        return is_away(error)

    def is_lost(self, error: BaseException) -> bool:
        return is_outranked(error)

    async def unavailable(self) -> str:
        try:
            await self.postgres.read(self._machine)
        except Exception as error:
            if not is_away(error):
                raise
            return self.place
        return ""

    async def write(self, change: Callable[[ItemRow], None]) -> None:
        await self.postgres.transaction(
            self._machine, self.row, lambda writes: writes.change(change), self._access.claim
        )

    async def read(self) -> ItemRow:
        await self.postgres.read(self._machine)
        return self.row


def _delete_checkpoint(row: ItemRow) -> None:
    row.notes = {}
    row.position = 0


@dataclass(frozen=True, slots=True)
class SimulatedCheckpoint:
    """Notes, and how many nodes are done. A node's document is written with it, in one transaction."""

    store: SimulatedItemStore
    saver: Any = None

    async def note(self, name: str, text: str) -> None:
        await self.store.write(lambda row: row.notes.__setitem__(name, text))

    async def noted(self, name: str) -> str | None:
        return (await self.store.read()).notes.get(name)

    async def forget(self, name: str) -> None:
        await self.store.write(lambda row: cast(None, row.notes.pop(name, None)))

    async def count_answers(self) -> int:
        return sum(name.startswith("answer ") for name in (await self.store.read()).notes)

    async def position(self) -> int:
        return (await self.store.read()).position

    async def commit(self, position: int, text: bytes) -> None:
        documents = self.store.postgres.violations.documents

        def commit(row: ItemRow) -> None:
            name = f"{position}.md"
            documents[f"{row.item}/{name}"] += row.documents.get(name) != text
            row.documents[name] = text
            row.position = position

        await self.store.write(commit)


class SimulatedFleetDatabase:
    """`FleetDatabase` of one machine. Its methods return coroutines, which the virtual loop awaits for `to_thread`."""

    def __init__(self, postgres: Postgres, machine: Machine, shared: SharedTask) -> None:
        self._postgres = postgres
        self._machine = machine
        self._shared = shared

    async def load(self, thread: str, submission: int) -> LoadedTask | None:
        await self._postgres.read(self._machine)
        row = self._postgres.rows.get(thread)
        return LoadedTask(self._shared, ItemTask(item_named(row.item)), "", 0.0) if row else None

    async def claim(self, thread: str, claim: ClaimNumber, machine: str) -> None:
        def take(row: ItemRow) -> None:
            row.held, row.machine = HeldClaim(claim, ""), machine

        def decide(writes: Writes) -> None:
            if outranks(claim, writes.row.held.claim):
                writes.change(take)

        await self._postgres.transaction(self._machine, self._postgres.rows[thread], decide, exclusive=True)

    async def events_after(
        self, cursor: EventCursor, items: Sequence[str], limit: int = 2000
    ) -> tuple[list[FleetEvent], EventCursor]:
        await self._postgres.read(self._machine)
        rows = sorted(
            (event for event in self._postgres.events if _follows(event.number, cursor)),
            key=lambda event: (event.number.transaction, event.number.event),
        )[:limit]
        count = count_settled([row.number for row in rows], self._postgres.horizon)
        found = [FleetEvent(row.item, row.at, row.event, row.submission) for row in rows[:count]]
        return found, rows[count - 1].number if count else cursor

    async def items(self, names: Sequence[str]) -> dict[str, FleetItem]:
        await self._postgres.read(self._machine)
        rows = {name: self._postgres.rows[thread_id(PROJECT, name)] for name in names}
        return {
            name: FleetItem(name, "lld", row.submission, "d", row.state, row.machine, "", "", row.outcome, "")
            for name, row in rows.items()
        }

    def fail(self, item: str, outcome: Outcome) -> None:
        row = self._postgres.rows[thread_id(PROJECT, item)]
        row.state, row.outcome = "ended", outcome


def _follows(number: EventCursor, cursor: EventCursor) -> bool:
    return (number.transaction, number.event) > (cursor.transaction, cursor.event or -1)


def item_named(name: str) -> Item:
    return Item(name, "lld", int(name.rpartition("-")[2]), "Title", "issues/1.md", digest="d")


@dataclass(frozen=True, slots=True)
class _Entry:
    claim: ItemClaim
    write: Callable[[Writes], object]
    done: "Future[bool] | None" = None


class SimulatedEventWriter:
    """`EventWriter` as a task: batches, one transaction for each claim, and everything waits while Postgres is away."""

    def __init__(self, postgres: Postgres, machine: Machine) -> None:
        self._postgres = postgres
        self._machine = machine
        self._entries: list[_Entry] = []
        self._arrived = asyncio.Event()
        machine.process.spawn(self._run())

    @property
    def is_idle(self) -> bool:
        return not self._entries

    def write(self, claim: ItemClaim, event: events.Event, at: float) -> None:
        if self._postgres.keeps_events:
            item = claim.thread_id.partition("/")[2]
            put = partial(Writes.event, item=item, at=at, event=event, submission=claim.claim[0])
            self._add(_Entry(claim, put))

    def end(self, claim: ItemClaim, state: str, outcome: Outcome | None) -> "Future[bool]":
        def end(row: ItemRow) -> None:
            row.state, row.outcome = state, outcome

        done: Future[bool] = Future()
        self._add(_Entry(claim, lambda writes: writes.change(end), done))
        return done

    def _add(self, entry: _Entry) -> None:
        self._entries.append(entry)
        self._arrived.set()

    async def _run(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            if not any(entry.done for entry in self._entries):
                await asyncio.sleep(BATCH_INTERVAL)
            batch, self._entries = self._entries, []
            by_claim: dict[ItemClaim, list[_Entry]] = {}
            for entry in batch:
                by_claim.setdefault(entry.claim, []).append(entry)
            for claim, entries in by_claim.items():
                await self._write_item(claim, entries)

    async def _write_item(self, claim: ItemClaim, entries: list[_Entry]) -> None:
        waiting = [
            entry.done for entry in entries if entry.done and entry.done.set_running_or_notify_cancel()
        ]
        is_written = await self._write(claim, entries)
        for done in waiting:
            done.set_result(is_written)

    async def _write(self, claim: ItemClaim, entries: list[_Entry]) -> bool:
        row = self._postgres.rows[claim.thread_id]

        def write(writes: Writes) -> None:
            for entry in entries:
                entry.write(writes)

        while True:
            try:
                await self._postgres.transaction(self._machine, row, write, claim.claim)
                return True
            except Exception as error:
                if is_outranked(error):
                    return False
                if not is_away(error):
                    raise
                if isinstance(error, Unconfirmed):  # as pg_xact_status says when it can be asked
                    return True
            await asyncio.sleep(RETRY_INTERVAL)
