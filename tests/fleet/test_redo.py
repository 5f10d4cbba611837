"""`--fresh` on a fleet: a redo outlives gates, dead machines and Ctrl-C, and never ends with the verdict of before."""

import contextlib
import signal

import pytest

from agentos.offline.child import start_offline_server
from tests.fleet.harness import Fleet

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
DONE_CALLS = 6  # three drafts, three reviews


def done_once(fleet: Fleet) -> None:
    fleet.issues(1)
    fleet.worker()
    assert fleet.run("lld-workflow", "--all", "--fleet").returncode == 0
    assert fleet.documents() == ["LLD-001.md"]


def test_a_redo_that_waited_for_a_person_ends_as_they_decided(fleet: Fleet) -> None:
    done_once(fleet)
    parked = fleet.run("lld-workflow", "1", "--fresh", "--fleet", "--review", "draft")
    assert (parked.returncode, "1 waiting for a person" in parked.stdout) == (0, True), parked.stdout
    *_, decide, collect = parked.stdout.splitlines()
    assert decide == "[COORDINATOR] Decide on the waiting items: agentos review --fleet"
    assert collect.endswith("collect their documents with: lld-workflow 1 --fleet --review draft")
    beside = fleet.run("agentos", "review")
    assert "Items on the fleet: agentos review --fleet" in beside.stdout
    listed = fleet.run("agentos", "review", "--fleet").stdout
    assert listed.splitlines()[-1] == "Read one and decide: agentos review --fleet LLD-1"
    rejected = fleet.run("agentos", "review", "--fleet", "LLD-1", "--reject", "out of scope")
    assert "The fleet continues." in rejected.stdout, rejected.stdout + rejected.stderr
    followed = fleet.run("lld-workflow", "1", "--fleet", "--review", "draft")
    assert followed.returncode == 0, followed.stdout + followed.stderr
    fleet.wait_until(
        lambda: "needs revision" in fleet.run("agentos", "status", "--fleet").stdout, "the verdict", 30
    )
    fleet.run("agentos", "collect")
    assert "out of scope" in (fleet.project / "docs/lld/needs-revision/LLD-001.md").read_text()


def test_a_redo_goes_on_elsewhere_after_its_machine_has_died(fleet: Fleet) -> None:
    done_once(fleet)
    before = fleet.calls()
    follower = fleet.start("lld-workflow", "1", "--fresh", "--fleet")
    fleet.wait_until(lambda: fleet.calls() > before, "the first new draft")
    fleet.kill(fleet.workers[0])
    fleet.worker()
    output, _ = follower.communicate(timeout=90)
    assert (follower.returncode, "1 approved" in output) == (0, True), output
    assert "finished earlier" not in output
    assert before + DONE_CALLS <= fleet.calls() <= before + DONE_CALLS + 1, "the redo was done, once"


def test_the_same_command_without_fresh_resumes_a_redo_stopped_by_ctrl_c(fleet: Fleet) -> None:
    done_once(fleet)
    with contextlib.closing(
        start_offline_server(fleet.environment("models"), ("--latency", "1,1"))
    ) as models:
        fleet.serve_models(models)
        before = fleet.calls()
        follower = fleet.start("lld-workflow", "1", "--fresh", "--fleet")
        fleet.wait_until(lambda: fleet.calls() > before, "the first new draft")
        follower.send_signal(signal.SIGINT)
        output, _ = follower.communicate(timeout=30)
        assert follower.returncode == 130, output
        assert "Everything is saved. Resume with: lld-workflow 1 --fleet" in output
        resumed = fleet.run("lld-workflow", "1", "--fleet")
        assert (resumed.returncode, "1 approved" in resumed.stdout) == (0, True), resumed.stdout
        assert fleet.calls() - before == DONE_CALLS
