"""The same load on agentos and on the libraries that a user would pick instead, measured at the server.

python -m bench.keypool [--scenario NAME ...] [--client NAME ...] [--quick] [--jobs N]

efficiency is the best possible time for the served calls, by the server's own limiters, divided by the time that
they took; refused calls are those on usable keys; wasted calls went to a dead key; fairness is Jain's index over
the callers. Peers are installed on demand in bench/keypool/.venv. The scenarios minute and gemini take minutes and
hardly any CPU: --scenario minute gemini --jobs 14 runs all their cases at once.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.keypool import peers
from bench.keypool.harness import CLIENTS, BenchmarkCase, ClientSpec, Result, run
from bench.keypool.scenarios import NAMES, Scenario, scenario_named
from bench.keypool.table import HEAD, line_of

QUICK_CALLS = 40
QUICK_JOBS = 3
QUICK_CLIENTS = ("ours", "tenacity")
QUICK_SCENARIOS = ("bucket", "unequal")


def main() -> None:
    given = _arguments()
    clients = given.client or (QUICK_CLIENTS if given.quick else [spec.name for spec in CLIENTS])
    requested = [spec for spec in CLIENTS if spec.name in clients]
    specs = _present(requested, peers.installed if given.quick else peers.installable)
    scenarios = _scenarios(given)
    with ThreadPoolExecutor(given.jobs or (QUICK_JOBS if given.quick else 1)) as threads:
        results = list(threads.map(_run_and_print, _cases(scenarios, specs, given.ledgers)))
    print(HEAD)
    for result in results:
        print(line_of(result))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scenario", nargs="+", choices=NAMES)
    parser.add_argument("--client", nargs="+", choices=[spec.name for spec in CLIENTS])
    parser.add_argument(
        "--quick", action="store_true", help="two clients, two scenarios, few calls, nothing installed"
    )
    parser.add_argument("--calls", type=int, help="instead of the scenario's own number")
    parser.add_argument("--jobs", type=int, help="cases at a time; they disturb each other")
    parser.add_argument("--ledgers", type=Path, help="a folder for the server's call logs")
    return parser.parse_args()


def _present(specs: list[ClientSpec], is_available: Callable[[str], bool]) -> list[ClientSpec]:
    """agentos, and the peers that are installed."""
    found = [spec for spec in specs if not spec.is_peer or is_available(spec.name)]
    for spec in specs:
        if spec not in found:
            print(f"{spec.name} is not installed: the others run without it.", file=sys.stderr)
    return found


def _scenarios(given: argparse.Namespace) -> list[Scenario]:
    names = given.scenario or (QUICK_SCENARIOS if given.quick else NAMES)
    calls = given.calls or (QUICK_CALLS if given.quick else None)
    found = [scenario_named(name) for name in names]
    return [scenario.smaller(calls) for scenario in found] if calls else found


def _cases(
    scenarios: list[Scenario], specs: list[ClientSpec], ledgers: Path | None
) -> Iterator[BenchmarkCase]:
    if ledgers:
        ledgers.mkdir(parents=True, exist_ok=True)
    for scenario in scenarios:
        for spec in specs:
            for knowledge in spec.knowledge_levels:
                name = f"{scenario.name}-{spec.name}-{knowledge}.jsonl"
                yield BenchmarkCase(scenario, spec, knowledge, str(ledgers / name) if ledgers else "")


def _run_and_print(case: BenchmarkCase) -> Result:
    """Prints each result as soon as it is measured: the whole benchmark takes a while."""
    result = run(case)
    print(line_of(result), result.error_text.partition("\n")[0], file=sys.stderr)
    return result


if __name__ == "__main__":
    main()
