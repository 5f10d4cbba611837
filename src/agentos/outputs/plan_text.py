"""Why nothing runs, or not all of what was asked for."""

from collections.abc import Callable, Sequence

from agentos.core.planning.plan import Candidate, Plan, Selection
from agentos.outputs.console import COORDINATOR
from agentos.outputs.format import prefixed

MOST_NAMED = 5
Say = Callable[[str], None]


def explain_empty_plan(plan: Plan, selection: Selection, say: Say) -> int:
    """Nothing runs: says why; the last line says what to type next."""
    explain_skipped(plan, say)
    if plan.done or plan.parked:
        return 0
    if plan.elsewhere:
        if len(plan.elsewhere) <= MOST_NAMED:
            say("[COORDINATOR] See the runs: agentos runs")
    elif selection.failed:
        say(
            "[COORDINATOR] None of these failed in the last run. For every pending item: --all instead of --failed"
        )
    elif selection.labels:
        labels = ", ".join(selection.labels)
        say(f"[COORDINATOR] Nothing is pending that is labelled {labels}. See what was done: agentos status")
    else:
        say("[COORDINATOR] Nothing is pending. See what was done: agentos status")
    return 0


def explain_skipped(plan: Plan, say: Say) -> None:
    """What was asked for and does not run: all of a few, the number of many."""
    _tell(
        plan.elsewhere,
        lambda one: f"{one.item.id} is being worked on by {one.held_by}",
        "items are being worked on by other runs; see them with: agentos runs",
        say,
    )
    _tell(
        plan.done,
        lambda one: f"{one.item.id} is approved already; do it again with --fresh {one.item.number}",
        "items are approved already; do them again with --fresh",
        say,
    )
    _tell(
        plan.parked,
        lambda one: f"{one.item.id} waits for a person: agentos review {one.item.id}",
        "items wait for a person; see them with: agentos review",
        say,
    )


def _tell(found: Sequence[Candidate], each: Callable[[Candidate], str], many: str, say: Say) -> None:
    if len(found) > MOST_NAMED:
        say(prefixed(COORDINATOR, f"{len(found)} {many}"))
        return
    for candidate in found:
        say(prefixed(COORDINATOR, each(candidate)))
