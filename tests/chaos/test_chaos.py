"""The short form of the campaign: few items, few kills, the same server."""

from pathlib import Path

import pytest

from .campaign import CampaignOptions, figures, run_campaign
from .reader import EVIDENCE, flaw

OPTIONS = CampaignOptions(seed=5, items=4, kills=6, trouble=3.0, seconds=80.0)
WHOLE = b"""---
item: "LLD-7"
status: "approved"
rounds: 1
drafter: "m"
reviewer: "m"
date: "2026-01-01"
source: "issues/007-thing.md"
source_sha256: "0"
---

# A thing

It works.
"""


@pytest.mark.slow
def test_a_short_campaign_breaks_no_promise(tmp_path: Path) -> None:
    report = run_campaign(tmp_path / "work", OPTIONS)
    assert report.evidence.injector.total > 0
    assert not report.violations, "\n".join(figures(report))


@pytest.mark.parametrize("cut", range(0, WHOLE.index(b"A thing"), 7))
def test_the_reader_sees_that_a_document_is_cut(cut: int) -> None:
    assert flaw(WHOLE, EVIDENCE) is None
    assert flaw(WHOLE[:cut], EVIDENCE) is not None
