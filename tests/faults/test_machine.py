"""What the machine refuses or plays: processes, descriptors, memory, clocks, users, packages."""

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
def test_a_worker_that_stands_still_for_ever_is_killed_and_its_item_goes_on(harness: RunHarness) -> None:
    harness.issue(42)
    server = harness.server(fault={"kind": "hang", "role": "review"})
    running = harness.start("--all", "--timeout", "4s")
    wait_until(lambda: [call["role"] for call in server.calls()] == ["draft", "review"])
    os.kill(harness.worker("LLD-42"), signal.SIGSTOP)
    done = running.wait(40)
    assert done.code == 0 and "ran out of time (--timeout)" in done.out and "attempt 2 of 3" in done.out
    assert [call["role"] for call in server.answered()] == ["draft", "review"], "it began anew"
    assert harness.document(42).exists()


def test_a_coordinator_that_stands_still_goes_on(harness: RunHarness) -> None:
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
def test_where_no_process_can_be_made_the_run_says_so_and_tries_again(harness: RunHarness) -> None:
    harness.issues(42, 43)
    server = harness.server()
    shim = shim_for(harness)
    done = harness.run("--all", "--parallel", 2, **shim.environment(forks=6))
    assert shim.unforked >= 6 and done.code == 0, done.out + done.err
    assert "failed 3 times in a row" in done.out and "Resource temporarily unavailable" in done.out
    assert len(server.answered()) == 4 and {e["attempts"] for e in harness.events("item_ended")} == {1}


@pytest.mark.slow
def test_where_one_process_can_be_made_and_no_second_the_run_goes_on_with_one(harness: RunHarness) -> None:
    harness.issues(42, 43, 44)
    server = harness.server()
    shim = shim_for(harness)
    done = harness.run("--all", "--parallel", 2, **shim.environment(room=1))
    assert shim.unforked >= 3 and done.code == 0, done.out + done.err
    assert "failed 3 times in a row ([Errno 11] Resource temporarily unavailable)" in done.out
    assert len(server.answered()) == 6 and server.ledger()["max_concurrent_all"] == 1
    assert {event["attempts"] for event in harness.events("item_ended")} == {1}


def test_where_no_process_can_ever_be_made_the_reason_is_said_and_a_stop_works(harness: RunHarness) -> None:
    harness.issue(42)
    server = harness.server()
    shim = shim_for(harness)
    running = harness.start("--all", **shim.environment(forks=10**6))
    running.wait_for("failed 3 times in a row ([Errno 11] Resource temporarily unavailable)")
    running.signal(signal.SIGINT)
    assert running.wait().code == 130 and not server.calls()


@pytest.mark.parametrize("descriptors", [8, 30, pytest.param(24, marks=pytest.mark.long)])
def test_without_descriptors_the_error_is_clear_and_no_item_is_called_locked(
    harness: RunHarness, descriptors: int
) -> None:
    harness.issues(*range(40, 46))
    server = harness.server()
    limit = ("prlimit", f"--nofile={descriptors}:{descriptors}") if shutil.which("prlimit") else ()
    if not limit:
        pytest.skip("needs prlimit (package util-linux), to take descriptors away")
    with server.frozen():
        running = harness.start("--all", "--parallel", 6, "--retries", 0, before=limit)
        wait_until(lambda: "Too many open files" in running.out + running.err)
    done = running.wait(60)
    said = done.out + done.err
    assert "being worked on" not in said and "another run" not in said
    assert "Too many open files" in said and "Traceback" not in said, said
    assert done.code == (3 if descriptors == 8 else done.code), said
    assert harness.run("--all", "--parallel", 3).code == 0
    assert all(harness.document(number).exists() for number in range(40, 46))


class _Evil:
    def __init__(self, mark: str) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self._mark}",)


