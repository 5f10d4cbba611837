"""The ETA of a run: how long it will still take and what it will cost in all."""

from dataclasses import dataclass

from agentos.core.run_state.run_stats import ItemStats, RunStats

MIN_SHARE_LEFT = 0.1  # of an item that takes longer than usual


@dataclass(frozen=True, slots=True)
class Estimate:
    """None means unknown: before the first item has finished, or without a price."""

    seconds_left: float | None = None
    cost: float | None = None


def estimate(stats: RunStats, at: float) -> Estimate:
    """Assume that the remaining items take as long as the finished ones; running items are partly done.

    While the run is paused, the estimate does not change.
    """
    at = at if stats.paused_since is None else stats.paused_since
    left = len(stats.rows) - stats.closed
    if not left:
        return Estimate(0.0, stats.cost)
    if not stats.finished or stats.started is None:
        return Estimate()
    usual = stats.finished_seconds / stats.finished
    running = stats.running
    total = (left - len(running)) * usual + sum(_left(row, usual, at) for row in running)
    seconds = max(total / min(stats.workers, left), _at_call_rate(stats, left, at))
    return Estimate(seconds, _cost(stats, left))


def _left(row: ItemStats, usual: float, at: float) -> float:
    """Seconds left for a running item, never zero."""
    return max(usual - row.age(at), MIN_SHARE_LEFT * usual)


def _at_call_rate(stats: RunStats, left: int, at: float) -> float:
    """Seconds left at the call rate so far, which matters when there are fewer keys than workers."""
    usual = stats.finished_calls / stats.finished
    elapsed = at - stats.began - (stats.warm_up or 0.0) - stats.paused_seconds
    if not usual or elapsed <= 0:
        return 0.0
    partly_done = sum(min(row.usage.calls / usual, 1 - MIN_SHARE_LEFT) for row in stats.running)
    return (left - partly_done) * elapsed / (stats.finished + partly_done)


def _cost(stats: RunStats, left: int) -> float | None:
    """The projected cost of the whole run, never less than the cost so far."""
    if stats.cost is None or stats.finished_cost is None:
        return None
    return max(stats.cost, stats.finished_cost / stats.finished * (stats.closed + left))
