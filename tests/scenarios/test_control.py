"""A run under way, asked for things by a second process."""

import json
import os
import signal
import stat

import pytest

from .harness import RunHarness, wait_until

PAUSED = "Paused: no new items start, workers wait before their next model call."


def test_a_paused_run_calls_nobody_until_it_is_resumed(harness: RunHarness) -> None:
    harness.issues(40, 41, 42, 43)
    with harness.server("--latency", "0.3,0.3").frozen():
        running = harness.start("--all", "--parallel", 2)
        wait_until(lambda: len(harness.events("lease_granted")) == 2)
        asked = harness.run("pause", program="agentos")
    assert asked.code == 0 and PAUSED in asked.out, asked
    assert f"[COORDINATOR] {PAUSED} Resume with: agentos resume" in running.out
    wait_until(lambda: not open_leases(harness))
    granted = len(harness.events("lease_granted"))
    wait_until(lambda: len(harness.events("lease_requested")) > granted)
    status = harness.run("status", program="agentos")
    assert "is paused" in status.out and status.lines[-1] == "Resume with: agentos resume"
    assert "  LLD-43  waiting" in status.lines and "0/4 workflows complete | PAUSED" in status.lines[-3]
    assert "keys in use: 0/4" in status.lines[-2]
    assert "already paused" in harness.run("pause", program="agentos").out
    assert len(harness.events("lease_granted")) == granted
    assert "Resumed after" in harness.run("resume", program="agentos").out
    assert running.wait().code == 0
    assert all(harness.document(number).exists() for number in (40, 41, 42, 43))


def open_leases(harness: RunHarness) -> int:
    return len(harness.events("lease_granted")) - len(harness.events("lease_released"))


@pytest.mark.slow
def test_pause_now_ends_the_workers_and_resume_takes_their_items_up(harness: RunHarness) -> None:
    harness.issues(40, 41)
    server = harness.server("--latency", "0.1,0.1", "--review-latency", "5,5")
    running = harness.start("--all", "--parallel", 2)
    wait_until(lambda: len(server.answered()) >= 2)
    assert harness.run("pause", "--now", program="agentos").code == 0
    wait_until(lambda: len(harness.events("item_suspended")) == 2)
    assert len(harness.events("worker_exited")) == 2 and running.process.poll() is None
    assert "lld_workflow_40.db" in harness.databases()
    assert harness.run("resume", program="agentos").code == 0
    done = running.wait()
    assert done.code == 0 and "LLD-40 is checkpointed at N3_review" in done.out, done.out
    assert not server.repeated_prompts() and harness.databases() == []
    assert [event["attempt"] for event in harness.events("item_started")] == [1, 1, 2, 2]


def test_a_log_is_followed_from_its_beginning_to_the_end_of_the_run(harness: RunHarness) -> None:
    harness.issues(40, 41)
    with harness.server().frozen():
        running = harness.start("--all")
        wait_until(lambda: harness.events("lease_granted"))
        following = harness.start("logs", "-f", "lld-40", program="agentos")
        later = harness.start("logs", "-f", "LLD-41", program="agentos")
        following.wait_for(">>> Executing: N1_design")
        assert later.out == "" and following.process.poll() is None
    assert running.wait().code == 0
    for item, follower in (("LLD-40", following), ("LLD-41", later)):
        heard = follower.wait()
        assert heard.code == 0 and ">>> Executing: N4_finalize" in heard.out
        assert heard.out == (harness.runs()[0] / f"{item}.log").read_text("utf-8")


def test_status_for_programs_says_the_same_with_and_without_a_running_process(harness: RunHarness) -> None:
    harness.issues(40, 41)
    with harness.server().frozen():
        running = harness.start("--all")
        wait_until(lambda: harness.events("lease_granted"))
        during = json.loads(harness.run("status", "--json", program="agentos").out)
    assert during["alive"] and not during["paused"]
    assert {one["item"]: one["state"] for one in during["items"]} == {
        "LLD-40": "running",
        "LLD-41": "waiting",
    }
    assert running.wait().code == 0
    after = json.loads(harness.run("status", "--json", program="agentos").out)
    assert not after.pop("alive") and not after.pop("paused") and not after.pop("suspended")
    assert after == harness.summary()


def test_a_failed_item_is_put_back_into_the_run(harness: RunHarness) -> None:
    harness.issues(40, 41)
    with harness.server("--latency", "0.3,0.3").frozen():
        running = harness.start("--all", "--parallel", 2, "--retries", 0)
        wait_until(lambda: len(harness.events("lease_granted")) == 2)
        os.kill(harness.worker("LLD-40"), signal.SIGKILL)
        wait_until(lambda: harness.events("item_ended"))
        again = harness.run("retry", "40", program="agentos")
        assert again.code == 0 and "LLD-40 is being retried from its checkpoint." in again.out, again
        unknown = harness.run("retry", "LLD-99", program="agentos")
        assert unknown.code == 5 and "not in this run; its items: LLD-40, LLD-41" in unknown.err
        running_on = harness.run("retry", "lld-41", program="agentos")
        assert running_on.code == 2 and running_on.err.endswith("running or queued\n")
    done = running.wait()
    assert done.code == 0 and "2 completed" in done.out
    assert harness.document(40).exists() and harness.document(41).exists()


