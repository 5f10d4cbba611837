"""What a run would take, told by the lives of items of earlier runs."""

from dataclasses import replace

import pytest

from agentos.core.constants import MAX_PARALLEL
from agentos.core.forecast.forecast import forecast
from agentos.core.forecast.history import CallTrace, ItemTrace, RunHistory, TraceBuilder
from agentos.core.forecast.simulation import SimulationInputs, WaitCause
from agentos.core.planning.items import Item
from agentos.core.planning.plan import FINISHED, PlanEntry
from agentos.core.protocol import events
from agentos.core.protocol.peer_notes import BucketLimitsLearned, CallEnded, CallStarted, CooldownStarted
from agentos.core.protocol.results import Ending, Outcome, Usage, Verdict
from agentos.core.quota.budget import Price, PriceList
from agentos.core.quota.credentials import Credential
from agentos.core.ratelimit.limits import CallCost, Dimension, LimitSeen, Rate
from agentos.core.scheduling.run_limits import Limits

from .builders import keys

NOW = 5000.0
PRICES = PriceList((("gemini-2.5-pro", Price(1.0, 10.0)),))
NODES = (("N0_load_issue", 0), ("N1_design", 0), ("N2_human_edit", 1), ("N3_review", 1), ("N4_finalize", 2))


def wish(item: str = "LLD-9") -> events.LeaseRequested:
    return events.LeaseRequested(item, "call", ("gemini",), ("gemini-2.5-pro",), 1000, 500)


def life(seconds: float = 10.0) -> ItemTrace:
    """Two calls, each so long; 0.5 s of work before each, 1 s after."""
    calls = tuple(CallTrace(0.5, wish(), seconds, Usage(1, 1000, 500)) for _ in range(2))
    return ItemTrace(0.0, calls, 1.0, NODES)


def known(*traces: ItemTrace) -> RunHistory:
    return RunHistory(traces or (life(),), runs=1)


def scene(
    items: int, parallel: int = 1, credentials: list[Credential] | None = None, budget: float | None = None
) -> SimulationInputs:
    entries = tuple(
        PlanEntry(Item(f"LLD-{n}", "lld", n, "A title", f"issues/{n}.md"), "new") for n in range(1, items + 1)
    )
    limits = Limits(parallel, budget=budget, prices=PRICES)
    return SimulationInputs(entries, tuple(credentials or keys(4)), (), limits, NOW)


def test_without_an_earlier_run_nothing_is_known() -> None:
    found = forecast(scene(3), RunHistory())
    assert (found.usage, found.cost, found.seconds, found.bottleneck) == (None, None, None, None)
    assert found.one_more_worker is None and found.one_more_key is None


def test_without_a_usable_key_nothing_is_known() -> None:
    disabled = [replace(key, enabled=False) for key in keys(2)]
    assert forecast(scene(3, credentials=disabled), known()).seconds is None


def test_one_worker_takes_the_lives_one_after_the_other() -> None:
    found = forecast(scene(3), known())
    assert found.seconds == pytest.approx(3 * (0.5 + 10 + 0.5 + 10 + 1))
    assert found.usage == Usage(6, 6000, 3000)
    assert found.cost == pytest.approx(6000 / 1e6 + 3000 * 10 / 1e6)
    assert (found.ended, found.exit_code) == (3, 0)


def test_workers_are_the_bottleneck_while_keys_have_room_and_one_more_helps() -> None:
    found = forecast(scene(12, parallel=3), known())
    assert found.seconds == pytest.approx(4 * 22.0)
    assert found.bottleneck and found.bottleneck.what == "workers"
    assert found.one_more_worker == pytest.approx(3 * 22.0)
    assert found.one_more_key == found.seconds


def test_key_slots_are_the_bottleneck_when_workers_wait_for_each_other() -> None:
    found = forecast(scene(8, parallel=4, credentials=keys(2)), known())
    assert found.bottleneck and found.bottleneck.what is WaitCause.SLOTS and found.bottleneck.amount == 2
    assert found.seconds is not None and found.seconds >= 8 * 20 / 2
    assert found.one_more_key is not None and found.one_more_key < 0.8 * found.seconds


