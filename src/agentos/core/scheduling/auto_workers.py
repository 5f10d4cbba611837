"""Automatic parallelism (`--parallel auto`): how many workers the keys and the machine can use.

Little's law gives the number: workers that are not waiting for a key = admitted calls per second x seconds that an item
needs per call. The left side is measured directly, as worker time, so the limits and call durations need not be known.
"""

import math
from collections import deque
from dataclasses import dataclass

from agentos.core.constants import WORKER_MEMORY

INTERVAL = 2.0  # seconds between two decisions
WINDOW = 120.0  # seconds of measurements; longer than the windows in which most providers count
MIN_MEASURED = 1.0  # seconds of worker time needed for a decision
SATURATED = 0.1  # share of worker time spent waiting for keys; above it, more workers would only wait
HEADROOM = 2.0  # workers per worker that is busy on average, because calls and items differ in length
GROWTH_STEP = 0.1  # share of the workers; a smaller change is not worth a message
SHRINK_STEP = 0.25
BUSY_CPU = 0.9  # share of the processors in use; above it, no worker is added
MEMORY_RESERVE = 150_000_000  # bytes that stay free


@dataclass(frozen=True, slots=True)
class MachineLoad:
    """What the machine has to spare. A field is None if it is not known.

    cpus: how many processors this process may use. busy_cpus: how many of them were in use recently, by any process.
    available_memory: in bytes.
    """

    cpus: int = 1
    busy_cpus: float | None = None
    available_memory: int | None = None


@dataclass(frozen=True, slots=True)
class WorkerTime:
    """Seconds that all workers of a run have spent so far: at work, in calls (part of the former), waiting for keys."""

    at_work: float = 0.0
    in_calls: float = 0.0
    waiting: float = 0.0

    def __add__(self, other: "WorkerTime") -> "WorkerTime":
        return WorkerTime(
            self.at_work + other.at_work, self.in_calls + other.in_calls, self.waiting + other.waiting
        )

    def __sub__(self, other: "WorkerTime") -> "WorkerTime":
        return WorkerTime(
            self.at_work - other.at_work, self.in_calls - other.in_calls, self.waiting - other.waiting
        )

    @property
    def share_waiting(self) -> float:
        total = self.at_work + self.waiting
        return self.waiting / total if total > 0 else 0.0

    @property
    def share_in_calls(self) -> float:
        return min(1.0, self.in_calls / self.at_work) if self.at_work > 0 else 1.0


@dataclass(frozen=True, slots=True)
class WorkerDemand:
    """The state of a run when the number of workers is decided.

    workers: the current number. running: how many have an item. queued: items without a worker.
    slots: calls that the keys allow at once; None in a run without keys of its own.
    """

    workers: int
    running: int
    queued: int
    slots: int | None


@dataclass(frozen=True, slots=True)
class WorkerDecision:
    workers: int
    reason: str


class AutoWorkers:
    """Decides the number of workers of a run, between 1 and `most`. It reads no clock: call `decide` every INTERVAL.

    It starts with one worker per call that the keys allow at once, so that no worker waits. While workers hardly wait,
    it adds workers until the calls of all of them fill the keys, at most doubling the number each time, and only while
    there are items without a worker, idle processors and free memory. When workers have waited for keys over a whole
    WINDOW, it keeps twice as many as were busy. Low memory takes effect immediately.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.next_at = 0.0
        self.machine = MachineLoad()
        self._changed_at = 0.0
        self._measured: deque[tuple[float, WorkerTime]] = deque()

    def begin(self, items: int, slots: int | None, now: float) -> int:
        """The number of workers to start with."""
        self.restart(now)
        useful = self.machine.cpus if slots is None else slots
        return max(1, min(self.most, useful, max(1, items)))

    def restart(self, now: float) -> None:
        """Forget the measurements, because the run has just started or was paused."""
        self._measured.clear()
        self._changed_at = now
        self.next_at = now + INTERVAL

    def decide(self, time: WorkerTime, demand: WorkerDemand, now: float) -> WorkerDecision | None:
        """A new number of workers with its reason, or None if the current number is right."""
        self.next_at = now + INTERVAL
        self._measured.append((now, time))
        while len(self._measured) > 2 and self._measured[1][0] <= now - WINDOW:
            self._measured.popleft()
        decision = self._lack_of_memory(demand) or self._shrink(demand, now) or self._grow(demand)
        if decision:
            self._changed_at = now
        return decision

    def _lack_of_memory(self, demand: WorkerDemand) -> WorkerDecision | None:
        free = self.machine.available_memory
        if free is None or free >= MEMORY_RESERVE or demand.running <= 1 or demand.workers < demand.running:
            return None
        return WorkerDecision(demand.running - 1, f"only {free // 1_000_000} MB of memory is free")

    def _shrink(self, demand: WorkerDemand, now: float) -> WorkerDecision | None:
        began, before = self._measured[0]
        spent, elapsed = self._measured[-1][1] - before, now - began
        if now - max(began, self._changed_at) < WINDOW or spent.share_waiting <= SATURATED:
            return None
        target = math.ceil(HEADROOM * spent.at_work / elapsed) + 1
        if target > demand.workers - max(1.0, SHRINK_STEP * demand.workers):
            return None
        waited = round(100 * spent.share_waiting)
        return WorkerDecision(target, f"workers waited for keys {waited} % of their time")

    def _grow(self, demand: WorkerDemand) -> WorkerDecision | None:
        if demand.running != demand.workers or not demand.queued:
            return None
        lately = self._measured[-1][1] - self._measured[max(0, len(self._measured) - 2)][1]
        spent = self._measured[-1][1] - self._measured[0][1]
        if spent.at_work < MIN_MEASURED or max(lately.share_waiting, spent.share_waiting) > SATURATED:
            return None
        target = min(
            2 * demand.workers,
            self.most,
            demand.running + demand.queued,
            self._most_by_keys(spent, demand),
            self._most_by_machine(demand),
        )
        if target - demand.workers < max(1.0, GROWTH_STEP * demand.workers):
            return None
        if demand.slots is None:
            return WorkerDecision(target, "processors and memory are free")
        return WorkerDecision(target, f"workers hardly waited for keys ({spent.share_in_calls:.0%} in calls)")

    def _most_by_keys(self, spent: WorkerTime, demand: WorkerDemand) -> int:
        """Enough workers for their calls to fill every slot of the keys."""
        if demand.slots is None:
            return self.most
        if demand.slots < 2:  # the scheduler then runs one item at a time
            return 1
        share = max(spent.share_in_calls, 0.01)
        return demand.slots + math.ceil(HEADROOM * demand.slots * (1 - share) / share - 0.1)

    def _most_by_machine(self, demand: WorkerDemand) -> int:
        machine, most = self.machine, self.most
        if machine.available_memory is not None:
            free = machine.available_memory - MEMORY_RESERVE
            most = min(most, demand.workers + max(0, free // WORKER_MEMORY))
        if machine.busy_cpus is not None and machine.busy_cpus > 0:
            # Assume that all of the load is ours; if it is not, there is no room for more workers either.
            most = min(most, math.floor(demand.workers * BUSY_CPU * machine.cpus / machine.busy_cpus))
        return most
