"""What calls cost, and what a budget allows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentos.core.loads import Load
from agentos.core.money import Price, PriceList, Purse
from agentos.core.results import Usage
from agentos.models.prices import price_list

PRICES = PriceList((("gpt-5", Price(1.0, 10.0)), ("gpt-5-mini", Price(0.1, 1.0))))
THOUSAND = Load(1000, 1000)  # costs 0.011 with gpt-5


def used(load: Load = THOUSAND) -> Usage:
    return Usage(1, load.input_tokens, load.output_tokens)


def test_a_price_is_for_a_million_tokens() -> None:
    assert Price(1.25, 10.0).of(2_000_000, 100_000) == 3.5


@pytest.mark.parametrize(
    ("model", "price"),
    [
        ("gpt-5", 1.0),
        ("gpt-5-2025-08-07", 1.0),
        ("gpt-5-mini", 0.1),
        ("gpt-5-mini-2025-08-07", 0.1),
        ("gpt-5-nano", None),
        ("gpt-50", None),
        ("gpt-5-", None),
        ("gpt", None),
        ("", None),
    ],
)
def test_a_dated_name_has_the_price_of_its_model_and_a_relative_has_not(
    model: str, price: float | None
) -> None:
    found = PRICES.of(model)
    assert (found.input if found else None) == price


def test_our_list_knows_the_usual_models_and_a_project_says_otherwise() -> None:
    ours = price_list()
    assert all(ours.of(model) for model in ("gemini-2.5-pro", "claude-sonnet-4-5-20250929", "gpt-5"))
    other = price_list((("gpt-5", Price(7.0, 8.0)), ("llama", Price(0.0, 0.0))))
    assert other.of("gpt-5") == Price(7.0, 8.0) and other.of("llama") == Price(0.0, 0.0)


def test_what_was_spent_adds_up_and_each_call_says_its_own() -> None:
    purse = Purse(PRICES)
    assert purse.settle("lease-1", "gpt-5", used()) == pytest.approx(0.011)
    assert purse.settle("lease-2", "gpt-5-mini", used()) == pytest.approx(0.0011)
    assert purse.spent == pytest.approx(0.0121)


def test_what_nobody_knows_the_price_of_costs_nobody_knows_what() -> None:
    purse = Purse(PRICES, budget=0.001)
    assert purse.affords("llama", THOUSAND)
    assert purse.settle("lease-1", "llama", used()) is None and purse.spent == 0.0


def test_without_a_budget_everything_is_afforded() -> None:
    purse = Purse(PRICES)
    assert purse.affords("gpt-5", Load(10**9, 10**9)) and not purse.refused


def test_calls_under_way_count_as_much_as_they_may_cost() -> None:
    purse = Purse(PRICES, budget=0.025)
    for lease in ("lease-1", "lease-2"):
        assert purse.affords("gpt-5", THOUSAND)
        purse.reserve(lease, "gpt-5", THOUSAND)
    assert not purse.affords("gpt-5", THOUSAND) and purse.refused


def test_a_call_that_cost_less_than_was_kept_for_it_leaves_the_rest_to_others() -> None:
    purse = Purse(PRICES, budget=0.012)
    purse.reserve("lease-1", "gpt-5", THOUSAND)
    assert not purse.affords("gpt-5", THOUSAND)
    purse.settle("lease-1", "gpt-5", Usage(1, 10, 10))
    assert purse.affords("gpt-5", THOUSAND)


def test_a_call_that_gave_no_answer_costs_nothing_and_keeps_nothing() -> None:
    purse = Purse(PRICES, budget=0.011)
    purse.reserve("lease-1", "gpt-5", THOUSAND)
    assert purse.settle("lease-1", "gpt-5", Usage()) == 0.0
    assert purse.affords("gpt-5", THOUSAND) and purse.spent == 0.0


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 5000), st.booleans()), max_size=40))
def test_calls_that_use_no_more_than_was_thought_never_pass_the_budget(
    calls: list[tuple[int, int, bool]],
) -> None:
    purse, under_way = Purse(PRICES, budget=0.1), list[tuple[str, Load]]()
    for number, (tokens_in, tokens_out, ends) in enumerate(calls):
        load = Load(tokens_in, tokens_out)
        if purse.affords("gpt-5", load):
            purse.reserve(f"lease-{number}", "gpt-5", load)
            under_way.append((f"lease-{number}", load))
        if ends and under_way:
            lease, load = under_way.pop(0)
            purse.settle(lease, "gpt-5", used(load))
    for lease, load in under_way:
        purse.settle(lease, "gpt-5", used(load))
    assert purse.spent <= 0.1 + 1e-9
