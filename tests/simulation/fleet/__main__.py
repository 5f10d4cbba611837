"""Simulates thousands of random lives of a fleet: part of `make simulate`. Replay one: `make simulate FLEET_SEED=...`."""

import argparse
import random
import sys
import time
import traceback

from .life import FleetTotals, Life, Parts

FIXED_SEED = 20_260_201


def first_failing_life(seeds: range, totals: FleetTotals, parts: Parts = Parts()) -> int | None:  # noqa: B008
    """The first seed whose life breaks a promise, or None."""
    for seed in seeds:
        try:
            Life(seed, totals, parts=parts).run()
        except Exception:
            traceback.print_exc()
            return seed
    return None


def replay(seed: int) -> int:
    trace: list[str] = []
    try:
        Life(seed, trace=trace).run()
    except Exception:
        print("\n".join(trace[-400:]))
        traceback.print_exc()
        return 1
    print("\n".join(trace))
    print(f"seed {seed}: {len(trace)} events and faults, no failure")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="replay one life and print all of it")
    parser.add_argument(
        "--lives", type=int, default=500, help="number from the fixed seeds, and as many from random ones"
    )
    given = parser.parse_args()
    if given.seed is not None:
        return replay(given.seed)
    totals, began = FleetTotals(), time.process_time()
    fresh = random.SystemRandom().randrange(10**9)
    for name, first in (("fixed", FIXED_SEED), ("fresh", fresh)):
        print(f"{given.lives:,} lives of a fleet from the {name} seed {first}", flush=True)
        if (seed := first_failing_life(range(first, first + given.lives), totals)) is not None:
            print(f"seed {seed} failed. Replay it with: make simulate FLEET_SEED={seed}", file=sys.stderr)
            return 1
    spent = time.process_time() - began
    print(
        f"{totals.lives:,} lives, {totals.items:,} items, {totals.attempts:,} attempts, {totals.seconds / 3600:,.0f} hours "
        f"of virtual time in {spent:.1f} s of CPU time"
    )
    print(
        f"{totals.answered:,} calls answered, {totals.repeated:,} repeated, {totals.not_yet:,} told to come back, {totals.over_limit:,} refused over a limit; "
        f"{totals.lost_attempts:,} attempts lost; faults: {dict(sorted(totals.faults.items()))}"
    )
    print(
        "every item done once, no document twice, no write of an outranked claim, no attempt used up by a drain or by "
        "Postgres, no call repeated without a loss, every life ended"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
