"""Killed workers, coordinators and fork servers, damaged checkpoints, failing items."""

import contextlib
import os
import re
import signal
import sqlite3
import threading
import time
from pathlib import Path

import pytest

from .harness import CALLS, RunHarness, command_line, wait_until


def test_a_killed_worker_costs_only_its_own_item_a_retry(harness: RunHarness) -> None:
    harness.issues(42, 43, 44)
    server = harness.server(fault={"kind": "hang", "matching": "Thing 42", "role": "review"})
    running = harness.start("--all", "--parallel", 3)
    wait_until(lambda: [call["role"] for call in server.calls(42)] == ["draft", "review"])
    os.kill(harness.worker("LLD-42"), signal.SIGKILL)
    done = running.wait()
    assert done.code == 0, done.out
    assert "LLD-42: its worker ended without an outcome: killed by SIGKILL" in done.out
    assert "attempt 2 of 3" in done.out
    assert {event["item"]: event["attempts"] for event in harness.events("item_ended")} == {
        "LLD-42": 2,
        "LLD-43": 1,
        "LLD-44": 1,
    }
    assert [call["role"] for call in server.calls(42)] == ["draft", "review", "review"]
    assert len(server.calls(43)) == len(server.calls(44)) == 2
    assert harness.databases() == [] and all(harness.document(number).exists() for number in (42, 43, 44))


def test_an_item_whose_worker_is_killed_every_time_fails_alone_after_its_attempts(
    harness: RunHarness,
) -> None:
    harness.issues(42, 43, 44)
    server = harness.server(
        "--latency", "0.3,0.3", fault={"kind": "hang", "matching": "Thing 42", "times": None}
    )
    running = harness.start("--all", "--parallel", 2, "--retries", 1)
    for attempt in (1, 2):
        wait_until(lambda wanted=attempt: len(server.calls(42)) == wanted)  # type: ignore[misc]
        os.kill(harness.worker("LLD-42"), signal.SIGKILL)
    done = running.wait()
    assert done.code == 1
    assert "[LLD-42] FAILED: its worker ended without an outcome: killed by SIGKILL" in done.lines
    assert "2 completed, 1 failed (LLD-42)" in done.out
    assert "lld_workflow_42.db" in harness.databases()
    assert (
        harness.document(43).exists() and harness.document(44).exists() and not harness.document(42).exists()
    )
    assert done.lines[-1].endswith("lld-workflow --all --parallel 2 --retries 1 --failed")
    assert len(server.calls(42)) == 2 and len(server.answered()) == 4


def test_no_process_outlives_a_killed_coordinator_and_the_next_run_resumes(harness: RunHarness) -> None:
    harness.issues(40, 41, 42, 43)
    server = harness.server(fault={"kind": "hang", "role": "review", "times": 2})
    running = harness.start("--all", "--parallel", 2)
    # The second worker may start after the first has sent its review.
    wait_until(
        lambda: sorted(call["role"] for call in server.calls()) == ["draft", "draft", "review", "review"]
    )
    process_tree = running.processes()
    assert len(process_tree) >= 3
    running.signal(signal.SIGKILL)
    assert running.wait().code == -signal.SIGKILL
    wait_until(lambda: not [process for process in process_tree if process.alive], 2)
    listed = harness.run("--all", "--dry-run")
    assert listed.code == 0 and "being worked on" not in listed.out
    assert listed.out.count("resumes at N3_review") == 2
    done = harness.run("--all", "--parallel", 2)
    assert done.code == 0, done.out
    assert all(harness.document(number).exists() for number in (40, 41, 42, 43))
    assert [call["role"] for call in server.calls(40)] == ["draft", "review", "review"]
    assert len(server.answered()) == 8 and not server.repeated_prompts()
    assert harness.databases() == []


def test_the_model_server_of_an_offline_run_dies_with_its_coordinator(harness: RunHarness) -> None:
    harness.issue(42)
    running = harness.start("--all", "--offline")
    running.wait_for("Executing: N0_load_issue")
    process_tree = running.processes()
    assert any("offline-server" in command_line(process.pid) for process in process_tree)
    running.signal(signal.SIGKILL)
    running.wait()
    wait_until(lambda: not [process for process in process_tree if process.alive], 2)


