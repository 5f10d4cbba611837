"""Forecasts of a run from the item traces of earlier runs."""

from dataclasses import replace

import pytest

from agentos.core.constants import MAX_PARALLEL
from agentos.core.forecast.forecast import forecast
from agentos.core.forecast.history import CallTrace, ItemTrace, RunHistory, TraceBuilder
from agentos.core.forecast.simulation import SimulationInputs, WaitCause
from agentos.core.planning.items import FINISHED, Item
from agentos.core.planning.plan import PlanEntry
from agentos.core.protocol import events
from agentos.core.protocol.peer_notes import BucketLimitsLearned, CallEnded, CallStarted, CooldownStarted
from agentos.core.protocol.results import Ending, Outcome, Usage, Verdict
from agentos.core.quota.budget import Limits, Price, PriceList
from agentos.core.quota.credentials import Credential
from agentos.core.ratelimit.limits import (
    CallCost,
    Counting,
    Dimension,
    LearnedLimit,
    LearnedLimits,
    LimitSeen,
    Rate,
)
from agentos.outputs.forecast_text import forecast_lines

from .builders import key, keys

NOW = 5000.0
PRICES = PriceList((("gemini-2.5-pro", Price(1.0, 10.0)),))
NODES = (("N0_load_issue", 0), ("N1_design", 0), ("N2_human_edit", 1), ("N3_review", 1), ("N4_finalize", 2))


def lease_request(item: str = "LLD-9") -> events.LeaseRequested:
    return events.LeaseRequested(item, "call", ("gemini",), ("gemini-2.5-pro",), 1000, 500)


def item_trace(seconds: float = 10.0) -> ItemTrace:
    """Two calls of the given duration, 0.5 s of work before each, 1 s of work after the last."""
    calls = tuple(CallTrace(0.5, lease_request(), seconds, Usage(1, 1000, 500)) for _ in range(2))
    return ItemTrace(0.0, calls, 1.0, NODES)


def history(*traces: ItemTrace) -> RunHistory:
    return RunHistory(traces or (item_trace(),), runs=1)


def planned_run(
    items: int, parallel: int = 1, credentials: list[Credential] | None = None, budget: float | None = None
) -> SimulationInputs:
    entries = tuple(
        PlanEntry(Item(f"LLD-{n}", "lld", n, "A title", f"issues/{n}.md"), "new") for n in range(1, items + 1)
    )
    limits = Limits(parallel, budget=budget, prices=PRICES)
    return SimulationInputs(entries, tuple(credentials or keys(4)), (), limits, NOW)


def test_without_an_earlier_run_there_is_no_forecast() -> None:
    found = forecast(planned_run(3), RunHistory())
    assert (found.usage, found.cost, found.seconds, found.bottleneck) == (None, None, None, None)
    assert found.seconds_with_one_more_worker is None and found.seconds_with_one_more_key is None


def test_code_that_earlier_prompts_did_not_show_is_counted() -> None:
    before = history(item_trace())
    more = before.with_code(8000)
    assert more.traces[0].usage.input_tokens == before.traces[0].usage.input_tokens + 8000 * len(
        before.traces[0].calls
    )
    with_code = history(replace(item_trace(), code_tokens=8000))
    assert with_code.with_code(8000) == with_code
    assert with_code.with_code(0) == with_code


def test_the_size_of_the_issues_to_run_counts_not_that_of_earlier_ones() -> None:
    earlier = history(replace(item_trace(), source_tokens=200))
    inputs = planned_run(2)
    small, large = (
        replace(entry, item=replace(entry.item, source_tokens=tokens))
        for entry, tokens in zip(inputs.entries, (100, 205_000), strict=True)
    )
    found = forecast(replace(inputs, entries=(small, large)), earlier)
    assert found.usage == Usage(4, 2 * (1000 - 100) + 2 * (1000 + 204_800), 2000)
    unknown = forecast(replace(inputs, entries=(small, large)), history(item_trace()))
    assert unknown.usage == Usage(4, 4000, 2000), "of older runs the size is unknown"


