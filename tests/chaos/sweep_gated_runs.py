"""SIGKILL at the n-th durable call of the coordinator of a run with human gates."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path

from tests.chaos.decisions import Act, overpaid, unheeded, waits
from tests.chaos.killing import Sweep, aftermath, readable, shim_of
from tests.chaos.leftovers import leftovers
from tests.chaos.sweep_gates import GATED, decide_all, run
from tests.scenarios.stage import Stage

CHUNK = 20
"""So many items are parked and decided on at a time: nobody knows beforehand how many n there are."""


def sweep_gated_runs(
    root: Path, places: Sequence[int], environment: Mapping[str, str] | None = None
) -> Sweep:
    """A run for each n that parks one item and goes on with another, which a person has decided on."""
    with Sweep("coordinators of runs with gates").timed() as sweep, Stage.open(root) as stage:
        witness, decided, acts = stage.server(), dict[int, Act](), cycle(Act)
        stage.surroundings = dict(environment or {})
        for begin in range(0, len(places), CHUNK):
            chunk = places[begin : begin + CHUNK]
            known = dict(zip((2 * n for n in chunk), acts, strict=False))
            stage.issues(*known)
            sweep.violations += [*run(stage, len(known), *GATED), *decide_all(stage, known)]
            decided |= known | dict.fromkeys((2 * n + 1 for n in chunk), Act.APPROVE)
            stage.issues(*(2 * n + 1 for n in chunk))
            if not all(_kill(stage, sweep, n) for n in chunk):
                break
        sweep.violations += _finish(stage, decided)
        sweep.violations += [*unheeded(stage, decided), *overpaid(witness, decided, 1)]
        sweep.violations += [*leftovers(stage), *readable(stage)]
    return sweep


def _kill(stage: Stage, sweep: Sweep, n: int) -> bool:
    """False if the run comes to its end: there are no further calls."""
    shim = shim_of(stage, f"coordinator-{n}")
    wishes = shim.environment(who="coordinator", kill_at=n)
    running = stage.start(2 * n, 2 * n + 1, "--parallel", 2, *GATED, **wishes)
    running.end(60)
    if shim.kills:
        sweep.killed(n)
        sweep.violations += aftermath(stage, running, n)
    return bool(shim.kills)


def _finish(stage: Stage, decided: dict[int, Act]) -> Iterator[str]:
    """Everything is parked that a person has the word on; then all of it goes to its end."""
    yield from run(stage, len(decided), *GATED)
    yield from decide_all(stage, {number: Act.APPROVE for number in decided if waits(stage, number)})
    yield from run(stage, len(decided))
