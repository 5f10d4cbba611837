"""SIGKILL at the n-th durable call of a worker that parks an item, or goes on with it after a decision."""

import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from tests.chaos.decisions import Act, decide, notes, overpaid, unheeded, waits
from tests.chaos.killing import Sweep, readable, shim_of, sound
from tests.chaos.leftovers import leftovers
from tests.chaos.reader import Reader
from tests.chaos.sweep import STEP, WORKERS, last_hit
from tests.scenarios.harness import ModelServer, RunHarness

GATED = ("--review", "draft")
AT_ONCE = 2
FEW = 40


def sweep_parkings(root: Path, places: Sequence[int]) -> Sweep:
    """Workers that park an item, each killed at its n-th durable call."""
    decided = dict(zip((STEP * n for n in places), cycle(Act), strict=False))
    return _sweep(root, "workers that park an item", decided, parking=True)


def sweep_decided(root: Path, places: Sequence[int], act: Act) -> Sweep:
    """Workers that go on with an item after a decision, each killed at its n-th durable call."""
    return _sweep(root, f"workers that go on: {act}", {STEP * n: act for n in places}, parking=False)


def calls_of_gates(root: Path, act: Act) -> tuple[int, int]:
    """How many durable calls there are when nobody is killed: of the parking, and of what follows."""
    with RunHarness.open(root) as harness:
        harness.issue(STEP)
        harness.server()
        shims = [shim_of(harness, name) for name in ("parking", "going-on")]
        assert harness.run(STEP, *GATED, **shims[0].environment(who="worker")).code == 0
        assert decide(harness, STEP, act).wait(60).code == 0
        assert harness.run(STEP, **shims[1].environment(who="worker")).code == 0
        return shims[0].calls, shims[1].calls


def _sweep(root: Path, name: str, decided: Mapping[int, Act], *, parking: bool) -> Sweep:
    with Sweep(name).timed() as sweep, RunHarness.open(root) as harness:
        harness.issues(*decided)
        server = harness.server("--latency", "0,0.05")
        reader = Reader(harness.project)
        reader.start()
        shim = shim_of(harness, "gates")
        deadly = shim.environment(who="worker", kill_step=STEP)
        if parking:
            sweep.violations += _die(harness, list(decided), GATED, deadly)
        sweep.violations += run(harness, len(decided), *GATED)
        sweep.violations += [*unparked(harness, decided), *_early(harness, server, decided, int(parking))]
        sweep.violations += decide_all(harness, decided)
        if not parking:
            sweep.violations += _die(harness, list(decided), (), deadly)
        sweep.violations += run(harness, len(decided))
        reader.stop()
        sweep.kills, sweep.last = shim.kills, last_hit(shim)
        sweep.violations += [*unheeded(harness, decided), *overpaid(server, decided, 1)]
        sweep.violations += [*leftovers(harness), *readable(harness), *reader.broken]
    return sweep


def _die(
    harness: RunHarness, numbers: list[int], words: Sequence[str], deadly: dict[str, Any]
) -> Iterator[str]:
    """A few at a time: a run whose workers do nothing but die gives its slots up."""
    for begin in range(0, len(numbers), FEW):
        few = numbers[begin : begin + FEW]
        manner = ("--parallel", WORKERS, "--retries", 3)
        running = harness.start(*few, *manner, *words, **deadly)
        yield from sound("a run whose workers die", running.wait(60 + 3 * FEW), 0, 1)


def run(harness: RunHarness, items: int, *words: str) -> Iterator[str]:
    """Left alone, it comes to its end."""
    running = harness.start("--all", "--parallel", WORKERS, *words)
    try:
        yield from sound("a run, left alone,", running.wait(60 + 3 * items))
    except subprocess.TimeoutExpired:
        running.signal(signal.SIGKILL)
        yield "a run, left alone, does not come to its end"


def unparked(harness: RunHarness, numbers: Mapping[int, Act]) -> Iterator[str]:
    yield from (
        f"LLD-{number} does not wait for a person" for number in numbers if not waits(harness, number)
    )


def decide_all(harness: RunHarness, decided: Mapping[int, Act]) -> Iterator[str]:
    """A person decides on everything, a few at a time."""
    rest = list(decided.items())
    while rest:
        now, rest = rest[:AT_ONCE], rest[AT_ONCE:]
        running = [decide(harness, number, act) for number, act in now]
        for (number, act), one in zip(now, running, strict=True):
            yield from sound(f"agentos review LLD-{number}, to {act},", one.wait(60))
            if "decision 1" not in notes(harness, number):
                yield f"LLD-{number}: a decision was acknowledged, and is lost"


def _early(
    harness: RunHarness, server: ModelServer, numbers: Mapping[int, Act], deaths: int
) -> Iterator[str]:
    """Nothing goes past a gate that nobody has decided at."""
    for number in numbers:
        if (calls := len(server.answered(number))) not in range(1, 2 + deaths):
            yield f"LLD-{number}: {calls} calls were answered before anybody decided"
        if harness.document(number).exists() or harness.revision(number).exists():
            yield f"LLD-{number} has a document before anybody decided"
