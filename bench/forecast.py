"""Compares the forecast of `--dry-run` with the duration of the actual run, for several setups.

python -m bench.forecast [--items 8] [--runs 2] [--shape tokens]

Every item needs two calls, and the offline server takes the same time for the same prompt. Rounds and latency are
therefore equal in all runs, and the error is due to the forecast or to a busier machine; the column "later" shows how much
later the first worker started than before. Rate limits use windows of 10 s instead of a minute.
Exits with 1 if a forecast, from the second run on, is off by more than 15 %.
"""

import argparse
import json
import shutil
import sys
from dataclasses import dataclass
from statistics import median

from bench.project import BenchProject, bench_project


@dataclass(frozen=True)
class Shape:
    name: str
    server: tuple[str, ...]
    workers: int
    concurrency: int = 1


MAX_ERROR = 0.15
SLOW = ("--latency", "2,4")
QUICK = ("--latency", "0.5,1")
SHAPES = (
    Shape("latency: 3 workers, 4 keys", ("--keys", "4", *SLOW), 3),
    Shape("keys: 5 workers, 2 keys, one call each", ("--keys", "2", *SLOW), 5),
    Shape("rate: 4 calls in 10 s, 2 keys", ("--keys", "2", "--rpm", "4", "--seconds", "10", *QUICK), 4, 4),
    Shape("tokens: 4,000 in 10 s, 2 keys", ("--keys", "2", "--tpm", "4000", "--seconds", "10", *QUICK), 4, 4),
)


@dataclass(frozen=True)
class Measured:
    forecast: float
    actual: float
    calls: tuple[int, int]
    bottleneck: str
    later: float

    @property
    def error(self) -> float:
        return self.forecast / self.actual - 1


def measure(shape: Shape, items: int, runs: int) -> list[Measured]:
    """The first run provides the history; each later one is forecast, then run."""
    results = []
    with bench_project(items, list(shape.server)) as bench:
        bench.environment["AGENTOS_KEY_CONCURRENCY"] = str(shape.concurrency)
        warm_ups = [_warm_up(_run(bench, shape))]
        for _ in range(runs - 1):
            shutil.rmtree(bench.project / "docs")
            forecast = _forecast(bench, shape)
            summary = _run(bench, shape)
            seconds, usage = summary["seconds"], summary["usage"]
            assert isinstance(seconds, float) and isinstance(usage, dict)
            assert isinstance(forecast["seconds"], float) and isinstance(forecast["calls"], int)
            calls = (forecast["calls"], int(usage["calls"]))
            later = _warm_up(summary) - median(warm_ups[-3:])
            warm_ups.append(_warm_up(summary))
            results.append(Measured(forecast["seconds"], seconds, calls, str(forecast["bottleneck"]), later))
    return results


def _warm_up(summary: dict[str, object]) -> float:
    seconds = summary["warm_up_seconds"]
    assert isinstance(seconds, float)
    return seconds


def _forecast(bench: BenchProject, shape: Shape) -> dict[str, object]:
    done = bench.run("--all", "--parallel", str(shape.workers), "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    record: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return record


def _run(bench: BenchProject, shape: Shape) -> dict[str, object]:
    done = bench.run("--all", "--parallel", str(shape.workers))
    assert done.returncode == 0, done.stdout + done.stderr
    return bench.summary()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=8)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--shape", default="", help="only shapes whose name starts with this")
    args = parser.parse_args()
    print(
        f"{'shape':<40} {'run':>3} {'forecast':>9} {'actual':>8} {'error':>7} {'later':>6}  calls    bottleneck"
    )
    worst = 0.0
    for shape in (shape for shape in SHAPES if shape.name.startswith(args.shape)):
        for number, result in enumerate(measure(shape, args.items, args.runs), 2):
            worst = max(worst, abs(result.error))
            print(
                f"{shape.name:<40} {number:>3} {result.forecast:>8.1f}s {result.actual:>7.1f}s {result.error:>+7.1%} {result.later:>+5.1f}s  "
                f"{result.calls[0]}/{result.calls[1]}    {result.bottleneck}",
                flush=True,
            )
    print(f"worst: {worst:.1%} off, limit {MAX_ERROR:.0%}")
    return int(worst > MAX_ERROR)


if __name__ == "__main__":
    sys.exit(main())
