"""A project changed by others during a run: cleaned by git, shared by a group, its programs killed."""

import os
import shutil
import signal
import stat
from pathlib import Path

import pytest

from agentos.storage.files import ProjectFolder
from agentos.storage.locks import Holder, ItemLocks, LockFile, is_locked

from .harness import RunHarness, wait_until


def test_lock_files_removed_by_git_clean_still_exclude_other_runs(harness: RunHarness) -> None:
    harness.issues(1)
    server = harness.server()
    with server.frozen():
        first = harness.start("1")
        first.wait_for("Executing: N1_design", 60)
        shutil.rmtree(harness.project / ".locks")
        second = harness.run("1")
    assert second.code == 0 and "Executing" not in second.out, second.out
    assert first.wait(60).code == 0
    assert harness.document(1).exists() and not server.repeated_prompts()


def test_a_lock_file_that_was_replaced_is_noticed(tmp_path: Path) -> None:
    lock = LockFile(tmp_path / "x.lock")
    assert lock.acquire() and lock.is_current() and is_locked(lock.path)
    lock.path.unlink()
    assert not lock.is_current() and not is_locked(lock.path)
    other = LockFile(tmp_path / "x.lock")
    assert other.acquire() and other.is_current() and not lock.is_current()


@pytest.mark.parametrize(
    ("umask", "folder_mode", "file_mode"), [(0o002, 0o770, 0o660), (0o022, 0o750, 0o640)]
)
def test_project_files_follow_the_umask(tmp_path: Path, umask: int, folder_mode: int, file_mode: int) -> None:
    before = os.umask(umask)
    try:
        ProjectFolder(tmp_path).write("docs/lld/active/LLD-001.md", b"x")
        locks = ItemLocks(tmp_path)
        locks.prepare()
        lock = locks.acquire("LLD-1", Holder(1, "run"))
    finally:
        os.umask(before)
    assert lock
    lock.release()

    def mode(name: str) -> int:
        return stat.S_IMODE((tmp_path / name).stat().st_mode)

    assert mode(".locks") == folder_mode and mode(".locks/task-LLD-1.lock") == file_mode
    assert mode("docs/lld") == 0o777 & ~umask and mode("docs/lld/active/LLD-001.md") == 0o666 & ~umask


def test_a_program_is_killed_with_its_worker_even_while_the_fork_server_is_suspended(
    harness: RunHarness,
) -> None:
    script = harness.project / "agent.sh"
    script.write_text(
        "#!/bin/sh\necho $$ >> pids\nwhile [ ! -e go ]; do sleep 0.05; done\necho done >> done\n"
    )
    script.chmod(0o755)
    args = ("exec", "one", "--no-gateway", "--", "./agent.sh", "{item}")
    running = harness.start(*args, program="agentos")
    pids = harness.project / "pids"
    wait_until(lambda: pids.exists() and bool(pids.read_text()), 60)
    program = int(pids.read_text().split()[0])
    worker = int(Path(f"/proc/{program}/stat").read_text().rpartition(") ")[2].split()[1])
    template = int(Path(f"/proc/{worker}/stat").read_text().rpartition(") ")[2].split()[1])
    os.kill(template, signal.SIGSTOP)
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{program}").exists() or _is_dead(program), 10)
    running.signal(signal.SIGKILL)
    os.kill(template, signal.SIGKILL)
    (harness.project / "go").touch()
    again = harness.start(*args, program="agentos").wait(60)
    assert again.code == 0, again.out + again.err
    assert (harness.project / "done").read_text().split() == ["done"]


def _is_dead(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] in "ZX"
    except FileNotFoundError:
        return True


def test_a_program_killed_by_a_real_time_signal_is_a_failure_with_its_number(harness: RunHarness) -> None:
    done = harness.run(
        *("exec", "one", "--retries", "0", "--no-gateway", "--", "sh", "-c", "kill -40 $$"), program="agentos"
    )
    assert done.code == 1 and "killed by signal 40" in done.out and "Traceback" not in done.out + done.err