def test_a_limit_that_is_kept_to_is_the_bottleneck_and_named() -> None:
    rates = ((Dimension.REQUESTS, Rate(6.0, 60.0)),)
    paced = [replace(key, rates=rates, concurrency=8) for key in keys(1)]
    found = forecast(scene(12, parallel=4, credentials=paced), known(life(1.0)))
    assert found.bottleneck and found.bottleneck.what == Dimension.REQUESTS
    assert found.bottleneck.amount == pytest.approx(6.0)
    assert found.seconds is not None and found.seconds >= 180.0, "24 calls at 6 a minute"
    assert found.one_more_key is not None and found.one_more_key < 0.7 * found.seconds


def test_the_tightest_of_several_limits_is_named() -> None:
    rates = ((Dimension.REQUESTS, Rate(600.0, 60.0)), (Dimension.TOKENS, Rate(6000.0, 60.0)))
    paced = [replace(key, rates=rates, concurrency=8) for key in keys(1)]
    found = forecast(scene(12, parallel=4, credentials=paced), known(life(1.0)))
    assert found.bottleneck and found.bottleneck.what == Dimension.TOKENS


def test_a_rate_that_an_earlier_run_found_out_counts() -> None:
    key = replace(keys(1)[0], concurrency=8)
    learnt = BucketLimitsLearned("earlier", key.quota, "gemini-2.5-pro", requests_per_second=0.1)
    found = forecast(replace(scene(12, 4, [key]), notes=(learnt,)), known(life(1.0)))
    assert found.seconds is not None and found.seconds >= 23 * 10.0


def test_a_rate_that_is_still_sought_is_tempered_by_what_the_last_run_got_through() -> None:
    """Just after a search the rate found may be too high, and what there was too low."""
    credentials = keys(2)
    notes = tuple(
        BucketLimitsLearned("before", key.quota, "gemini-2.5-pro", requests_per_second=0.5)
        for key in credentials
    )
    planned = replace(scene(10, parallel=4, credentials=credentials), notes=notes)
    hopeful = forecast(planned, known(life(0.5)))
    sober = forecast(planned, replace(known(life(0.5)), calls_per_second=0.4))
    named = tuple(replace(note, window_seconds=10.0) for note in notes)
    sure = [
        forecast(replace(planned, notes=named), replace(known(life(0.5)), calls_per_second=pace)).seconds
        for pace in (None, 0.4)
    ]
    assert hopeful.seconds and sober.seconds and hopeful.seconds < 30
    assert hopeful.seconds < sober.seconds < 20 / 0.4
    assert sober.seconds == pytest.approx(20 / (1.0 * 0.4) ** 0.5, rel=0.1)
    assert sober.one_more_key is not None and sober.one_more_key < 0.8 * sober.seconds
    assert sure[0] == sure[1], "a window that was found is certain"


def test_the_pace_of_a_run_is_told_by_calls_that_waited() -> None:
    paces = []
    for wait in (3.0, 0.1):
        chronicle = TraceBuilder()
        chronicle.handle(events.ItemStarted("LLD-9", 1, 1), 0.0)
        for number in range(4):
            begin = number * (wait + 1.0)
            for at, event in (
                (begin, wish()),
                (begin + wait, events.LeaseGranted("LLD-9", "key-1", f"{number}", wait)),
                (begin + wait + 1.0, events.LeaseReleased("LLD-9", f"{number}", 1.0, Usage(1, 10, 10))),
            ):
                chronicle.handle(event, at)
        paces.append(chronicle.pace)
    assert paces == [pytest.approx(0.25), None]


