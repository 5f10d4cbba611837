"""Kills the coordinator of a run with human gates at its n-th durable call."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path

from tests.chaos.decisions import Act, check_call_counts, check_decisions, is_waiting
from tests.chaos.killing import Sweep, check_killed, readable, shim_of
from tests.chaos.leftovers import leftovers
from tests.chaos.sweep_gates import GATED, decide_all, run
from tests.scenarios.harness import RunHarness

CHUNK = 20
"""Items parked and decided on at a time, since the number of durable calls is not known in advance."""


def sweep_gated_runs(
    root: Path, call_numbers: Sequence[int], environment: Mapping[str, str] | None = None
) -> Sweep:
    """For each n, kill a run that parks one item and resumes another that has been decided on."""
    with Sweep("coordinators of runs with gates").timed() as sweep, RunHarness.open(root) as harness:
        server, decided, acts = harness.server(), dict[int, Act](), cycle(Act)
        harness.extra_env = dict(environment or {})
        for start in range(0, len(call_numbers), CHUNK):
            chunk = call_numbers[start : start + CHUNK]
            resumed = dict(zip((2 * n for n in chunk), acts, strict=False))
            harness.issues(*resumed)
            sweep.violations += [*run(harness, len(resumed), *GATED), *decide_all(harness, resumed)]
            decided |= resumed | dict.fromkeys((2 * n + 1 for n in chunk), Act.APPROVE)
            harness.issues(*(2 * n + 1 for n in chunk))
            if not all(_kill(harness, sweep, n) for n in chunk):
                break
        sweep.violations += _finish(harness, decided)
        sweep.violations += [*check_decisions(harness, decided), *check_call_counts(server, decided, 1)]
        sweep.violations += [*leftovers(harness), *readable(harness)]
    return sweep


def _kill(harness: RunHarness, sweep: Sweep, n: int) -> bool:
    """Kill a run at call n; False if it finished first, having made fewer calls."""
    shim = shim_of(harness, f"coordinator-{n}")
    faults = shim.environment(who="coordinator", kill_at=n)
    running = harness.start(2 * n, 2 * n + 1, "--parallel", 2, *GATED, **faults)
    running.wait(60)
    if shim.kills:
        sweep.killed(n)
        sweep.violations += check_killed(harness, running, n)
    return bool(shim.kills)


def _finish(harness: RunHarness, decided: dict[int, Act]) -> Iterator[str]:
    """Park and approve what still needs a decision, then run everything to completion."""
    yield from run(harness, len(decided), *GATED)
    yield from decide_all(harness, {number: Act.APPROVE for number in decided if is_waiting(harness, number)})
    yield from run(harness, len(decided))
