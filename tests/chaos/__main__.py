"""Runs a campaign and says what was found: python -m tests.chaos [--seed N] [--items N] [--kills N]."""

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.chaos.campaign import Wish, conduct, figures
from tests.chaos.steps import STEPS
from tests.chaos.sweep import sweep_coordinators, sweep_designs, sweep_filings
from tests.faults.shim import compiled

MOST_CALLS = 300
"""A worker makes some 230 to 275 durable calls, the coordinator of one item some 100, more after others were killed."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--items", type=int, default=100, help="issues and briefs (100)")
    parser.add_argument("--kills", type=int, default=500, help="kills and freezes (500)")
    parser.add_argument("--minutes", type=float, default=15.0, help="at most (15)")
    parser.add_argument("--stride", type=int, default=6, help="every so many-th durable call (6); 1 is all")
    given = parser.parse_args()
    seconds = given.minutes * 60
    wish = Wish(given.seed, given.items, given.kills, trouble=seconds, seconds=seconds)
    print(f"chaos with seed {wish.seed}, at most {given.minutes:g} minutes ...", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="agentos-chaos-"))
    report = conduct(folder / "stage", wish)
    for line in figures(report):
        print(line, flush=True)
    violations = [*report.violations, *_sweeps(folder, given.seed, given.stride), *_steps(folder)]
    if violations:
        print(f"everything is kept in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


def _sweeps(folder: Path, seed: int, stride: int) -> list[str]:
    """SIGKILL in place of durable calls, from one that the seed chooses on."""
    if compiled() is None:
        print("durable calls: not swept, for want of a C compiler")
        return []
    places = range(1 + seed % stride, MOST_CALLS, stride)
    found: list[str] = []
    for sweep in (sweep_designs, sweep_filings, sweep_coordinators):
        done = sweep(folder / sweep.__name__, places)
        print(done, *(f"  - {one}" for one in done.violations[:20]), sep="\n", flush=True)
        found += done.violations
    return found


def _steps(folder: Path) -> list[str]:
    found: list[str] = []
    for name, step in STEPS.items():
        if compiled() is None and name in ("power", "filing"):
            continue
        against = step(folder / f"step-{name}", {})
        print(f"{name}: {len(against)} violations", *against[:5], sep="\n  - ", flush=True)
        found += against
    return found


if __name__ == "__main__":
    sys.exit(main())
