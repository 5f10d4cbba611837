"""A run under way, asked for things by a second process."""

import json
import os
import signal
import stat

import pytest

from .stage import Stage, until

PAUSED = "Paused: no further item starts, workers wait at their next model call."


def test_a_paused_run_calls_nobody_until_it_is_resumed(stage: Stage) -> None:
    stage.issues(40, 41, 42, 43)
    with stage.server("--latency", "0.3,0.3").holding():
        running = stage.start("--all", "--parallel", 2)
        until(lambda: len(stage.events("LeaseGranted")) == 2)
        asked = stage.run("pause", program="agentos")
    assert asked.code == 0 and PAUSED in asked.out, asked
    assert f"[COORDINATOR] {PAUSED} Go on with: agentos resume" in running.out
    until(lambda: not open_leases(stage))
    granted = len(stage.events("LeaseGranted"))
    until(lambda: len(stage.events("LeaseRequested")) > granted)
    status = stage.run("status", program="agentos")
    assert "is paused" in status.out and status.lines[-1] == "Go on with: agentos resume"
    assert "  LLD-43  waiting" in status.lines and "0/4 workflows complete | PAUSED" in status.lines[-3]
    assert "keys in use: 0/4" in status.lines[-2]
    assert "paused already" in stage.run("pause", program="agentos").out
    assert len(stage.events("LeaseGranted")) == granted
    assert "Resumed after" in stage.run("resume", program="agentos").out
    assert running.end().code == 0
    assert all(stage.document(number).exists() for number in (40, 41, 42, 43))


def open_leases(stage: Stage) -> int:
    return len(stage.events("LeaseGranted")) - len(stage.events("LeaseReleased"))


def test_pause_now_ends_the_workers_and_resume_takes_their_items_up(stage: Stage) -> None:
    stage.issues(40, 41)
    witness = stage.server("--latency", "0.1,0.1", "--review-latency", "5,5")
    running = stage.start("--all", "--parallel", 2)
    until(lambda: len(witness.answered()) >= 2)
    assert stage.run("pause", "--now", program="agentos").code == 0
    until(lambda: len(stage.events("ItemSetAside")) == 2)
    assert len(stage.events("WorkerExited")) == 2 and running.process.poll() is None
    assert "lld_workflow_40.db" in stage.databases()
    assert stage.run("resume", program="agentos").code == 0
    done = running.end()
    assert done.code == 0 and "LLD-40 is set aside at N3_review" in done.out, done.out
    assert not witness.asked_twice() and stage.databases() == []
    assert [event["attempt"] for event in stage.events("ItemStarted")] == [1, 1, 2, 2]


def test_a_log_is_followed_from_its_beginning_to_the_end_of_the_run(stage: Stage) -> None:
    stage.issues(40, 41)
    with stage.server().holding():
        running = stage.start("--all")
        until(lambda: stage.events("LeaseGranted"))
        following = stage.start("logs", "-f", "lld-40", program="agentos")
        later = stage.start("logs", "-f", "LLD-41", program="agentos")
        following.says(">>> Executing: N1_design")
        assert later.out == "" and following.process.poll() is None
    assert running.end().code == 0
    for item, follower in (("LLD-40", following), ("LLD-41", later)):
        heard = follower.end()
        assert heard.code == 0 and ">>> Executing: N4_finalize" in heard.out
        assert heard.out == (stage.runs()[0] / f"{item}.log").read_text("utf-8")


def test_status_for_programs_says_the_same_with_and_without_a_running_process(stage: Stage) -> None:
    stage.issues(40, 41)
    with stage.server().holding():
        running = stage.start("--all")
        until(lambda: stage.events("LeaseGranted"))
        during = json.loads(stage.run("status", "--json", program="agentos").out)
    assert during["alive"] and not during["paused"]
    assert {one["item"]: one["state"] for one in during["items"]} == {
        "LLD-40": "running",
        "LLD-41": "waiting",
    }
    assert running.end().code == 0
    after = json.loads(stage.run("status", "--json", program="agentos").out)
    assert not after.pop("alive") and not after.pop("paused") and not after.pop("suspended")
    assert after == stage.summary()


def test_a_failed_item_is_put_back_into_the_run(stage: Stage) -> None:
    stage.issues(40, 41)
    with stage.server("--latency", "0.3,0.3").holding():
        running = stage.start("--all", "--parallel", 2, "--retries", 0)
        until(lambda: len(stage.events("LeaseGranted")) == 2)
        os.kill(stage.worker("LLD-40"), signal.SIGKILL)
        until(lambda: stage.events("ItemEnded"))
        again = stage.run("retry", "40", program="agentos")
        assert again.code == 0 and "LLD-40 is tried again, from its checkpoint." in again.out, again
        unknown = stage.run("retry", "LLD-99", program="agentos")
        assert unknown.code == 5 and "not in this run; its items: LLD-40, LLD-41" in unknown.err
        running_on = stage.run("retry", "lld-41", program="agentos")
        assert running_on.code == 2 and running_on.err.endswith("running, or still to come\n")
    done = running.end()
    assert done.code == 0 and "2 completed" in done.out
    assert stage.document(40).exists() and stage.document(41).exists()