def test_a_limit_that_a_provider_named_counts() -> None:
    key = replace(keys(1)[0], concurrency=8)
    told = BucketLimitsLearned("earlier", key.quota, "gemini-2.5-pro", (LimitSeen(Dimension.REQUESTS, 6.0),))
    found = forecast(replace(scene(12, 4, [key]), notes=(told,)), known(life(1.0)))
    assert found.seconds is not None and found.seconds >= 180.0


def test_a_key_that_rests_is_waited_for() -> None:
    key = keys(1)[0]
    rest = CooldownStarted("earlier", key.quota, "gemini-2.5-pro", NOW + 100.0, 0.0, "429", NOW)
    found = forecast(replace(scene(1, credentials=[key]), notes=(rest,)), known())
    assert found.seconds is not None and 120 <= found.seconds <= 125


def test_what_was_sent_just_now_counts() -> None:
    rates = ((Dimension.REQUESTS, Rate(6.0, 60.0)),)
    key = replace(keys(1)[0], rates=rates, concurrency=8)
    sent = [
        CallStarted(
            "earlier", f"{number}", key.fingerprint, key.quota, "gemini-2.5-pro", NOW - 10.0, CallCost(10, 10)
        )
        for number in range(6)
    ]
    notes = [note for call in sent for note in (call, CallEnded("earlier", call.lease))]
    found = forecast(replace(scene(1, credentials=[key]), notes=tuple(notes)), known(life(1.0)))
    assert found.seconds is not None and 50 <= found.seconds <= 60


def test_nobody_is_there_before_the_run_has_warmed_up_and_then_everybody_is() -> None:
    slow = RunHistory((life(),), runs=1, warm_up=5.0)
    found = forecast(scene(4, parallel=2), slow)
    assert found.seconds == pytest.approx(5.0 + 2 * 22.0)


def test_items_of_several_kinds_are_told_by_all_of_them_not_by_the_first() -> None:
    quick, slow = life(1.0), ItemTrace(0.0, life(9.0).calls * 2, 1.0, NODES)
    found = forecast(scene(1), known(quick, slow))
    assert found.usage is not None and found.usage.calls == 3
    many = forecast(scene(60, 3), known(*[quick] * 10, *[slow] * 10))
    usual = 30 * ((2 * 1.5 + 1) + (4 * 9.5 + 1)) / 3
    assert many.seconds == pytest.approx(usual, rel=0.15)
    assert many.usage is not None and many.usage.calls == pytest.approx(180, rel=0.05)


def test_a_budget_ends_it_and_says_how_far_it_comes() -> None:
    found = forecast(scene(10, budget=0.03), known())
    assert found.exit_code == 75 and 0 < found.ended < 10
    assert found.cost is not None and found.cost <= 0.03 + 1e-9


def test_an_unknown_price_leaves_the_cost_open_and_nothing_else() -> None:
    plain = scene(2)
    found = forecast(replace(plain, limits=Limits()), known())
    assert found.cost is None and found.seconds is not None and found.usage == Usage(4, 4000, 2000)


def test_an_item_that_resumes_needs_what_is_left() -> None:
    plain = scene(2)
    entries = (replace(plain.entries[0], node="N3_review"), replace(plain.entries[1], node=FINISHED))
    assert forecast(replace(plain, entries=entries), known()).usage == Usage(1, 1000, 500)


def test_lives_that_went_on_from_a_checkpoint_are_no_measure_for_new_items() -> None:
    resumed = ItemTrace(0.0, life().calls[1:], 1.0, (("N3_review", 0), ("N4_finalize", 1)))
    found = forecast(scene(3), known(resumed, life(), resumed))
    assert found.lives == 1 and found.usage == Usage(6, 6000, 3000)


def test_many_items_are_told_by_some_of_them() -> None:
    few, many = forecast(scene(500, 5), known()), forecast(scene(5000, 5), known())
    assert few.seconds is not None and many.seconds == pytest.approx(10 * few.seconds, rel=0.02)
    assert many.usage == Usage(10_000, 10_000_000, 5_000_000)
    assert few.cost is not None and many.cost == pytest.approx(10 * few.cost)


