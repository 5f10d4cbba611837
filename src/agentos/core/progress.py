"""How long a run will still take, and what it will have cost, as far as it has come."""

from dataclasses import dataclass

from agentos.core.tally import Row, Tally

LEAST_LEFT = 0.1


@dataclass(frozen=True, slots=True)
class Projection:
    """None is not known: before the first item has ended, or without a price."""

    seconds_left: float | None = None
    cost: float | None = None


def project(tally: Tally, at: float) -> Projection:
    """What is left is taken to be like what has finished; what runs is part of the way.

    While the run stands still, nothing of it changes: it is what is left from then on.
    """
    at = at if tally.still_since is None else tally.still_since
    left = len(tally.rows) - tally.closed
    if not left:
        return Projection(0.0, tally.cost)
    if not tally.finished or tally.started is None:
        return Projection()
    usual = tally.finished_seconds / tally.finished
    running = tally.running
    work = (left - len(running)) * usual + sum(_left(row, usual, at) for row in running)
    seconds = max(work / min(tally.workers, left), _by_pace(tally, left, at))
    return Projection(seconds, _cost(tally, left))


def _left(row: Row, usual: float, at: float) -> float:
    """Of an item that takes longer than usual, a little is always left."""
    return max(usual - row.age(at), LEAST_LEFT * usual)


def _by_pace(tally: Tally, left: int, at: float) -> float:
    """At the pace so far, told by calls: with fewer keys than workers, those that run hardly get on."""
    usual = tally.finished_calls / tally.finished
    elapsed = at - tally.began - (tally.warm_up or 0.0) - tally.stood_still
    if not usual or elapsed <= 0:
        return 0.0
    begun = sum(min(row.usage.calls / usual, 1 - LEAST_LEFT) for row in tally.running)
    return (left - begun) * elapsed / (tally.finished + begun)


def _cost(tally: Tally, left: int) -> float | None:
    """Never less than was spent: what runs has spent a part already."""
    if tally.cost is None or tally.finished_cost is None:
        return None
    return max(tally.cost, tally.finished_cost / tally.finished * (tally.closed + left))