def test_the_number_of_workers_changes_during_the_run(stage: Stage) -> None:
    stage.issues(40, 41, 42, 43)
    with stage.server().holding():
        running = stage.start("--all")
        until(lambda: stage.events("WorkerStarted"))
        more = stage.run("set", "parallel", 12, program="agentos")
        assert "Warning: Requested parallelism 12 exceeds maximum 10. Capping to 10." in more.err
        assert more.code == 0 and "10 workers from now on (before: 1)." in more.out
        until(lambda: len(stage.events("WorkerStarted")) == 4)
        none = stage.run("set", "parallel", 0, program="agentos")
    assert none.code == 2 and none.err.endswith("expected 1 to 10\n")
    assert running.end().code == 0


def test_stop_from_another_terminal_saves_everything_and_wait_gives_its_code(stage: Stage) -> None:
    stage.issues(40, 41)
    with stage.server("--latency", "0.3,0.3").holding():
        running = stage.start("--all")
        until(lambda: stage.events("LeaseGranted"))
        waiting = stage.start("wait", program="agentos")
        until(lambda: "Waiting for run" in waiting.err)
        asked = stage.run("stop", program="agentos")
    assert asked.code == 0 and "Shutting down... waiting for workers to checkpoint" in asked.out
    done = running.end(8)
    assert done.code == 143
    assert done.lines[-1] == "[COORDINATOR] Everything is saved. Go on with: lld-workflow --all"
    waited = waiting.end(5)
    assert waited.code == 143 and "Go on with: lld-workflow --all" in waited.err
    assert stage.run("wait", program="agentos").code == 143
    too_late = stage.run("stop", program="agentos")
    assert too_late.code == 2 and "is not under way" in too_late.err and "lld-workflow --all" in too_late.err


def test_a_killed_run_is_waited_for_and_named_as_killed(stage: Stage) -> None:
    stage.issues(40)
    with stage.server().holding():
        running = stage.start("--all")
        until(lambda: stage.events("WorkerStarted"))
        timed = stage.run("wait", "--timeout", "0.2s", program="agentos")
        assert timed.code == 124 and "goes on" in timed.err
        waiting = stage.start("wait", program="agentos")
        until(lambda: "Waiting for run" in waiting.err)
        running.signal(signal.SIGKILL)
    assert waiting.end(5).code == 137
    assert "it was killed. Go on with: lld-workflow --all" in stage.run("pause", program="agentos").err


def test_of_two_runs_the_one_that_is_meant_must_be_named(stage: Stage) -> None:
    stage.issues(40, 41)
    with stage.server().holding():
        first, second = stage.start(40), stage.start(41)
        until(
            lambda: len(stage.runs()) == 2 and all(stage.events("WorkerStarted", run) for run in stage.runs())
        )
        asked = stage.run("pause", program="agentos")
        assert asked.code == 2 and "2 runs are under way, name one:" in asked.err
        name = stage.runs()[0].name
        assert f"agentos pause --run {name}   ({stage.project})" in asked.err
        assert f"Run {name}: Paused" in stage.run("pause", "--run", name, program="agentos").out
        assert len(stage.events("RunPaused", stage.runs()[0])) == 1
        assert stage.events("RunPaused", stage.runs()[1]) == []
        for run in stage.runs():
            assert stage.run("stop", "--run", run.name, program="agentos").code == 0
    assert first.end(8).code == second.end(8).code == 143


def test_the_socket_is_the_owners_alone_and_gone_after_the_run(stage: Stage) -> None:
    stage.issues(40)
    with stage.server().holding():
        running = stage.start("--all")
        until(lambda: stage.events("WorkerStarted"))
        socket = stage.runs()[0] / "control.sock"
        assert stat.S_IMODE(socket.stat().st_mode) == 0o600
        assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
    assert running.end().code == 0 and not socket.exists()


def test_a_run_that_stands_still_is_named_as_such(stage: Stage) -> None:
    stage.issues(40)
    with stage.server().holding():
        running = stage.start("--all")
        until(lambda: stage.events("WorkerStarted"))
        os.kill(running.pid, signal.SIGSTOP)
        try:
            asked = stage.run("pause", program="agentos")
        finally:
            os.kill(running.pid, signal.SIGCONT)
    assert (
        asked.code == 2
        and f"stands still (Ctrl-Z): type fg in its terminal, or kill -CONT {running.pid}" in asked.err
    )
    assert running.end().code == 0, "what nobody waits for any more is not done"
    assert stage.events("RunPaused") == []


@pytest.mark.parametrize(
    "words", [("pause",), ("resume",), ("stop",), ("retry", "LLD-1"), ("set", "parallel", "2")]
)
def test_without_a_run_each_says_how_to_start_one(stage: Stage, words: tuple[str, ...]) -> None:
    asked = stage.run(*words, program="agentos")
    assert asked.code == 5 and "start one with: lld-workflow --all" in asked.err