def test_without_an_enabled_key_there_is_no_forecast() -> None:
    disabled = [replace(key, enabled=False) for key in keys(2)]
    assert forecast(planned_run(3, credentials=disabled), history()).seconds is None


def test_one_worker_runs_the_items_one_after_the_other() -> None:
    found = forecast(planned_run(3), history())
    assert found.seconds == pytest.approx(3 * (0.5 + 10 + 0.5 + 10 + 1))
    assert found.usage == Usage(6, 6000, 3000)
    assert found.cost == pytest.approx(6000 / 1e6 + 3000 * 10 / 1e6)
    assert (found.items_ended, found.exit_code) == (3, 0)


def test_workers_are_the_bottleneck_while_keys_have_capacity_and_one_more_helps() -> None:
    found = forecast(planned_run(12, parallel=3), history())
    assert found.seconds == pytest.approx(4 * 22.0)
    assert found.bottleneck and found.bottleneck.what == "workers"
    assert found.seconds_with_one_more_worker == pytest.approx(3 * 22.0)
    assert found.seconds_with_one_more_key == found.seconds


def test_workers_are_not_the_bottleneck_if_one_more_would_change_nothing() -> None:
    inputs = planned_run(2, parallel=1)
    broken = replace(inputs.entries[1], problems=("line 1: no heading",))
    found = forecast(replace(inputs, entries=(inputs.entries[0], broken)), history())
    assert found.bottleneck and found.bottleneck.what == "items"
    assert forecast_lines(found)[1].startswith("Bottleneck: the longest item; ")


def test_key_slots_are_the_bottleneck_when_workers_wait_for_each_other() -> None:
    found = forecast(planned_run(8, parallel=4, credentials=keys(2)), history())
    assert found.bottleneck and found.bottleneck.what is WaitCause.SLOTS and found.bottleneck.amount == 2
    assert found.seconds is not None and found.seconds >= 8 * 20 / 2
    assert found.bottleneck.keys == ("key-1", "key-2")


def test_one_key_of_a_role_is_the_bottleneck_while_keys_of_another_provider_are_idle() -> None:
    credentials = [*(key(f"anthropic-{n}", "anthropic") for n in range(1, 4)), key("gemini-1")]
    found = forecast(planned_run(8, parallel=4, credentials=credentials), history())
    assert found.bottleneck and found.bottleneck.what is WaitCause.SLOTS
    assert (found.bottleneck.amount, found.bottleneck.keys) == (1, ("gemini-1",))
    assert "Bottleneck: 1 key slot (gemini-1); workers spend" in forecast_lines(found)[1]
    assert found.seconds and found.seconds_with_one_more_key
    assert found.seconds_with_one_more_key < 0.6 * found.seconds, "the one more key is of the scarce provider"
    assert (
        found.seconds_with_one_more_key is not None and found.seconds_with_one_more_key < 0.8 * found.seconds
    )


def test_a_configured_rate_limit_is_named_as_the_bottleneck() -> None:
    rates = ((Dimension.REQUESTS, Rate(6.0, 60.0)),)
    paced = [replace(key, rates=rates, concurrency=8) for key in keys(1)]
    found = forecast(planned_run(12, parallel=4, credentials=paced), history(item_trace(1.0)))
    assert found.bottleneck and found.bottleneck.what == Dimension.REQUESTS
    assert found.bottleneck.amount == pytest.approx(6.0)
    assert found.seconds is not None and found.seconds >= 180.0, "24 calls at 6 a minute"
    assert (
        found.seconds_with_one_more_key is not None and found.seconds_with_one_more_key < 0.7 * found.seconds
    )


