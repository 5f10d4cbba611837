"""`--parallel auto`: how many workers a run has, from what it measures."""

import pytest
from bench.auto_parallel import Setting, measure

from agentos.core.constants import AUTO_PARALLEL
from agentos.core.forecast.forecast import forecast
from agentos.core.protocol import events
from agentos.core.protocol.commands import KillWorker, StopWorker
from agentos.core.quota.budget import Limits
from agentos.core.scheduling.auto_workers import (
    INTERVAL,
    WINDOW,
    AutoWorkers,
    MachineLoad,
    WorkerDemand,
    WorkerTime,
)

from .builders import keys
from .scheduler_harness import SchedulerHarness
from .test_forecast import history, item_trace, planned_run


class Measurements:
    """Feeds a controller with workers that spend their time in fixed shares."""

    def __init__(
        self, workers: int, slots: int | None, most: int = 10, machine: MachineLoad | None = None
    ) -> None:
        self.auto = AutoWorkers(most)
        self.auto.machine = machine or MachineLoad()
        self.workers, self.slots, self.now, self.time = workers, slots, 0.0, WorkerTime()
        self.auto.restart(0.0)
        self.reasons: list[str] = []

    def spend(self, seconds: float, in_calls: float, waiting: float = 0.0, queued: int = 100) -> list[int]:
        """Every number of workers decided on while they spend these shares of their time."""
        seen = []
        until = self.now + seconds
        while self.now < until:
            self.now += INTERVAL
            used = INTERVAL * self.workers
            self.time = WorkerTime(
                self.time.at_work + used * (1 - waiting),
                self.time.in_calls + used * (1 - waiting) * in_calls,
                self.time.waiting + used * waiting,
            )
            demand = WorkerDemand(self.workers, self.workers, queued, self.slots)
            if decision := self.auto.decide(self.time, demand, self.now):
                self.workers = decision.workers
                self.reasons.append(decision.reason)
                seen.append(self.workers)
        return seen


@pytest.mark.parametrize(
    ("items", "slots", "cpus", "expected"), [(50, 4, 2, 4), (50, 40, 2, 10), (2, 4, 2, 2), (50, None, 2, 2)]
)
def test_a_run_begins_with_one_worker_per_call_that_the_keys_allow(
    items: int, slots: int | None, cpus: int, expected: int
) -> None:
    auto = AutoWorkers(10)
    auto.machine = MachineLoad(cpus)
    assert auto.begin(items, slots, 0.0) == expected


def test_workers_are_added_until_their_calls_fill_the_keys() -> None:
    half = Measurements(4, slots=4, most=64)
    assert half.spend(20.0, in_calls=0.5) == [8, 12], "items are in a call half of their time"
    assert Measurements(4, slots=4).spend(20.0, in_calls=1.0) == []
    assert "workers hardly waited for keys" in half.reasons[0]


def test_workers_that_wait_for_keys_are_reduced_by_littles_law() -> None:
    waiting = Measurements(10, slots=4)
    assert waiting.spend(WINDOW - INTERVAL, in_calls=1.0, waiting=0.8) == []
    assert waiting.spend(2 * INTERVAL, in_calls=1.0, waiting=0.8) == [5], "two are busy on average"
    assert waiting.reasons == ["workers waited for keys 80 % of their time"]
    assert waiting.spend(3 * WINDOW, in_calls=1.0, waiting=0.05) == [], "and hardly anybody waits any more"


def test_a_short_wait_changes_nothing_and_a_limit_that_is_lifted_brings_workers_back() -> None:
    run = Measurements(4, slots=4)
    assert run.spend(30.0, in_calls=0.5, waiting=0.5) == []
    assert run.spend(2 * WINDOW, in_calls=0.5)[0] > 4


def test_nothing_is_added_without_items_processors_or_memory() -> None:
    assert Measurements(4, slots=8).spend(20.0, in_calls=0.5, queued=0) == []
    busy = MachineLoad(cpus=2, busy_cpus=1.9)
    assert Measurements(4, slots=8, machine=busy).spend(20.0, in_calls=0.5) == []
    full = MachineLoad(cpus=2, available_memory=160_000_000)
    assert Measurements(4, slots=8, machine=full).spend(20.0, in_calls=0.5) == []


