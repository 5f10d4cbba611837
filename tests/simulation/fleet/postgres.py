"""The imagined Postgres: transactions with row locks, sequences that become visible out of order, and restarts."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

import psycopg

from agentos.core.planning.claims import ClaimNumber, HeldClaim, may_write
from agentos.core.protocol.events import Event
from agentos.core.protocol.results import Outcome, Verdict
from agentos.storage.postgres.connecting import OUTRANKED
from agentos.storage.postgres.fleet_items import EventCursor

from .network import Machine, Service, Unreachable
from .virtual_time import current_process

Result = TypeVar("Result")
NOBODY = HeldClaim((0, 0, 0), "")
IDLE_TIMEOUT = 10.0  # seconds after which a transaction of a silent client is ended
LOCK_TIMEOUT = 20.0  # seconds


class Outranked(psycopg.DatabaseError):
    sqlstate = OUTRANKED


class Unconfirmed(psycopg.OperationalError):
    """The transaction is committed, and its client does not know."""


@dataclass(slots=True)
class ItemRow:
    """One item: its row, and everything kept under its thread."""

    item: str
    submission: int
    held: HeldClaim = NOBODY
    state: str = "submitted"
    machine: str = ""
    verdict: Verdict | None = None
    outcome: Outcome | None = None
    notes: dict[str, str] = field(default_factory=dict)
    documents: dict[str, bytes] = field(default_factory=dict)
    position: int = 0
    readers: "set[Transaction]" = field(default_factory=set)
    writer: "Transaction | None" = None


@dataclass(frozen=True, slots=True)
class StoredEvent:
    number: EventCursor
    item: str
    at: float
    event: Event
    submission: int


@dataclass(eq=False, slots=True)
class Transaction:
    number: int
    row: ItemRow
    machine: Machine
    is_aborted: bool = False


@dataclass(slots=True)
class Violations:
    """What an item store must never do, as seen from inside it."""

    found: list[str] = field(default_factory=list)
    finished: Counter[str] = field(default_factory=Counter)
    documents: Counter[str] = field(default_factory=Counter)


class Postgres(Service):
    """Rows in memory. A transaction is applied when it commits; nothing of an aborted one is seen."""

    def __init__(self, random: Random, unconfirmed: float = 0.0, slow: float = 0.0) -> None:
        """`unconfirmed` and `slow` are shares of the commits."""
        super().__init__("postgres")
        self.random = random
        self.unconfirmed = unconfirmed
        self.slow = slow
        self.rows: dict[str, ItemRow] = {}
        self.events: list[StoredEvent] = []
        self.violations = Violations()
        self.keeps_events = True
        self.restarts = 0
        self.away_until = -1e9
        self._transactions = itertools.count(1)
        self._next_transaction = 1
        self._event_numbers = itertools.count(1)
        self._open: set[Transaction] = set()

    def stop(self) -> None:
        self.is_up = False
        self.away_until = float("inf")
        self.restarts += 1
        for transaction in list(self._open):
            self._abort(transaction)

    def start(self) -> None:
        self.is_up = True
        self.away_until = asyncio.get_running_loop().time()

    # Transactions.

    async def transaction(
        self,
        machine: Machine,
        row: ItemRow,
        write: Callable[["Writes"], Result],
        claim: ClaimNumber | None = None,
        *,
        exclusive: bool = False,
    ) -> Result:
        """One transaction on one item. With a claim it is fenced; `exclusive` is a lock FOR UPDATE instead of FOR SHARE."""
        await self._reach(machine)
        transaction = Transaction(self._begin(), row, machine)
        self._open.add(transaction)
        drop = lambda: self._abort(transaction)  # noqa: E731
        process = current_process() or machine.process
        process.on_death.append(drop)
        try:
            if not self._lock_now(transaction, exclusive):
                await self._lock(transaction, exclusive)
            if claim is not None:
                self.check_claim(row, claim)
            writes = Writes(self, transaction, claim)
            result = write(writes)
            await self._commit(transaction, writes)
        finally:
            process.on_death.remove(drop)
            self._end(transaction)
        if self.unconfirmed and self.random.random() < self.unconfirmed:
            raise Unconfirmed("the connection broke before the commit was confirmed")
        return result

    def check_claim(self, row: ItemRow, claim: ClaimNumber) -> None:
        """As the trigger does."""
        if not may_write(claim, row.held.claim):
            raise Outranked(f"the claim on {row.item} is outranked")

    def _begin(self) -> int:
        self._next_transaction += 1
        return self._next_transaction - 1

    @property
    def horizon(self) -> int:
        """The oldest transaction that has not ended."""
        for transaction in list(self._open):
            self._expire(transaction)
        return min((open_.number for open_ in self._open), default=self._next_transaction)

    async def read(self, machine: Machine) -> None:
        await self._reach(machine)

    async def _reach(self, machine: Machine) -> None:
        try:
            await machine.send(self)
        except Unreachable as error:
            raise psycopg.OperationalError(str(error)) from None

    async def _commit(self, transaction: Transaction, writes: "Writes") -> None:
        """The server ends the transaction of a client that says nothing for too long, so that its locks go."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        if self.slow and self.random.random() < self.slow:
            await asyncio.sleep(self.random.uniform(0.1, 2.0))
        await self._reach(transaction.machine)
        if loop.time() - began > IDLE_TIMEOUT:
            self._abort(transaction)
        if transaction.is_aborted:
            raise psycopg.OperationalError("the server has ended the connection")
        writes.apply()

    def _lock_now(self, transaction: Transaction, exclusive: bool) -> bool:
        row = transaction.row
        for holder in [*row.readers, *([row.writer] if row.writer else [])]:
            self._expire(holder)
        if row.writer is not None or (exclusive and row.readers):
            return False
        if exclusive:
            row.writer = transaction
        else:
            row.readers.add(transaction)
        return True

    async def _lock(self, transaction: Transaction, exclusive: bool) -> None:
        until = asyncio.get_running_loop().time() + LOCK_TIMEOUT
        while not self._lock_now(transaction, exclusive):
            if transaction.is_aborted or asyncio.get_running_loop().time() >= until:
                raise psycopg.OperationalError("canceling statement due to lock timeout")
            await asyncio.sleep(0.05)

    def _expire(self, transaction: Transaction) -> None:
        """Ends the transaction of a frozen or cut-off client that has been silent for too long."""
        now, machine = asyncio.get_running_loop().time(), transaction.machine
        is_silent = machine.process.is_frozen or machine.is_cut_from(self.name)
        if is_silent and now > machine.silent_since + IDLE_TIMEOUT:
            self._abort(transaction)

    def _abort(self, transaction: Transaction) -> None:
        transaction.is_aborted = True
        self._end(transaction)

    def _end(self, transaction: Transaction) -> None:
        self._open.discard(transaction)
        transaction.row.readers.discard(transaction)
        if transaction.row.writer is transaction:
            transaction.row.writer = None

    def next_event(self) -> int:
        return next(self._event_numbers)


class Writes:
    """What a transaction has written and not yet committed. Event numbers are given out at once, as by a sequence."""

    def __init__(self, postgres: Postgres, transaction: Transaction, claim: ClaimNumber | None) -> None:
        self._postgres = postgres
        self._transaction = transaction
        self._claim = claim
        self._changes: list[Callable[[ItemRow], None]] = []
        self._events: list[StoredEvent] = []

    @property
    def row(self) -> ItemRow:
        return self._transaction.row

    def change(self, change: Callable[[ItemRow], None]) -> None:
        self._changes.append(change)

    def event(self, item: str, at: float, event: Event, submission: int) -> None:
        number = EventCursor(self._transaction.number, self._postgres.next_event())
        self._events.append(StoredEvent(number, item, at, event, submission))

    def apply(self) -> None:
        row, violations = self.row, self._postgres.violations
        if self._claim is not None and self._claim < row.held.claim and (self._changes or self._events):
            violations.found.append(f"{row.item}: a write of {self._claim} while {row.held.claim} holds it")
        for change in self._changes:
            change(row)
        if self._postgres.keeps_events:
            self._postgres.events.extend(self._events)
