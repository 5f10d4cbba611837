"""Locks held by a process of another user, seen by a run without the privilege to override permissions."""

import contextlib
import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios.harness import RunHarness

OTHER_UID = 65533
# Root without the capabilities that bypass file permissions.
UNPRIVILEGED = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")


@contextlib.contextmanager
def held_by_another(path: Path, mode: int) -> Iterator[None]:
    """A process of another user owns this file and holds its lock."""
    path.parent.mkdir(exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    os.fchown(file, OTHER_UID, OTHER_UID)
    os.fchmod(file, mode)
    ready_read, ready_write = os.pipe()
    exit_read, exit_write = os.pipe()
    child = os.fork()
    if child == 0:
        os.setresuid(OTHER_UID, OTHER_UID, OTHER_UID)
        fcntl.flock(file, fcntl.LOCK_EX)
        os.close(exit_write)
        os.write(ready_write, b"held")
        os.read(exit_read, 1)
        os._exit(0)
    for descriptor in (file, ready_write, exit_read):
        os.close(descriptor)
    try:
        assert os.read(ready_read, 4) == b"held"
        assert f"Uid:\t{OTHER_UID}\t" in Path(f"/proc/{child}/status").read_text()
        yield
    finally:
        os.close(exit_write)
        os.close(ready_read)
        os.waitpid(child, 0)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [0o600, 0o666])
def test_a_lock_held_by_another_user_is_respected(harness: RunHarness, mode: int) -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv (package util-linux) to become another user")
    harness.issues(42, 43)
    server = harness.server()
    path = harness.project / ".locks" / "task-LLD-42.lock"
    with held_by_another(path, mode):
        opened = subprocess.run([*UNPRIVILEGED, "cat", path], capture_output=True, check=False)
        assert (opened.returncode == 0) == (mode == 0o666), opened.stderr
        before = path.stat()
        done = harness.start("--all", "--parallel", 2, before=UNPRIVILEGED).wait(60)
        assert done.code == 0 and "FAILED" not in done.out, done.out + done.err
        assert harness.document(43).exists() and not harness.document(42).exists()
        assert not server.calls(42) and len(server.answered(43)) == 2
        named = harness.start(42, before=UNPRIVILEGED).wait(60)
        assert named.code == 0 and "LLD-42 is being worked on by another process" in named.out, named.out
        assert (path.stat().st_ino, path.stat().st_uid) == (before.st_ino, OTHER_UID)
    os.chown(path, 0, 0)
    free = harness.start("--all", before=UNPRIVILEGED).wait(60)
    assert free.code == 0 and harness.document(42).exists()