def test_items_are_retried_when_the_fork_server_and_its_workers_are_killed(harness: RunHarness) -> None:
    harness.issues(42, 43)
    server = harness.server(fault={"kind": "hang", "times": 2})
    running = harness.start("--all", "--parallel", 2)
    wait_until(lambda: len(server.calls()) >= 2)
    children = [
        process
        for process in running.processes()
        if "agentos.engines.template" in command_line(process.pid)
        and Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2].split()[1] == str(running.pid)
    ]
    assert len(children) == 1
    os.kill(children[0].pid, signal.SIGKILL)
    done = running.wait()
    assert done.code == 0, done.out
    assert harness.document(42).exists() and harness.document(43).exists()
    assert {event["attempts"] for event in harness.events("item_ended")} == {2}
    assert len(server.answered()) == 4


def test_an_invalid_spec_fails_alone_with_its_reason_and_without_a_call(harness: RunHarness) -> None:
    harness.issues(41, 43)
    (harness.project / "issues" / "042-broken.md").write_text("no heading and no content\n")
    server = harness.server()
    done = harness.run("--all", "--parallel", 2)
    assert done.code == 1
    at = done.lines.index("[LLD-42] FAILED: Invalid spec format")
    assert done.lines[at + 1].startswith("[LLD-42]   issues/042-broken.md: it has no heading")
    assert "2 completed, 1 failed (LLD-42)" in done.out
    assert {call["item"] for call in server.calls()} == {f"Thing {number} can be used" for number in (41, 43)}
    assert {event["item"]: event["attempts"] for event in harness.events("item_ended")}["LLD-42"] == 1


@pytest.mark.slow
def test_a_hanging_item_times_out_and_is_not_retried_with_retries_0(harness: RunHarness) -> None:
    harness.issues(42, 43)
    server = harness.server(fault={"kind": "hang", "matching": "Thing 42", "times": None})
    began = time.monotonic()
    done = harness.run("--all", "--parallel", 2, "--timeout", "4s", "--retries", 0)
    assert done.code == 1
    assert "[LLD-42] FAILED: ran out of time (--timeout)" in done.lines
    assert "1 completed, 1 failed (LLD-42)" in done.out
    assert 4 < time.monotonic() - began < 20
    assert len(server.calls(42)) == 1 and len(server.answered(43)) == CALLS["good"]


@pytest.mark.slow
def test_a_hanging_item_is_retried_and_finishes(harness: RunHarness) -> None:
    harness.issue(42)
    server = harness.server(fault={"kind": "hang", "role": "review"})
    done = harness.run("--all", "--timeout", "4s")
    assert done.code == 0, done.out
    assert "attempt 2 of 3" in done.out and harness.document(42).exists()
    assert [call["role"] for call in server.calls()] == ["draft", "review", "review"]


def test_a_damaged_checkpoint_is_set_aside_and_its_item_starts_over(harness: RunHarness) -> None:
    harness.issues(41, 42, 43, 44)
    server = harness.server(fault={"kind": "400", "role": "review", "times": 4})
    assert harness.run("--all", "--parallel", 3).code == 1
    folder = next(harness.home.glob("checkpoints/*"))
    content = (folder / "lld_workflow_42.db").read_bytes()
    damaged = {42: b"not a database at all" * 400, 43: content[:5000], 44: bytes(len(content))}
    for number, corrupted in damaged.items():
        for ending in ("-wal", "-shm"):
            (folder / f"lld_workflow_{number}.db{ending}").unlink(missing_ok=True)
        (folder / f"lld_workflow_{number}.db").write_bytes(corrupted)
    done = harness.run("--all", "--parallel", 3)
    assert done.code == 0, done.out
    for number, corrupted in damaged.items():
        renamed = f"lld_workflow_{number}.db.broken-1"
        assert re.search(rf"\[LLD-{number}\] .*damaged.*{re.escape(renamed)}", done.out)
        assert (folder / renamed).read_bytes() == corrupted
        assert [call["role"] for call in server.answered(number)] == ["draft", "draft", "review"]
    assert [call["role"] for call in server.answered(41)] == ["draft", "review"]
    assert len(harness.databases()) == 3


