"""Six items of two calls each, one after the other and three at a time: ours beside what else people use.

python -m bench.overhead [--items 6] [--latency 1.0] [--alone]

Everybody asks the same offline server the same number of times through the vendor's SDK, in one run.
"beyond" is what a run takes over the time of its calls. "MB own" is what a worker adds while all are at work (private
memory), "MB shared out" is that with its share of what it shares with others (PSS), "MB in all" is the PSS of all
processes together at their largest.
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
MANY = 20
MOST_WORKERS = 10
LONG_CALL = 4.0
Command = Callable[[Path, int], list[str] | None]


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    alone: Watched
    together: Watched


def main() -> None:
    given = _arguments()
    print(f"{given.items} items, {CALLS} calls each, every call takes {given.latency:g} s")
    ways: list[tuple[str, Command]] = [("agentos", _ours)]
    if not given.alone:
        ways += [
            ("GNU parallel, a Python each", peers.gnu_parallel),
            ("ProcessPoolExecutor", peers.process_pool),
            ("snakemake", peers.snakemake),
        ]
    rows = [row for name, command in ways if (row := _row(name, command, given.items, given.latency))]
    _tell(rows, given.items * CALLS * given.latency)
    _tell_ours(given.items, given.latency)


def _row(name: str, command: Command, items: int, latency: float) -> Row | None:
    alone = _measure(command, items, latency, 1)
    together = _measure(command, items, latency, WORKERS) if alone else None
    return Row(name, alone, together) if alone and together else None


def _measure(command: Command, items: int, latency: float, workers: int) -> Watched | None:
    with bench_project(
        items, ["--keys", str(max(KEYS, workers)), "--latency", f"{latency},{latency}"]
    ) as here:
        words = command(here.project, workers)
        if words is None:
            return None
        watched = watch(words, here.project, here.environment)
        made = [*here.project.glob("out/*.md"), *here.project.glob("docs/lld/active/*.md")]
        assert len(made) == items, f"{len(made)} of {items} results"
        return watched


def _ours(project: Path, workers: int) -> list[str]:
    words = ["run", "lld", "--all", "--parallel", str(workers), "--repo", str(project)]
    return [sys.executable, "-m", "agentos", *words]


def _tell(rows: list[Row], calls: float) -> None:
    head = (
        "sequential",
        f"{WORKERS} workers",
        "share",
        "beyond",
        "CPU s",
        "MB own",
        "MB shared out",
        "MB in all",
    )
    print(f"{'':<28}" + "".join(f"{word:>14}" for word in head))
    for row in rows:
        alone, together = row.alone, row.together
        cells = (
            f"{alone.seconds:.2f} s",
            f"{together.seconds:.2f} s",
            f"{100 * together.seconds / alone.seconds:.1f} %",
            f"{together.seconds - calls / WORKERS:.2f} s",
            f"{together.cpu:.1f}",
            f"{together.own:.0f}",
            f"{together.share:.0f}",
            f"{together.whole:.0f}",
        )
        print(f"{row.name:<28}" + "".join(f"{cell:>14}" for cell in cells))
    for row in rows[1:]:
        ratio = row.together.seconds / rows[0].together.seconds
        print(f"{row.name} takes {ratio:.2f} times as long as agentos with {WORKERS} workers")


def _tell_ours(items: int, latency: float) -> None:
    """One after the other, so that nobody else's start lies in a pause."""
    quick = _told(MANY, 0.05, 1)
    slow = _told(items, latency, WORKERS)
    print(
        f"pause from an item's end to the next one's first node, median of {MANY - 1}: {1000 * quick.pause:.0f} ms"
    )
    print(f"coordination, of the workers' time with calls of {latency:g} s: {100 * slow.coordination:.2f} %")
    print(f"all that is no call, saving the state included: {100 * slow.apart:.1f} %")
    for workers in (WORKERS, MOST_WORKERS):
        # So long that all of them have begun before the first one ends.
        if watched := _measure(_ours, workers, LONG_CALL, workers):
            print(f"a worker of {workers}: {watched.own:.0f} MB own, {watched.share:.0f} MB shared out")


def _told(items: int, latency: float, workers: int) -> pauses.Told:
    with bench_project(items, ["--keys", str(KEYS), "--latency", f"{latency},{latency}"]) as here:
        done = here.run("--all", "--parallel", str(workers))
        assert done.returncode == 0, done.stdout + done.stderr
        return pauses.read(_home(here))


def _home(here: BenchProject) -> Path:
    return Path(here.environment["AGENTOS_HOME"])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, default=6)
    parser.add_argument("--latency", type=float, default=1.0)
    parser.add_argument("--alone", action="store_true", help="agentos alone")
    return parser.parse_args()


if __name__ == "__main__":
    main()
