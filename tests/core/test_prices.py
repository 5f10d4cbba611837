"""What calls cost, and what a budget allows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentos.config.file import price_list
from agentos.core.protocol.results import Usage
from agentos.core.quota.budget import Budget, Price, PriceList
from agentos.core.ratelimit.limits import CallCost

PRICES = PriceList((("gpt-5", Price(1.0, 10.0)), ("gpt-5-mini", Price(0.1, 1.0))))
THOUSAND = CallCost(1000, 1000)  # costs 0.011 with gpt-5


def used(cost: CallCost = THOUSAND) -> Usage:
    return Usage(1, cost.input_tokens, cost.output_tokens)


def test_a_price_is_per_million_tokens() -> None:
    assert Price(1.25, 10.0).cost_of(Usage(1, 2_000_000, 100_000)) == 3.5


def test_cache_reads_and_writes_have_prices_of_their_own() -> None:
    usage = Usage(
        1,
        10_000_000,
        0,
        cache_read_tokens=6_000_000,
        cache_write_tokens=3_000_000,
        cache_write_long_tokens=1_000_000,
    )
    price = Price(3.0, 15.0, cache_read=0.3, cache_write=3.75, cache_write_long=6.0)
    assert price.cost_of(usage) == pytest.approx(1 * 3.0 + 6 * 0.3 + 2 * 3.75 + 1 * 6.0)


def test_without_cache_prices_the_cache_costs_as_much_as_input() -> None:
    assert Price(2.0, 8.0).cost_of(Usage(1, 1_000_000, 0, 600_000, 400_000)) == pytest.approx(2.0)


def test_a_budget_reserves_for_input_that_may_be_written_to_the_cache() -> None:
    prices = PriceList((("claude", Price(1.0, 0.0, cache_read=0.1, cache_write=1.25)),))
    budget = Budget(prices, budget=1.2)
    million = CallCost(1_000_000, 0)
    assert not budget.can_afford("claude", million)
    budget.budget = 1.3
    assert budget.can_afford("claude", million)
    budget.reserve("lease-1", "claude", million)
    assert budget.settle("lease-1", "claude", Usage(1, 1_000_000, 0, 1_000_000)) == pytest.approx(0.1)
    assert budget.spent == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("model", "price"),
    [
        ("gpt-5", 1.0),
        ("gpt-5-2025-08-07", 1.0),
        ("gpt-5-mini", 0.1),
        ("gpt-5-mini-2025-08-07", 0.1),
        ("gpt-5-nano", None),
        ("gpt-5-1", None),
        ("gpt-5-12", None),
        ("gpt-5-001", 1.0),
        ("gpt-50", None),
        ("gpt-5-", None),
        ("gpt", None),
        ("", None),
    ],
)
def test_a_dated_name_has_the_price_of_its_model_but_a_related_model_has_not(
    model: str, price: float | None
) -> None:
    found = PRICES.of(model)
    assert (found.input if found else None) == price


def test_the_built_in_list_covers_common_models_and_a_project_can_override_it() -> None:
    ours = price_list()
    assert all(ours.of(model) for model in ("gemini-2.5-pro", "claude-sonnet-4-5-20250929", "gpt-5"))
    other = price_list((("gpt-5", Price(7.0, 8.0)), ("llama", Price(0.0, 0.0))))
    assert other.of("gpt-5") == Price(7.0, 8.0) and other.of("llama") == Price(0.0, 0.0)


def test_costs_add_up_and_each_call_reports_its_own() -> None:
    budget = Budget(PRICES)
    assert budget.settle("lease-1", "gpt-5", used()) == pytest.approx(0.011)
    assert budget.settle("lease-2", "gpt-5-mini", used()) == pytest.approx(0.0011)
    assert budget.spent == pytest.approx(0.0121)


def test_a_model_without_a_price_has_an_unknown_cost() -> None:
    budget = Budget(PRICES, budget=0.001)
    assert budget.can_afford("llama", THOUSAND)
    assert budget.settle("lease-1", "llama", used()) is None and budget.spent == 0.0


def test_without_a_budget_every_call_is_admitted() -> None:
    budget = Budget(PRICES)
    assert budget.can_afford("gpt-5", CallCost(10**9, 10**9)) and not budget.refused


def test_calls_in_flight_count_at_their_estimated_cost() -> None:
    budget = Budget(PRICES, budget=0.025)
    for lease in ("lease-1", "lease-2"):
        assert budget.can_afford("gpt-5", THOUSAND)
        budget.reserve(lease, "gpt-5", THOUSAND)
    assert not budget.can_afford("gpt-5", THOUSAND) and budget.refused


def test_a_call_cheaper_than_its_reservation_frees_the_difference() -> None:
    budget = Budget(PRICES, budget=0.012)
    budget.reserve("lease-1", "gpt-5", THOUSAND)
    assert not budget.can_afford("gpt-5", THOUSAND)
    budget.settle("lease-1", "gpt-5", Usage(1, 10, 10))
    assert budget.can_afford("gpt-5", THOUSAND)


def test_a_call_without_an_answer_costs_nothing_and_frees_its_reservation() -> None:
    budget = Budget(PRICES, budget=0.011)
    budget.reserve("lease-1", "gpt-5", THOUSAND)
    assert budget.settle("lease-1", "gpt-5", Usage()) == 0.0
    assert budget.can_afford("gpt-5", THOUSAND) and budget.spent == 0.0


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 5000), st.booleans()), max_size=40))
def test_calls_within_their_estimates_never_exceed_the_budget(
    calls: list[tuple[int, int, bool]],
) -> None:
    budget, in_flight = Budget(PRICES, budget=0.1), list[tuple[str, CallCost]]()
    for number, (tokens_in, tokens_out, ends) in enumerate(calls):
        cost = CallCost(tokens_in, tokens_out)
        if budget.can_afford("gpt-5", cost):
            budget.reserve(f"lease-{number}", "gpt-5", cost)
            in_flight.append((f"lease-{number}", cost))
        if ends and in_flight:
            lease, cost = in_flight.pop(0)
            budget.settle(lease, "gpt-5", used(cost))
    for lease, cost in in_flight:
        budget.settle(lease, "gpt-5", used(cost))
    assert budget.spent <= 0.1 + 1e-9
