"""The commands of a fleet, with real Postgres, Temporal and gateway on loopback."""

import signal
import sqlite3

import pytest

from tests.fleet.harness import Fleet, are_gone, processes_below

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


def test_two_workers_finish_a_backlog_and_its_documents_are_collected(fleet: Fleet) -> None:
    fleet.issues(1, 2, 3, 4, 5, 6)
    assert fleet.run("agentos", "fleet", "init").returncode == 0
    fleet.worker()
    fleet.worker()
    done = fleet.run("lld-workflow", "--all", "--fleet")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6/6 workflows complete" in done.stdout
    assert "[LLD-4] >>> Executing: N1_design" in done.stdout
    assert fleet.documents() == [f"LLD-00{n}.md" for n in range(1, 7)]
    assert sorted(path.name for path in (fleet.project / "docs/lineage/done").iterdir()) == [
        f"{n}-lld" for n in range(1, 7)
    ]
    assert all("walk" in fleet.log(n).read_text() or fleet.name in fleet.log(n).read_text() for n in (1, 2))
    again = fleet.run("lld-workflow", "--all", "--fleet")
    assert (again.returncode, "Nothing is pending" in again.stdout) == (0, True)


def test_a_drained_worker_hands_its_items_over_and_repeats_no_call(fleet: Fleet) -> None:
    fleet.issues(1, 2)
    first = fleet.worker()
    follower = fleet.start("lld-workflow", "--all", "--fleet")
    fleet.wait_until(lambda: "N1_design" in fleet.log(1).read_text(), "the first draft")
    fleet.worker()
    first.send_signal(signal.SIGTERM)
    assert first.wait(10) == 143
    output, _ = follower.communicate(timeout=60)
    assert follower.returncode == 0, output
    assert fleet.documents() == ["LLD-001.md", "LLD-002.md"]


def test_kill_9_leaves_no_process_and_the_item_goes_on_elsewhere(fleet: Fleet) -> None:
    fleet.issues(1)
    first = fleet.worker()
    follower = fleet.start("lld-workflow", "--all", "--fleet")
    fleet.wait_until(lambda: "N1_design" in fleet.log(1).read_text(), "the first draft")
    below = processes_below(first.pid)
    fleet.kill(first)
    assert are_gone(below)
    fleet.worker()
    output, _ = follower.communicate(timeout=90)
    assert follower.returncode == 0, output
    assert fleet.documents() == ["LLD-001.md"]


def test_detached_items_are_collected_later_and_other_content_is_never_overwritten(fleet: Fleet) -> None:
    fleet.issues(1, 2)
    submitted = fleet.run("lld-workflow", "--all", "--fleet", "--detach")
    assert submitted.returncode == 0 and "Submitted 2 items" in submitted.stdout
    fleet.worker()
    target = fleet.project / "docs/lld/active/LLD-001.md"
    fleet.wait_until(lambda: fleet.log(1).read_text().count("Approved after") == 2, "both items")
    target.parent.mkdir(parents=True)
    target.write_text("mine\n")
    collected = fleet.run("agentos", "collect")
    assert collected.returncode == 1
    assert "LLD-001.md has other content" in collected.stderr
    assert target.read_text() == "mine\n"
    assert (fleet.project / "docs/lld/active/LLD-002.md").exists()
    target.unlink()
    assert fleet.run("agentos", "collect").returncode == 0
    assert target.exists()
    target.unlink()
    assert "Nothing new" in fleet.run("agentos", "collect").stdout
    assert not target.exists()


def test_ctrl_c_checkpoints_the_items_and_the_same_command_goes_on(fleet: Fleet) -> None:
    fleet.issues(1, 2)
    fleet.worker(parallel=1)
    follower = fleet.start("lld-workflow", "--all", "--fleet")
    fleet.wait_until(lambda: "N1_design" in fleet.log(1).read_text(), "the first draft")
    follower.send_signal(signal.SIGINT)
    output, _ = follower.communicate(timeout=15)
    assert follower.returncode == 130, output
    assert "Shutting down" in output
    done = fleet.run("lld-workflow", "--all", "--fleet")
    assert done.returncode == 0, done.stdout
    assert fleet.documents() == ["LLD-001.md", "LLD-002.md"]


def test_no_key_and_no_issue_text_reaches_temporal_and_no_key_reaches_postgres(fleet: Fleet) -> None:
    canary = "zanzibar quokka paragraph"
    fleet.issues(1)
    issue = fleet.project / "issues/1-thing.md"
    issue.write_text(issue.read_text() + f"\n{canary}\n")
    fleet.worker()
    assert fleet.run("lld-workflow", "--all", "--fleet").returncode == 0
    with sqlite3.connect(fleet.temporal.file) as copy:
        kept = b"".join(path.read_bytes() for path in fleet.temporal.file.parent.glob("temporal.db*"))
        assert copy.execute("SELECT 1").fetchone() == (1,)
    for secret in (canary, fleet.gateway.token):
        assert secret.encode() not in kept
    everything = fleet.postgres.contents()
    assert canary.encode() in everything
    assert fleet.gateway.token.encode() not in everything
