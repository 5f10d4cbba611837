"""Kills workers at their n-th durable call while they park an item or resume it after a decision."""

import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from tests.chaos.decisions import Act, check_call_counts, check_decisions, decide, is_waiting, notes
from tests.chaos.killing import Sweep, readable, shim_of, sound
from tests.chaos.leftovers import leftovers
from tests.chaos.reader import Reader
from tests.chaos.sweep import STEP, WORKERS, last_hit
from tests.scenarios.harness import ModelServer, RunHarness

GATED = ("--review", "draft")
CONCURRENT_REVIEWS = 2
CHUNK = 40


def sweep_parkings(root: Path, call_numbers: Sequence[int]) -> Sweep:
    """Kill workers that park an item, each at its n-th durable call."""
    decided = dict(zip((STEP * n for n in call_numbers), cycle(Act), strict=False))
    return _sweep(root, "workers that park an item", decided, parking=True)


def sweep_decided(root: Path, call_numbers: Sequence[int], act: Act) -> Sweep:
    """Kill workers that resume an item after a decision, each at its n-th durable call."""
    return _sweep(root, f"workers that resume: {act}", {STEP * n: act for n in call_numbers}, parking=False)


def calls_of_gates(root: Path, act: Act) -> tuple[int, int]:
    """The number of durable calls without kills: while parking, and after the decision."""
    with RunHarness.open(root) as harness:
        harness.issue(STEP)
        harness.server()
        shims = [shim_of(harness, name) for name in ("parking", "resuming")]
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
        faults = shim.environment(who="worker", kill_step=STEP)
        if parking:
            sweep.violations += _run_with_kills(harness, list(decided), GATED, faults)
        sweep.violations += run(harness, len(decided), *GATED)
        sweep.violations += [
            *check_parked(harness, decided),
            *_check_undecided(harness, server, decided, int(parking)),
        ]
        sweep.violations += decide_all(harness, decided)
        if not parking:
            sweep.violations += _run_with_kills(harness, list(decided), (), faults)
        sweep.violations += run(harness, len(decided))
        reader.stop()
        sweep.kills, sweep.last = shim.kills, last_hit(shim)
        sweep.violations += [*check_decisions(harness, decided), *check_call_counts(server, decided, 1)]
        sweep.violations += [*leftovers(harness), *readable(harness), *reader.broken]
    return sweep


def _run_with_kills(
    harness: RunHarness, numbers: list[int], args: Sequence[str], faults: dict[str, Any]
) -> Iterator[str]:
    """Run in chunks: a run gives up slots whose workers crash again and again."""
    for start in range(0, len(numbers), CHUNK):
        chunk = numbers[start : start + CHUNK]
        options = ("--parallel", WORKERS, "--retries", 3)
        running = harness.start(*chunk, *options, *args, **faults)
        yield from sound("a run whose workers die", running.wait(60 + 3 * CHUNK), 0, 1)


def run(harness: RunHarness, items: int, *args: str) -> Iterator[str]:
    """Run everything without kills and check that the run finishes."""
    running = harness.start("--all", "--parallel", WORKERS, *args)
    try:
        yield from sound("a run without kills", running.wait(60 + 3 * items))
    except subprocess.TimeoutExpired:
        running.signal(signal.SIGKILL)
        yield "a run without kills does not finish"


def check_parked(harness: RunHarness, numbers: Mapping[int, Act]) -> Iterator[str]:
    yield from (
        f"LLD-{number} is not waiting for a person" for number in numbers if not is_waiting(harness, number)
    )


def decide_all(harness: RunHarness, decided: Mapping[int, Act]) -> Iterator[str]:
    """Decide on every item, a few at a time."""
    rest = list(decided.items())
    while rest:
        batch, rest = rest[:CONCURRENT_REVIEWS], rest[CONCURRENT_REVIEWS:]
        running = [decide(harness, number, act) for number, act in batch]
        for (number, act), command in zip(batch, running, strict=True):
            yield from sound(f"agentos review LLD-{number} ({act})", command.wait(60))
            if "decision 1" not in notes(harness, number):
                yield f"LLD-{number}: an acknowledged decision is lost"


def _check_undecided(
    harness: RunHarness, server: ModelServer, numbers: Mapping[int, Act], kills: int
) -> Iterator[str]:
    """Check that no item passes a gate before a decision."""
    for number in numbers:
        if (calls := len(server.answered(number))) not in range(1, 2 + kills):
            yield f"LLD-{number}: {calls} calls were answered before the decision"
        if harness.document(number).exists() or harness.revision(number).exists():
            yield f"LLD-{number} has a document before the decision"
