"""Why nothing runs, or not all of what was asked for."""

from collections.abc import Callable

from agentos.core.plan import Plan

MOST_NAMED = 5


def explain_nothing(plan: Plan, say: Callable[[str], None]) -> int:
    """Nothing runs: says why, and what would."""
    for candidate in plan.elsewhere:
        say(f"[COORDINATOR] {candidate.item.id} is being worked on by {candidate.held_by}")
    for candidate in plan.done:
        say(
            f"[COORDINATOR] {candidate.item.id} is approved already; do it again with --fresh {candidate.item.number}"
        )
    explain_parked(plan, say)
    if not plan.elsewhere and not plan.done and not plan.parked:
        say("[COORDINATOR] Nothing is pending. See what was done: agentos status")
    return 0


def explain_parked(plan: Plan, say: Callable[[str], None]) -> None:
    """All of a few, the number of many."""
    items = [candidate.item.id for candidate in plan.parked]
    if len(items) > MOST_NAMED:
        say(f"[COORDINATOR] {len(items)} items wait for a person; see them with: agentos review")
        return
    for item in items:
        say(f"[COORDINATOR] {item} waits for a person: agentos review {item}")