def test_the_tightest_of_several_limits_is_named() -> None:
    rates = ((Dimension.REQUESTS, Rate(600.0, 60.0)), (Dimension.TOKENS, Rate(6000.0, 60.0)))
    paced = [replace(key, rates=rates, concurrency=8) for key in keys(1)]
    found = forecast(planned_run(12, parallel=4, credentials=paced), history(item_trace(1.0)))
    assert found.bottleneck and found.bottleneck.what == Dimension.TOKENS


def _learned(per_second: float, refusals: int = 3) -> LearnedLimits:
    limit = LearnedLimit(Dimension.REQUESTS, Counting.TOKEN_BUCKET, 1.0, 1.0 / per_second)
    return LearnedLimits((limit,), refusals=refusals)


def test_a_rate_learned_by_an_earlier_run_is_respected() -> None:
    key = replace(keys(1)[0], concurrency=8)
    learned = BucketLimitsLearned("earlier", key.quota, "gemini-2.5-pro", learned=_learned(0.1))
    found = forecast(replace(planned_run(12, 4, [key]), notes=(learned,)), history(item_trace(1.0)))
    assert found.seconds is not None and found.seconds >= 23 * 10.0


def test_an_unsettled_rate_is_tempered_by_the_throughput_of_the_last_run() -> None:
    """An unsettled estimate may be too high, and the measured throughput too low."""
    credentials = keys(2)
    notes = tuple(
        BucketLimitsLearned("before", key.quota, "gemini-2.5-pro", learned=_learned(0.5, refusals=0))
        for key in credentials
    )
    inputs = replace(planned_run(10, parallel=4, credentials=credentials), notes=notes)
    untempered = forecast(inputs, history(item_trace(0.5)))
    tempered = forecast(inputs, replace(history(item_trace(0.5)), calls_per_second=0.4))
    explained = tuple(replace(note, learned=_learned(0.5)) for note in notes)
    settled = [
        forecast(
            replace(inputs, notes=explained), replace(history(item_trace(0.5)), calls_per_second=rate)
        ).seconds
        for rate in (None, 0.4)
    ]
    assert untempered.seconds and tempered.seconds and untempered.seconds < 30
    assert untempered.seconds < tempered.seconds < 20 / 0.4
    assert tempered.seconds == pytest.approx(20 / (1.0 * 0.4) ** 0.5, rel=0.1)
    assert (
        tempered.seconds_with_one_more_key is not None
        and tempered.seconds_with_one_more_key < 0.8 * tempered.seconds
    )
    assert settled[0] == settled[1], "an estimate with a known window is not tempered"


def test_throughput_is_measured_only_in_a_run_whose_calls_waited() -> None:
    rates = []
    for wait in (3.0, 0.1):
        builder = TraceBuilder()
        builder.handle(events.ItemStarted("LLD-9", 1, 1), 0.0)
        for number in range(4):
            begin = number * (wait + 1.0)
            for at, event in (
                (begin, lease_request()),
                (begin + wait, events.LeaseGranted("LLD-9", "key-1", f"{number}", wait)),
                (begin + wait + 1.0, events.LeaseReleased("LLD-9", f"{number}", 1.0, Usage(1, 10, 10))),
            ):
                builder.handle(event, at)
        rates.append(builder.calls_per_second)
    assert rates == [pytest.approx(0.25), None]


def test_a_limit_announced_by_the_provider_is_respected() -> None:
    key = replace(keys(1)[0], concurrency=8)
    announced = BucketLimitsLearned(
        "earlier", key.quota, "gemini-2.5-pro", (LimitSeen(Dimension.REQUESTS, 6.0),)
    )
    found = forecast(replace(planned_run(12, 4, [key]), notes=(announced,)), history(item_trace(1.0)))
    assert found.seconds is not None and found.seconds >= 180.0


