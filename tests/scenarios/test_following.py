"""What one terminal reads of a run that another has started."""

import subprocess

from .stage import PROGRAMS, Stage, until


def test_a_log_that_is_still_to_come_is_followed_by_its_items_number(stage: Stage) -> None:
    stage.issues(40, 41)
    assert stage.run(41, "--offline").code == 0
    stage.document(41).unlink()
    with stage.server().holding():
        running = stage.start("--all")
        running.says("[LLD-40] >>> Executing")
        following = stage.start("logs", "-f", "41", program="agentos")
        assert not following.out and following.process.poll() is None
    assert running.end().code == 0
    told = following.end()
    assert told.code == 0 and told.out == (stage.home / "logs/parallel/latest/LLD-41.log").read_text()
    unknown = stage.run("logs", "-f", "99", program="agentos")
    assert unknown.code == 5 and "no run has a log of '99'; the last one has: LLD-40, LLD-41" in unknown.err


def test_watching_ends_when_nobody_reads_it(stage: Stage) -> None:
    stage.issues(40)
    with stage.server().holding():
        running = stage.start("--all")
        until(lambda: stage.events("LeaseGranted"))
        watching = subprocess.Popen(
            [PROGRAMS / "agentos", "watch", "--display", "plain"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=stage.project,
            env=stage.environment(),
        )
        assert watching.stdout and b"Watching run" in watching.stdout.readline()
        watching.stdout.close()
        assert watching.wait(20) == 0 and watching.stderr and watching.stderr.read() == b""
        watching.stderr.close()
        assert running.process.poll() is None
    assert running.end().code == 0
