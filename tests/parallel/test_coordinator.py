"""ParallelCoordinator: a function for many items, in threads and processes."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from agentos.parallel import (
    DEFAULT_PARALLELISM,
    MAX_PARALLELISM,
    CredentialCoordinator,
    ParallelCoordinator,
    ProgressStats,
    WorkflowResult,
)

KEYS = ["canary-key-alpha", "canary-key-beta"]


def give_back(item: int, credential: str | None) -> dict[str, int]:
    return {"item": item}


def name(item: int) -> str:
    return f"ITEM-{item}"


def test_every_item_has_one_result_in_order_even_with_duplicate_ids() -> None:
    done = ParallelCoordinator().execute_parallel([3, 1, 1, 2], give_back, lambda item: "same")
    assert [result.metadata for result in done.results] == [
        {"item": 3},
        {"item": 1},
        {"item": 1},
        {"item": 2},
    ]
    assert (done.stats.total, done.stats.completed, done.stats.success_count, done.stats.failed) == (
        4,
        4,
        4,
        0,
    )
    assert done.stats.completion_rate == 100.0 and {result.item_id for result in done.results} == {"same"}


def test_no_more_than_max_workers_run_at_a_time() -> None:
    running, most, guard = 0, 0, threading.Lock()

    def work(item: int, credential: str | None) -> None:
        nonlocal running, most
        with guard:
            running += 1
            most = max(most, running)
        time.sleep(0.02)
        with guard:
            running -= 1

    ParallelCoordinator(2).execute_parallel(range(8), work, name)
    assert most == 2


def test_an_exception_fails_only_its_own_item() -> None:
    def work(item: int, credential: str | None) -> object:
        if item == 1:
            raise SystemExit(0)
        if item == 2:
            raise ValueError("two is wrong")
        if item == 3:
            raise KeyboardInterrupt
        return WorkflowResult("mine", False, "said so", metadata={"why": 4}) if item == 4 else item

    done = ParallelCoordinator().execute_parallel(range(5), work, name)
    assert [result.success for result in done.results] == [True, False, False, False, False]
    assert done.results[0].metadata == {"result": 0}
    errors = [result.error or "" for result in done.results]
    assert "SystemExit" in errors[1] and "two is wrong" in errors[2] and errors[4] == "said so"
    assert done.results[4].metadata == {"why": 4}
    assert (done.stats.failed, done.stats.success_count) == (4, 1)


def test_each_item_gets_its_own_credential_and_returns_it() -> None:
    pool = CredentialCoordinator(KEYS)
    held: set[str] = set()

    def work(item: int, credential: str | None) -> None:
        assert credential is not None and credential not in held
        held.add(credential)
        time.sleep(0.01)
        held.discard(credential)
        if item == 2:
            raise ValueError

    done = ParallelCoordinator(4, pool).execute_parallel(range(6), work, name)
    assert done.stats.success_count == 5 and pool.get_available_count() == 2


def test_an_item_without_a_credential_in_time_fails() -> None:
    pool = CredentialCoordinator(KEYS[:1])
    pool.reserve("somebody else")
    coordinator = ParallelCoordinator(2, pool, credential_timeout=0.1)
    done = coordinator.execute_parallel([1, 2], give_back, name)
    assert [result.error for result in done.results] == ["Failed to acquire credential"] * 2


def test_the_number_of_workers_is_bounded() -> None:
    assert (DEFAULT_PARALLELISM, MAX_PARALLELISM) == (3, 10)
    assert ParallelCoordinator().max_workers == 3
    with pytest.warns(UserWarning, match=r"Requested parallelism 11 exceeds maximum 10\. Capping to 10\."):
        assert ParallelCoordinator(11).max_workers == 10
    for number in (0, -1):
        with pytest.raises(ValueError, match="must be 1 to 10"):
            ParallelCoordinator(number)


def test_a_dry_run_prints_the_ids_and_calls_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    done = ParallelCoordinator().execute_parallel(
        [1, 2], lambda *_: pytest.fail("called"), name, dry_run=True
    )
    assert done.results == []
    assert capsys.readouterr().out == (
        "[COORDINATOR] Dry run mode - would process 2 items:\n  - ITEM-1\n  - ITEM-2\n"
    )


def test_without_items_it_returns_at_once() -> None:
    done = ParallelCoordinator().execute_parallel([], give_back, name)
    assert done.results == [] and done.stats.completion_rate == 0.0


def test_it_works_outside_the_main_thread_and_nested() -> None:
    coordinator = ParallelCoordinator(2)

    def nest(item: int, credential: str | None) -> int:
        return coordinator.execute_parallel(range(item), give_back, name).stats.success_count

    with ThreadPoolExecutor(1) as threads:
        done = threads.submit(coordinator.execute_parallel, [2, 3], nest, name).result(20)
    assert [result.metadata for result in done.results] == [{"result": 2}, {"result": 3}]


def test_signal_handlers_are_restored() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    ParallelCoordinator().execute_parallel([1], give_back, name)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


PROGRAM = """
import os, signal, sys, threading, time
from agentos.parallel import CredentialCoordinator, ParallelCoordinator

pool = CredentialCoordinator(["canary-key-alpha"]) if sys.argv[1] == "waiting" else None
coordinator = ParallelCoordinator(2, pool)

def work(item, credential):
    time.sleep(0.5 if sys.argv[1] != "hanging" else 60)

threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
began = time.monotonic()
done = coordinator.execute_parallel(range(5), work, str)
print([result.success for result in done.results], {result.error for result in done.results})
print(coordinator.get_checkpoints(), time.monotonic() - began < 8, signal.getsignal(signal.SIGINT).__name__)
print(coordinator.execute_parallel([7], lambda *_: 1, str).stats.success_count, coordinator.get_checkpoints())
"""


@pytest.mark.parametrize(
    ("kind", "finished", "left"),
    [("working", 2, 3), ("waiting", 1, 4), pytest.param("hanging", 0, 5, marks=pytest.mark.slow)],
)
def test_ctrl_c_returns_and_lists_the_interrupted_items(kind: str, finished: int, left: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, kind], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    results, checkpoints, again = done.stdout.splitlines()
    assert results.count("True") == finished and results.count("False") == left
    assert "Interrupted by shutdown signal" in results
    assert checkpoints.count("'") == 2 * left and checkpoints.endswith("True default_int_handler")
    assert again == "1 []"


def process_of(item: int, credential: str | None) -> int:
    if item == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if item == 2:
        raise SystemExit(3)
    return os.getpid()


def test_a_process_that_dies_fails_only_its_own_item() -> None:
    done = ParallelCoordinator(2, CredentialCoordinator(KEYS), processes=True).execute_parallel(
        range(4), process_of, name
    )
    assert [result.success for result in done.results] == [True, False, False, True]
    assert "-9" in (done.results[1].error or "") and "SystemExit: 3" in (done.results[2].error or "")
    pids = {done.results[place].metadata["result"] for place in (0, 3)}
    assert len(pids) == 2 and os.getpid() not in pids


def test_the_completion_rate_is_in_per_cent() -> None:
    stats = ProgressStats(total=8, completed=2, failed=1, success_count=1, start_time=time.time() - 5)
    assert stats.completion_rate == 25.0 and 5 <= stats.elapsed < 10
