"""Faults of the machine: no processes, no descriptors, huge files, wrong clocks, replaced packages."""

import contextlib
import os
import pickle
import shutil
import signal
import sqlite3
import time
from pathlib import Path

import pytest
from bench.scale import make_project

from tests.scenarios.harness import RunHarness, wait_until

from .shim import shim_for

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_suspended_worker_is_killed_on_timeout_and_its_item_resumes(harness: RunHarness) -> None:
    harness.issue(42)
    server = harness.server(fault={"kind": "hang", "role": "review"})
    running = harness.start("--all", "--timeout", "4s")
    wait_until(lambda: [call["role"] for call in server.calls()] == ["draft", "review"])
    os.kill(harness.worker("LLD-42"), signal.SIGSTOP)
    done = running.wait(40)
    assert done.code == 0 and "ran out of time (--timeout)" in done.out and "attempt 2 of 3" in done.out
    assert [call["role"] for call in server.answered()] == ["draft", "review"], "it started over"
    assert harness.document(42).exists()


def test_a_suspended_coordinator_continues_when_resumed(harness: RunHarness) -> None:
    harness.issues(42, 43)
    server = harness.server("--latency", "0.3,0.3")
    running = harness.start("--all", "--parallel", 2)
    wait_until(lambda: bool(server.calls()))
    running.signal(signal.SIGSTOP)
    time.sleep(1.5)
    running.signal(signal.SIGCONT)
    assert running.wait().code == 0
    assert harness.document(42).exists() and harness.document(43).exists() and not server.repeated_prompts()


@pytest.mark.slow
def test_a_run_that_cannot_fork_says_so_and_retries(harness: RunHarness) -> None:
    harness.issues(42, 43)
    server = harness.server()
    shim = shim_for(harness)
    done = harness.run("--all", "--parallel", 2, **shim.environment(forks=6))
    assert shim.failed_forks >= 6 and done.code == 0, done.out + done.err
    assert "failed 3 times in a row" in done.out and "Resource temporarily unavailable" in done.out
    assert len(server.answered()) == 4 and {e["attempts"] for e in harness.events("item_ended")} == {1}


@pytest.mark.slow
def test_a_run_that_can_fork_only_one_worker_continues_with_one(harness: RunHarness) -> None:
    harness.issues(42, 43, 44)
    server = harness.server()
    shim = shim_for(harness)
    done = harness.run("--all", "--parallel", 2, **shim.environment(room=1))
    assert shim.failed_forks >= 3 and done.code == 0, done.out + done.err
    assert (
        "failed 3 times in a row (Resource temporarily unavailable: raise the limit of processes" in done.out
    )
    assert len(server.answered()) == 6 and server.ledger()["max_concurrent_all"] == 1
    assert {event["attempts"] for event in harness.events("item_ended")} == {1}


@pytest.mark.slow
def test_a_run_that_can_never_fork_gives_the_reason_and_can_be_stopped(harness: RunHarness) -> None:
    harness.issue(42)
    server = harness.server()
    shim = shim_for(harness)
    running = harness.start("--all", **shim.environment(forks=10**6))
    running.wait_for(
        "failed 3 times in a row (Resource temporarily unavailable: raise the limit of processes"
    )
    running.signal(signal.SIGINT)
    assert running.wait().code == 130 and not server.calls()


@pytest.mark.slow
@pytest.mark.parametrize("descriptors", [8, 30, pytest.param(24, marks=pytest.mark.long)])
def test_running_out_of_descriptors_is_a_clear_error_and_not_reported_as_a_lock(
    harness: RunHarness, descriptors: int
) -> None:
    harness.issues(*range(40, 46))
    server = harness.server()
    limit = ("prlimit", f"--nofile={descriptors}:{descriptors}") if shutil.which("prlimit") else ()
    if not limit:
        pytest.skip("needs prlimit (package util-linux) to limit descriptors")
    with server.frozen():
        running = harness.start("--all", "--parallel", 6, "--retries", 0, before=limit)
        wait_until(lambda: "Too many open files" in running.out + running.err)
    done = running.wait(60)
    output = done.out + done.err
    assert "being worked on" not in output and "another run" not in output
    assert "Too many open files" in output and "Traceback" not in output, output
    assert done.code == (3 if descriptors == 8 else done.code), output
    assert harness.run("--all", "--parallel", 3).code == 0
    assert all(harness.document(number).exists() for number in range(40, 46))


class _Exploit:
    def __init__(self, marker: str) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self._marker}",)


@pytest.mark.slow
def test_code_in_a_tampered_checkpoint_is_not_executed(harness: RunHarness) -> None:
    import ormsgpack

    harness.issues(42, 43, 44)
    harness.server(fault={"kind": "400", "role": "review", "times": 3})
    assert harness.run("--all").code == 1
    marker = harness.root / "executed"
    call = ormsgpack.packb(("os", "system", f"touch {marker}"))
    blobs = {
        42: ("msgpack", ormsgpack.packb(ormsgpack.Ext(0, call))),
        43: ("pickle", pickle.dumps(_Exploit(str(marker)))),
        44: (
            "json",
            b'{"lc": 2, "type": "constructor", "id": ["os", "system"], "args": ["touch '
            + str(marker).encode()
            + b'"]}',
        ),
    }
    for number, (kind, blob) in blobs.items():
        database = next(harness.home.glob(f"checkpoints/*/lld_workflow_{number}.db"))
        with contextlib.closing(sqlite3.connect(database)) as connection:
            changed = connection.execute(
                "UPDATE checkpoints SET type = ?, checkpoint = ?", (kind, blob)
            ).rowcount
            connection.execute("UPDATE writes SET type = ?, value = ?", (kind, blob))
            connection.commit()
        assert changed > 0
    done = harness.run("--all", "--retries", 0)
    assert not marker.exists()
    assert done.code == 1 and "its state contains an object of type os.system" in done.out, (
        "the planted blob was not read"
    )
    assert "3 failed (LLD-42, LLD-43, LLD-44)" in done.out


