"""SIGKILL at the n-th durable call of a person's own command, `agentos review`."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.chaos.decisions import Act, decide, notes, overpaid, unheeded, waits, words_on
from tests.chaos.killing import Sweep, aftermath, readable, shim_of, sound
from tests.chaos.leftovers import leftovers
from tests.chaos.sweep_gates import GATED, run, unparked
from tests.scenarios.stage import Done, Stage

MEANT = {
    Act.APPROVE: "approve",
    Act.SEND_BACK: "send back",
    Act.REJECT: "reject",
    Act.EDIT: "approve",
}
DECIDED_ALREADY = 5


def calls_of_a_review(root: Path, act: Act) -> int:
    """How many durable calls there are when nobody is killed."""
    with Stage.open(root) as stage:
        stage.issue(1)
        stage.server()
        assert stage.run(1, *GATED).code == 0
        shim = shim_of(stage, "review")
        assert decide(stage, 1, act, **shim.environment()).end(60).code == 0
        return shim.calls


def sweep_reviews(
    root: Path, places: Sequence[int], act: Act, environment: Mapping[str, str] | None = None
) -> Sweep:
    """A parked item for each n; the command that decides on it is killed at its n-th durable call."""
    with Sweep(f"agentos review, {act}").timed() as sweep, Stage.open(root) as stage:
        stage.issues(*places)
        witness, decided = stage.server(), dict.fromkeys(places, act)
        stage.surroundings = dict(environment or {})
        sweep.violations += [*run(stage, len(places), *GATED), *unparked(stage, decided)]
        for n in places:
            shim = shim_of(stage, f"review-{n}")
            running = decide(stage, n, act, **shim.environment(kill_at=n))
            killed = running.end(60)
            if shim.kills:
                sweep.killed(n)
                sweep.violations += aftermath(stage, running, n)
            sweep.violations += [*_told(stage, n, act, killed), *_repeated(stage, n, act)]
        sweep.violations += run(stage, len(places))
        sweep.violations += [*unheeded(stage, decided), *overpaid(witness, decided, 0)]
        sweep.violations += [*leftovers(stage), *readable(stage)]
    return sweep


def _told(stage: Stage, n: int, act: Act, killed: Done) -> Iterator[str]:
    """What the person was told is on disk, and a decision that is there is whole."""
    found = notes(stage, n)
    kept = found.get("decision 1")
    if f"LLD-{n} is " in killed.out and kept is None:
        yield f"LLD-{n}: a decision was acknowledged, and is lost"
    if "as you edited it" in killed.out and words_on(n) not in found.get("edit 1", ""):
        yield f"LLD-{n}: an edited draft was acknowledged, and is lost"
    if kept is not None and not _is_whole(json.loads(kept), n, act):
        yield f"LLD-{n}: the decision is not whole: {kept[:200]}"
    if kept is None and not waits(stage, n):
        yield f"LLD-{n} is neither decided on nor waits"


def _is_whole(decision: dict[str, str], n: int, act: Act) -> bool:
    words = decision.get("draft" if act is Act.EDIT else "text") or ""
    return decision.get("act") == MEANT[act] and (words_on(n) in words) == (act is not Act.APPROVE)


def _repeated(stage: Stage, n: int, act: Act) -> Iterator[str]:
    """The person says it again: it counts if it had not, and changes nothing if it had."""
    before = notes(stage, n)
    # The editor would add the same words once more to a draft that has been kept.
    again = Act.APPROVE if "edit 1" in before else act
    code = DECIDED_ALREADY if "decision 1" in before else 0
    yield from sound(f"agentos review LLD-{n}, once more,", decide(stage, n, again).end(60), code)
    after = notes(stage, n)
    if code == DECIDED_ALREADY and after != before:
        yield f"LLD-{n}: a decision was changed by another"
    if not _is_whole(json.loads(after.get("decision 1", "{}")), n, act):
        yield f"LLD-{n}: the decision that was said again is lost"
