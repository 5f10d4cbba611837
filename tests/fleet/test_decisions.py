"""`agentos review --fleet` tells the workflows of decided items, however it ends."""

import json

import pytest

from agentos.cli.fleet import fleet_reviews
from agentos.config.settings import Flags, read_settings
from agentos.core.planning.gates import ReviewAction, ReviewDecision
from agentos.core.protocol.codec import pack
from agentos.storage.review_notes import decision_note
from tests.fleet.harness import Fleet

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


def test_ctrl_c_after_a_decision_leaves_no_item_waiting(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.issues(1)
    fleet.worker()
    assert fleet.run("lld-workflow", "--all", "--fleet", "--review", "draft").returncode == 0
    for name, value in fleet.environment("home").items():
        monkeypatch.setenv(name, value)
    with pytest.raises(KeyboardInterrupt):
        _decide_and_press_ctrl_c(fleet)
    fleet.wait_until(lambda: "N3_review" in fleet.log(1).read_text(), "the review")


def _decide_and_press_ctrl_c(fleet: Fleet) -> None:
    decision = json.dumps(pack(ReviewDecision(ReviewAction.APPROVE)))
    with fleet_reviews(read_settings(Flags(repo=fleet.project))) as items:
        (record,) = items.parked()
        parked = record.state.parked_item
        with items.deciding(record.key, parked.item):
            items.write_note(record.key, decision_note(parked.request.number), decision)
        raise KeyboardInterrupt
