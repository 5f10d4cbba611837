"""Runs a campaign and says what was found: python -m tests.chaos [--seed N] [--items N] [--kills N]."""

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.chaos.campaign import Wish, conduct, figures


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--items", type=int, default=100, help="issues and briefs (100)")
    parser.add_argument("--kills", type=int, default=200, help="kills and freezes (200)")
    parser.add_argument("--minutes", type=float, default=10.0, help="at most (10)")
    given = parser.parse_args()
    seconds = given.minutes * 60
    wish = Wish(given.seed, given.items, given.kills, trouble=seconds, seconds=seconds)
    print(f"chaos with seed {wish.seed}, at most {given.minutes:g} minutes ...", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="agentos-chaos-"))
    report = conduct(folder / "stage", wish)
    for line in figures(report):
        print(line)
    if report.violations:
        print(f"everything is kept in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
