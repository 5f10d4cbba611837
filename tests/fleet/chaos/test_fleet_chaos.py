"""The short form of the campaign, and the planted bugs: they fit the code, and the cheapest are caught here."""

from pathlib import Path

import pytest

from tests.chaos.mutants import Mutant
from tests.fleet.chaos.campaign import SHORT_FORM, FleetCampaignOptions, fleet_figures, run_fleet_campaign
from tests.fleet.chaos.faults import FaultCounts, plan
from tests.fleet.chaos.mutants import FLEET_MUTANTS, run_step
from tests.fleet.chaos.steps import FLEET_STEPS


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_a_backlog_survives_every_kind_of_fault_at_once(tmp_path: Path) -> None:
    options = FleetCampaignOptions(seed=16, items=10, counts=SHORT_FORM, seconds=400.0)
    report = run_fleet_campaign(tmp_path / "work", options)
    assert report.injected.total() == SHORT_FORM.total, "\n".join(fleet_figures(report))
    assert not report.violations, "\n".join(fleet_figures(report))


def test_a_seed_plans_the_same_faults_again_and_no_more_than_asked_for() -> None:
    counts = FaultCounts(hosts=20, postgres=9, outages=1, temporal=3, gateway=4, follower=2)
    lanes = plan(5, counts)
    assert lanes == plan(5, counts) and lanes != plan(6, counts)
    assert sum(map(len, lanes)) == counts.total


@pytest.mark.parametrize("mutant", FLEET_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_of_the_fleet_fits_its_module(mutant: Mutant) -> None:
    assert mutant.source().read_text("utf-8").count(mutant.old) == 1
    assert mutant.old != mutant.new and mutant.step in FLEET_STEPS


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_follower_that_reads_by_number_alone_is_caught() -> None:
    (mutant,) = (mutant for mutant in FLEET_MUTANTS if mutant.name == "id > last")
    assert run_step(mutant.step, {}) == []
    assert any(found.startswith("never read") for found in run_step(mutant.step, mutant.environment()))
