"""What the pool promises, in every scenario of the benchmark, on a clock that is moved."""

from dataclasses import replace
from statistics import fmean

import pytest
from bench.keypool.harness import Telling
from bench.keypool.scenarios import NAMES, scenario_named
from bench.keypool.virtual import Told, World

SEEDS = range(1, 4)
# What learning costs, it costs once: a run is long enough to have learnt.
CALLS = 400
UNKNOWN_REFUSED = 0.07
KNOWN_REFUSED = 0.005


def tell(name: str, telling: Telling) -> list[Told]:
    scenario = replace(scenario_named(name), calls=max(CALLS, scenario_named(name).calls))
    return [World(scenario, telling, seed).run() for seed in SEEDS]


@pytest.mark.parametrize("name", NAMES)
def test_known_limits_are_used_up_and_hardly_ever_refused(name: str) -> None:
    found = tell(name, Telling.KNOWN)
    assert min(one.efficiency for one in found) >= 0.97
    assert max(one.refused for one in found) <= KNOWN_REFUSED * CALLS
    assert fmean(one.fairness for one in found) >= 0.95
    assert sum(one.early for one in found) == 0


@pytest.mark.parametrize("name", NAMES)
def test_unknown_limits_are_found_with_few_refusals(name: str) -> None:
    found = tell(name, Telling.UNKNOWN)
    assert fmean(one.efficiency for one in found) >= 0.93
    assert fmean(one.refused for one in found) <= UNKNOWN_REFUSED * CALLS
    assert fmean(one.fairness for one in found) >= 0.95
    assert sum(one.early for one in found) == 0


def test_a_dead_key_costs_one_call() -> None:
    assert {one.wasted for telling in Telling for one in tell("dead-keys", telling)} == {2}


def test_a_limit_that_is_named_costs_three_refusals_a_bucket_at_most() -> None:
    scenario = scenario_named("gemini")
    assert max(one.refused for one in tell("gemini", Telling.UNKNOWN)) <= 3 * len(scenario.limits)
