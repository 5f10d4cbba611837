"""Controlling a running run from a second process."""

import json
import os
import signal
import stat

import pytest

from .harness import RunHarness, wait_until

PAUSED = "Paused: no new items start, workers wait before their next model call."


def test_a_paused_run_makes_no_calls_until_it_is_resumed(harness: RunHarness) -> None:
    harness.issues(40, 41, 42, 43)
    with harness.server("--latency", "0.3,0.3").frozen():
        running = harness.start("--all", "--parallel", 2)
        wait_until(lambda: len(harness.events("lease_granted")) == 2)
        reply = harness.run("pause", program="agentos")
    assert reply.code == 0 and PAUSED in reply.out, reply
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
def test_pause_now_stops_the_workers_and_resume_restarts_their_items(harness: RunHarness) -> None:
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
    assert {event["calls_done"] for event in harness.events("lease_requested")[-2:]} == {1}, (
        "the drafts count"
    )


def test_a_log_is_followed_from_its_start_to_the_end_of_the_run(harness: RunHarness) -> None:
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
        followed = follower.wait()
        assert followed.code == 0 and ">>> Executing: N4_finalize" in followed.out
        assert followed.out == (harness.runs()[0] / f"{item}.log").read_text("utf-8")


def test_json_status_is_the_same_during_and_after_a_run(harness: RunHarness) -> None:
    harness.issues(40, 41)
    with harness.server().frozen():
        running = harness.start("--all")
        wait_until(lambda: harness.events("lease_granted"))
        during = json.loads(harness.run("status", "--json", program="agentos").out)
    assert during["alive"] and not during["paused"]
    assert {item["item"]: item["state"] for item in during["items"]} == {
        "LLD-40": "running",
        "LLD-41": "waiting",
    }
    assert running.wait().code == 0
    after = json.loads(harness.run("status", "--json", program="agentos").out)
    assert not after.pop("alive") and not after.pop("paused") and not after.pop("suspended")
    assert after == harness.summary()


def test_a_failed_item_can_be_retried_during_the_run(harness: RunHarness) -> None:
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
        still_running = harness.run("retry", "lld-41", program="agentos")
        assert still_running.code == 2 and still_running.err.endswith("running or queued\n")
    done = running.wait()
    assert done.code == 0 and "2 completed" in done.out
    assert harness.document(40).exists() and harness.document(41).exists()


def test_a_run_can_be_left_to_decide_its_number_of_workers(harness: RunHarness) -> None:
    harness.issues(40, 41, 42, 43)
    with harness.server().frozen():
        running = harness.start("--all", "--parallel", "auto")
        wait_until(lambda: harness.events("worker_started"))
        assert "at a time (auto)" in harness.run("status", program="agentos").out
        fixed = harness.run("set", "parallel", 1, program="agentos")
        auto = harness.run("set", "parallel", "auto", program="agentos")
        assert fixed.code == auto.code == 0 and "auto: follows keys and machine" in auto.out
        again = harness.run("set", "parallel", "auto", program="agentos")
        assert "already decides the number of workers itself" in again.out
    done = running.wait()
    assert done.code == 0 and "workers (auto: follows keys and machine)" in done.out
    assert "(auto)" in harness.run("report", program="agentos").out


def test_the_number_of_workers_can_be_changed_during_a_run(harness: RunHarness) -> None:
    harness.issues(40, 41, 42, 43)
    with harness.server().frozen():
        running = harness.start("--all")
        wait_until(lambda: harness.events("worker_started"))
        more = harness.run("set", "parallel", 12, program="agentos")
        assert "Warning: Requested parallelism 12 exceeds maximum 10. Capping to 10." in more.err
        assert more.code == 0 and "10 workers from now on (previously 1)." in more.out
        wait_until(lambda: len(harness.events("worker_started")) == 4)
        none = harness.run("set", "parallel", 0, program="agentos")
    assert none.code == 2 and none.err.endswith("must be 1 to 10, or auto\n")
    assert running.wait().code == 0


def test_stop_from_another_terminal_saves_everything_and_wait_returns_the_exit_code(
    harness: RunHarness,
) -> None:
    harness.issues(40, 41)
    with harness.server("--latency", "0.3,0.3").frozen():
        running = harness.start("--all")
        wait_until(lambda: harness.events("lease_granted"))
        waiting = harness.start("wait", program="agentos")
        wait_until(lambda: "Waiting for run" in waiting.err)
        reply = harness.run("stop", program="agentos")
    assert reply.code == 0 and "Shutting down... waiting for workers to checkpoint" in reply.out
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
def test_wait_reports_a_killed_run_as_killed(harness: RunHarness) -> None:
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
def test_with_two_runs_a_command_must_name_one(harness: RunHarness) -> None:
    harness.issues(40, 41)
    with harness.server().frozen():
        first, second = harness.start(40), harness.start(41)
        wait_until(
            lambda: (
                len(harness.runs()) == 2
                and all(harness.events("worker_started", run) for run in harness.runs())
            )
        )
        reply = harness.run("pause", program="agentos")
        assert reply.code == 2 and "2 runs are in progress; choose one:" in reply.err
        name = harness.runs()[0].name
        assert f"agentos pause --run {name}   (lld-workflow 4" in reply.err
        assert f"; {harness.project})" in reply.err
        paused = harness.run("pause", "--run", name, program="agentos").out
        assert f"Run {name}: Paused" in paused and paused.endswith(f"Resume with: agentos resume {name}\n")
        assert (
            harness.run("status", name, program="agentos").lines[-1] == f"Resume with: agentos resume {name}"
        )
        assert len(harness.events("run_paused", harness.runs()[0])) == 1
        assert harness.events("run_paused", harness.runs()[1]) == []
        for run in harness.runs():
            assert harness.run("stop", "--run", run.name, program="agentos").code == 0
    assert first.wait(8).code == second.wait(8).code == 143


def test_the_control_socket_is_private_and_removed_after_the_run(harness: RunHarness) -> None:
    harness.issues(40)
    with harness.server().frozen():
        running = harness.start("--all")
        wait_until(lambda: harness.events("worker_started"))
        socket = harness.runs()[0] / "control.sock"
        assert stat.S_IMODE(socket.stat().st_mode) == 0o600
        assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
    assert running.wait().code == 0 and not socket.exists()


@pytest.mark.slow
def test_a_command_to_a_suspended_run_says_that_it_is_suspended(harness: RunHarness) -> None:
    harness.issues(40)
    with harness.server().frozen():
        running = harness.start("--all")
        wait_until(lambda: harness.events("worker_started"))
        os.kill(running.pid, signal.SIGSTOP)
        try:
            reply = harness.run("pause", program="agentos")
        finally:
            os.kill(running.pid, signal.SIGCONT)
    assert (
        reply.code == 2
        and f"is suspended (Ctrl-Z): type fg in its terminal, or kill -CONT {running.pid}" in reply.err
    )
    assert running.wait().code == 0, "a request whose client has gone is not executed"
    assert harness.events("run_paused") == []


@pytest.mark.parametrize(
    "args", [("pause",), ("resume",), ("stop",), ("retry", "LLD-1"), ("set", "parallel", "2")]
)
def test_a_command_without_a_run_says_how_to_start_one(harness: RunHarness, args: tuple[str, ...]) -> None:
    reply = harness.run(*args, program="agentos")
    assert reply.code == 5 and "start one with: lld-workflow --all" in reply.err
