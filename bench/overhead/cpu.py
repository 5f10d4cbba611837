"""What an item costs: CPU time and page faults by process, beside bare LangGraph.

python -m bench.overhead.cpu [--items 40] [--rounds 3]

CPU time says what a busy machine hides in seconds: it counts only while a process runs. The first and the last items of
a run are left out, so that the cost of starting and ending it is in no figure per item. The kernel adds the CPU time and
page faults of a worker to those of the fork server when it reaps the worker, so nothing is missed however short it lives.
"""

import argparse
import contextlib
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.overhead import pauses
from bench.project import BenchProject, bench_project

HERE = Path(__file__).parent
SERVER = ["--keys", "4", "--latency", "0.02,0.02"]
EDGE = 5  # items at either end of a run that are not counted
SAMPLE_INTERVAL = 0.01  # seconds
CLOCK_TICKS = 100.0  # per second, in /proc/PID/stat
Usage = tuple[float, float, float]
"""CPU seconds, of these in the kernel, page faults."""


@dataclass(frozen=True, slots=True)
class Price:
    """Per item: milliseconds of CPU by process, of these in the kernel, page faults of a worker, and the pause.

    `start` is in seconds, from the command to its first call; `start_cpu` is the CPU time until then.
    """

    coordinator: float
    template: float
    worker: float
    system: float
    faults: float
    pause: float
    start: float
    start_cpu: float

    @property
    def cpu(self) -> float:
        return self.coordinator + self.template + self.worker


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    coordinator: Usage
    template: Usage
    workers: Usage


def main() -> None:
    args = _arguments()
    ours, bare = [], []
    for _ in range(args.rounds):
        ours.append(_ours(args.items))
        bare.append(_bare_langgraph(args.items))
    print(f"{args.items} items of two calls, one at a time; the best of {args.rounds} rounds (median)")
    rows: list[tuple[str, str, Callable[[Price], float]]] = [
        ("CPU per item", "ms", lambda price: price.cpu),
        ("  coordinator", "ms", lambda price: price.coordinator),
        ("  fork server", "ms", lambda price: price.template),
        ("  worker", "ms", lambda price: price.worker),
        ("  of all in the kernel", "ms", lambda price: price.system),
        ("page faults of a worker", "", lambda price: price.faults),
        ("end of an item to first node of the next", "ms", lambda price: price.pause),
        ("command to first call", "s", lambda price: price.start),
        ("CPU from command to first call", "s", lambda price: price.start_cpu),
    ]
    for name, unit, value in rows:
        found = [value(price) for price in ours]
        digits = 2 if unit == "s" else 0
        print(f"{name:<44}{min(found):>8.{digits}f} {unit:<3}({statistics.median(found):.{digits}f})")
    print(f"{'bare LangGraph, CPU per item':<44}{min(bare):>8.0f} ms ({statistics.median(bare):.0f})")


def _ours(items: int) -> Price:
    with bench_project(items, SERVER) as bench:
        command = [sys.executable, "-m", "agentos", "run", "lld", "--all", "--repo", str(bench.project)]
        started_at = time.time()
        process = subprocess.Popen(
            command, cwd=bench.project, env=bench.environment, stdout=subprocess.DEVNULL
        )
        samples = list(_samples(process))
        assert process.returncode == 0, f"exit code {process.returncode}"
        return _price(bench, samples, started_at)


def _price(bench: BenchProject, samples: list[_Sample], started_at: float) -> Price:
    home = Path(bench.environment["AGENTOS_HOME"])
    lines = (home / "logs" / "parallel" / "latest" / "events.jsonl").read_text().splitlines()
    journal = [json.loads(line) for line in lines]
    ends = [event["at"] for event in journal if event["type"] == "worker_exited"]
    first_call = next(event["at"] for event in journal if event["type"] == "lease_granted")
    first, last = _at(samples, ends[EDGE - 1]), _at(samples, ends[-EDGE - 1])
    items = len(ends) - 2 * EDGE
    used = [
        [(after - before) / items for before, after in zip(before, after, strict=True)]
        for before, after in (
            (first.coordinator, last.coordinator),
            (first.template, last.template),
            (first.workers, last.workers),
        )
    ]
    start = _at(samples, first_call)
    return Price(
        coordinator=1000 * used[0][0],
        template=1000 * used[1][0],
        worker=1000 * used[2][0],
        system=1000 * sum(system for _, system, _ in used),
        faults=used[2][2],
        pause=1000 * pauses.read(home).pause,
        start=first_call - started_at,
        start_cpu=start.coordinator[0] + start.template[0] + start.workers[0],
    )


def _at(samples: list[_Sample], moment: float) -> _Sample:
    """The first sample after this moment."""
    return next((sample for sample in samples if sample.at >= moment), samples[-1])


def _samples(process: "subprocess.Popen[bytes]") -> Iterator[_Sample]:
    template = 0
    while process.poll() is None:
        with contextlib.suppress(OSError, IndexError):
            template = template or int(_children(process.pid)[0])
            coordinator, _ = _usage(process.pid)
            own, workers = _usage(template)
            yield _Sample(time.time(), coordinator, own, workers)
        time.sleep(SAMPLE_INTERVAL)


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def _usage(pid: int) -> tuple[Usage, Usage]:
    """What a process has used itself, and what the children have that it has reaped."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    faults, child_faults = float(fields[7]), float(fields[8])
    user, system, child_user, child_system = (float(field) / CLOCK_TICKS for field in fields[11:15])
    return (user + system, system, faults), (child_user + child_system, child_system, child_faults)


def _bare_langgraph(items: int) -> float:
    """Milliseconds of CPU per item of a script with LangGraph, a SQLite file per item and the vendor's SDK."""
    few = 5
    with bench_project(items + few, SERVER) as bench:
        seconds = []
        for first, count in ((1, few), (few + 1, items)):
            before = _children_cpu()
            subprocess.run(
                [sys.executable, str(HERE / "bare_langgraph.py"), str(bench.project), str(first), str(count)],
                env=bench.environment,
                check=True,
            )
            seconds.append(_children_cpu() - before)
    return 1000 * (seconds[1] - seconds[0]) / (items - few)


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
