"""Runs each step of the campaign against the planted bugs: python -m tests.chaos.mutants [NAME]."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.mutants import MUTANTS, Mutant
from tests.chaos.steps import STEPS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="some of them; all if none is named")
    names = parser.parse_args().names
    chosen = [mutant for mutant in MUTANTS if not names or mutant.name in names]
    missed = 0
    for step in sorted({mutant.step for mutant in chosen}):
        found = _run(step, {})
        missed += bool(found)
        print(
            f"{'FAILED' if found else 'ok':<8}{step:<8} without a bug: {found[:1] or 'nothing found'}",
            flush=True,
        )
    for mutant in chosen:
        caught = catch(mutant)
        missed += not caught
        print(
            f"{'caught' if caught else 'MISSED':<8}{mutant.step:<8} {mutant.name}: {caught[:1]}", flush=True
        )
    print(f"{len(chosen)} planted bugs, {missed} problems")
    return 1 if missed else 0


def catch(mutant: Mutant) -> list[str]:
    """What its step finds against it."""
    return _run(mutant.step, mutant.environment())


def _run(step: str, environment: dict[str, str]) -> list[str]:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="agentos-mutant-") as folder:
        try:
            return STEPS[step](Path(folder) / "work", environment)
        except AssertionError as error:
            # A step that cannot be carried out has caught nothing.
            print(f"{step} broke off after {time.monotonic() - began:.0f} s: {str(error)[:300]}")
            return [] if environment else ["it broke off"]


if __name__ == "__main__":
    sys.exit(main())
