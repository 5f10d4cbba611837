"""Explains why nothing runs, or which selected items do not."""

from collections.abc import Callable, Sequence

from agentos.core.planning.plan import Candidate, Plan, Selection
from agentos.outputs.console import COORDINATOR
from agentos.outputs.format import prefixed

MAX_NAMED = 5
Say = Callable[[str], None]


def explain_empty_plan(plan: Plan, selection: Selection, say: Say) -> int:
    """Say why nothing runs, and in the last line what to type next; returns the exit code."""
    explain_skipped(plan, say)
    if plan.done or plan.parked:
        return 0
    if plan.elsewhere:
        if len(plan.elsewhere) <= MAX_NAMED:
            say(f"{COORDINATOR} List runs: agentos runs")
    elif selection.failed:
        say(
            f"{COORDINATOR} No selected item failed in the last run. To run every pending item: --all instead of --failed"
        )
    elif selection.labels:
        labels = ", ".join(selection.labels)
        say(f"{COORDINATOR} Nothing is pending with label {labels}. See what was done: agentos status")
    else:
        say(f"{COORDINATOR} Nothing is pending. See what was done: agentos status")
    return 0


def explain_skipped(plan: Plan, say: Say) -> None:
    """Say which selected items do not run: each of a few, the number of many."""
    _say_each_or_count(
        plan.elsewhere,
        lambda skipped: f"{skipped.item.id} is being worked on by {skipped.held_by}",
        "items are being worked on by other runs; list runs: agentos runs",
        say,
    )
    _say_each_or_count(
        plan.done,
        lambda skipped: f"{skipped.item.id} is already approved; redo it with --fresh {skipped.item.number}",
        "items are already approved; redo them with --fresh",
        say,
    )
    _say_each_or_count(
        plan.parked,
        lambda skipped: f"{skipped.item.id} is waiting for a person: agentos review {skipped.item.id}",
        "items are waiting for a person; list them: agentos review",
        say,
    )


def _say_each_or_count(
    skipped: Sequence[Candidate], describe: Callable[[Candidate], str], many: str, say: Say
) -> None:
    if len(skipped) > MAX_NAMED:
        say(prefixed(COORDINATOR, f"{len(skipped)} {many}"))
        return
    for candidate in skipped:
        say(prefixed(COORDINATOR, describe(candidate)))
