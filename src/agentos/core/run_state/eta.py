"""How long a run will still take, and what it will have cost, as far as it has come."""

from dataclasses import dataclass

from agentos.core.run_state.run_stats import ItemStats, RunStats

LEAST_LEFT = 0.1


@dataclass(frozen=True, slots=True)
class Estimate:
    """None is not known: before the first item has ended, or without a price."""

    seconds_left: float | None = None
    cost: float | None = None


def estimate(stats: RunStats, at: float) -> Estimate:
    """What is left is taken to be like what has finished; what runs is part of the way.

    While the run stands still, nothing of it changes: it is what is left from then on.
    """
    at = at if stats.paused_since is None else stats.paused_since
    left = len(stats.rows) - stats.closed
    if not left:
        return Estimate(0.0, stats.cost)
    if not stats.finished or stats.started is None:
        return Estimate()
    usual = stats.finished_seconds / stats.finished
    running = stats.running
    work = (left - len(running)) * usual + sum(_left(row, usual, at) for row in running)
    seconds = max(work / min(stats.workers, left), _by_pace(stats, left, at))
    return Estimate(seconds, _cost(stats, left))


def _left(row: ItemStats, usual: float, at: float) -> float:
    """Of an item that takes longer than usual, a little is always left."""
    return max(usual - row.age(at), LEAST_LEFT * usual)


def _by_pace(stats: RunStats, left: int, at: float) -> float:
    """At the pace so far, told by calls: with fewer keys than workers, those that run hardly get on."""
    usual = stats.finished_calls / stats.finished
    elapsed = at - stats.began - (stats.warm_up or 0.0) - stats.paused_seconds
    if not usual or elapsed <= 0:
        return 0.0
    prestarted = sum(min(row.usage.calls / usual, 1 - LEAST_LEFT) for row in stats.running)
    return (left - prestarted) * elapsed / (stats.finished + prestarted)


def _cost(stats: RunStats, left: int) -> float | None:
    """Never less than was spent: what runs has spent a part already."""
    if stats.cost is None or stats.finished_cost is None:
        return None
    return max(stats.cost, stats.finished_cost / stats.finished * (stats.closed + left))
