"""Two runs share one backlog and finish it without repeating work."""

import fcntl
import itertools
import os
import re
import signal

import pytest

from .harness import RunHarness, title_of, wait_until


def test_two_runs_share_a_backlog_without_repeating_work(harness: RunHarness) -> None:
    numbers = range(40, 48)
    harness.issues(*numbers)
    server = harness.server("--latency", "0.4,0.4")
    first = harness.start("--all", "--parallel", 2)
    second = harness.start("--all", "--parallel", 2)
    done_1, done_2 = first.wait(), second.wait()
    assert (done_1.code, done_2.code) == (0, 0), done_1.out + done_2.out
    assert all(harness.document(number).exists() for number in numbers)
    assert len(server.calls()) == 16 and not server.repeated_prompts()
    shares = [
        {event["item"] for event in harness.events("node_started", run) if event["node"] == "N4_finalize"}
        for run in harness.runs()
    ]
    assert len(shares) == 2 and all(shares) and not shares[0] & shares[1]
    expected = {f"  Succeeded: {len(items)}" for items in shares}
    assert {
        line for done in (done_1, done_2) for line in done.lines_of("COORDINATOR") if "Succeeded" in line
    } == expected
    assert harness.databases() == []
    assert not list((harness.project / "docs/lineage/active").iterdir())


@pytest.mark.slow
def test_a_run_counts_its_own_work_and_starts_nothing_that_another_has_finished(harness: RunHarness) -> None:
    numbers = range(1, 25)
    harness.issues(*numbers)
    server = harness.server()
    with server.frozen():
        first = harness.start("--all")
        wait_until(lambda: harness.events("lease_granted"))
        first.signal(signal.SIGSTOP)
    (run,) = harness.runs()
    other = harness.run("--all", "--parallel", 4)
    first.signal(signal.SIGCONT)
    own = first.wait(60)
    assert (own.code, other.code) == (0, 0), own.out + other.out
    assert all(harness.document(number).exists() for number in numbers) and not server.repeated_prompts()
    started = [event["item"] for event in harness.events("item_started", run)]
    assert started == ["LLD-1"], "it looks at the documents, and starts no worker to find out"
    assert own.out.count("Skipped: another run finished it (approved)") == 23
    lines = own.lines_of("COORDINATOR")
    assert {"  Total: 24", "  Succeeded: 1", "  Failed: 0", "  Verdicts: 1 approved, 0 need revision"} <= {
        *lines
    }
    (line,) = [line for line in lines if line.startswith("  Elsewhere: ")]
    assert line == "  Elsewhere: 23 finished (LLD-2, LLD-3, LLD-4, LLD-5, LLD-6 ... LLD-24)"
    assert "  Succeeded: 23" in other.lines_of("COORDINATOR") and "  Elsewhere:" not in other.out
    (row,) = [row for row in harness.run("runs", program="agentos").lines if run.name in row.split()]
    assert "24 items: 1 approved, 0 need revision, 0 failed, 23 finished by other runs" in row, row


@pytest.mark.slow
def test_a_fresh_run_redoes_nothing_that_another_has_ended_since_it_began(harness: RunHarness) -> None:
    harness.issues(1, 2, 3)
    server = harness.server()
    assert harness.run("--all").code == 0
    harness.issue(4).write_text("")
    with server.frozen():
        first = harness.start("1-4", "--fresh")
        wait_until(lambda: len(harness.runs()) == 2 and harness.events("lease_granted"))
        first.signal(signal.SIGSTOP)
    run = harness.runs()[-1]
    other = harness.run("2-4", "--fresh", "--parallel", 2)
    first.signal(signal.SIGCONT)
    own = first.wait()
    assert (own.code, other.code) == (1, 1), own.out + other.out
    assert [event["item"] for event in harness.events("item_started", run)] == ["LLD-1"]
    assert len(server.calls()) == 6 + 6, "each issue is redone once"
    assert "Skipped: another run finished it (approved)" in own.lines_of("LLD-2")
    (skipped,) = own.lines_of("LLD-4")
    assert re.fullmatch(r"Skipped: it failed in run \S+: Invalid spec format", skipped)
    assert "  Elsewhere: 2 finished (LLD-2, LLD-3), 1 failed (LLD-4)" in own.lines_of("COORDINATOR")
    logs = [
        harness.run("logs", *words, "LLD-2", program="agentos").out for words in ((), ("--run", run.name))
    ]
    assert "Approved after 1 review" in logs[0], "the log of the run that processed the item"
    assert logs[1] == "Skipped: another run finished it (approved)\n"
    again = harness.run("--failed", "--dry-run")
    assert "LLD-4" in again.out and "LLD-3" not in again.out