def test_the_number_of_workers_changes_during_the_run(harness: RunHarness) -> None:
    harness.issues(40, 41, 42, 43)
    with harness.server().frozen():
        running = harness.start("--all")
        wait_until(lambda: harness.events("worker_started"))
        more = harness.run("set", "parallel", 12, program="agentos")
        assert "Warning: Requested parallelism 12 exceeds maximum 10. Capping to 10." in more.err
        assert more.code == 0 and "10 workers from now on (previously 1)." in more.out
        wait_until(lambda: len(harness.events("worker_started")) == 4)
        none = harness.run("set", "parallel", 0, program="agentos")
    assert none.code == 2 and none.err.endswith("must be 1 to 10\n")
    assert running.wait().code == 0


def test_stop_from_another_terminal_saves_everything_and_wait_gives_its_code(harness: RunHarness) -> None:
    harness.issues(40, 41)
    with harness.server("--latency", "0.3,0.3").frozen():
        running = harness.start("--all")
        wait_until(lambda: harness.events("lease_granted"))
        waiting = harness.start("wait", program="agentos")
        wait_until(lambda: "Waiting for run" in waiting.err)
        asked = harness.run("stop", program="agentos")
    assert asked.code == 0 and "Shutting down... waiting for workers to checkpoint" in asked.out
    done = running.wait(8)
    assert done.code == 143
    assert done.lines[-1] == "[COORDINATOR] Everything is saved. Resume with: lld-workflow --all"
    waited = waiting.wait(5)
    assert waited.code == 143 and "Resume with: lld-workflow --all" in waited.err
    assert harness.run("wait", program="agentos").code == 143
    too_late = harness.run("stop", program="agentos")
    assert (
        too_late.code == 2 and "is not in progress" in too_late.err and "lld-workflow --all" in too_late.err
    )


@pytest.mark.slow
def test_a_killed_run_is_waited_for_and_named_as_killed(harness: RunHarness) -> None:
    harness.issues(40)
    with harness.server().frozen():
        running = harness.start("--all")
        wait_until(lambda: harness.events("worker_started"))
        timed = harness.run("wait", "--timeout", "0.2s", program="agentos")
        assert timed.code == 124 and "continues" in timed.err
        waiting = harness.start("wait", program="agentos")
        wait_until(lambda: "Waiting for run" in waiting.err)
        running.signal(signal.SIGKILL)
    assert waiting.wait(5).code == 137
    assert "it was killed. Resume with: lld-workflow --all" in harness.run("pause", program="agentos").err


@pytest.mark.slow
def test_of_two_runs_the_one_that_is_meant_must_be_named(harness: RunHarness) -> None:
    harness.issues(40, 41)
    with harness.server().frozen():
        first, second = harness.start(40), harness.start(41)
        wait_until(
            lambda: (
                len(harness.runs()) == 2
                and all(harness.events("worker_started", run) for run in harness.runs())
            )
        )
        asked = harness.run("pause", program="agentos")
        assert asked.code == 2 and "2 runs are in progress; choose one:" in asked.err
        name = harness.runs()[0].name
        assert f"agentos pause --run {name}   ({harness.project})" in asked.err
        assert f"Run {name}: Paused" in harness.run("pause", "--run", name, program="agentos").out
        assert len(harness.events("run_paused", harness.runs()[0])) == 1
        assert harness.events("run_paused", harness.runs()[1]) == []
        for run in harness.runs():
            assert harness.run("stop", "--run", run.name, program="agentos").code == 0
    assert first.wait(8).code == second.wait(8).code == 143


def test_the_socket_is_the_owners_alone_and_gone_after_the_run(harness: RunHarness) -> None:
    harness.issues(40)
    with harness.server().frozen():
        running = harness.start("--all")
        wait_until(lambda: harness.events("worker_started"))
        socket = harness.runs()[0] / "control.sock"
        assert stat.S_IMODE(socket.stat().st_mode) == 0o600
        assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
    assert running.wait().code == 0 and not socket.exists()


@pytest.mark.slow
def test_a_run_that_stands_still_is_named_as_such(harness: RunHarness) -> None:
    harness.issues(40)
    with harness.server().frozen():
        running = harness.start("--all")
        wait_until(lambda: harness.events("worker_started"))
        os.kill(running.pid, signal.SIGSTOP)
        try:
            asked = harness.run("pause", program="agentos")
        finally:
            os.kill(running.pid, signal.SIGCONT)
    assert (
        asked.code == 2
        and f"is suspended (Ctrl-Z): type fg in its terminal, or kill -CONT {running.pid}" in asked.err
    )
    assert running.wait().code == 0, "what nobody waits for any more is not done"
    assert harness.events("run_paused") == []


@pytest.mark.parametrize(
    "words", [("pause",), ("resume",), ("stop",), ("retry", "LLD-1"), ("set", "parallel", "2")]
)
def test_without_a_run_each_says_how_to_start_one(harness: RunHarness, words: tuple[str, ...]) -> None:
    asked = harness.run(*words, program="agentos")
    assert asked.code == 5 and "start one with: lld-workflow --all" in asked.err
