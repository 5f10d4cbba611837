"""Known bugs of a fleet, planted one at a time; a step has to catch each: python -m tests.fleet.chaos.mutants [NAME]."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.chaos.mutants import Mutant
from tests.fleet.chaos.steps import FLEET_STEPS

_FOLLOWER = """            "WHERE (written, id) > (%s::xid8, %s) AND thread_id = ANY(%s) ORDER BY written, id LIMIT %s",
            (
                str(cursor.transaction),
                cursor.event if cursor.event else -1,
                [thread_id(self._project, item) for item in items],
                limit,
            ),
        ).fetchall()
        numbered = [EventCursor(int(row["transaction"]), int(row["id"])) for row in rows]
        count = count_settled(numbered, int(rows[0]["horizon"])) if rows else 0
"""
FLEET_MUTANTS = (
    Mutant(
        "no fence",
        "thaw",
        "agentos.storage.postgres.schema",
        "    IF NOT FOUND THEN\n        RAISE EXCEPTION",
        "    IF false THEN\n        RAISE EXCEPTION",
    ),
    Mutant(
        "the attempt alone as fence",
        "drains",
        "agentos.fleet.poller",
        "ItemClaim(thread, (turn.submission, turn.turn, activity.info().attempt))",
        "ItemClaim(thread, (0, 0, activity.info().attempt))",
    ),
    Mutant(
        "id > last",
        "interleaved",
        "agentos.storage.postgres.fleet_items",
        _FOLLOWER,
        _FOLLOWER.replace("(written, id) > (%s::xid8, %s)", "%s::xid8 IS NOT NULL AND id > %s")
        .replace("ORDER BY written, id", "ORDER BY id")
        .replace('count_settled(numbered, int(rows[0]["horizon"])) if rows else 0', "len(rows)"),
    ),
    Mutant(
        "a drain uses up an attempt",
        "drains",
        "agentos.fleet.turns",
        'TurnEnd(TurnResult(DRAINED), "submitted"',
        'TurnEnd(TurnResult(RETRY), "submitted"',
    ),
    Mutant(
        "an outage of Postgres uses up an attempt",
        "outages",
        "agentos.storage.postgres.connecting",
        "    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)\n",
        "    return False\n",
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fleet.chaos.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="some of them; all if none is named")
    names = parser.parse_args().names
    chosen = [mutant for mutant in FLEET_MUTANTS if not names or mutant.name in names]
    missed = 0
    for step in sorted({mutant.step for mutant in chosen}):
        found = run_step(step, {})
        missed += bool(found)
        print(f"{'FAILED' if found else 'ok':<8}{step:<12} without a bug: {found[:1]}", flush=True)
    for mutant in chosen:
        found = run_step(mutant.step, mutant.environment())
        missed += not found
        print(f"{'caught' if found else 'MISSED':<8}{mutant.step:<12} {mutant.name}: {found[:1]}", flush=True)
    print(f"{len(chosen)} planted bugs, {missed} problems")
    return 1 if missed else 0


def run_step(step: str, environment: dict[str, str]) -> list[str]:
    """What the step finds; one that cannot be carried out has caught nothing."""
    with tempfile.TemporaryDirectory(prefix="agentos-mutant-") as folder:
        try:
            return FLEET_STEPS[step](Path(folder) / "work", environment)
        except (AssertionError, TimeoutError) as error:
            print(f"{step} broke off: {str(error)[:300]}")
            return [] if environment else ["it broke off"]


if __name__ == "__main__":
    sys.exit(main())
