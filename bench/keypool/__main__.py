"""The same load on ours and on what a user would pick instead, counted at the server.

python -m bench.keypool [--scenario NAME ...] [--client NAME ...] [--quick] [--jobs N]

efficiency is the best possible time, by the server's own limiters, for the calls that were served, over the
time that they took; refused calls are those of living keys; wasted ones went to a key that is dead; fairness
is Jain's index over the callers. Peers are installed on demand in bench/keypool/.venv. The scenarios minute and
gemini take minutes and hardly any CPU: --scenario minute gemini --jobs 14 runs all their races at one time.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.keypool import peers
from bench.keypool.harness import ENTRANTS, Entrant, Race, Result, run
from bench.keypool.scenarios import NAMES, Scenario, scenario_named
from bench.keypool.table import HEAD, line_of

QUICK_CALLS = 40
QUICK_JOBS = 3
QUICK_CLIENTS = ("ours", "tenacity")
QUICK_SCENARIOS = ("bucket", "unequal")


def main() -> None:
    given = _arguments()
    clients = given.client or (QUICK_CLIENTS if given.quick else [entrant.name for entrant in ENTRANTS])
    asked = [entrant for entrant in ENTRANTS if entrant.name in clients]
    entrants = _present(asked, peers.installed if given.quick else peers.installable)
    scenarios = _scenarios(given)
    with ThreadPoolExecutor(given.jobs or (QUICK_JOBS if given.quick else 1)) as threads:
        results = list(threads.map(_told, _races(scenarios, entrants, given.ledgers)))
    print(HEAD)
    for result in results:
        print(line_of(result))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scenario", nargs="+", choices=NAMES)
    parser.add_argument("--client", nargs="+", choices=[entrant.name for entrant in ENTRANTS])
    parser.add_argument(
        "--quick", action="store_true", help="two clients, two scenarios, few calls, nothing installed"
    )
    parser.add_argument("--calls", type=int, help="instead of the scenario's own number")
    parser.add_argument("--jobs", type=int, help="races at one time; they disturb each other")
    parser.add_argument("--ledgers", type=Path, help="a folder for what the server wrote of each call")
    return parser.parse_args()


def _present(entrants: list[Entrant], is_there: Callable[[str], bool]) -> list[Entrant]:
    """Ours, and the peers that are there."""
    found = [entrant for entrant in entrants if not entrant.is_peer or is_there(entrant.name)]
    for entrant in entrants:
        if entrant not in found:
            print(f"{entrant.name} is not installed: the others run without it.", file=sys.stderr)
    return found


def _scenarios(given: argparse.Namespace) -> list[Scenario]:
    names = given.scenario or (QUICK_SCENARIOS if given.quick else NAMES)
    calls = given.calls or (QUICK_CALLS if given.quick else None)
    found = [scenario_named(name) for name in names]
    return [scenario.smaller(calls) for scenario in found] if calls else found


def _races(scenarios: list[Scenario], entrants: list[Entrant], ledgers: Path | None) -> Iterator[Race]:
    if ledgers:
        ledgers.mkdir(parents=True, exist_ok=True)
    for scenario in scenarios:
        for entrant in entrants:
            for telling in entrant.tellings:
                name = f"{scenario.name}-{entrant.name}-{telling}.jsonl"
                yield Race(scenario, entrant, telling, str(ledgers / name) if ledgers else "")


def _told(race: Race) -> Result:
    """Tells what was measured at once: the whole takes a while."""
    result = run(race)
    print(line_of(result), result.trouble.partition("\n")[0], file=sys.stderr)
    return result


if __name__ == "__main__":
    main()
