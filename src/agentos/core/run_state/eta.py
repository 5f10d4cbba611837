"""The ETA of a run: how long it will still take and what it will cost in all."""

from collections.abc import Iterable
from dataclasses import dataclass

from agentos.core.run_state.run_stats import ItemStats, RunStats

MIN_SHARE_LEFT = 0.25  # of a call, and of the time that an overdue call or item has already taken


@dataclass(frozen=True, slots=True)
class Estimate:
    """None means unknown: no item has finished yet, or a price is missing."""

    seconds_left: float | None = None
    cost: float | None = None


def estimate(stats: RunStats, at: float) -> Estimate:
    """Estimate the time left and the cost of the whole run.

    The remaining items are assumed to need as many calls as the finished ones; running items are partly done. Calls
    that an item made in an earlier run count as done, so that a resumed run does not look faster than it is. An item
    that has made more calls than usual is compared only with finished items that needed even more. While the run is
    paused, the estimate does not change.
    """
    at = at if stats.paused_since is None else stats.paused_since
    left = len(stats.rows) - stats.closed
    if not left:
        return Estimate(0.0, stats.cost)
    if not stats.finished or stats.started is None:
        return Estimate()
    running = stats.running
    # Other runs are expected to take as large a share of the rest as they have taken so far.
    waiting = (left - len(running)) * stats.finished / (stats.finished + stats.ended_elsewhere)
    if stats.finished_calls:
        seconds_per_call = stats.finished_seconds / stats.finished_calls
        usual = sum(calls * items for calls, items in stats.finished_totals.items()) / stats.finished
        seconds_left = [_left_in_calls(row, stats, seconds_per_call, at) for row in running]
        calls = waiting * usual + sum(_calls_left(row, stats) for row in running)
        slowest = _at_call_rate(stats, calls, at)
        total = waiting * usual * seconds_per_call + sum(seconds_left)
    else:
        calls, slowest = 0.0, 0.0
        seconds_left = [_left_in_time(row, stats, at) for row in running]
        total = waiting * stats.finished_seconds / stats.finished + sum(seconds_left)
    # On a fleet, machines may have joined since the run started.
    workers = max(stats.workers, len(running), 1)
    together = max(total / min(workers, left), slowest, *seconds_left, 0.0)
    return Estimate(together + _blocked(stats, at), _cost(stats, waiting + len(running), calls))


def _calls_left(row: ItemStats, stats: RunStats) -> float:
    """How many calls a running item still needs, at least the current one."""
    longer = {calls: items for calls, items in stats.finished_totals.items() if calls > row.calls_made}
    if not longer:
        return 1.0
    return sum(calls * items for calls, items in longer.items()) / sum(longer.values()) - row.calls_made


def _left_in_calls(row: ItemStats, stats: RunStats, seconds_per_call: float, at: float) -> float:
    elapsed = max(0.0, at - row.progress_at)
    least = MIN_SHARE_LEFT * max(seconds_per_call, elapsed)
    return max(_calls_left(row, stats) * seconds_per_call - elapsed, least)


def _left_in_time(row: ItemStats, stats: RunStats, at: float) -> float:
    """The time left of an item that makes no calls, such as one of `agentos exec`."""
    age = row.age(at)
    longer = [seconds for seconds in stats.recent_seconds if seconds > age]
    usual = _mean(longer or stats.recent_seconds)
    return max(usual - age, MIN_SHARE_LEFT * (age if not longer else usual * MIN_SHARE_LEFT))


def _at_call_rate(stats: RunStats, calls_left: float, at: float) -> float:
    """Seconds left at the call rate so far, which is the limit when there are fewer keys than workers."""
    elapsed = at - stats.began - (stats.warm_up or 0.0) - stats.paused_seconds
    # Calls in flight are half done, on average.
    done = stats.usage.calls + len(stats.held) / 2
    return calls_left * elapsed / done if elapsed > 0 and done else 0.0


def _blocked(stats: RunStats, at: float) -> float:
    """Seconds until anything can continue, if every running item waits for keys that are cooling down."""
    if stats.held or not stats.running or len(stats.waiting_for_keys) < len(stats.running):
        return 0.0
    ends = [until for until in (stats.paced_until, *stats.cooling_down.values()) if until > at]
    return min(ends) - at if ends else 0.0


def _cost(stats: RunStats, left: float, calls_left: float) -> float | None:
    """The projected cost of the whole run, never less than the cost so far."""
    if stats.cost is None or stats.finished_cost is None:
        return None
    if calls_left and stats.usage.calls:
        return stats.cost * (1 + calls_left / stats.usage.calls)
    return max(
        stats.cost, stats.finished_cost / stats.finished * (stats.closed - stats.ended_elsewhere + left)
    )


def _mean(numbers: Iterable[float]) -> float:
    found = list(numbers)
    return sum(found) / len(found)
