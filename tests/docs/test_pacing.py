"""The table in key-pool.md is what the simulation prints."""

import pytest

from tests.audits.tree import ROOT

from .pacing import POSSIBLE, LimitSimulation, simulations, table

PAGE = ROOT / "docs" / "explanation" / "key-pool.md"


@pytest.mark.slow
def test_the_table_on_the_page_is_what_the_simulation_prints() -> None:
    assert table() in PAGE.read_text("utf-8"), "update it with: .venv/bin/python -m tests.audits.generate"


@pytest.mark.parametrize(
    "simulation",
    [simulation for simulation in simulations() if simulation.known],
    ids=lambda simulation: str(simulation.window),
)
def test_a_known_limit_is_used_fully_with_one_refusal_at_most(simulation: LimitSimulation) -> None:
    """The one refusal is the probe that finds out how the provider counts."""
    simulation.run()
    assert len(simulation.refused) <= 1
    assert simulation.admitted > 0.95 * POSSIBLE[simulation.window]
