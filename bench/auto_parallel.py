"""`--parallel auto` compared with every fixed number of workers, over a table of keys and call times.

python -m bench.auto_parallel [--items 60] [--real]

By default the real scheduler and pool run with simulated workers on a virtual clock, so the whole table takes seconds.
--real runs the command itself against the offline server, for a few rows. A ratio of 1.00 is the time of the best fixed
number; the aim is at most 1.05.
"""

import argparse
import random
from collections.abc import Iterator
from dataclasses import dataclass

from agentos.core.constants import AUTO_PARALLEL, MAX_PARALLEL
from agentos.core.forecast.discrete_events import EventSimulator, Observed, ReplayWorkers
from agentos.core.forecast.history import CallTrace, ItemTrace
from agentos.core.protocol import events
from agentos.core.protocol.results import Usage
from agentos.core.quota.budget import Limits
from agentos.core.quota.credentials import Credential
from agentos.core.quota.pool import Pool
from agentos.core.ratelimit.limits import Dimension, Rate
from agentos.core.scheduling.scheduler import Scheduler
from agentos.core.text.secrets import Secret
from bench.project import bench_project

NODES = (("N0_load_issue", 0), ("N1_design", 0), ("N3_review", 1), ("N4_finalize", 2))
CALLS = 4
SPREAD = 0.5  # calls and pauses take up to this share more or less
REAL_ROWS = ((1, 0.5), (2, 0.5), (4, 0.5), (8, 0.5), (4, 2.0))  # keys, seconds per call
REAL_COUNTS = (1, 2, 4, 8, 10)


@dataclass(frozen=True, slots=True)
class Setting:
    """Seconds of a call and between two calls; requests per minute of each key, if it is limited."""

    keys: int
    call: float
    between: float
    rpm: int | None = None
    concurrency: int = 1
    most: int = MAX_PARALLEL


@dataclass(frozen=True, slots=True)
class Row:
    setting: Setting
    best_workers: int
    best: float
    auto: float
    counts: tuple[int, ...]
    """The numbers of workers that the automatic run has had."""

    @property
    def ratio(self) -> float:
        return self.auto / self.best


def settings() -> Iterator[Setting]:
    for keys in (1, 2, 4, 8):
        for call, between in ((1.0, 0.1), (1.0, 2.0), (5.0, 1.0), (20.0, 20.0)):
            for rpm in (None, 6):
                yield Setting(keys, call, between, rpm)
    yield Setting(4, 5.0, 1.0, None, 4)
    yield Setting(4, 5.0, 1.0, None, 4, 64)
    yield Setting(20, 5.0, 5.0, None, 1, 64)
    yield Setting(20, 5.0, 5.0, 6, 1, 64)


def measure(setting: Setting, items: int) -> Row:
    # With more workers than these, more than half of them wait.
    counts = sorted({1, 2, 3, 4, 6, 8, 10, 16, 24, 32, 48, setting.most})
    times = {workers: _simulate(setting, items, workers)[0] for workers in counts if workers <= setting.most}
    best = min(times, key=lambda workers: (times[workers], workers))
    seconds, seen = _simulate(setting, items, AUTO_PARALLEL)
    return Row(setting, best, times[best], seconds, tuple(seen))


def _simulate(setting: Setting, items: int, workers: int) -> tuple[float, list[int]]:
    names = tuple(f"LLD-{number}" for number in range(1, items + 1))
    scheduler = Scheduler(
        names,
        Pool([_credential(setting, number) for number in range(1, setting.keys + 1)]),
        Limits(workers, max_parallel=setting.most),
        lambda: 0.5,
        0.0,
    )
    counts = [scheduler.choose_workers(0.0)]

    def observe(observed: Observed, at: float) -> None:
        if isinstance(observed, events.WorkerCountChanged):
            counts.append(observed.workers)

    simulator = EventSimulator(scheduler, ReplayWorkers(_traces(setting, names), 0.2), 0.0, observe)
    simulator.begin()
    while not scheduler.over:
        simulator.step()
    assert scheduler.exit_code() == 0, scheduler.exit_code()
    return simulator.now, counts


def _credential(setting: Setting, number: int) -> Credential:
    rates = () if setting.rpm is None else ((Dimension.REQUESTS, Rate(setting.rpm, 60.0)),)
    secret = Secret(f"secret-{number}")
    return Credential(f"key-{number}", "gemini", secret, concurrency=setting.concurrency, rates=rates)


def _traces(setting: Setting, names: tuple[str, ...]) -> dict[str, ItemTrace]:
    chance = random.Random(1)

    def around(seconds: float) -> float:
        return seconds * chance.uniform(1 - SPREAD, 1 + SPREAD)

    request = events.LeaseRequested("", "", ("gemini",), ("gemini-2.5-pro",), 1000, 500)
    return {
        name: ItemTrace(
            0.02,
            tuple(
                CallTrace(around(setting.between), request, around(setting.call), Usage(1, 1000, 500))
                for _ in range(CALLS)
            ),
            around(setting.between),
            NODES,
        )
        for name in names
    }


def _print_table(items: int) -> None:
    print(f"{items} items of {CALLS} calls, virtual clock; every duration varies by {SPREAD:.0%}")
    print(f"{'keys':>4} {'call s':>7} {'between s':>9} {'rpm':>5} {'at once':>7} {'cap':>4}", end="")
    print(f" {'best':>5} {'best s':>8} {'auto s':>8} {'ratio':>6}  workers")
    rows = [measure(setting, items) for setting in settings()]
    for row in rows:
        one = row.setting
        print(
            f"{one.keys:>4} {one.call:>7g} {one.between:>9g} {one.rpm or '-':>5} {one.concurrency:>7}", end=""
        )
        print(
            f" {one.most:>4} {row.best_workers:>5} {row.best:>8.1f} {row.auto:>8.1f} {row.ratio:>6.3f}",
            end="",
        )
        print("  " + " -> ".join(map(str, row.counts)))
    worst = max(rows, key=lambda row: row.ratio)
    within = sum(row.ratio <= 1.05 for row in rows)
    print(f"within 5 % of the best fixed number: {within} of {len(rows)}; worst {worst.ratio:.3f}")


def _print_real(items: int) -> None:
    print(f"{items} items of two calls, the real command against the offline server")
    for keys, latency in REAL_ROWS:
        times = {str(count): _run(keys, latency, items, str(count)) for count in REAL_COUNTS}
        best = min(times, key=times.__getitem__)
        auto = _run(keys, latency, items, "auto")
        print(
            f"{keys} keys, calls of {latency:g} s: best {times[best]:.1f} s with {best} workers, "
            f"auto {auto:.1f} s, ratio {auto / times[best]:.3f}"
        )


def _run(keys: int, latency: float, items: int, workers: str) -> float:
    """Seconds of the run itself, without its start."""
    with bench_project(items, ["--keys", str(keys), "--latency", f"{latency},{latency}"]) as bench:
        done = bench.run("--all", "--parallel", workers)
        assert done.returncode == 0, done.stdout + done.stderr
        seconds = bench.summary()["seconds"]
        assert isinstance(seconds, float)
        return seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, default=60)
    parser.add_argument("--real", action="store_true", help="run the command, for a few rows")
    args = parser.parse_args()
    (_print_real if args.real else _print_table)(args.items)


if __name__ == "__main__":
    main()