def test_the_run_waits_for_a_key_that_is_cooling_down() -> None:
    key = keys(1)[0]
    cooldown = CooldownStarted("earlier", key.quota, "gemini-2.5-pro", NOW + 100.0, 0.0, "429", NOW)
    found = forecast(replace(planned_run(1, credentials=[key]), notes=(cooldown,)), history())
    assert found.seconds is not None and 120 <= found.seconds <= 125


def test_recent_calls_of_other_runs_count_against_the_limit() -> None:
    rates = ((Dimension.REQUESTS, Rate(6.0, 60.0)),)
    key = replace(keys(1)[0], rates=rates, concurrency=8)
    sent = [
        CallStarted(
            "earlier", f"{number}", key.fingerprint, key.quota, "gemini-2.5-pro", NOW - 10.0, CallCost(10, 10)
        )
        for number in range(6)
    ]
    notes = [note for call in sent for note in (call, CallEnded("earlier", call.lease))]
    found = forecast(replace(planned_run(1, credentials=[key]), notes=tuple(notes)), history(item_trace(1.0)))
    assert found.seconds is not None and 50 <= found.seconds <= 60


def test_no_worker_starts_before_the_warm_up_and_all_start_after_it() -> None:
    slow = RunHistory((item_trace(),), runs=1, warm_up=5.0)
    found = forecast(planned_run(4, parallel=2), slow)
    assert found.seconds == pytest.approx(5.0 + 2 * 22.0)


def test_the_forecast_averages_over_different_traces() -> None:
    quick, slow = item_trace(1.0), ItemTrace(0.0, item_trace(9.0).calls * 2, 1.0, NODES)
    found = forecast(planned_run(1), history(quick, slow))
    assert found.usage is not None and found.usage.calls == 3
    many = forecast(planned_run(60, 3), history(*[quick] * 10, *[slow] * 10))
    usual = 30 * ((2 * 1.5 + 1) + (4 * 9.5 + 1)) / 3
    assert many.seconds == pytest.approx(usual, rel=0.15)
    assert many.usage is not None and many.usage.calls == pytest.approx(180, rel=0.05)


def test_a_budget_stops_the_run_after_some_items() -> None:
    found = forecast(planned_run(10, budget=0.03), history())
    assert found.exit_code == 75 and 0 < found.items_ended < 10
    assert found.cost is not None and found.cost <= 0.03 + 1e-9


def test_an_unknown_price_leaves_only_the_cost_unknown() -> None:
    inputs = planned_run(2)
    found = forecast(replace(inputs, limits=Limits()), history())
    assert found.cost is None and found.seconds is not None and found.usage == Usage(4, 4000, 2000)


def test_a_resumed_item_needs_only_its_remaining_calls() -> None:
    inputs = planned_run(2)
    entries = (replace(inputs.entries[0], node="N3_review"), replace(inputs.entries[1], node=FINISHED))
    assert forecast(replace(inputs, entries=entries), history()).usage == Usage(1, 1000, 500)


def test_traces_of_resumed_items_are_not_used() -> None:
    resumed = ItemTrace(0.0, item_trace().calls[1:], 1.0, (("N3_review", 0), ("N4_finalize", 1)))
    found = forecast(planned_run(3), history(resumed, item_trace(), resumed))
    assert found.earlier_items == 1 and found.usage == Usage(6, 6000, 3000)


def test_a_large_run_is_extrapolated_from_a_sample() -> None:
    few, many = forecast(planned_run(500, 5), history()), forecast(planned_run(5000, 5), history())
    assert few.seconds is not None and many.seconds == pytest.approx(10 * few.seconds, rel=0.02)
    assert many.usage == Usage(10_000, 10_000_000, 5_000_000)
    assert few.cost is not None and many.cost == pytest.approx(10 * few.cost)


def test_a_daily_quota_is_respected_in_a_large_run() -> None:
    daily = [replace(key, rates=((Dimension.DAY, Rate(1000.0, 86400.0)),), concurrency=8) for key in keys(1)]
    found = forecast(planned_run(2000, 4, daily), history(item_trace(1.0)))
    assert found.seconds is not None and found.seconds >= 3 * 86400, "4,000 calls, 1,000 a day"