@pytest.mark.slow
def test_a_checkpoint_of_a_newer_version_is_refused_with_the_reason(harness: RunHarness) -> None:
    harness.issues(42, 43)
    server = harness.server(fault={"kind": "400", "role": "review", "times": 2})
    assert harness.run("--all").code == 1
    database = next(harness.home.glob("checkpoints/*/lld_workflow_42.db"))
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA user_version=99")
        connection.commit()
    done = harness.run("--all")
    assert done.code == 1 and database.exists()
    assert [
        line
        for line in done.lines_of("LLD-42")
        if "FAILED: its checkpoint was written by a newer agentos" in line
    ]
    assert len(server.answered(42)) == 1 and "attempt 2" not in done.out
    assert [call["role"] for call in server.answered(43)] == ["draft", "review"], (
        "the other item does not resume"
    )
    assert harness.run("--fresh", 42).code == 0 and harness.document(42).exists()


def test_a_suspended_worker_keeps_its_item_and_finishes_when_resumed(harness: RunHarness) -> None:
    harness.issue(42)
    server = harness.server("--latency", "1,1")
    running = harness.start("--all")
    wait_until(lambda: bool(server.calls()))
    worker = harness.worker("LLD-42")
    with server.frozen():
        os.kill(worker, signal.SIGSTOP)
        second = harness.run("--all")
    assert second.code == 0 and "LLD-42 is being worked on by" in second.out
    os.kill(worker, signal.SIGCONT)
    assert running.wait().code == 0
    assert len(server.calls()) == 2 and not server.repeated_prompts()


@pytest.mark.slow
def test_randomly_killed_workers_lose_nothing_and_repeat_at_most_one_call_each(harness: RunHarness) -> None:
    harness.issues(*range(40, 46))
    server = harness.server("--latency", "0.1,0.4")
    running = harness.start("--all", "--parallel", 3, "--retries", 9)
    wait_until(lambda: len(server.calls()) >= 1)
    kills = 0
    while kills < 5 and running.process.poll() is None:
        threading.Event().wait(0.25)
        ended = {event["item"] for event in harness.events("item_ended")}
        started = [event for event in harness.events("worker_started") if event["item"] not in ended]
        live_pids = {process.pid for process in running.processes()}
        victims = [event["pid"] for event in started if event["pid"] in live_pids]
        if victims:
            os.kill(victims[kills % len(victims)], signal.SIGKILL)
            kills += 1
    done = running.wait()
    assert done.code == 0, done.out
    assert kills == 5
    assert all(harness.document(number).exists() for number in range(40, 46))
    assert len({call["prompt_sha256"] for call in server.answered()}) == 12
    assert len(server.calls()) <= 12 + kills
    assert harness.databases() == []


@pytest.mark.slow
def test_a_run_killed_while_filing_issues_files_each_one_once(harness: RunHarness) -> None:
    for number in (17, 18, 19):
        harness.brief(f"{number}-thing.md", number)
    server = harness.server("--latency", "0.1,0.1")
    kills = 0
    for moment in ("N6_file", "Filed as"):
        running = harness.start("--all", "--parallel", 3, program="issue-workflow")
        wait_until(lambda run=running, text=moment: text in run.out or run.process.poll() is not None)  # type: ignore[misc]
        process_tree = running.processes()
        running.signal(signal.SIGKILL)
        kills += running.wait().code == -signal.SIGKILL
        wait_until(lambda markers=process_tree: not [process for process in markers if process.alive], 2)  # type: ignore[misc]
    assert kills >= 1
    assert harness.run("--all", "--parallel", 3, program="issue-workflow").code == 0
    filed = "".join(path.read_text() for path in (harness.project / "issues").iterdir())
    assert sorted(re.findall(r'^origin: "(ISSUE-\d+)"$', filed, re.MULTILINE)) == [
        "ISSUE-17",
        "ISSUE-18",
        "ISSUE-19",
    ]
    assert sorted(path.name[:2] for path in (harness.project / "ideas/done").iterdir()) == ["17", "18", "19"]
    assert not list((harness.project / "ideas/active").iterdir()) and harness.databases() == []
    # A repeated draft may have another prompt: it names the related issues, one of which may have been filed since.
    assert 6 <= len(server.answered()) <= 6 + 3 * kills
