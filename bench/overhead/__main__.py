"""Runs six items of two calls each, sequentially and three at a time, with agentos and its alternatives.

python -m bench.overhead [--items 6] [--latency 1.0] [--alone]

All of them make the same calls to the same offline server through the vendor's SDK.
"beyond" is the duration of a run minus the time of its calls. "MB own" is the private memory of a worker while all workers
are busy, "MB PSS" also includes its share of shared memory, "MB total" is the peak PSS of all processes.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.overhead import pauses, peers
from bench.overhead.watching import Watched, watch
from bench.project import BenchProject, bench_project

WORKERS = 3
CALLS = 2
KEYS = 4
MANY_ITEMS = 20
MAX_WORKERS = 10
LONG_CALL = 4.0  # seconds
Command = Callable[[Path, int], list[str] | None]


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    sequential: Watched
    parallel: Watched


def main() -> None:
    args = _arguments()
    print(f"{args.items} items, {CALLS} calls each, every call takes {args.latency:g} s")
    commands: list[tuple[str, Command]] = [("agentos", _ours)]
    if not args.alone:
        commands += [
            ("GNU parallel, a Python each", peers.gnu_parallel),
            ("ProcessPoolExecutor", peers.process_pool),
            ("snakemake", peers.snakemake),
        ]
    rows = [row for name, command in commands if (row := _row(name, command, args.items, args.latency))]
    _print_rows(rows, args.items * CALLS * args.latency)
    _print_details(args.items, args.latency)


def _row(name: str, command: Command, items: int, latency: float) -> Row | None:
    sequential = _measure(command, items, latency, 1)
    parallel = _measure(command, items, latency, WORKERS) if sequential else None
    return Row(name, sequential, parallel) if sequential and parallel else None


def _measure(command: Command, items: int, latency: float, workers: int) -> Watched | None:
    with bench_project(
        items, ["--keys", str(max(KEYS, workers)), "--latency", f"{latency},{latency}"]
    ) as bench:
        argv = command(bench.project, workers)
        if argv is None:
            return None
        watched = watch(argv, bench.project, bench.environment)
        results = [*bench.project.glob("out/*.md"), *bench.project.glob("docs/lld/active/*.md")]
        assert len(results) == items, f"{len(results)} of {items} results"
        return watched


def _ours(project: Path, workers: int) -> list[str]:
    args = ["run", "lld", "--all", "--parallel", str(workers), "--repo", str(project)]
    return [sys.executable, "-m", "agentos", *args]


def _print_rows(rows: list[Row], calls: float) -> None:
    header = (
        "sequential",
        f"{WORKERS} workers",
        "share",
        "beyond",
        "CPU s",
        "MB own",
        "MB PSS",
        "MB total",
    )
    print(f"{'':<28}" + "".join(f"{column:>14}" for column in header))
    for row in rows:
        sequential, parallel = row.sequential, row.parallel
        cells = (
            f"{sequential.seconds:.2f} s",
            f"{parallel.seconds:.2f} s",
            f"{100 * parallel.seconds / sequential.seconds:.1f} %",
            f"{parallel.seconds - calls / WORKERS:.2f} s",
            f"{parallel.cpu:.1f}",
            f"{parallel.own:.0f}",
            f"{parallel.share:.0f}",
            f"{parallel.whole:.0f}",
        )
        print(f"{row.name:<28}" + "".join(f"{cell:>14}" for cell in cells))
    for row in rows[1:]:
        ratio = row.parallel.seconds / rows[0].parallel.seconds
        print(f"{row.name} takes {ratio:.2f} times as long as agentos with {WORKERS} workers")


def _print_details(items: int, latency: float) -> None:
    """Print the pauses, coordination and memory of agentos itself."""
    quick = _read_journal(MANY_ITEMS, 0.05, 1)
    slow = _read_journal(items, latency, WORKERS)
    print(
        f"pause between an item's end and the next item's first node, median of {MANY_ITEMS - 1}: {1000 * quick.pause:.0f} ms"
    )
    print(f"coordination, share of worker time with calls of {latency:g} s: {100 * slow.coordination:.2f} %")
    print(f"everything except calls, including saving state: {100 * slow.other:.1f} %")
    for workers in (WORKERS, MAX_WORKERS):
        # Calls last so long that all workers have started before the first one ends.
        if watched := _measure(_ours, workers, LONG_CALL, workers):
            print(f"a worker of {workers}: {watched.own:.0f} MB own, {watched.share:.0f} MB PSS")


def _read_journal(items: int, latency: float, workers: int) -> pauses.JournalTimes:
    with bench_project(items, ["--keys", str(KEYS), "--latency", f"{latency},{latency}"]) as bench:
        done = bench.run("--all", "--parallel", str(workers))
        assert done.returncode == 0, done.stdout + done.stderr
        return pauses.read(_home(bench))


def _home(bench: BenchProject) -> Path:
    return Path(bench.environment["AGENTOS_HOME"])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, default=6)
    parser.add_argument("--latency", type=float, default=1.0)
    parser.add_argument("--alone", action="store_true", help="measure agentos only")
    return parser.parse_args()


if __name__ == "__main__":
    main()
