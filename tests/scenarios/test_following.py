"""What one terminal reads of a run that another has started."""

import subprocess

import pytest

from .harness import PROGRAMS, RunHarness, wait_until


@pytest.mark.slow
def test_a_log_that_is_still_to_come_is_followed_by_its_items_number(harness: RunHarness) -> None:
    harness.issues(40, 41)
    assert harness.run(41, "--offline").code == 0
    harness.document(41).unlink()
    with harness.server().frozen():
        running = harness.start("--all")
        running.wait_for("[LLD-40] >>> Executing")
        following = harness.start("logs", "-f", "41", program="agentos")
        assert not following.out and following.process.poll() is None
    assert running.wait().code == 0
    told = following.wait()
    assert told.code == 0 and told.out == (harness.home / "logs/parallel/latest/LLD-41.log").read_text()
    unknown = harness.run("logs", "-f", "99", program="agentos")
    assert (
        unknown.code == 5
        and "no run has a log of '99'; items logged in the last run: LLD-40, LLD-41" in unknown.err
    )


@pytest.mark.slow
def test_watching_ends_when_nobody_reads_it(harness: RunHarness) -> None:
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