@pytest.mark.slow
def test_a_design_that_appears_during_a_run_is_not_ascribed_to_another_run(harness: RunHarness) -> None:
    harness.issues(1, 2, 3)
    server = harness.server()
    with server.frozen():
        running = harness.start("--all", "--retries", 0)
        wait_until(lambda: harness.events("lease_granted"))
        harness.document(2).parent.mkdir(parents=True)
        harness.document(2).write_text("# Written by hand")
        harness.document(3).mkdir()
    done = running.wait()
    assert done.lines_of("LLD-2") == ["Skipped: finished outside this run (approved)"]
    assert "  Elsewhere: 1 finished (LLD-2)" in done.lines_of("COORDINATOR")
    assert done.code == 1 and any("FAILED: Is a directory" in line for line in done.lines_of("LLD-3"))


@pytest.mark.slow
def test_progress_counts_what_another_run_finishes_before_its_turn_comes(harness: RunHarness) -> None:
    harness.issues(1, 2, 3, 4)
    harness.server(fault={"kind": "hang", "matching": title_of(1), "times": None})
    first = harness.start("--all")
    wait_until(lambda: harness.events("lease_granted"))
    (run,) = harness.runs()
    assert harness.run("2-4").code == 0
    first.wait_for("[LLD-4] Skipped: another run finished it (approved)")
    assert "3/4 workflows complete" in harness.run("status", run.name, program="agentos").out
    first.signal(signal.SIGINT)
    assert "  Elsewhere: 3 finished (LLD-2, LLD-3, LLD-4)" in first.wait().lines_of("COORDINATOR")


@pytest.mark.slow
def test_a_stopped_run_does_not_call_items_that_another_run_finished_not_started(
    harness: RunHarness,
) -> None:
    harness.issues(1, 2, 3, 4)
    server = harness.server()
    with server.frozen():
        first = harness.start("--all")
        wait_until(lambda: harness.events("lease_granted"))
        first.signal(signal.SIGSTOP)
    assert harness.run(2, 3).code == 0
    first.signal(signal.SIGINT)
    first.signal(signal.SIGCONT)
    done = first.wait()
    assert done.code == 130, done.out
    lines = done.lines_of("COORDINATOR")
    assert "  Elsewhere: 2 finished (LLD-2, LLD-3)" in lines
    (items,) = [line for line in lines if line.startswith("  Items: ")]
    assert "1 not started (LLD-4)" in items


def test_a_program_that_another_run_finished_is_not_started_again(harness: RunHarness) -> None:
    gate = harness.project / "gate"
    program = (
        "exec",
        *(f"file-{n}" for n in range(1, 25)),
        "--",
        "sh",
        "-c",
        'test "$0" != file-1 || until test -e gate; do sleep 0.05; done',
    )
    first = harness.start(*program, "{item}", program="agentos")
    wait_until(lambda: harness.events("worker_started"))
    wait_until(lambda: list(harness.home.glob("**/task-*.holder")))
    (run,) = harness.runs()
    other = harness.run(*program, "{item}", program="agentos")
    gate.touch()
    own = first.wait()
    assert (own.code, other.code) == (0, 0), own.out + other.out
    assert len(harness.events("item_started", run)) == 1
    lines = own.lines_of("COORDINATOR")
    assert "  Succeeded: 1" in lines and any(line.startswith("  Elsewhere: 23 finished (") for line in lines)
    assert "  Succeeded: 23" in other.lines_of("COORDINATOR")


