"""Following a run from another terminal."""

import subprocess

import pytest

from .harness import PROGRAMS, RunHarness, wait_until


@pytest.mark.slow
def test_a_log_that_does_not_exist_yet_can_be_followed_by_item_number(harness: RunHarness) -> None:
    harness.issues(40, 41)
    assert harness.run(41, "--offline").code == 0
    harness.document(41).unlink()
    with harness.server().frozen():
        running = harness.start("--all")
        running.wait_for("[LLD-40] >>> Executing")
        following = harness.start("logs", "-f", "41", program="agentos")
        assert not following.out and following.process.poll() is None
    assert running.wait().code == 0
    followed = following.wait()
    run = harness.runs()[-1].name
    assert harness.run("wait", run, program="agentos").code == 0
    assert (
        followed.code == 0 and followed.out == (harness.home / "logs/parallel/latest/LLD-41.log").read_text()
    )
    unknown = harness.run("logs", "-f", "99", program="agentos")
    assert (
        unknown.code == 5
        and "no run has a log of '99'; items logged in the last run: LLD-40, LLD-41" in unknown.err
    )


@pytest.mark.slow
def test_watch_exits_when_its_reader_goes_away(harness: RunHarness) -> None:
    harness.issues(40)
    with harness.server().frozen():
        running = harness.start("--all")
        wait_until(lambda: harness.events("lease_granted"))
        watching = subprocess.Popen(
            [PROGRAMS / "agentos", "watch", "--display", "plain"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=harness.project,
            env=harness.environment(),
        )
        assert watching.stdout and b"Watching run" in watching.stdout.readline()
        watching.stdout.close()
        assert watching.wait(20) == 0 and watching.stderr and watching.stderr.read() == b""
        watching.stderr.close()
        assert running.process.poll() is None
    assert running.wait().code == 0
