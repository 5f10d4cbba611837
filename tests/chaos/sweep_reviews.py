"""SIGKILL at the n-th durable call of a person's own command, `agentos review`."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.chaos.decisions import Act, decide, notes, overpaid, unheeded, waits, words_on
from tests.chaos.killing import Sweep, check_killed, readable, shim_of, sound
from tests.chaos.leftovers import leftovers
from tests.chaos.sweep_gates import GATED, run, unparked
from tests.scenarios.harness import CompletedCommand, RunHarness

MEANT = {
    Act.APPROVE: "approve",
    Act.SEND_BACK: "send back",
    Act.REJECT: "reject",
    Act.EDIT: "approve",
}
DECIDED_ALREADY = 5


def calls_of_a_review(root: Path, act: Act) -> int:
    """How many durable calls there are when nobody is killed."""
    with RunHarness.open(root) as harness:
        harness.issue(1)
        harness.server()
        assert harness.run(1, *GATED).code == 0
        shim = shim_of(harness, "review")
        assert decide(harness, 1, act, **shim.environment()).wait(60).code == 0
        return shim.calls


def sweep_reviews(
    root: Path, places: Sequence[int], act: Act, environment: Mapping[str, str] | None = None
) -> Sweep:
    """A parked item for each n; the command that decides on it is killed at its n-th durable call."""
    with Sweep(f"agentos review, {act}").timed() as sweep, RunHarness.open(root) as harness:
        harness.issues(*places)
        server, decided = harness.server(), dict.fromkeys(places, act)
        harness.extra_env = dict(environment or {})
        sweep.violations += [*run(harness, len(places), *GATED), *unparked(harness, decided)]
        for n in places:
            shim = shim_of(harness, f"review-{n}")
            running = decide(harness, n, act, **shim.environment(kill_at=n))
            killed = running.wait(60)
            if shim.kills:
                sweep.killed(n)
                sweep.violations += check_killed(harness, running, n)
            sweep.violations += [*_print_sweep(harness, n, act, killed), *_repeated(harness, n, act)]
        sweep.violations += run(harness, len(places))
        sweep.violations += [*unheeded(harness, decided), *overpaid(server, decided, 0)]
        sweep.violations += [*leftovers(harness), *readable(harness)]
    return sweep


def _print_sweep(harness: RunHarness, n: int, act: Act, killed: CompletedCommand) -> Iterator[str]:
    """What the person was told is on disk, and a decision that is there is whole."""
    found = notes(harness, n)
    kept = found.get("decision 1")
    if f"LLD-{n} is " in killed.out and kept is None:
        yield f"LLD-{n}: a decision was acknowledged, and is lost"
    if "as you edited it" in killed.out and words_on(n) not in found.get("edit 1", ""):
        yield f"LLD-{n}: an edited draft was acknowledged, and is lost"
    if kept is not None and not _is_whole(json.loads(kept), n, act):
        yield f"LLD-{n}: the decision is not whole: {kept[:200]}"
    if kept is None and not waits(harness, n):
        yield f"LLD-{n} is neither decided on nor waits"


def _is_whole(decision: dict[str, str], n: int, act: Act) -> bool:
    words = decision.get("draft" if act is Act.EDIT else "text") or ""
    return decision.get("act") == MEANT[act] and (words_on(n) in words) == (act is not Act.APPROVE)


def _repeated(harness: RunHarness, n: int, act: Act) -> Iterator[str]:
    """The person says it again: it counts if it had not, and changes nothing if it had."""
    before = notes(harness, n)
    # The editor would add the same words once more to a draft that has been kept.
    again = Act.APPROVE if "edit 1" in before else act
    code = DECIDED_ALREADY if "decision 1" in before else 0
    yield from sound(f"agentos review LLD-{n}, once more,", decide(harness, n, again).wait(60), code)
    after = notes(harness, n)
    if code == DECIDED_ALREADY and after != before:
        yield f"LLD-{n}: a decision was changed by another"
    if not _is_whole(json.loads(after.get("decision 1", "{}")), n, act):
        yield f"LLD-{n}: the decision that was said again is lost"
