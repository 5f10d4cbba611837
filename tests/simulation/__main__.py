"""Simulates thousands of random scenarios: `make simulate`. Replay one: `make simulate SEED=...`."""

import argparse
import random
import sys
import time
import traceback

from .scenario import Scenario, Totals

FIXED_SEED = 20_260_101


def first_failure(seeds: range, totals: Totals) -> int | None:
    """The first seed whose scenario fails, or None."""
    for seed in seeds:
        try:
            Scenario(seed, totals).run()
        except Exception:
            traceback.print_exc()
            return seed
    return None


def replay(seed: int) -> int:
    trace: list[str] = []
    try:
        Scenario(seed, trace=trace).run()
    except Exception:
        print("\n".join(trace[-200:]))
        traceback.print_exc()
        return 1
    print("\n".join(trace))
    print(f"seed {seed}: {len(trace)} events and commands, no failure")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="replay one scenario and print all of it")
    parser.add_argument(
        "--scenarios",
        type=int,
        default=2000,
        help="number from the fixed seeds, and as many from random ones",
    )
    given = parser.parse_args()
    if given.seed is not None:
        return replay(given.seed)
    totals, began = Totals(), time.process_time()
    fresh = random.SystemRandom().randrange(10**9)
    for name, first in (("fixed", FIXED_SEED), ("fresh", fresh)):
        print(f"{given.scenarios:,} scenarios from the {name} seed {first}")
        if (seed := first_failure(range(first, first + given.scenarios), totals)) is not None:
            print(f"seed {seed} failed. Replay it with: make simulate SEED={seed}", file=sys.stderr)
            return 1
    spent = time.process_time() - began
    print(
        f"{totals.scenarios:,} scenarios, {totals.runs:,} runs, {totals.steps:,} steps in {spent:.1f} s of CPU time"
    )
    print(
        f"{totals.answered:,} calls answered, {totals.refused:,} refused, {totals.crashes:,} workers crashed"
    )
    print(
        f"{totals.signals:,} signals, {totals.edits:,} changes of the keys; exits: {dict(sorted(totals.exits.items()))}"
    )
    print("every item ended exactly once, no work was lost, no call was too early, no run hung")
    return 0


if __name__ == "__main__":
    sys.exit(main())
