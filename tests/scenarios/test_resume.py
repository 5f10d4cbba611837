"""Printed resume commands work as typed in whatever folder they are read."""

import signal
import subprocess
from pathlib import Path

import pytest

from .harness import CALLS, PROGRAMS, CompletedCommand, RunHarness, wait_until

SECOND_ROUND = r"<feedback[^>]*>\s*[^<\s]"  # in a prompt of the drafter: there is feedback


def read_in(harness: RunHarness, folder: Path, *args: str) -> CompletedCommand:
    done = subprocess.run(
        [PROGRAMS / "agentos", *args],
        cwd=folder,
        env=harness.environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    return CompletedCommand(done.returncode, done.stdout, done.stderr)


def typed_in(harness: RunHarness, folder: Path, command: str) -> CompletedCommand:
    """Run a printed command in a shell without AGENTOS_HOME."""
    around = {name: value for name, value in harness.environment().items() if name != "AGENTOS_HOME"}
    done = subprocess.run(
        ["sh", "-c", command], cwd=folder, env=around, capture_output=True, text=True, timeout=60
    )
    return CompletedCommand(done.returncode, done.stdout, done.stderr)


def interrupted(harness: RunHarness, *args: object) -> None:
    server = harness.server()
    with server.frozen():
        running = harness.start(*args)
        running.wait_for("Executing: N1_design")
        running.signal(signal.SIGINT)
        assert running.wait().code == 130


@pytest.mark.slow
def test_every_command_prints_a_resume_command_for_another_folder(harness: RunHarness) -> None:
    harness.issues(42)
    interrupted(harness, "42", "-j", 3)
    expected = f"(cd project && AGENTOS_HOME={harness.home} lld-workflow 42 -j 3)"
    for args in (["status"], ["wait"], ["watch"], ["stop"], ["pause"]):
        done = read_in(harness, harness.root, *args)
        assert f"Resume with: {expected}" in done.out + done.err, (args, done)
        inside = read_in(harness, harness.project, *args)
        assert "Resume with: lld-workflow 42 -j 3\n" in inside.out + inside.err, (args, inside)
    done = typed_in(harness, harness.root, expected)
    assert done.code == 0 and "resumes at" not in done.err, done
    assert harness.document(42).exists() and not harness.databases()


@pytest.mark.slow
def test_an_interrupted_demo_resumes_from_inside_its_folder(harness: RunHarness) -> None:
    running = harness.start("demo", program="agentos")
    running.wait_for("Executing: N1_design")
    running.signal(signal.SIGINT)
    assert running.wait().code == 130
    inside = harness.project / "agentos-demo"
    home = {"AGENTOS_HOME": str(inside / ".agentos-home")}
    harness.extra_env.update(home)
    command = read_in(harness, inside, "status").lines[-1].partition("Resume with: ")[2]
    assert command.startswith("(cd .. && AGENTOS_HOME=agentos-demo/.agentos-home lld-workflow")
    done = typed_in(harness, inside, command.replace("--all", "--dry-run --all"))
    assert done.code == 0 and "Dry run mode" in done.out, done


def test_watch_from_another_folder_says_where_the_documents_are(harness: RunHarness) -> None:
    harness.issues(42)
    server = harness.server()
    with server.frozen():
        running = harness.start("42")
        running.wait_for("Executing: N1_design")
        watching = subprocess.Popen(
            [PROGRAMS / "agentos", "watch"],
            cwd=harness.root,
            env=harness.environment(),
            stdout=subprocess.PIPE,
        )
        assert watching.stdout and b"Watching" in watching.stdout.readline()
        watching.send_signal(signal.SIGSTOP)  # it then finds the item's last lines and the run's end at once
    assert running.wait().lines[-1] == "[COORDINATOR] Read the results: ls docs/lld/active"
    watching.send_signal(signal.SIGCONT)
    out, _ = watching.communicate(timeout=60)
    last = out.decode().splitlines()[-1]
    assert last == "[COORDINATOR] Read the results: ls project/docs/lld/active"


@pytest.mark.slow
def test_a_parked_item_can_be_decided_and_resumed_from_another_folder(harness: RunHarness) -> None:
    harness.issues(42)
    harness.server()
    assert harness.run("42", "--review", "draft").code == 0
    *_, decide, go_on = read_in(harness, harness.root, "status").lines
    listed = read_in(harness, harness.root, *decide.partition("agentos ")[2].split())
    assert listed.lines[-1] == "Read one and decide: agentos review LLD-42 --repo project"
    args = listed.lines[-1].partition("agentos ")[2].split()
    approved = read_in(harness, harness.root, *args, "--approve")
    assert approved.code == 0 and approved.lines[-1].strip() == go_on.partition("with: ")[2]
    assert typed_in(harness, harness.root, approved.lines[-1]).code == 0
    assert harness.document(42).exists()


def test_resume_starts_an_ended_run_again_with_its_own_command(harness: RunHarness) -> None:
    harness.issues(40, 41)
    interrupted(harness, "40", "--timeout", "7m")
    (first,) = harness.runs()
    elsewhere = harness.root / "elsewhere"
    elsewhere.mkdir()
    refused = read_in(harness, elsewhere, "resume")
    assert refused.code == 5 and "name one with agentos resume RUN" in refused.err
    done = read_in(harness, elsewhere, "resume", first.name)
    assert done.code == 0, done.out + done.err
    assert f"Starting run {first.name} again: (cd {harness.project} && " in done.err
    assert "[LLD-40] Approved after 1 review" in done.out
    assert harness.document(40).exists() and not harness.document(41).exists()
    assert harness.events("run_started")[0]["command"] == "lld-workflow 40 --timeout 7m"


@pytest.mark.slow
def test_resume_without_a_name_takes_the_last_run_of_the_project_and_drops_fresh(harness: RunHarness) -> None:
    harness.issues(40)
    interrupted(harness, "--fresh", "40")
    below = harness.project / "src"
    below.mkdir()
    done = read_in(harness, below, "resume")
    assert done.code == 0 and harness.document(40).exists(), done.out + done.err
    assert done.lines[-1] == "[COORDINATOR] Read the results: ls ../docs/lld/active", "as seen from here"
    assert harness.events("run_started")[0]["command"] == "lld-workflow 40"
    again = read_in(harness, below, "resume")
    assert again.code == 0 and "--fresh" in again.out, "it says how to redo a finished item"


def test_resume_says_why_a_run_cannot_be_started_again(harness: RunHarness) -> None:
    harness.issues(40)
    interrupted(harness, "40")
    harness.project.rename(harness.root / "moved")
    done = read_in(harness, harness.root, "resume", harness.runs()[0].name)
    assert done.code == 3 and "No such file or directory" in done.err and "Traceback" not in done.err


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_redo_of_approved_items_resumes_without_fresh(
    harness: RunHarness, ending: signal.Signals
) -> None:
    harness.issues(2, 3, 4, quality="weak")
    server = harness.server()
    assert harness.run("2-4", "--parallel", 3).code == 0
    before = {number: harness.document(number).read_bytes() for number in (2, 3, 4)}
    answered = len(server.answered())
    server.add_fault(kind="hang", role="draft", matching=SECOND_ROUND, times=2)
    running = harness.start("2-4", "--fresh", "--parallel", 2)
    wait_until(lambda: running.out.count("Executing: N1_design") == 4)
    running.signal(ending)
    done = running.wait()
    server.clear_faults()
    assert done.code == (130 if ending is signal.SIGINT else -ending)
    if ending is signal.SIGINT:
        *_, left, last = done.lines_of("COORDINATOR")
        assert left == "Not redone: LLD-4; redo it with --fresh 4"
        resume = "lld-workflow 2-4 --parallel 2; lld-workflow 4 --fresh --parallel 2"
        assert last == f"Everything is saved. Resume with: {resume}"
    status = harness.run("status", program="agentos").lines
    assert status[-2] == "Not redone: LLD-4; redo it with --fresh 4", status
    assert "  LLD-4  not started" in status
    report = harness.run("report", program="agentos").out
    assert ending is signal.SIGINT or "Not redone: LLD-4; redo it with --fresh 4" in report
    assert len(server.answered()) - answered == 4
    listed = harness.run("--all", "--dry-run")
    assert listed.out.count("resumes at N1_design") == 2, listed.out
    assert {number: harness.document(number).read_bytes() for number in before} == before
    resumed = harness.run("2-4", "--parallel", 2)
    assert resumed.code == 0 and "LLD-4 is already approved; redo it with --fresh 4" in resumed.out, resumed
    assert "N0_load_issue" not in resumed.out, "finished nodes do not run again"
    assert len(server.answered()) - answered == 2 * CALLS["weak"]
    assert resumed.out.count("Executing: N4_finalize") == 2, "each document is replaced once"
    assert harness.document(2).stat().st_mtime > harness.document(4).stat().st_mtime
    assert harness.databases() == [] and not list((harness.project / "docs/lineage/active").iterdir())
    assert "already approved" in harness.run("2").out


@pytest.mark.slow
def test_resume_also_redoes_what_an_interrupted_redo_did_not_come_to(harness: RunHarness) -> None:
    harness.issues(2, 3)
    server = harness.server()
    assert harness.run("--all").code == 0
    with server.frozen():
        running = harness.start("-j", "1", "2-3", "--fresh")
        wait_until(lambda: len(harness.runs()) == 2 and harness.events("lease_granted"))
        running.signal(signal.SIGINT)
        last = running.wait().lines[-1]
    assert last.endswith("Resume with: lld-workflow -j 1 2-3; lld-workflow -j 1 3 --fresh")
    again = harness.run("resume", program="agentos")
    assert again.code == 0 and again.lines_of("LLD-2").count(">>> Executing: N4_finalize") == 1
    assert again.lines_of("LLD-3").count(">>> Executing: N4_finalize") == 1


@pytest.mark.slow
def test_a_redo_is_dropped_when_its_document_has_changed(harness: RunHarness) -> None:
    harness.issues(40)
    harness.server()
    assert harness.run("40").code == 0
    interrupted(harness, "40", "--fresh")
    assert "resumes at N1_design" in harness.run("40", "--dry-run").out
    harness.document(40).write_text("A person wrote this.\n")
    done = harness.run("40")
    assert "LLD-40 is already approved" in done.out and harness.databases() == []
    assert harness.document(40).read_text() == "A person wrote this.\n"


@pytest.mark.slow
def test_an_issue_that_changes_while_its_design_is_written_is_named(harness: RunHarness) -> None:
    path = harness.issue(40)
    server = harness.server()
    with server.frozen():
        running = harness.start("40")
        running.wait_for("Executing: N1_design")
        path.write_text(path.read_text() + "\n- And a fourth row.\n")
    changed = "issues/040-thing.md has changed"
    assert (
        f"[LLD-40] {changed} in the meantime, and this design is based on the earlier text"
        in running.wait().out
    )
    known = f"[COORDINATOR] LLD-40 is approved, but {changed} since; redo it with --fresh 40"
    assert known in harness.run("--all").lines and known in harness.run("--all", "--dry-run").lines
    harness.issue(40, "hopeless")
    redone = harness.run("40", "--fresh")
    assert "The approved design of before stays: docs/lld/active/LLD-040.md" in redone.lines_of("LLD-40")
    assert harness.revision(40).exists() and known in harness.run("40").lines


@pytest.mark.slow
def test_a_redo_that_waits_for_a_person_goes_on_after_the_decision(harness: RunHarness) -> None:
    harness.issues(40)
    harness.server()
    assert harness.run("40").code == 0
    assert harness.run("40", "--fresh", "--review", "draft").code == 0
    assert "LLD-40" in harness.run("--all").out and harness.databases(), "it waits; nothing is deleted"
    assert harness.run("review", "LLD-40", "--approve", program="agentos").code == 0
    done = harness.run("40")
    assert done.code == 0 and "[LLD-40] Approved after 1 review" in done.out, done
    assert not harness.databases()
