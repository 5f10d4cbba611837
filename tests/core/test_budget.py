"""A run with a budget stops before the call that would pass it, and loses nothing."""

from agentos.core.protocol import events
from agentos.core.protocol.commands import KillWorker, StopWorker
from agentos.core.protocol.results import Ending, Outcome, Usage
from agentos.core.quota.budget import Price, PriceList
from agentos.core.scheduling.run_limits import Limits

from .builders import keys
from .scheduler_harness import Conducted

PRICES = PriceList((("gemini-2.5-pro", Price(1.0, 1.0)),))
CENT = {"models": ("gemini-2.5-pro",), "input_tokens": 5000, "output_tokens": 5000}
COSTS_A_CENT = Usage(1, 5000, 5000)


def stage(cents: float, items: int = 1) -> Conducted:
    limits = Limits(parallel=items, budget=cents / 100, prices=PRICES)
    return Conducted(keys(4), items, limits)


def test_the_call_that_would_pass_the_budget_is_not_made_and_the_run_stops_with_75() -> None:
    run = stage(cents=2.5)
    for _ in range(2):
        lease = run.want("LLD-1", **CENT)
        assert lease is not None
        run.answer(lease, COSTS_A_CENT)
    assert run.of(StopWorker) == []
    assert run.want("LLD-1", **CENT) is None
    assert run.of(StopWorker) == [StopWorker("LLD-1")]
    run.finish("LLD-1", Outcome(Ending.INTERRUPTED))
    (ended,) = run.of(events.RunEnded)
    assert ended.exit_code == 75
    assert "--budget 0.03" in ended.detail and "0.0200 spent" in ended.detail


def test_calls_that_are_running_finish_before_the_run_stops() -> None:
    run = stage(cents=2.5, items=3)
    running = [run.want(item, **CENT) for item in ("LLD-1", "LLD-2")]
    assert all(running) and run.want("LLD-3", **CENT) is None
    assert run.of(StopWorker) == [], "two answers are still to come"
    for lease in running:
        assert lease is not None and not run.of(StopWorker)
        run.answer(lease, COSTS_A_CENT)
    assert [stopped.item for stopped in run.of(StopWorker)] == ["LLD-1", "LLD-2", "LLD-3"]
    assert run.of(KillWorker) == []
    counted = run.of(events.CallCompleted)
    assert [told.cost for told in counted] == [0.01, 0.01]


def test_a_call_that_fits_once_the_running_ones_have_cost_less_is_made() -> None:
    run = stage(cents=2.5, items=3)
    first, second = (run.want(item, **CENT) for item in ("LLD-1", "LLD-2"))
    assert first and second and run.want("LLD-3", **CENT) is None
    run.answer(first, Usage(1, 100, 100))
    third = run.held("LLD-3")
    assert third is not None
    for lease in (second, third):
        run.answer(lease, Usage(1, 100, 100))
    assert run.of(StopWorker) == [], "nobody is refused any more"


def test_no_further_item_starts_when_the_budget_is_used_up() -> None:
    limits = Limits(parallel=2, budget=0.01, prices=PRICES)
    run = Conducted(keys(4), items=3, limits=limits)
    first = run.want("LLD-1", **CENT)
    assert first is not None and run.want("LLD-2", **CENT) is None
    run.finish("LLD-1")
    assert run.started() == ["LLD-1", "LLD-2"]
    run.finish("LLD-2", Outcome(Ending.INTERRUPTED))
    assert run.run.over and run.run.exit_code() == 75


def test_a_call_without_an_answer_costs_nothing() -> None:
    run = stage(cents=1)
    for _ in range(3):
        lease = run.want("LLD-1", **CENT)
        assert lease is not None
        run.answer(lease, Usage())
    assert run.of(events.CallCompleted) == [] and run.of(StopWorker) == []


def test_what_the_call_of_a_dead_worker_may_have_cost_stays_counted() -> None:
    run = stage(cents=1)
    assert run.want("LLD-1", **CENT) is not None
    run.hear(events.WorkerExited("LLD-1", "signal 9", clean=False))
    run.at(run.now + 5)
    assert run.want("LLD-1", **CENT) is None and run.run.exit_code() == 75
