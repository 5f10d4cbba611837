"""Another user on the same machine: a real process of another number, and no right to pass over it."""

import contextlib
import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios.harness import RunHarness

THEY = 65533
# Root without what lets it open anybody's files.
POWERLESS = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")


@contextlib.contextmanager
def held_by_another(path: Path, mode: int) -> Iterator[None]:
    """A process of another user holds the lock of this file, which is theirs."""
    path.parent.mkdir(exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    os.fchown(file, THEY, THEY)
    os.fchmod(file, mode)
    said, say = os.pipe()
    heard, leave = os.pipe()
    child = os.fork()
    if child == 0:
        os.setresuid(THEY, THEY, THEY)
        fcntl.flock(file, fcntl.LOCK_EX)
        os.close(leave)
        os.write(say, b"held")
        os.read(heard, 1)
        os._exit(0)
    for descriptor in (file, say, heard):
        os.close(descriptor)
    try:
        assert os.read(said, 4) == b"held"
        assert f"Uid:\t{THEY}\t" in Path(f"/proc/{child}/status").read_text()
        yield
    finally:
        os.close(leave)
        os.close(said)
        os.waitpid(child, 0)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [0o600, 0o666])
def test_a_lock_that_another_user_holds_is_held_and_never_taken(harness: RunHarness, mode: int) -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv (package util-linux), to become another user")
    harness.issues(42, 43)
    server = harness.server()
    path = harness.project / ".locks" / "task-LLD-42.lock"
    with held_by_another(path, mode):
        opened = subprocess.run([*POWERLESS, "cat", path], capture_output=True, check=False)
        assert (opened.returncode == 0) == (mode == 0o666), opened.stderr
        before = path.stat()
        done = harness.start("--all", "--parallel", 2, before=POWERLESS).wait(60)
        assert done.code == 0 and "FAILED" not in done.out, done.out + done.err
        assert harness.document(43).exists() and not harness.document(42).exists()
        assert not server.calls(42) and len(server.answered(43)) == 2
        named = harness.start(42, before=POWERLESS).wait(60)
        assert named.code == 0 and "LLD-42 is being worked on by another process" in named.out
        assert (path.stat().st_ino, path.stat().st_uid) == (before.st_ino, THEY)
    os.chown(path, 0, 0)
    free = harness.start("--all", before=POWERLESS).wait(60)
    assert free.code == 0 and harness.document(42).exists()
