"""Runs a campaign and prints its findings: python -m tests.chaos [--seed N] [--stride N] [--only PART ...]."""

import argparse
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.chaos.campaign import CampaignOptions, figures, run_campaign
from tests.chaos.decisions import Act
from tests.chaos.killing import Sweep
from tests.chaos.mixed import MixedOptions, has_namespaces, has_overlay, run_mixed, run_on_overlay
from tests.chaos.mixed import figures as mixed_figures
from tests.chaos.replaced_files import sweep_replaced_files
from tests.chaos.steps import SHIMMED, STEPS
from tests.chaos.sweep import calls_of_a_worker, sweep_coordinators, sweep_designs, sweep_filings
from tests.chaos.sweep_gated_runs import sweep_gated_runs
from tests.chaos.sweep_gates import calls_of_gates, sweep_decided, sweep_parkings
from tests.chaos.sweep_gateways import ALONE, BESIDE, sweep_gateways
from tests.chaos.sweep_programs import COORDINATOR, GATEWAY, WORKER, sweep_programs
from tests.chaos.sweep_reviews import calls_of_a_review, sweep_reviews
from tests.faults.shim import compiled

PARTS = ("campaign", "mixed", "overlay", "replaced", "sweeps", "steps")
MOST_CALLS = 500
"""More than a coordinator makes; the sweep stops after the last call."""
FEWEST_CALLS = 8
"""Calls of a worker of `exec`, the fewest of all: the first call swept must exist at any stride."""
MOST_OF_A_GATEWAY = 100
"""The same for a gateway; there is a key for each call."""


def main() -> int:
    args = _parser().parse_args()
    print(f"chaos with seed {args.seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="agentos-chaos-"))
    violations: list[str] = []
    if "campaign" in args.only:
        violations += _campaign(folder, args)
    if "mixed" in args.only:
        violations += _mixed(folder, args)
    if "overlay" in args.only:
        violations += _overlay(folder, args)
    if "replaced" in args.only:
        violations += _print_sweep(
            sweep_replaced_files(folder / "replaced", random.Random(args.seed), args.cases)
        )
    if "sweeps" in args.only:
        violations += _sweeps(folder, args.seed, args.stride)
    if "steps" in args.only:
        violations += _steps(folder)
    if violations:
        print(f"{len(violations)} violations; everything is kept in {folder}")
        return 1
    shutil.rmtree(folder)
    print("no violation")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--items", type=int, default=100, help="issues and briefs (100)")
    parser.add_argument("--kills", type=int, default=500, help="kills and freezes (500)")
    parser.add_argument("--minutes", type=float, default=30.0, help="time limit in minutes (30)")
    parser.add_argument("--stride", type=int, default=1, help="kill at every N-th durable call (1: all)")
    parser.add_argument("--cases", type=int, default=None, help="replace this many files and folders (all)")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="run only these parts")
    return parser


def _campaign(folder: Path, args: argparse.Namespace) -> list[str]:
    seconds = args.minutes * 60
    options = CampaignOptions(args.seed, args.items, args.kills, trouble=seconds, seconds=seconds)
    report = run_campaign(folder / "work", options)
    print(*figures(report), sep="\n", flush=True)
    short = [] if report.is_whole else [f"only {report.evidence.injector.total} of {options.kills} injected"]
    return [*report.violations, *short]


def _mixed(folder: Path, args: argparse.Namespace) -> list[str]:
    """Half as many faults as the campaign, but of every kind at once."""
    if not has_namespaces():
        print("mixed campaign without a container: namespaces need root", flush=True)
    options = MixedOptions(
        args.seed, args.items // 2, args.items // 2, args.kills // 2, args.minutes * 60, has_namespaces()
    )
    campaign = run_mixed(folder / "mixed", options)
    print(*mixed_figures(campaign), sep="\n", flush=True)
    return campaign.violations


def _overlay(folder: Path, args: argparse.Namespace) -> list[str]:
    if not has_overlay(folder / "overlay-probe"):
        print("no campaign on an overlay: this machine allows no overlay mount")
        return []
    done = run_on_overlay(
        folder / "overlay", args.seed, items=args.items // 5, kills=args.kills // 5, minutes=args.minutes
    )
    print(done.stdout, done.stderr, sep="", flush=True)
    return [] if done.returncode == 0 else ["the campaign on an overlay found violations"]


def _sweeps(folder: Path, seed: int, stride: int) -> list[str]:
    """Send SIGKILL in place of durable calls, starting at one chosen by the seed."""
    if compiled() is None:
        print("durable calls not swept: no C compiler found")
        return []

    def call_numbers(last: int = MOST_CALLS) -> range:
        return range(1 + seed % min(stride, FEWEST_CALLS), last + 1, stride)

    violations: list[str] = []
    for sweep, program in ((sweep_designs, "lld-workflow"), (sweep_filings, "issue-workflow")):
        last = calls_of_a_worker(folder / f"count-{program}", program)
        violations += _print_sweep(sweep(folder / sweep.__name__, call_numbers(last)))
    violations += _print_sweep(sweep_coordinators(folder / "coordinators", call_numbers()))
    for who in (COORDINATOR, WORKER, GATEWAY):
        violations += _print_sweep(sweep_programs(folder / f"programs-{who}", call_numbers(), who))
    for mode in (ALONE, BESIDE):
        violations += _print_sweep(
            sweep_gateways(folder / f"gateways-{mode}", call_numbers(MOST_OF_A_GATEWAY), mode)
        )
    return violations + _swept_gates(folder, call_numbers)


def _swept_gates(folder: Path, call_numbers: Callable[..., range]) -> list[str]:
    """Sweeps over the human review gates."""
    violations = _print_sweep(sweep_gated_runs(folder / "gated", call_numbers()))
    for act in Act:
        name = act.name.casefold()
        parking, resuming = calls_of_gates(folder / f"count-{name}", act)
        if act is Act.APPROVE:
            violations += _print_sweep(sweep_parkings(folder / "parkings", call_numbers(parking)))
        violations += _print_sweep(sweep_decided(folder / f"decided-{name}", call_numbers(resuming), act))
        last = calls_of_a_review(folder / f"count-review-{name}", act)
        violations += _print_sweep(sweep_reviews(folder / f"reviews-{name}", call_numbers(last), act))
    return violations


def _print_sweep(done: Sweep) -> list[str]:
    print(done, *(f"  - {violation}" for violation in done.violations[:20]), sep="\n", flush=True)
    return done.violations


def _steps(folder: Path) -> list[str]:
    violations: list[str] = []
    for name, step in STEPS.items():
        if compiled() is None and step in SHIMMED:
            continue
        step_violations = step(folder / f"step-{name}", {})
        print(f"{name}: {len(step_violations)} violations", *step_violations[:5], sep="\n  - ", flush=True)
        violations += step_violations
    return violations


if __name__ == "__main__":
    sys.exit(main())