def test_code_in_a_tampered_checkpoint_is_not_executed(harness: RunHarness) -> None:
    import ormsgpack

    harness.issues(42, 43, 44)
    harness.server(fault={"kind": "400", "role": "review", "times": 3})
    assert harness.run("--all").code == 1
    mark = harness.root / "executed"
    call = ormsgpack.packb(("os", "system", f"touch {mark}"))
    blobs = {
        42: ("msgpack", ormsgpack.packb(ormsgpack.Ext(0, call))),
        43: ("pickle", pickle.dumps(_Evil(str(mark)))),
        44: (
            "json",
            b'{"lc": 2, "type": "constructor", "id": ["os", "system"], "args": ["touch '
            + str(mark).encode()
            + b'"]}',
        ),
    }
    for number, (kind, blob) in blobs.items():
        database = next(harness.home.glob(f"checkpoints/*/lld_workflow_{number}.db"))
        with contextlib.closing(sqlite3.connect(database)) as opened:
            changed = opened.execute("UPDATE checkpoints SET type = ?, checkpoint = ?", (kind, blob)).rowcount
            opened.execute("UPDATE writes SET type = ?, value = ?", (kind, blob))
            opened.commit()
        assert changed > 0
    done = harness.run("--all", "--retries", 0)
    assert not mark.exists()
    assert done.code == 1 and "Blocked deserialization of os.system" in done.out, (
        "nobody read what was planted"
    )
    assert "3 failed (LLD-42, LLD-43, LLD-44)" in done.out


@pytest.mark.slow
@pytest.mark.parametrize("jump", [600, -7200])
def test_a_clock_that_jumps_changes_no_back_off_and_no_duration(harness: RunHarness, jump: int) -> None:
    harness.issues(42, 43)
    fault = {"kind": "429-minute", "nth": 1, "times": 1, "retry_delay": 3}
    server = harness.server("--latency", "0.2,0.2", keys=("canary-only-one-41aa",), fault=fault)
    shim = shim_for(harness)
    running = harness.start("--all", **shim.environment())
    running.wait_for("Backing off for 3s")
    shim.turn_clock(jump)
    done = running.wait(40)
    assert done.code == 0, done.out
    first, second = server.calls()[:2]
    assert 2.8 <= second["started"] - first["started"] < 10
    assert 3 <= harness.summary()["seconds"] < 40
    assert 3 <= harness.events("run_ended")[0]["seconds"] < 40


@pytest.mark.parametrize("year", [1970, 2100])
def test_a_clock_in_another_century_is_survived(harness: RunHarness, year: int) -> None:
    harness.issues(42, 43)
    harness.server()
    ahead = int((year - 1970) * 365.2425 * 86400 + 7200 - time.time())
    shim = shim_for(harness)
    done = harness.run("--all", "--parallel", 2, **shim.environment(clock=ahead))
    assert done.code == 0, done.out + done.err
    assert harness.document(42).exists() and harness.document(43).exists()
    assert harness.runs()[-1].name.startswith(str(year)) or harness.runs()[-1].name.startswith(str(year - 1))
    assert harness.run("status", program="agentos", **shim.environment(clock=ahead)).code == 0


def test_an_issue_of_200_megabytes_fails_alone_and_is_not_read(harness: RunHarness) -> None:
    harness.issue(42)
    with open(harness.project / "issues" / "043-huge.md", "wb") as file:
        file.write(b"# Huge\n\ntext\n")
        file.truncate(200 * 1024 * 1024)
    server = harness.server("--latency", "0.5,0.5")
    running = harness.start("--all", "--parallel", 2)
    wait_until(lambda: bool(server.calls()))
    peak = _peak(running.pid)
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
        peak = max(peak, _peak(running.pid))
        time.sleep(0.02)
    assert running.wait().code == 130 and 20 * 1024 < peak < 150 * 1024, peak
    done = len(list(harness.project.glob("docs/lld/active/*.md")))
    listed = harness.run("--all", "--dry-run")
    assert f"would process {10_000 - done} items" in listed.out and done > 0


def _peak(pid: int) -> int:
    """The most memory that a process has had, in KiB; nothing once it is gone."""
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/status").read_text().split("VmHWM:")[1].split()[0])
    return 0


@pytest.mark.slow
def test_a_package_that_is_replaced_during_a_run_does_not_touch_it(harness: RunHarness) -> None:
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
    assert another.code == 1 and "replaced during a run" in another.err, "it is not what runs load"
    done = running.wait(60)
    assert done.code == 0, done.out + done.err
    assert "replaced during a run" not in done.out + done.err
    assert all(harness.document(number).exists() for number in (42, 43, 44)) and len(server.answered()) == 6
