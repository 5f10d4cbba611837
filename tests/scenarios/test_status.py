"""The state of a run and its items as shown in other terminals."""

import os
import re
import signal

import pytest

from .harness import RunHarness, wait_until
from .screens import OLD, WIDE, Screen, Shell

TIMEOUT = 60.0


@pytest.mark.slow
def test_every_command_reports_a_run_suspended_with_ctrl_z(harness: RunHarness) -> None:
    harness.issues(40, 41)
    with harness.server().frozen():
        shell = Shell(harness)
        shell.type("lld-workflow --all --parallel 2")
        wait_until(lambda: len(harness.events("lease_granted")) == 2, TIMEOUT)
        shell.terminal.press("\x1a")
        shell.screen.wait_for("Stopped")
        first, second = (harness.run("status", program="agentos") for _ in range(2))
        waited = harness.run("wait", "--timeout", "0.1s", program="agentos")
        watching = Screen(harness.terminal("watch", program="agentos", size=WIDE, **OLD))
        watching.wait_for("SUSPENDED (fg)", TIMEOUT)
        watching.terminal.press("q")
        watching.terminal.wait(30)
        shell.type("fg")
        shell.screen.wait_for("Continuing after")
    still = re.compile(r"is suspended \(Ctrl-Z\): type fg in its terminal, or kill -CONT \d+\.")
    assert "(lld) is suspended (Ctrl-Z), started" in first.out and "busy" not in first.out, first.out
    assert re.fullmatch(r"Wake it: type fg in its terminal, or kill -CONT \d+", first.lines[-1])
    assert first.out == second.out, "the rows grow no older"
    assert waited.code == 124 and len(still.findall(waited.err)) == 2, waited.err
    assert still.search(" ".join(watching.rows())), watching.rows()
    shell.screen.wait_for("2 approved", TIMEOUT)


def test_a_run_suspended_with_sigstop_is_reported_as_suspended(harness: RunHarness) -> None:
    harness.issues(40)
    with harness.server().frozen():
        running = harness.start("--all")
        wait_until(lambda: harness.events("lease_granted"))
        running.signal(signal.SIGSTOP)
        wait_until(lambda: "is suspended" in harness.run("status", program="agentos").out, 10)
        status = harness.run("status", program="agentos")
        running.signal(signal.SIGCONT)
    assert status.lines[-1] == f"Wake it: type fg in its terminal, or kill -CONT {running.pid}"
    assert running.wait().code == 0


@pytest.mark.slow
def test_a_suspended_item_keeps_its_elapsed_time(harness: RunHarness) -> None:
    harness.issues(40)
    server = harness.server("--latency", "0.3,0.3", "--review-latency", "60,60")
    running = harness.start("--all")
    wait_until(lambda: server.answered())
    assert harness.run("pause", "--now", program="agentos").code == 0
    wait_until(lambda: harness.events("item_suspended"))
    (row,) = [line for line in harness.run("status", program="agentos").lines if "LLD-40" in line]
    found = re.search(r"waiting +1 round +(\d+\.\d)s", row)
    assert found and float(found[1]) >= 0.3, row
    running.signal(signal.SIGTERM)
    assert running.wait().code == 143


@pytest.mark.slow
def test_a_key_held_by_a_killed_worker_is_no_longer_in_use(harness: RunHarness) -> None:
    harness.issues(40, 41)
    with harness.server().frozen():
        running = harness.start("--all", "--parallel", 2, "--retries", 0)
        wait_until(lambda: len(harness.events("lease_granted")) == 2)
        assert "keys in use: 2/4" in harness.run("status", program="agentos").out
        os.kill(harness.worker("LLD-40"), signal.SIGKILL)
        wait_until(lambda: harness.events("item_ended"))
        assert "keys in use: 1/4" in harness.run("status", program="agentos").out
    assert running.wait().code == 1


@pytest.mark.slow
def test_the_list_of_runs_distinguishes_interrupted_items_from_unstarted_ones(harness: RunHarness) -> None:
    harness.issues(40, 41, 42)
    with harness.server().frozen():
        running = harness.start("--all")
        wait_until(lambda: harness.events("lease_granted"))
        running.signal(signal.SIGINT)
        assert running.wait().code == 130
    (row,) = harness.run("runs", program="agentos").lines
    assert "3 items: 0 approved, 0 need revision, 0 failed, 1 interrupted, 2 not started" in row


def test_the_list_of_runs_counts_programs_as_done_or_failed(harness: RunHarness) -> None:
    assert harness.run("exec", "q", "--", "false", program="agentos").code == 1
    (row,) = harness.run("runs", program="agentos").lines
    assert "1 item: 0 done, 1 failed  " in row, row
    assert row.endswith(f"{harness.project}  agentos exec q -- false"), row


def test_status_names_the_other_runs_in_progress(harness: RunHarness) -> None:
    gate = harness.project / "gate"
    running = []
    for item in ("a", "b"):
        program = ("sh", "-c", "until test -e gate; do sleep 0.05; done", "{item}")
        running.append(harness.start("exec", item, "--", *program, program="agentos"))
        wait_until(lambda: len(harness.runs()) == len(running) and harness.events("worker_started"))
    older, newer = (run.name for run in harness.runs())
    shown = harness.run("status", program="agentos")
    assert shown.lines[0].startswith(f"Run {newer} ")
    (other,) = [line for line in shown.lines if line.startswith("Also in progress: ")]
    assert older in other and str(harness.project) in other and other.endswith(f"agentos status {older}")
    assert "Also in progress" not in harness.run("status", older, program="agentos").out
    gate.touch()
    assert [each.wait().code for each in running] == [0, 0]
    assert "Also in progress" not in harness.run("status", program="agentos").out


def test_of_many_items_the_good_ones_are_counted_and_the_failures_come_last(harness: RunHarness) -> None:
    names = [f"file-{number}" for number in range(1, 23)]
    ran = harness.run(
        "exec", *names, "-j", 4, "--", "sh", "-c", 'test "$0" != file-3', "{item}", program="agentos"
    )
    assert ran.code == 1
    said = ran.lines_of("COORDINATOR")
    (counted,) = [place for place, line in enumerate(said) if line.startswith("21 finished (list them: ")]
    assert said[counted + 1].startswith("file-3 ") and "failed" in said[counted + 1]
    assert said[counted + 2] == "Execution complete:"
    short, whole, failed = (
        harness.run("status", *flags, program="agentos").lines for flags in ((), ("-v",), ("--failed",))
    )
    assert short[2] == "  21 finished (list them: agentos status -v)" and short[3].startswith("  file-3 ")
    assert [line.split()[0] for line in whole[2:24]] == names
    assert failed[2] == short[3] and not any("finished" in line for line in failed)
    assert short[-1] == failed[-1] == f"It ended with exit code 1. {said[-1]}" and " --failed -- " in said[-1]


@pytest.mark.slow
def test_status_and_logs_are_about_the_project_around_the_current_folder(harness: RunHarness) -> None:
    harness.issues(1)
    assert harness.run("1", "--offline").code == 0
    other = harness.root / "other"
    (other / "issues").mkdir(parents=True)
    harness.issue(2).rename(other / "issues/002-thing.md")
    assert harness.run("2", "--offline", "--repo", other).code == 0
    status = harness.run("status", program="agentos")
    assert "LLD-1" in status.out and "LLD-2" not in status.out, status.out
    assert harness.run("logs", "1", program="agentos").code == 0
