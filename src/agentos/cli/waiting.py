"""What waits for a person in the project of a run, and what to type about it."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentos.core.errors import AgentosError

if TYPE_CHECKING:
    from agentos.core.run_state.run_stats import RunStats


@dataclass(frozen=True, slots=True)
class WaitingItems:
    """The parked items of a project: those without a decision, and those that no run has continued since theirs."""

    undecided: tuple[str, ...] = ()
    decided: tuple[str, ...] = ()


def waiting_items(stats: "RunStats") -> WaitingItems:
    """Those of the run's project, whichever run parked them; without access to the project, those of the run."""
    from agentos.config.settings import Flags, read_settings
    from agentos.review.queue import ReviewContext, pending_reviews
    from agentos.storage.home import Home

    try:
        settings = read_settings(Flags(repo=Path(stats.started.project if stats.started else "")))
        reviews = pending_reviews(ReviewContext(settings.project, Home(settings.home), settings.database))
    except (AgentosError, OSError):
        return WaitingItems(parked_by(stats))
    return WaitingItems(
        tuple(review.parked_item.item for review in reviews if review.state.decision is None),
        tuple(review.parked_item.item for review in reviews if review.state.decision is not None),
    )


def parked_by(stats: "RunStats") -> tuple[str, ...]:
    from agentos.core.protocol.results import Ending

    return tuple(row.item for row in stats.with_ending(Ending.PARKED))


def waiting_lines(stats: "RunStats", here: str | None) -> list[str]:
    """What to type about the items that the run parked, if they are still parked, and about those of other runs."""
    from agentos.outputs.format import name_list
    from agentos.outputs.resume_command import review_command
    from agentos.outputs.summary import continue_command

    if stats.started is None:
        return []
    found, own = waiting_items(stats), parked_by(stats)
    review = review_command(stats.started, here)
    undecided = [item for item in own if item in found.undecided]
    decided = [item for item in own if item in found.decided]
    others = [item for item in found.undecided if item not in own]
    unresumed = [item for item in found.decided if item not in own]
    lines = []
    if undecided:
        lines.append(f"Waiting for a person: {name_list(undecided)}. Decide with: {review}")
        lines.append(f"Then resume with: {continue_command(stats, here)}")
    elif decided:
        lines.append(f"Decided: {name_list(decided)}. Resume with: {continue_command(stats, here)}")
    if others:
        also = "Also waiting" if undecided else "Waiting"
        lines.append(f"{also} for a person since other runs: {name_list(others)}. Decide with: {review}")
    if unresumed:
        lines.append(f"Decided, but not resumed: {name_list(unresumed)}. See how: {review}")
    return lines


def waiting_text(stats: "RunStats", here: str | None) -> str:
    """The same about the items that the run itself parked, in one sentence or two; empty if none is still parked."""
    from agentos.outputs.format import name_list
    from agentos.outputs.resume_command import review_command
    from agentos.outputs.summary import continue_command

    if not (own := parked_by(stats)) or stats.started is None:
        return ""
    found = waiting_items(stats)
    if undecided := [item for item in own if item in found.undecided]:
        verb = "is" if len(undecided) == 1 else "are"
        command = review_command(stats.started, here)
        return f"{name_list(undecided)} {verb} waiting for a person. Decide with: {command}"
    if decided := [item for item in own if item in found.decided]:
        verb = "is" if len(decided) == 1 else "are"
        return f"{name_list(decided)} {verb} decided. Resume with: {continue_command(stats, here)}"
    return ""
