"""Other systems: the calls that only Linux has replaced by portable ones, /proc hidden, the coordinator as PID 1."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from agentos.platform_support import PosixPlatform, platform
from tests.scenarios.harness import ProcessHandle, RunHarness, command_line, wait_until

PORTABLE = {"AGENTOS_PORTABLE": "1"}
PID_NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child")
WITHOUT_PROC = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs tmpfs /proc && exec "$@"', "sh")


def has_namespaces() -> bool:
    return subprocess.run([*PID_NAMESPACE, "true"], capture_output=True, check=False).returncode == 0


needs_namespaces = pytest.mark.skipif(not has_namespaces(), reason="needs namespaces (run as root)")


PID_1 = (*PID_NAMESPACE, "--mount-proc")
PID_1_WITHOUT_PROC = (*PID_NAMESPACE, *WITHOUT_PROC)


@pytest.mark.parametrize(
    ("before", "calls"),
    [
        pytest.param(PID_NAMESPACE, {}, id="pid-1-with-the-outer-proc"),
        pytest.param(WITHOUT_PROC, {}, id="without-proc"),
        pytest.param(PID_1, PORTABLE, id="portable-pid-1"),
        pytest.param(PID_1, {}, id="pid-1", marks=pytest.mark.slow),
        pytest.param(PID_1_WITHOUT_PROC, {}, id="pid-1-without-proc", marks=pytest.mark.slow),
        pytest.param(WITHOUT_PROC, PORTABLE, id="portable-without-proc", marks=pytest.mark.slow),
        pytest.param(PID_1_WITHOUT_PROC, PORTABLE, id="portable-pid-1-without-proc", marks=pytest.mark.slow),
    ],
)
@needs_namespaces
def test_a_run_in_a_container_finishes_and_leaves_nothing(
    harness: RunHarness, before: tuple[str, ...], calls: dict[str, str]
) -> None:
    harness.issues(1, 2)
    server = harness.server()
    with server.frozen():
        running = harness.start("--all", "--parallel", 2, before=before, **calls, stdout=None)
        running.wait_for("[LLD-2] >>> Executing: N1_design", 60)
        processes = running.processes()
    assert running.wait(60).code == 0, running.out + running.err
    assert harness.document(1).exists() and harness.document(2).exists() and not server.repeated_prompts()
    wait_until(lambda: not any(process.alive for process in processes), 5)


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["coordinator", "fork server", "suspended fork server", "worker"])
def test_without_parent_death_signals_no_worker_outlives_its_parents(
    harness: RunHarness, victim: str
) -> None:
    harness.issues(1, 2)
    server = harness.server()
    with server.frozen():
        running = harness.start("--all", "--parallel", 2, stdout=None, before=(), **PORTABLE)
        running.wait_for("[LLD-2] >>> Executing: N1_design", 60)
        processes, workers = running.processes(), [harness.worker("LLD-1"), harness.worker("LLD-2")]
        fork_server = _fork_server(processes)
        if victim == "worker":
            os.kill(workers[0], signal.SIGKILL)
            wait_until(lambda: "attempt 2 of 3" in running.out, 20)
        elif victim == "fork server":
            os.kill(fork_server, signal.SIGKILL)
            wait_until(lambda: not any(mark.alive for mark in processes if mark.pid in workers), 5)
        else:
            if victim == "suspended fork server":
                os.kill(fork_server, signal.SIGSTOP)
            running.signal(signal.SIGKILL)
            wait_until(lambda: not any(mark.alive for mark in processes), 10)
    if victim in ("worker", "fork server"):
        assert running.wait(60).code == 0, running.out + running.err
    else:
        assert harness.run("--all", "--parallel", 2, **PORTABLE).code == 0
    assert harness.document(1).exists() and harness.document(2).exists()


def _fork_server(processes: list[ProcessHandle]) -> int:
    """The first of the two processes with its command line: the second is the reaper, which it has forked."""
    return next(mark.pid for mark in processes if "agentos.engines.template" in command_line(mark.pid))


def test_a_suspended_run_is_recognised_with_ps(harness: RunHarness) -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        assert not PosixPlatform().is_stopped(child.pid)
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        assert PosixPlatform().is_stopped(child.pid) and platform().is_stopped(child.pid)
    finally:
        child.kill()
        child.wait()
    assert not PosixPlatform().is_stopped(child.pid) and not platform().is_stopped(child.pid)


def test_the_portable_boot_id_is_stable_and_follows_the_wall_clock() -> None:
    calls = PosixPlatform()
    assert abs(int(calls.boot_id()[3:]) - int(calls.boot_id()[3:])) <= 1
    assert 0 < calls.host_clock() <= platform().host_clock() + 1


def test_the_memory_that_is_available_is_less_than_the_machine_has() -> None:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for calls in (platform(), PosixPlatform()):
        found = calls.available_memory()
        assert found is not None and 0 < found <= total


def test_a_control_socket_works_in_a_folder_of_any_depth(harness: RunHarness, tmp_path: Path) -> None:
    deep = tmp_path / ("a" * 60) / ("b" * 60)
    harness.issues(1)
    server = harness.server()
    with server.frozen():
        running = harness.start("--all", AGENTOS_HOME=str(deep))
        running.wait_for("Executing: N1_design", 60)
        stopped = harness.run("stop", program="agentos", AGENTOS_HOME=str(deep))
        assert stopped.code == 0, stopped.err
    assert running.wait(30).code == 143


@needs_namespaces
@pytest.mark.parametrize("words", [("--all", "--offline"), ("--all",)], ids=["offline", "with-keys"])
def test_a_read_only_container_is_one_clear_line(harness: RunHarness, words: tuple[str, ...]) -> None:
    harness.issues(1)
    harness.server()
    script = (
        "for folder in / /tmp /var/tmp $1; do mount --bind $folder $folder && mount -o remount,ro,bind $folder; "
        'done; shift; cd . && exec "$@"'
    )
    before = ("unshare", "-m", "sh", "-c", script, "sh", str(harness.root))
    done = harness.start(*words, before=before, TERM="", LANG="C").wait(30)
    assert done.code == 3 and done.err.count("\n") == 1, done.out + done.err
    assert f"{harness.project} is on a read-only file system: mount it writable" in done.err
    assert "chmod" not in done.err


@needs_namespaces
def test_a_read_only_home_is_named(harness: RunHarness) -> None:
    harness.issues(1)
    harness.home.mkdir(mode=0o700)
    script = 'mount --bind $1 $1 && mount -o remount,ro,bind $1; shift; exec "$@"'
    before = ("unshare", "-m", "sh", "-c", script, "sh", str(harness.home))
    done = harness.start("--all", "--offline", before=before).wait(30)
    assert done.code == 3 and done.err.count("\n") == 1, done.out + done.err
    assert f"cannot write to the home folder {harness.home}: Read-only file system" in done.err
