"""Kills `agentos review` at its n-th durable call."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.chaos.decisions import (
    Act,
    check_call_counts,
    check_decisions,
    comment_on,
    decide,
    is_waiting,
    notes,
)
from tests.chaos.killing import Sweep, check_killed, readable, shim_of, sound
from tests.chaos.leftovers import leftovers
from tests.chaos.sweep_gates import GATED, check_parked, run
from tests.scenarios.harness import CompletedCommand, RunHarness

EXPECTED_ACTION = {
    Act.APPROVE: "approve",
    Act.SEND_BACK: "send back",
    Act.REJECT: "reject",
    Act.EDIT: "approve",
}
DECIDED_ALREADY = 5  # exit code


def calls_of_a_review(root: Path, act: Act) -> int:
    """The number of durable calls of a review that is not killed."""
    with RunHarness.open(root) as harness:
        harness.issue(1)
        harness.server()
        assert harness.run(1, *GATED).code == 0
        shim = shim_of(harness, "review")
        assert decide(harness, 1, act, **shim.environment()).wait(60).code == 0
        return shim.calls


def sweep_reviews(
    root: Path, call_numbers: Sequence[int], act: Act, environment: Mapping[str, str] | None = None
) -> Sweep:
    """Park one item for each n and kill the command that decides on it at its n-th durable call."""
    with Sweep(f"agentos review, {act}").timed() as sweep, RunHarness.open(root) as harness:
        harness.issues(*call_numbers)
        server, decided = harness.server(), dict.fromkeys(call_numbers, act)
        harness.extra_env = dict(environment or {})
        sweep.violations += [*run(harness, len(call_numbers), *GATED), *check_parked(harness, decided)]
        for n in call_numbers:
            shim = shim_of(harness, f"review-{n}")
            running = decide(harness, n, act, **shim.environment(kill_at=n))
            killed = running.wait(60)
            if shim.kills:
                sweep.killed(n)
                sweep.violations += check_killed(harness, running, n)
            sweep.violations += [*_check_saved(harness, n, act, killed), *_check_repeated(harness, n, act)]
        sweep.violations += run(harness, len(call_numbers))
        sweep.violations += [*check_decisions(harness, decided), *check_call_counts(server, decided, 0)]
        sweep.violations += [*leftovers(harness), *readable(harness)]
    return sweep


def _check_saved(harness: RunHarness, n: int, act: Act, killed: CompletedCommand) -> Iterator[str]:
    """Check that an acknowledged decision is on disk, and that a saved decision is complete."""
    all_notes = notes(harness, n)
    saved = all_notes.get("decision 1")
    if f"LLD-{n} is " in killed.out and saved is None:
        yield f"LLD-{n}: an acknowledged decision is lost"
    if "as you edited it" in killed.out and comment_on(n) not in all_notes.get("edit 1", ""):
        yield f"LLD-{n}: an acknowledged edited draft is lost"
    if saved is not None and not _is_complete(json.loads(saved), n, act):
        yield f"LLD-{n}: the decision is incomplete: {saved[:200]}"
    if saved is None and not is_waiting(harness, n):
        yield f"LLD-{n} is neither decided on nor waiting"


def _is_complete(decision: dict[str, str], n: int, act: Act) -> bool:
    text = decision.get("draft" if act is Act.EDIT else "text") or ""
    return decision.get("action") == EXPECTED_ACTION[act] and (comment_on(n) in text) == (
        act is not Act.APPROVE
    )


def _check_repeated(harness: RunHarness, n: int, act: Act) -> Iterator[str]:
    """Repeat the command: it must save a missing decision and must not change a saved one."""
    before = notes(harness, n)
    # The editor would append the same comment again to a draft that was saved.
    again = Act.APPROVE if "edit 1" in before else act
    code = DECIDED_ALREADY if "decision 1" in before else 0
    yield from sound(f"agentos review LLD-{n} once more", decide(harness, n, again).wait(60), code)
    after = notes(harness, n)
    if code == DECIDED_ALREADY and after != before:
        yield f"LLD-{n}: a saved decision was changed"
    if not _is_complete(json.loads(after.get("decision 1", "{}")), n, act):
        yield f"LLD-{n}: the repeated decision is lost"