@pytest.mark.slow
@pytest.mark.parametrize("jump", [600, -7200])
def test_a_clock_jump_changes_neither_backoff_nor_durations(harness: RunHarness, jump: int) -> None:
    harness.issues(42, 43)
    fault = {"kind": "429-minute", "nth": 1, "times": 1, "retry_delay": 3}
    server = harness.server("--latency", "0.2,0.2", keys=("canary-only-one-41aa",), fault=fault)
    shim = shim_for(harness)
    running = harness.start("--all", **shim.environment())
    running.wait_for("Backing off for 3s")
    shim.shift_clock(jump)
    done = running.wait(40)
    assert done.code == 0, done.out
    first, second = server.calls()[:2]
    assert 2.8 <= second["started"] - first["started"] < 10
    assert 3 <= harness.summary()["seconds"] < 40
    assert 3 <= harness.events("run_ended")[0]["seconds"] < 40


@pytest.mark.slow
@pytest.mark.parametrize("year", [1970, 2100])
def test_a_run_works_with_a_clock_in_another_century(harness: RunHarness, year: int) -> None:
    harness.issues(42, 43)
    harness.server()
    ahead = int((year - 1970) * 365.2425 * 86400 + 7200 - time.time())
    shim = shim_for(harness)
    done = harness.run("--all", "--parallel", 2, **shim.environment(clock=ahead))
    assert done.code == 0, done.out + done.err
    assert harness.document(42).exists() and harness.document(43).exists()
    assert harness.runs()[-1].name.startswith(str(year)) or harness.runs()[-1].name.startswith(str(year - 1))
    assert harness.run("status", program="agentos", **shim.environment(clock=ahead)).code == 0


@pytest.mark.slow
def test_an_issue_of_200_megabytes_fails_alone_without_being_read(harness: RunHarness) -> None:
    harness.issue(42)
    with open(harness.project / "issues" / "043-huge.md", "wb") as file:
        file.write(b"# Huge\n\ntext\n")
        file.truncate(200 * 1024 * 1024)
    server = harness.server("--latency", "0.5,0.5")
    running = harness.start("--all", "--parallel", 2)
    wait_until(lambda: bool(server.calls()))
    peak = _peak_memory(running.pid)
    done = running.wait()
    assert done.code == 1 and "[LLD-43] FAILED: Invalid spec format" in done.lines
    assert harness.document(42).exists() and 20 * 1024 < peak < 150 * 1024


@pytest.mark.long
def test_ten_thousand_items_fit_into_a_small_coordinator(harness: RunHarness) -> None:
    shutil.rmtree(harness.project)
    make_project(harness.root, 10_000)
    server = harness.server("--latency", "0.2,0.2")
    running = harness.start("--all", "--parallel", 2)
    wait_until(lambda: len(server.answered()) > 20, 120)
    running.signal(signal.SIGINT)
    peak = 0
    while running.process.poll() is None:
        peak = max(peak, _peak_memory(running.pid))
        time.sleep(0.02)
    assert running.wait().code == 130 and 20 * 1024 < peak < 150 * 1024, peak
    done = len(list(harness.project.glob("docs/lld/active/*.md")))
    listed = harness.run("--all", "--dry-run")
    assert f"would process {10_000 - done} items" in listed.out and done > 0


def _peak_memory(pid: int) -> int:
    """The peak memory of a process in KiB; 0 once it has exited."""
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/status").read_text().split("VmHWM:")[1].split()[0])
    return 0


@pytest.mark.slow
def test_replacing_the_package_during_a_run_does_not_affect_it(harness: RunHarness) -> None:
    copy = harness.root / "copy" / "agentos"
    shutil.copytree(ROOT / "src" / "agentos", copy)
    harness.issues(42, 43, 44)
    server = harness.server("--latency", "0.4,0.4")
    running = harness.start("--all", "--parallel", 2, PYTHONPATH=str(copy.parent))
    wait_until(lambda: len(server.calls()) >= 1, 40)
    with server.frozen():
        for path in copy.rglob("*"):
            if path.is_file():
                path.write_text("raise SystemError('replaced during a run')\n")
        another = harness.run("--all", PYTHONPATH=str(copy.parent))
    assert another.code == 1 and "replaced during a run" in another.err, "runs do not load the replaced copy"
    done = running.wait(60)
    assert done.code == 0, done.out + done.err
    assert "replaced during a run" not in done.out + done.err
    assert all(harness.document(number).exists() for number in (42, 43, 44)) and len(server.answered()) == 6
