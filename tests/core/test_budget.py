"""A run with a budget stops before the call that would exceed it, and loses nothing."""

from agentos.core.protocol import events
from agentos.core.protocol.commands import KillWorker, StopWorker
from agentos.core.protocol.results import Ending, Outcome, Usage
from agentos.core.quota.budget import Limits, Price, PriceList

from .builders import keys
from .scheduler_harness import SchedulerHarness

PRICES = PriceList((("gemini-2.5-pro", Price(1.0, 1.0)),))
CENT = {"models": ("gemini-2.5-pro",), "input_tokens": 5000, "output_tokens": 5000}
COSTS_A_CENT = Usage(1, 5000, 5000)


def budgeted(cents: float, items: int = 1) -> SchedulerHarness:
    limits = Limits(parallel=items, budget=cents / 100, prices=PRICES)
    return SchedulerHarness(keys(4), items, limits)


def test_a_call_that_would_exceed_the_budget_is_not_made_and_the_run_exits_75() -> None:
    run = budgeted(cents=2.5)
    for _ in range(2):
        lease = run.request("LLD-1", **CENT)
        assert lease is not None
        run.answer(lease, COSTS_A_CENT)
    assert run.of(StopWorker) == []
    assert run.request("LLD-1", **CENT) is None
    assert run.of(StopWorker) == [StopWorker("LLD-1")]
    run.finish("LLD-1", Outcome(Ending.INTERRUPTED))
    (ended,) = run.of(events.RunEnded)
    assert ended.exit_code == 75
    assert "--budget 0.03" in ended.detail and "0.0200 spent" in ended.detail


def test_calls_in_flight_finish_before_the_run_stops() -> None:
    run = budgeted(cents=2.5, items=3)
    running = [run.request(item, **CENT) for item in ("LLD-1", "LLD-2")]
    assert all(running) and run.request("LLD-3", **CENT) is None
    assert run.of(StopWorker) == [], "two calls are in flight"
    for lease in running:
        assert lease is not None and not run.of(StopWorker)
        run.answer(lease, COSTS_A_CENT)
    assert [stopped.item for stopped in run.of(StopWorker)] == ["LLD-1", "LLD-2", "LLD-3"]
    assert run.of(KillWorker) == []
    counted = run.of(events.CallCompleted)
    assert [event.cost for event in counted] == [0.01, 0.01]


def test_a_call_is_made_once_calls_in_flight_cost_less_than_estimated() -> None:
    run = budgeted(cents=2.5, items=3)
    first, second = (run.request(item, **CENT) for item in ("LLD-1", "LLD-2"))
    assert first and second and run.request("LLD-3", **CENT) is None
    run.answer(first, Usage(1, 100, 100))
    third = run.held("LLD-3")
    assert third is not None
    for lease in (second, third):
        run.answer(lease, Usage(1, 100, 100))
    assert run.of(StopWorker) == [], "no call is refused any more"


def test_no_item_starts_after_the_budget_is_used_up() -> None:
    limits = Limits(parallel=2, budget=0.01, prices=PRICES)
    run = SchedulerHarness(keys(4), items=3, limits=limits)
    first = run.request("LLD-1", **CENT)
    assert first is not None and run.request("LLD-2", **CENT) is None
    run.finish("LLD-1")
    assert run.started() == ["LLD-1", "LLD-2"]
    run.finish("LLD-2", Outcome(Ending.INTERRUPTED))
    assert run.run.over and run.run.exit_code() == 75


def test_a_call_without_an_answer_costs_nothing() -> None:
    run = budgeted(cents=1)
    for _ in range(3):
        lease = run.request("LLD-1", **CENT)
        assert lease is not None
        run.answer(lease, Usage())
    assert run.of(events.CallCompleted) == [] and run.of(StopWorker) == []


def test_the_estimated_cost_of_a_dead_workers_call_stays_reserved() -> None:
    run = budgeted(cents=1)
    assert run.request("LLD-1", **CENT) is not None
    run.handle(events.WorkerExited("LLD-1", "signal 9", clean=False))
    run.advance_to(run.now + 5)
    assert run.request("LLD-1", **CENT) is None and run.run.exit_code() == 75
