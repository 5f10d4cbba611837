"""Runs the campaign and prints what it found: python -m tests.fleet.chaos [--seed N] [--short]."""

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.fleet.chaos.campaign import (
    SHORT_FORM,
    WHOLE,
    FleetCampaignOptions,
    fleet_figures,
    run_fleet_campaign,
)
from tests.fleet.servers import MissingServer


def main() -> int:
    args = _parser().parse_args()
    print(f"chaos on a fleet with seed {args.seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="agentos-fleet-chaos-"))
    counts = SHORT_FORM if args.short else WHOLE
    options = FleetCampaignOptions(
        args.seed, args.items or (12 if args.short else 100), counts, args.minutes * 60
    )
    try:
        report = run_fleet_campaign(folder / "work", options)
    except MissingServer as error:
        print(error, file=sys.stderr)
        return 3
    print(*fleet_figures(report), sep="\n", flush=True)
    if report.violations:
        print(f"{len(report.violations)} violations; everything is kept in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fleet.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--items", type=int, default=0, help="issues at the start (100; 12 with --short)")
    parser.add_argument("--minutes", type=float, default=60.0, help="time limit in minutes (60)")
    parser.add_argument("--short", action="store_true", help="the short form, as in the tests")
    return parser


if __name__ == "__main__":
    sys.exit(main())