def test_a_run_without_keys_follows_the_processors() -> None:
    idle = Measurements(2, slots=None, machine=MachineLoad(cpus=2, busy_cpus=0.5))
    assert idle.spend(2 * INTERVAL, in_calls=0.0)[0] == 4
    busy = Measurements(2, slots=None, machine=MachineLoad(cpus=2, busy_cpus=2.0))
    assert busy.spend(60.0, in_calls=0.0) == []


def test_too_little_memory_reduces_the_workers_at_once() -> None:
    run = Measurements(4, slots=4, machine=MachineLoad(available_memory=90_000_000))
    assert run.spend(INTERVAL, in_calls=1.0) == [3]
    assert run.reasons == ["only 90 MB of memory is free"]


def test_a_run_on_auto_grows_while_its_items_are_at_work_between_calls() -> None:
    run = SchedulerHarness(keys(4), 20, Limits(parallel=AUTO_PARALLEL))
    assert len(run.started()) == 4
    run.advance_to(run.now + 1.0)
    for item in run.started():
        run.handle(events.WorkerStarted(item, 1))
    run.advance_to(run.now + 10.0)
    changed = run.of(events.WorkerCountChanged)
    assert (changed[0].workers, changed[0].previous, changed[0].auto) == (8, 4, True)
    assert len(run.started()) > 4


def test_no_worker_is_stopped_when_their_number_falls() -> None:
    run = SchedulerHarness(keys(4), 20, Limits(parallel=AUTO_PARALLEL))
    for item in run.started():
        run.handle(events.WorkerStarted(item, 1))
    run.run.set_machine_load(MachineLoad(available_memory=0))
    run.advance_to(run.now + 20.0)
    assert run.of(events.WorkerCountChanged)[-1].workers < 4
    assert run.of(StopWorker) == [] and run.of(KillWorker) == []


def test_a_fixed_number_of_workers_never_changes_by_itself() -> None:
    run = SchedulerHarness(keys(4), 20, Limits(parallel=1))
    for item in run.started():
        run.handle(events.WorkerStarted(item, 1))
    run.advance_to(run.now + 100.0)
    assert run.started() == ["LLD-1"] and run.of(events.WorkerCountChanged) == []


def test_auto_can_be_switched_on_and_off_during_a_run() -> None:
    run = SchedulerHarness(keys(4), 20, Limits(parallel=3))
    run.handle(events.WorkerCountRequested(AUTO_PARALLEL))
    assert run.of(events.WorkerCountChanged) == [events.WorkerCountChanged(3, 3, auto=True)]
    run.handle(events.WorkerCountRequested(AUTO_PARALLEL))
    assert "already decides" in run.of(events.RequestDeclined)[0].reason
    run.handle(events.WorkerCountRequested(3))
    assert run.of(events.WorkerCountChanged)[-1] == events.WorkerCountChanged(3, 3)
    for item in run.started():
        run.handle(events.WorkerStarted(item, 1))
    run.advance_to(run.now + 100.0)
    assert len(run.of(events.WorkerCountChanged)) == 2


def test_a_forecast_counts_with_the_workers_that_auto_would_have() -> None:
    trace = item_trace(1.0)
    auto = forecast(planned_run(20, AUTO_PARALLEL), history(trace))
    fixed = {workers: forecast(planned_run(20, workers), history(trace)).seconds for workers in (1, 4, 6)}
    assert auto.seconds is not None and auto.seconds <= 1.05 * min(filter(None, fixed.values()))
    assert auto.seconds_with_one_more_worker is None


@pytest.mark.parametrize(
    "setting",
    [
        Setting(1, 5.0, 1.0),
        Setting(2, 5.0, 1.0),
        Setting(4, 1.0, 2.0),
        Setting(4, 5.0, 1.0, 6),
        Setting(20, 5.0, 5.0, None, 1, 64),
    ],
    ids=str,
)
def test_auto_is_within_5_percent_of_the_best_fixed_number(setting: Setting) -> None:
    assert measure(setting, 60).ratio <= 1.05
