"""Random lives of a fleet keep all promises, are reproducible from their seed, and find planted bugs."""

import asyncio
import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from agentos.core.planning.claims import ClaimNumber, ClaimResult, HeldClaim
from agentos.core.protocol.results import Outcome
from agentos.fleet.poller import TemporalPoller
from agentos.fleet.turns import DRAINED, ItemTurns, NextStep, TurnResult
from agentos.storage.item_store import Claim
from agentos.storage.postgres.claimed_item import TAKEN_OVER
from agentos.storage.postgres.fleet_items import EventCursor, FleetEvent

from .fleet.__main__ import FIXED_SEED, first_failing_life
from .fleet.life import FleetTotals, Life, Parts
from .fleet.postgres import ItemRow, Outranked, Postgres, Writes
from .fleet.scale import LargeLife
from .fleet.stores import SimulatedFleetDatabase, SimulatedItemStore

LIVES = 30
MAX_LIVES = 400  # until a planted bug must have been found
Found = TypeVar("Found")


def test_every_item_of_a_fleet_is_done_once_whatever_happens() -> None:
    totals = FleetTotals()
    seed = first_failing_life(range(FIXED_SEED, FIXED_SEED + LIVES), totals)
    assert seed is None, f"replay with: make simulate FLEET_SEED={seed}"
    assert totals.lives == LIVES and totals.faults and totals.answered


@pytest.mark.slow
def test_a_seed_reproduces_its_life_in_another_process() -> None:
    """Also with a different hash seed, which changes the order of sets."""
    command = [sys.executable, "-m", "tests.simulation.fleet", "--seed", str(FIXED_SEED + 4)]
    outputs = [
        subprocess.run(
            command,
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            timeout=120,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1] and outputs[0].count(b"\n") > 20


@pytest.mark.slow
def test_a_larger_fleet_comes_close_to_the_limits_of_its_keys() -> None:
    result = LargeLife(4, 40, 4_000).run()
    assert result.is_good, result.text()


class WithoutFence(Postgres):
    """Writes whatever it is sent."""

    def check_claim(self, row: ItemRow, claim: ClaimNumber) -> None:
        pass


class FenceOfAttempts(Postgres):
    """Compares the attempt alone, which starts again with every turn."""

    def check_claim(self, row: ItemRow, claim: ClaimNumber) -> None:
        if claim[2] != row.held.claim[2]:
            raise Outranked("outranked")


class ClaimsByAttempt(SimulatedItemStore):
    """Gets an item if its attempt is not smaller than the one in the row."""

    async def claim(self) -> Claim | Outcome:
        def decide(writes: Writes) -> ClaimResult:
            if self._access.claim[2] < writes.row.held.claim[2]:
                return ClaimResult.OUTRANKED
            writes.change(self._take)
            return ClaimResult.FIRST if writes.row.held == HeldClaim((0, 0, 0), "") else ClaimResult.REPEATED

        result = await self.postgres.transaction(self._machine, self.row, decide, exclusive=True)
        return (
            TAKEN_OVER if result is ClaimResult.OUTRANKED else Claim(is_retry=result is ClaimResult.REPEATED)
        )


class ReadsBeyondTheLastNumber(SimulatedFleetDatabase):
    """Reads `id > last`, as if numbers became visible in their order."""

    async def events_after(
        self, cursor: EventCursor, items: Sequence[str], limit: int = 2000
    ) -> tuple[list[FleetEvent], EventCursor]:
        await self._postgres.read(self._machine)
        rows = sorted(
            (row for row in self._postgres.events if row.number.event > cursor.event),
            key=lambda row: row.number.event,
        )[:limit]
        found = [FleetEvent(row.item, row.at, row.event, row.submission) for row in rows]
        return found, rows[-1].number if rows else cursor


class CountsDrainsAsTries(ItemTurns):
    """A turn that was handed over counts as a failed try."""

    def after(self, result: TurnResult) -> NextStep:
        self.tries += result.kind == DRAINED
        return super().after(result)


class FailsWithPostgres(TemporalPoller):
    """Waits for nobody: while Postgres is away, its activities fail."""

    async def _ask(self, question: Callable[[], Found]) -> Found:
        return await asyncio.to_thread(question)


@pytest.mark.parametrize(
    ("parts", "promise"),
    [
        (Parts(postgres=WithoutFence), "a write of"),
        (Parts(postgres=FenceOfAttempts, store=ClaimsByAttempt), ""),
        (Parts(database=ReadsBeyondTheLastNumber), "follower|events missed|not over"),
        (Parts(turns=CountsDrainsAsTries), "tries counted"),
        (Parts(poller=FailsWithPostgres), "attempts used up|is not done"),
    ],
    ids=["no fence", "attempt as fence", "id > last", "drains count", "outages count"],
)
def test_a_bug_planted_in_the_fleet_is_found(parts: Parts, promise: str) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed):
        seed = first_failing_life(range(FIXED_SEED, FIXED_SEED + MAX_LIVES), FleetTotals(), parts)
    assert seed is not None, f"not found in {MAX_LIVES} lives"
    Life(seed).run()  # without the bug nothing is wrong with this life
    assert promise == "" or any(part in printed.getvalue() for part in promise.split("|")), printed.getvalue()
