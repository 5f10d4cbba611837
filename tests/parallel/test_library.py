"""OutputPrefixer, TaskLock, AdaptiveBackoff, WorkerHealth and run_parallel."""

import asyncio
import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentos.parallel import AdaptiveBackoff, OutputPrefixer, TaskLock, WorkerHealth, run_parallel

# A prefixed stream.


def test_complete_lines_are_prefixed_and_the_rest_is_written_on_close() -> None:
    screen = io.StringIO()
    with OutputPrefixer(screen, "LLD-42") as stream:
        print("one\ntwo", file=stream)
        stream.write("thr")
        assert screen.getvalue() == "[LLD-42] one\n[LLD-42] two\n"
        stream.write("ee\nok\r[COORDINATOR] done\x1b[2J")
    assert screen.getvalue().splitlines()[2:] == ["[LLD-42] three", "[LLD-42] [COORDINATOR] done"]
    assert not screen.closed


def test_the_lines_of_concurrent_threads_are_not_mixed() -> None:
    screen = io.StringIO()
    stream = OutputPrefixer(screen, "A-1")

    def talk(number: int) -> None:
        for turn in range(100):
            for part in ("line ", str(number), " ", str(turn), "\n"):
                stream.write(part)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(talk, range(8)))
    expected = {f"[A-1] line {number} {turn}" for number in range(8) for turn in range(100)}
    assert Counter(screen.getvalue().splitlines()) == Counter(expected)


# Locks.


def test_a_task_has_one_holder_and_only_it_can_release(tmp_path: Path) -> None:
    mine, other = TaskLock(tmp_path), TaskLock(tmp_path)
    assert mine.acquire("task-1", "me")
    assert not other.acquire("task-1", timeout=0.05) and not mine.acquire("task-1", "me", timeout=0)
    assert not other.release("task-1") and not mine.release("task-1", "somebody else")
    assert mine.release("task-1", "me") and not mine.release("task-1")
    with other.lock("task-1") as had, mine.lock("task-1", timeout=0) as second:
        assert had and not second
    assert mine.acquire("task-1", timeout=0)


def test_a_task_may_be_a_number(tmp_path: Path) -> None:
    mine, other = TaskLock(tmp_path), TaskLock(tmp_path)
    assert mine.acquire(7, timeout=0) and (tmp_path / ".locks/task-7.lock").exists()
    assert not other.acquire("7", timeout=0), "the same task"
    assert mine.release("7") and not mine.release(7)
    with other.lock(7, timeout=0) as acquired:
        assert acquired


def test_threads_exclude_each_other_even_with_the_same_holder_id(tmp_path: Path) -> None:
    lock, inside, most = TaskLock(tmp_path), 0, 0

    def work(number: int) -> None:
        nonlocal inside, most
        with lock.lock("task", timeout=30) as had:
            assert had
            inside += 1
            most = max(most, inside)
            inside -= 1

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(20)))
    assert most == 1


HOLDER = """
import sys, time
from agentos.parallel import TaskLock
assert TaskLock(sys.argv[1]).acquire("task", "other")
print("held", flush=True)
time.sleep(60)
"""


def test_a_lock_is_never_taken_from_a_living_process_and_free_once_it_dies(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        lock = TaskLock(tmp_path)
        os.utime(tmp_path / ".locks/task-task.lock", (0, 0))
        assert lock.clean_all_stale_locks() == 0 and not lock.acquire("task", timeout=0.1)
        other.send_signal(signal.SIGKILL)
        other.wait()
        assert lock.clean_all_stale_locks() == 1
        assert lock.acquire("task", timeout=0)


@pytest.mark.parametrize("task", ["../x", "", "a b", "x" * 65, "-rf", "\n"])
def test_an_unsafe_task_id_is_refused(tmp_path: Path, task: str) -> None:
    with pytest.raises(ValueError, match="not an item id"):
        TaskLock(tmp_path).acquire(task, timeout=0)


# Waits.


@given(failures=st.integers(1, 200), base=st.floats(0.001, 10), cap=st.floats(10, 100))
def test_the_delay_doubles_up_to_its_maximum_and_a_success_resets_it(
    failures: int, base: float, cap: float
) -> None:
    waits = AdaptiveBackoff(base, cap)
    assert waits.get_delay() == 0.0
    for _ in range(failures):
        waits.record_failure()
    usual = min(base * 2.0 ** min(failures - 1, 30), cap)
    assert 0.9 * usual * 0.999 <= waits.get_delay() <= min(1.1 * usual * 1.001, cap)
    waits.record_success()
    assert waits.get_delay() == 0.0


def test_wait_sleeps_for_the_delay() -> None:
    waits = AdaptiveBackoff(0.05, jitter_factor=0)
    waits.record_failure()
    began = time.monotonic()
    assert asyncio.run(waits.wait()) == 0.05
    assert time.monotonic() - began >= 0.05


def test_a_worker_recovers_after_three_failures_and_is_exhausted_after_five_recoveries() -> None:
    health = WorkerHealth()
    for _ in range(2):
        assert health.record_failure() is None
    health.record_success()
    assert health.failures == 0 and health.is_healthy
    for recovery in range(1, 6):
        rests = [health.record_failure() for _ in range(3)]
        assert rests[:2] == [None, None] and rests[2] is not None
        assert health.recoveries == recovery and not health.is_exhausted
    for _ in range(3):
        health.record_failure()
    assert health.is_exhausted


# Tasks for coroutines.


def test_free_workers_take_tasks_and_results_keep_the_order() -> None:
    running, most = 0, 0

    async def work(task: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01 * (5 - task))
        running -= 1
        return task * 10

    results = asyncio.run(run_parallel([1, 2, 3, 4], work, max_workers=2))
    assert [result.result for result in results] == [10, 20, 30, 40] and most == 2
    assert all(result.success and result.attempts == 1 for result in results)


def test_a_failed_task_is_retried_by_a_healthy_worker() -> None:
    tries: Counter[str] = Counter()

    async def work(task: str) -> str:
        tries[task] += 1
        await asyncio.sleep(0.05 if task == "slow" else 0)
        if task == "slow" and tries[task] < 3:
            raise OSError("not yet")
        return task.upper()

    results = asyncio.run(run_parallel(["slow", "quick"], work))
    assert [(result.task, result.result, result.attempts) for result in results] == [
        ("slow", "SLOW", 3),
        ("quick", "QUICK", 1),
    ]


def test_a_task_that_never_succeeds_is_exhausted_without_affecting_others() -> None:
    async def work(task: int) -> int:
        if task == 2:
            raise ValueError("never")
        return task

    results = asyncio.run(run_parallel([1, 2, 3], work, max_workers=1))
    assert [result.success for result in results] == [True, False, True]
    assert results[1].recovery_exhausted and results[1].error == "ValueError: never"
    assert results[1].attempts == 1 + 18 and not results[0].recovery_exhausted


def test_without_tasks_nothing_is_run() -> None:
    async def work(task: int) -> int:
        return task

    assert asyncio.run(run_parallel([], work)) == []
    with pytest.raises(ValueError, match="at least 1"):
        asyncio.run(run_parallel([1], work, max_workers=0))


def test_run_parallel_can_be_cancelled() -> None:
    async def work(task: int) -> None:
        await asyncio.sleep(60)

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run_parallel([1, 2], work), 0.1)

    asyncio.run(main())
    assert threading.active_count() < 20
