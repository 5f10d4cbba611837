"""The figures of pacing are those that the simulation gives, and good enough to be quoted."""

import pytest

from tests.audits.tree import ROOT

from .pacing import POSSIBLE, Story, stories, table

PAGE = ROOT / "docs" / "explanation" / "key-pool.md"


@pytest.mark.slow
def test_the_quoted_table_is_what_the_simulation_gives() -> None:
    assert table() in PAGE.read_text("utf-8"), "write it anew with: .venv/bin/python -m tests.audits.generate"


@pytest.mark.parametrize(
    "record", [record for record in stories() if record.told], ids=lambda record: str(record.window)
)
def test_a_limit_that_is_known_is_used_whole_with_one_refusal_at_most(record: Story) -> None:
    """The one finds out how the provider counts."""
    record.tell()
    assert len(record.refused) <= 1
    assert record.admitted > 0.95 * POSSIBLE[record.window]