def test_a_program_that_failed_in_another_run_is_left_to_it(harness: RunHarness) -> None:
    gate = harness.project / "gate"
    script = 'test "$0" = 1 || exit 3; until test -e gate; do sleep 0.05; done'
    program = ("exec", "1", "2", "3", "--", "sh", "-c", script, "{item}")
    first = harness.start(*program, program="agentos")
    wait_until(lambda: list(harness.home.glob("**/task-*.holder")))
    (run,) = harness.runs()
    other = harness.run(*program, program="agentos")
    gate.touch()
    own = first.wait()
    assert (own.code, other.code) == (1, 1), own.out + other.out
    assert len(harness.events("item_started", run)) == 1
    lines = own.lines_of("COORDINATOR")
    assert {"  Succeeded: 1", "  Failed: 0", "  Elsewhere: 2 failed (2, 3)"} <= {*lines}
    assert lines[-1].startswith("Retry the failed items: agentos exec 1 2 3 --failed -- ")
    (row,) = [row for row in harness.run("runs", program="agentos").lines if run.name in row.split()]
    assert "2 failed in other runs" in row


@pytest.mark.slow
def test_three_runs_with_slow_calls_never_share_an_item_or_a_key(harness: RunHarness) -> None:
    numbers = range(40, 46)
    harness.issues(*numbers)
    server = harness.server("--latency", "0.5,1.0", keys=("canary-key-one-3e11", "canary-key-two-90ab"))
    runs = [harness.start("--all", "--parallel", 2) for _ in range(3)]
    assert [running.wait(90).code for running in runs] == [0, 0, 0]
    calls = server.calls()
    assert len(calls) == 12 and not server.repeated_prompts()
    assert all(harness.document(number).exists() for number in numbers)
    for kind, many in (("item", 6), ("key", 2)):
        assert len({call[kind] for call in calls}) == many
        for call, other in itertools.combinations(calls, 2):
            overlap = call["started"] < other["ended"] and other["started"] < call["ended"]
            assert not (overlap and call[kind] == other[kind]), (kind, call["seq"], other["seq"])
    shares = [{event["item"] for event in harness.events("node_started", run)} for run in harness.runs()]
    assert sum(map(bool, shares)) >= 2, "one run did everything: there was no contention"


@pytest.mark.slow
def test_two_runs_file_each_brief_once(harness: RunHarness) -> None:
    for number in (17, 18, 19, 20):
        harness.brief(f"{number}-thing.md", number)
    harness.brief("nameless.md", 99)
    server = harness.server("--latency", "0.2,0.2")
    runs = [harness.start("--all", "--parallel", 2, program="issue-workflow") for _ in range(2)]
    assert [running.wait().code for running in runs] == [0, 0]
    filed = [path.read_text() for path in (harness.project / "issues").iterdir()]
    origins = sorted(found[1] for text in filed if (found := re.search(r'origin: "(ISSUE-\d+)"', text)))
    assert origins == ["ISSUE-17", "ISSUE-18", "ISSUE-19", "ISSUE-20", "ISSUE-21"]
    assert len(server.calls()) == 10 and not server.repeated_prompts()
    assert len(list((harness.project / "ideas/done").iterdir())) == 5


