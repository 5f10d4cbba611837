"""SIGKILL at the n-th durable call of the coordinator of a run with human gates."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path

from tests.chaos.decisions import Act, overpaid, unheeded, waits
from tests.chaos.killing import Sweep, check_killed, readable, shim_of
from tests.chaos.leftovers import leftovers
from tests.chaos.sweep_gates import GATED, decide_all, run
from tests.scenarios.harness import RunHarness

CHUNK = 20
"""So many items are parked and decided on at a time: nobody knows beforehand how many n there are."""


def sweep_gated_runs(
    root: Path, places: Sequence[int], environment: Mapping[str, str] | None = None
) -> Sweep:
    """A run for each n that parks one item and goes on with another, which a person has decided on."""
    with Sweep("coordinators of runs with gates").timed() as sweep, RunHarness.open(root) as harness:
        server, decided, acts = harness.server(), dict[int, Act](), cycle(Act)
        harness.extra_env = dict(environment or {})
        for begin in range(0, len(places), CHUNK):
            chunk = places[begin : begin + CHUNK]
            known = dict(zip((2 * n for n in chunk), acts, strict=False))
            harness.issues(*known)
            sweep.violations += [*run(harness, len(known), *GATED), *decide_all(harness, known)]
            decided |= known | dict.fromkeys((2 * n + 1 for n in chunk), Act.APPROVE)
            harness.issues(*(2 * n + 1 for n in chunk))
            if not all(_kill(harness, sweep, n) for n in chunk):
                break
        sweep.violations += _finish(harness, decided)
        sweep.violations += [*unheeded(harness, decided), *overpaid(server, decided, 1)]
        sweep.violations += [*leftovers(harness), *readable(harness)]
    return sweep


def _kill(harness: RunHarness, sweep: Sweep, n: int) -> bool:
    """False if the run comes to its end: there are no further calls."""
    shim = shim_of(harness, f"coordinator-{n}")
    wishes = shim.environment(who="coordinator", kill_at=n)
    running = harness.start(2 * n, 2 * n + 1, "--parallel", 2, *GATED, **wishes)
    running.wait(60)
    if shim.kills:
        sweep.killed(n)
        sweep.violations += check_killed(harness, running, n)
    return bool(shim.kills)


def _finish(harness: RunHarness, decided: dict[int, Act]) -> Iterator[str]:
    """Everything is parked that a person has the word on; then all of it goes to its end."""
    yield from run(harness, len(decided), *GATED)
    yield from decide_all(harness, {number: Act.APPROVE for number in decided if waits(harness, number)})
    yield from run(harness, len(decided))
