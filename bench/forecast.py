"""What `--dry-run` says beside what the run then takes, on the offline server, for several shapes.

python -m bench.forecast [--items 8] [--runs 2] [--shape tokens]

Every item needs two calls, and the server takes the same time for the same prompt: so rounds and latency are the same in
each run, and the error is that of the forecast and of a machine that is busier than before. "Minutes" have 10 s.
The share of the error that is the machine's stands beside it: how much later the first worker was there than before.
Ends with 1 if a forecast, from the second run on, is off by more than 15 %.
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


ALLOWED = 0.15
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
    fact: float
    calls: tuple[int, int]
    bottleneck: str
    later: float

    @property
    def error(self) -> float:
        return self.forecast / self.fact - 1


def measure(shape: Shape, items: int, runs: int) -> list[Measured]:
    """The first run teaches; each later one is foretold, then made."""
    found = []
    with bench_project(items, list(shape.server)) as here:
        here.environment["AGENTOS_KEY_CONCURRENCY"] = str(shape.concurrency)
        warm_ups = [_warm_up(_run(here, shape))]
        for _ in range(runs - 1):
            shutil.rmtree(here.project / "docs")
            told = _foretold(here, shape)
            fact = _run(here, shape)
            seconds, usage = fact["seconds"], fact["usage"]
            assert isinstance(seconds, float) and isinstance(usage, dict)
            assert isinstance(told["seconds"], float) and isinstance(told["calls"], int)
            calls = (told["calls"], int(usage["calls"]))
            later = _warm_up(fact) - median(warm_ups[-3:])
            warm_ups.append(_warm_up(fact))
            found.append(Measured(told["seconds"], seconds, calls, str(told["bottleneck"]), later))
    return found


def _warm_up(fact: dict[str, object]) -> float:
    found = fact["warm_up"]
    assert isinstance(found, float)
    return found


def _foretold(here: BenchProject, shape: Shape) -> dict[str, object]:
    done = here.run("--all", "--parallel", str(shape.workers), "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def _run(here: BenchProject, shape: Shape) -> dict[str, object]:
    done = here.run("--all", "--parallel", str(shape.workers))
    assert done.returncode == 0, done.stdout + done.stderr
    return here.summary()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=8)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--shape", default="", help="only those whose name begins so")
    given = parser.parse_args()
    print(
        f"{'shape':<40} {'run':>3} {'forecast':>9} {'fact':>8} {'error':>7} {'later':>6}  calls    bottleneck"
    )
    worst = 0.0
    for shape in (one for one in SHAPES if one.name.startswith(given.shape)):
        for number, one in enumerate(measure(shape, given.items, given.runs), 2):
            worst = max(worst, abs(one.error))
            print(
                f"{shape.name:<40} {number:>3} {one.forecast:>8.1f}s {one.fact:>7.1f}s {one.error:>+7.1%} {one.later:>+5.1f}s  "
                f"{one.calls[0]}/{one.calls[1]}    {one.bottleneck}",
                flush=True,
            )
    print(f"worst: {worst:.1%} off, allowed are {ALLOWED:.0%}")
    return int(worst > ALLOWED)


if __name__ == "__main__":
    sys.exit(main())
