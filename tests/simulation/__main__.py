"""Thousands of imagined lives: `make simulate`, or one again: `make simulate SEED=...`."""

import argparse
import random
import sys
import time
import traceback

from .life import Life, Told

FIXED = 20_260_101


def survive(seeds: range, told: Told) -> int | None:
    """The first seed whose life goes wrong, if any does."""
    for seed in seeds:
        try:
            Life(seed, told).live()
        except Exception:
            traceback.print_exc()
            return seed
    return None


def replay(seed: int) -> int:
    trace: list[str] = []
    try:
        Life(seed, trace=trace).live()
    except Exception:
        print("\n".join(trace[-200:]))
        traceback.print_exc()
        return 1
    print("\n".join(trace))
    print(f"seed {seed}: {len(trace)} things happened, nothing went wrong")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="one life, told in full")
    parser.add_argument(
        "--lives", type=int, default=2000, help="from a fixed seed, and as many from a fresh one"
    )
    given = parser.parse_args()
    if given.seed is not None:
        return replay(given.seed)
    told, began = Told(), time.process_time()
    fresh = random.SystemRandom().randrange(10**9)
    for name, first in (("fixed", FIXED), ("fresh", fresh)):
        print(f"{given.lives:,} lives from the {name} seed {first}")
        if (seed := survive(range(first, first + given.lives), told)) is not None:
            print(f"seed {seed} went wrong; again with: make simulate SEED={seed}", file=sys.stderr)
            return 1
    spent = time.process_time() - began
    print(
        f"{told.lives:,} lives, {told.runs:,} runs, {told.steps:,} steps in {spent:.1f} s of processor time"
    )
    print(f"{told.answered:,} calls answered, {told.refused:,} refused, {told.deaths:,} workers died")
    print(
        f"{told.stops:,} signals, {told.edits:,} edits of the keys; exits: {dict(sorted(told.exits.items()))}"
    )
    print("every item ended once, nothing was lost, no call came too early, nothing stood still")
    return 0


if __name__ == "__main__":
    sys.exit(main())