@pytest.mark.slow
def test_the_second_run_says_which_process_holds_the_items_it_skips(harness: RunHarness) -> None:
    harness.issues(42, 43)
    server = harness.server(fault={"kind": "hang", "times": None})
    first = harness.start("--all", "--parallel", 2)
    wait_until(lambda: len(server.calls()) == 2)
    second = harness.run("--all", "--parallel", 2)
    assert second.code == 0
    held = re.findall(
        r"\[COORDINATOR\] LLD-(42|43) is being worked on by process (\d+), run (\S+)", second.out
    )
    assert [found[0] for found in held] == ["42", "43"]
    assert second.lines[-1] == "[COORDINATOR] List runs: agentos runs"
    assert {int(found[1]) for found in held} == {first.pid}
    assert {found[2] for found in held} == {harness.runs()[0].name}
    named = harness.run(42)
    assert named.code == 0 and "LLD-42 is being worked on by" in named.out
    harness.issue(44)
    third = harness.run("--all", "--offline")
    assert third.code == 0 and harness.document(44).exists(), third.out
    assert "[COORDINATOR] LLD-42 is being worked on by process" in third.out, "also when something is free"
    harness.issue(45)
    fourth = harness.run("44", "45", "--offline")
    assert "[COORDINATOR] LLD-44 is already approved; redo it with --fresh 44" in fourth.lines
    assert harness.document(45).exists()
    first.signal(signal.SIGINT)
    assert first.wait().code == 130
    assert len(server.calls()) == 2


@pytest.mark.slow
def test_a_lock_held_by_another_process_is_respected(harness: RunHarness) -> None:
    harness.issues(42, 43)
    server = harness.server()
    locks = harness.project / ".locks"
    locks.mkdir()
    with open(locks / "task-LLD-42.lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = harness.run("--all", "--parallel", 2)
        assert done.code == 0, done.out
        assert harness.document(43).exists() and not harness.document(42).exists()
        assert not server.calls(42) and len(server.calls(43)) == 2
        alone = harness.run("--all")
        assert alone.code == 0 and "LLD-42 is being worked on by another process" in alone.out
    free = harness.run("--all")
    assert free.code == 0 and harness.document(42).exists()
    assert (locks / ".gitignore").read_text() == "*\n"


@pytest.mark.slow
def test_a_lock_taken_between_plan_and_start_is_respected(harness: RunHarness) -> None:
    harness.issues(42, 43)
    server = harness.server("--latency", "0.5,0.5")
    locks = harness.project / ".locks"
    running = harness.start("--all")
    wait_until(lambda: bool(server.calls(42)))
    with open(os.open(locks / "task-LLD-43.lock", os.O_RDWR | os.O_CREAT, 0o600), "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = running.wait()
    assert done.code == 0, done.out
    assert "[LLD-43] Skipped: another run is working on it" in done.out
    assert "  Elsewhere: 1 in progress (LLD-43)" in done.lines_of("COORDINATOR")
    assert not server.calls(43) and harness.document(42).exists()


@pytest.mark.slow
def test_a_lock_file_that_is_a_link_is_refused_and_its_target_is_unchanged(harness: RunHarness) -> None:
    harness.issues(42, 43)
    server = harness.server()
    victim = harness.root / "victim"
    victim.write_text("precious")
    (harness.project / ".locks").mkdir()
    (harness.project / ".locks" / "task-LLD-42.lock").symlink_to(victim)
    done = harness.run("--all", "--parallel", 2)
    assert done.code == 1 and "1 failed (LLD-42)" in done.out and "Traceback" not in done.out
    (failure,) = [line for line in done.lines_of("LLD-42") if line.startswith("FAILED: ")]
    assert "symbolic link" in failure and "task-LLD-42.lock" in failure and "attempt 2" not in done.out
    assert victim.read_text() == "precious" and harness.document(43).exists() and not server.calls(42)


@pytest.mark.slow
def test_items_with_the_same_number_in_two_projects_have_separate_checkpoints(harness: RunHarness) -> None:
    harness.issue(42)
    other = harness.root / "elsewhere" / "project"
    (other / "issues").mkdir(parents=True)
    (other / "issues" / "042-thing.md").write_text(
        harness.issue(42).read_text().replace("Thing 42", "Thing 77")
    )
    server = harness.server("--latency", "1.2,1.2")
    first, second = harness.start("--all"), harness.start("--all", "--repo", other)
    wait_until(lambda: len(list(harness.home.glob("checkpoints/*/lld_workflow_42.db"))) == 2)
    assert first.wait().code == second.wait().code == 0
    assert harness.document(42).exists() and (other / "docs/lld/active/LLD-042.md").exists()
    assert len(server.calls(42)) == len(server.calls(77)) == 2
