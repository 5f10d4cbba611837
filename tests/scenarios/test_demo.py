"""The demo and its next steps, typed in a shell whose PATH lacks our commands."""

import signal
import subprocess

import pytest

from agentos.cli.demo import demo_folder

from .harness import PROGRAMS, CompletedCommand, RunHarness, wait_until


@pytest.mark.slow
def test_the_demo_runs_without_a_key_and_its_next_steps_can_be_typed(harness: RunHarness) -> None:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(harness.user), "TERM": "dumb"}
    done = subprocess.run(
        [PROGRAMS / "agentos", "demo"],
        cwd=harness.root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "9 approved, 1 needs revision" in done.stdout
    assert len(list((harness.root / "agentos-demo/docs/lld/active").iterdir())) == 9
    assert (
        "Read the results: ls agentos-demo/docs/lld/active agentos-demo/docs/lld/needs-revision"
        in done.stdout
    )

    _, _, next_steps = done.stdout.partition("briefs into issues:\n")
    *commands, last = next_steps.splitlines()
    script = "\n".join([*commands, f"{last} --dry-run"])
    after = subprocess.run(
        ["sh", "-ec", script], cwd=harness.root, env=environment, capture_output=True, text=True, timeout=60
    )
    assert after.returncode == 0, after.stderr
    assert "(lld) has ended" in after.stdout and "ISSUE-23  new" in after.stdout


def demo(harness: RunHarness, *args: object) -> CompletedCommand:
    return harness.run("demo", *args, program="agentos")


def test_a_demo_that_cannot_be_created_is_a_one_line_error(harness: RunHarness) -> None:
    (harness.project / "file").write_text("mine")
    named = demo(harness, "file")
    below, nowhere = demo(harness, "file/x"), demo(harness, "/proc/nowhere")
    assert (named.code, below.code, nowhere.code) == (2, 3, 3)
    assert "is a file" in named.err
    for done, folder in ((below, "file/x"), (nowhere, "/proc/nowhere")):
        (line,) = done.err.splitlines()
        assert line.startswith(f"Error: cannot create a demo in {folder}: ") and line.endswith(
            "agentos demo DIR"
        )
    assert (harness.project / "file").read_text() == "mine"


@pytest.mark.slow
def test_a_second_demo_does_not_touch_one_that_is_starting(harness: RunHarness) -> None:
    first = harness.start("demo", "try", program="agentos")
    folder = harness.project / "try"
    wait_until((folder / ".agentos-demo").exists)
    first.signal(signal.SIGSTOP)
    second = demo(harness, "try")
    assert second.code == 2, second.out + second.err
    assert "a run is in progress in try, so nothing was changed there. Watch it with: " in second.err
    assert "AGENTOS_HOME=try/.agentos-home agentos watch" in second.err
    first.signal(signal.SIGCONT)
    first.wait_for("Executing: N1_design")
    assert demo(harness, "try").code == 2, "refused also once its run has started"
    first.signal(signal.SIGINT)
    assert first.wait().code == 130


def test_a_demo_is_not_recreated_while_another_kind_of_run_uses_it(harness: RunHarness) -> None:
    folder = harness.project / "try"
    folder.mkdir()
    (folder / ".agentos-demo").touch()
    (folder / "issues").mkdir()
    home = str(folder / ".agentos-home")
    running = harness.start("exec", "q", "--", "sh", "-c", "sleep 60", program="agentos", AGENTOS_HOME=home)
    running.wait_for("Starting")
    refused = demo(harness, "try")
    assert refused.code == 2 and "a run is in progress" in refused.err
    assert not list((folder / "issues").iterdir())
    running.signal(signal.SIGINT)
    assert running.wait().code == 130


def test_a_finished_demo_is_recreated_but_another_folder_is_not(harness: RunHarness) -> None:
    folder = harness.project / "try"
    (folder / "old").mkdir(parents=True)
    refused = demo(harness, "try")
    assert refused.code == 2 and "not a demo" in refused.err
    (folder / ".agentos-demo").touch()
    again = harness.start("demo", "try", program="agentos")
    again.wait_for("Executing: N1_design")
    assert (folder / "issues").is_dir() and not (folder / "old").exists()
    again.signal(signal.SIGINT)
    assert again.wait().code == 130


def test_a_finished_demo_with_files_of_the_user_is_moved_aside(harness: RunHarness) -> None:
    folder = harness.project / "try"
    with demo_folder(folder):
        (folder / "docs/lld").mkdir(parents=True)
    with demo_folder(folder):
        assert not (folder / "docs").exists(), "nothing of the user's in it: created again"
        (folder / "notes.txt").write_text("mine")
        next((folder / "issues").glob("041-*.md")).write_text("# Another issue\n")
    with demo_folder(folder):
        assert not (folder / "notes.txt").exists()
    aside = harness.project / "try-1"
    assert (aside / "notes.txt").read_text() == "mine"
    assert next((aside / "issues").glob("041-*.md")).read_text() == "# Another issue\n"
    assert not (harness.project / "try-2").exists()
