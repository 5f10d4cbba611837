"""The demo, and what it says to type next, by somebody whose shell does not know our commands."""

import signal
import subprocess

import pytest

from .harness import PROGRAMS, CompletedCommand, RunHarness, wait_until


@pytest.mark.slow
def test_the_demo_runs_without_a_key_and_what_it_says_can_be_typed(harness: RunHarness) -> None:
    stranger = {"PATH": "/usr/bin:/bin", "HOME": str(harness.user), "TERM": "dumb"}
    done = subprocess.run(
        [PROGRAMS / "agentos", "demo"],
        cwd=harness.root,
        env=stranger,
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
    *looking, last = next_steps.splitlines()
    typed = "\n".join([*looking, f"{last} --dry-run"])
    after = subprocess.run(
        ["sh", "-ec", typed], cwd=harness.root, env=stranger, capture_output=True, text=True, timeout=60
    )
    assert after.returncode == 0, after.stderr
    assert "(lld) has ended" in after.stdout and "ISSUE-23  new" in after.stdout


def demo(harness: RunHarness, *words: object) -> CompletedCommand:
    return harness.run("demo", *words, program="agentos")


def test_a_demo_that_cannot_be_made_is_one_line(harness: RunHarness) -> None:
    (harness.project / "file").write_text("mine")
    named = demo(harness, "file")
    below, nowhere = demo(harness, "file/x"), demo(harness, "/proc/nowhere")
    assert (named.code, below.code, nowhere.code) == (2, 3, 3)
    assert "is a file" in named.err
    for done, place in ((below, "file/x"), (nowhere, "/proc/nowhere")):
        (line,) = done.err.splitlines()
        assert line.startswith(f"Error: cannot create a demo in {place}: ") and line.endswith(
            "agentos demo DIR"
        )
    assert (harness.project / "file").read_text() == "mine"


@pytest.mark.slow
def test_a_second_demo_leaves_one_that_still_starts_alone(harness: RunHarness) -> None:
    first = harness.start("demo", "try", program="agentos")
    place = harness.project / "try"
    wait_until((place / ".agentos-demo").exists)
    first.signal(signal.SIGSTOP)
    second = demo(harness, "try")
    assert second.code == 2, second.out + second.err
    assert f"a run is in progress in {place}, so nothing was changed there. Watch it with: " in second.err
    assert "AGENTOS_HOME=try/.agentos-home agentos watch" in second.err
    first.signal(signal.SIGCONT)
    first.wait_for("Executing: N1_design")
    assert demo(harness, "try").code == 2, "also when its run has begun"
    first.signal(signal.SIGINT)
    assert first.wait().code == 130


def test_a_demo_is_not_made_anew_around_another_kind_of_run(harness: RunHarness) -> None:
    place = harness.project / "try"
    place.mkdir()
    (place / ".agentos-demo").touch()
    (place / "issues").mkdir()
    home = str(place / ".agentos-home")
    running = harness.start("exec", "q", "--", "sh", "-c", "sleep 60", program="agentos", AGENTOS_HOME=home)
    running.wait_for("Starting")
    refused = demo(harness, "try")
    assert refused.code == 2 and "a run is in progress" in refused.err
    assert not list((place / "issues").iterdir())
    running.signal(signal.SIGINT)
    assert running.wait().code == 130


def test_a_finished_demo_is_made_anew_and_a_stranger_s_folder_is_not(harness: RunHarness) -> None:
    place = harness.project / "try"
    (place / "old").mkdir(parents=True)
    refused = demo(harness, "try")
    assert refused.code == 2 and "not a demo" in refused.err
    (place / ".agentos-demo").touch()
    again = harness.start("demo", "try", program="agentos")
    again.wait_for("Executing: N1_design")
    assert (place / "issues").is_dir() and not (place / "old").exists()
    again.signal(signal.SIGINT)
    assert again.wait().code == 130