def test_a_days_quota_is_counted_for_many_items_too() -> None:
    daily = [replace(key, rates=((Dimension.DAY, Rate(1000.0, 86400.0)),), concurrency=8) for key in keys(1)]
    found = forecast(scene(2000, 4, daily), known(life(1.0)))
    assert found.seconds is not None and found.seconds >= 3 * 86400, "4,000 calls, 1,000 a day"


def test_at_the_most_workers_one_more_is_not_offered() -> None:
    assert forecast(scene(3, MAX_PARALLEL), known()).one_more_worker is None


def test_models_that_are_not_asked_any_more_tell_nothing() -> None:
    assert known().among(frozenset({("gemini", "gemini-2.5-pro")})).traces
    assert not known().among(frozenset({("gemini", "gemini-flash")})).traces


# From events to lives.


def told(*heard: tuple[float, events.Event]) -> TraceBuilder:
    chronicle = TraceBuilder()
    for at, event in heard:
        chronicle.handle(event, at)
    return chronicle


FINISH = Outcome(Ending.FINISHED, Verdict.APPROVED, 1)


def test_waiting_for_keys_and_refused_calls_are_no_part_of_a_life() -> None:
    chronicle = told(
        (0.0, events.RunStarted("r", "lld", "/p", ("LLD-9",), 1, ("key-1",))),
        (0.0, events.ItemStarted("LLD-9", 1, 1)),
        (1.0, events.WorkerStarted("LLD-9", 1)),
        (1.1, events.NodeStarted("LLD-9", "N1_design", 1)),
        (1.5, wish()),
        (9.5, events.LeaseGranted("LLD-9", "key-1", "lease-1", 8.0)),
        (9.6, events.LeaseReleased("LLD-9", "lease-1", 0.1)),
        (9.7, wish()),
        (20.0, events.LeaseGranted("LLD-9", "key-1", "lease-2", 8.0)),
        (25.0, events.LeaseReleased("LLD-9", "lease-2", 5.0, Usage(1, 10, 20))),
        (25.5, events.WorkerReported("LLD-9", FINISH)),
        (26.0, events.WorkerExited("LLD-9", "exit status 0", clean=True)),
    )
    (found,) = chronicle.traces
    (call,) = found.calls
    assert chronicle.warm_up == 1.0 and found.start == 0.0
    assert call.work_before == pytest.approx(0.6) and call.duration == 5.0 and call.usage == Usage(1, 10, 20)
    assert found.after == pytest.approx(1.0) and found.nodes == (("N1_design", 0),)


def test_waiting_for_the_run_to_warm_up_is_no_part_of_a_life() -> None:
    def lived(item: str, there: float) -> list[tuple[float, events.Event]]:
        return [
            (there, events.WorkerStarted(item, 1)),
            (there, events.NodeStarted(item, "N1_design", 1)),
            (there, events.WorkerReported(item, FINISH)),
            (there + 1, events.WorkerExited(item, "exit status 0", clean=True)),
        ]

    items = ("LLD-1", "LLD-2", "LLD-3")
    chronicle = told(
        (0.0, events.RunStarted("r", "lld", "/p", items, 2, ("key-1",))),
        (0.0, events.ItemStarted("LLD-1", 1, 1)),
        (0.0, events.ItemStarted("LLD-2", 2, 1)),
        *lived("LLD-1", 6.0),
        *lived("LLD-2", 6.25),
        (8.0, events.ItemStarted("LLD-3", 1, 1)),
        *lived("LLD-3", 8.5),
    )
    assert chronicle.warm_up == 6.0
    assert [life.start for life in chronicle.traces] == [0.0, 0.25, 0.5]


def test_an_item_that_failed_is_no_measure() -> None:
    chronicle = told(
        (0.0, events.ItemStarted("LLD-9", 1, 1)),
        (1.0, events.WorkerStarted("LLD-9", 1)),
        (2.0, events.WorkerExited("LLD-9", "killed by SIGKILL", clean=False)),
    )
    assert chronicle.traces == []
