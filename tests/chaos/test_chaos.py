"""The short form of the campaign: few items, few kills, the same server."""

import random
from pathlib import Path

import pytest

from .campaign import CampaignOptions, figures, run_campaign
from .mixed import MixedOptions, has_namespaces, has_overlay, run_mixed, run_on_overlay
from .mixed import figures as mixed_figures
from .reader import EVIDENCE, flaw
from .replaced_files import sweep_replaced_files

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


@pytest.mark.slow
def test_gates_controls_programs_key_edits_and_containers_at_once_break_no_promise(tmp_path: Path) -> None:
    """Kills and freezes meanwhile: workers, fork servers, coordinators, gateways, workers below a frozen fork server."""
    options = MixedOptions(seed=3, items=4, programs=4, kills=10, seconds=150.0, containers=has_namespaces())
    campaign = run_mixed(tmp_path / "work", options)
    assert campaign.injector.total >= options.kills
    assert not campaign.violations, "\n".join(mixed_figures(campaign))


@pytest.mark.slow
def test_the_same_on_an_overlay_breaks_no_promise(tmp_path: Path) -> None:
    if not has_overlay(tmp_path / "probe"):
        pytest.skip("needs root and a kernel that allows an overlay mount here")
    done = run_on_overlay(tmp_path / "overlay", seed=4, items=3, kills=6, minutes=2)
    assert done.returncode == 0 and "passed after" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_whatever_is_in_the_place_of_a_file_commands_end_with_one_line(tmp_path: Path) -> None:
    sweep = sweep_replaced_files(tmp_path, random.Random(1), cases=6)
    assert sweep.kills == 6 and not sweep.violations


@pytest.mark.parametrize("cut", range(0, WHOLE.index(b"A thing"), 7))
def test_the_reader_sees_that_a_document_is_cut(cut: int) -> None:
    assert flaw(WHOLE, EVIDENCE) is None
    assert flaw(WHOLE[:cut], EVIDENCE) is not None