def test_one_more_worker_is_not_forecast_at_the_maximum() -> None:
    assert forecast(planned_run(3, MAX_PARALLEL), history()).seconds_with_one_more_worker is None


def test_traces_of_models_no_longer_used_are_dropped() -> None:
    assert history().using_only(frozenset({("gemini", "gemini-2.5-pro")})).traces
    assert not history().using_only(frozenset({("gemini", "gemini-flash")})).traces


# From events to traces.


def build_traces(*timed_events: tuple[float, events.Event]) -> TraceBuilder:
    builder = TraceBuilder()
    for at, event in timed_events:
        builder.handle(event, at)
    return builder


FINISH = Outcome(Ending.FINISHED, Verdict.APPROVED, 1)


def test_a_trace_excludes_waiting_for_keys_and_refused_calls() -> None:
    builder = build_traces(
        (0.0, events.RunStarted("r", "lld", "/p", ("LLD-9",), 1, ("key-1",), source_tokens=(200,))),
        (0.0, events.ItemStarted("LLD-9", 1, 1)),
        (1.0, events.WorkerStarted("LLD-9", 1)),
        (1.1, events.NodeStarted("LLD-9", "N1_design", 1)),
        (1.5, lease_request()),
        (9.5, events.LeaseGranted("LLD-9", "key-1", "lease-1", 8.0)),
        (9.6, events.LeaseReleased("LLD-9", "lease-1", 0.1)),
        (9.7, lease_request()),
        (20.0, events.LeaseGranted("LLD-9", "key-1", "lease-2", 8.0)),
        (25.0, events.LeaseReleased("LLD-9", "lease-2", 5.0, Usage(1, 10, 20))),
        (25.5, events.WorkerReported("LLD-9", FINISH)),
        (26.0, events.WorkerExited("LLD-9", "exit status 0", clean=True)),
    )
    (found,) = builder.traces
    (call,) = found.calls
    assert builder.warm_up == 1.0 and found.start == 0.0 and found.source_tokens == 200
    assert call.work_before == pytest.approx(0.6) and call.duration == 5.0 and call.usage == Usage(1, 10, 20)
    assert found.after == pytest.approx(1.0) and found.nodes == (("N1_design", 0),)


def test_a_trace_excludes_the_warm_up_of_the_run() -> None:
    def trace_events(item: str, at: float) -> list[tuple[float, events.Event]]:
        return [
            (at, events.WorkerStarted(item, 1)),
            (at, events.NodeStarted(item, "N1_design", 1)),
            (at, events.WorkerReported(item, FINISH)),
            (at + 1, events.WorkerExited(item, "exit status 0", clean=True)),
        ]

    items = ("LLD-1", "LLD-2", "LLD-3")
    builder = build_traces(
        (0.0, events.RunStarted("r", "lld", "/p", items, 2, ("key-1",))),
        (0.0, events.ItemStarted("LLD-1", 1, 1)),
        (0.0, events.ItemStarted("LLD-2", 2, 1)),
        *trace_events("LLD-1", 6.0),
        *trace_events("LLD-2", 6.25),
        (8.0, events.ItemStarted("LLD-3", 1, 1)),
        *trace_events("LLD-3", 8.5),
    )
    assert builder.warm_up == 6.0
    assert [trace.start for trace in builder.traces] == [0.0, 0.25, 0.5]


def test_a_failed_item_leaves_no_trace() -> None:
    builder = build_traces(
        (0.0, events.ItemStarted("LLD-9", 1, 1)),
        (1.0, events.WorkerStarted("LLD-9", 1)),
        (2.0, events.WorkerExited("LLD-9", "killed by SIGKILL", clean=False)),
    )
    assert builder.traces == []
