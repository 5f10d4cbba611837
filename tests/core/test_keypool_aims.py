"""What the pool promises in every scenario of the benchmark, on a virtual clock."""

from dataclasses import replace
from statistics import fmean

import pytest
from bench.keypool.harness import LimitKnowledge
from bench.keypool.scenarios import NAMES, scenario_named
from bench.keypool.virtual import PoolSimulation, SimulationResult

SEEDS = range(1, 4)
# Learning costs something once, so a run must be long enough to have learned.
CALLS = 400
UNKNOWN_REFUSED = 0.1
KNOWN_REFUSED = 0.005


def simulate(name: str, knowledge: LimitKnowledge) -> list[SimulationResult]:
    scenario = replace(scenario_named(name), calls=max(CALLS, scenario_named(name).calls))
    return [PoolSimulation(scenario, knowledge, seed).run() for seed in SEEDS]


@pytest.mark.parametrize("name", NAMES)
def test_known_limits_are_used_up_and_hardly_ever_refused(name: str) -> None:
    found = simulate(name, LimitKnowledge.KNOWN)
    assert min(one.efficiency for one in found) >= 0.97
    assert max(one.refused for one in found) <= KNOWN_REFUSED * CALLS
    assert fmean(one.fairness for one in found) >= 0.95
    assert sum(one.early for one in found) == 0


@pytest.mark.parametrize("name", NAMES)
def test_unknown_limits_are_found_with_few_refusals(name: str) -> None:
    found = simulate(name, LimitKnowledge.UNKNOWN)
    assert fmean(one.efficiency for one in found) >= (0.85 if name == "counts-refused" else 0.93)
    assert fmean(one.refused for one in found) <= UNKNOWN_REFUSED * CALLS
    assert fmean(one.fairness for one in found) >= 0.95
    assert sum(one.early for one in found) == 0


def test_a_dead_key_costs_one_call() -> None:
    assert {one.wasted for knowledge in LimitKnowledge for one in simulate("dead-keys", knowledge)} == {2}


def test_a_named_limit_costs_at_most_five_refusals_per_bucket() -> None:
    scenario = scenario_named("gemini")
    assert max(one.refused for one in simulate("gemini", LimitKnowledge.UNKNOWN)) <= 5 * len(scenario.limits)
