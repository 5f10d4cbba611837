"""More workers than ten: the maximum in the settings, the memory that they need, 64 at once."""

from pathlib import Path

import pytest

from agentos.cli.worker_limit import limit_workers
from agentos.config.settings import Settings
from tests.faults.memory import small_memory

from .harness import PORTABLE_CALLS, RunHarness, wait_until

GIGABYTE = 1_000_000_000


@pytest.mark.parametrize("workers", [12, pytest.param(64, marks=pytest.mark.slow)])
def test_as_many_workers_as_the_settings_allow_call_at_the_same_time(
    harness: RunHarness, workers: int
) -> None:
    harness.issues(*range(1, workers + 1))
    harness.home.mkdir(mode=0o700)
    (harness.home / "config.toml").write_text(f"max_parallel = {workers}\n")
    server = harness.server()
    with server.frozen():  # no call ends before all have started
        running = harness.start("--all", "--parallel", workers, AGENTOS_KEY_CONCURRENCY="16")
        wait_until(lambda: len(harness.events("lease_granted")) == workers, 100)
    done = running.wait(100)
    assert done.code == 0 and "Warning" not in done.out + done.err, done.out + done.err
    assert f"of {workers} items with {workers} workers" in done.out
    assert not server.repeated_prompts()
    assert all(harness.document(number).exists() for number in range(1, workers + 1))


def test_the_maximum_is_set_by_file_or_variable_and_named_in_the_warning(harness: RunHarness) -> None:
    harness.issues(1)
    harness.home.mkdir(mode=0o700)
    (harness.home / "config.toml").write_text("max_parallel = 20\nparallel = 30\n")
    done = harness.run("--all", "--dry-run", "--offline")
    assert done.err == "Warning: Requested parallelism 30 exceeds maximum 20. Capping to 20.\n"
    done = harness.run("--all", "--dry-run", "--offline", "-j", 65, AGENTOS_MAX_PARALLEL="64")
    assert done.err == "Warning: Requested parallelism 65 exceeds maximum 64. Capping to 64.\n"
    shown = harness.run("config", "show", "--origin", program="agentos", AGENTOS_MAX_PARALLEL="12")
    rows = {line.split()[0]: line.split()[1:] for line in shown.lines}
    assert (
        rows["max_parallel"] == ["12", "environment", "AGENTOS_MAX_PARALLEL"] and rows["parallel"][0] == "12"
    )
    refused = harness.run("--all", AGENTOS_MAX_PARALLEL="65")
    assert (
        refused.code == 2
        and "invalid AGENTOS_MAX_PARALLEL=65: expected a whole number from 1 to 64" in refused.err
    )


def test_workers_that_do_not_fit_into_memory_are_not_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(tmp_path, tmp_path, parallel=64, max_parallel=64)
    assert limit_workers(settings, 3 * GIGABYTE) == settings and capsys.readouterr().err == ""
    limited = limit_workers(settings, 1_200_000_000)
    assert (limited.parallel, limited.max_parallel) == (32, 32)
    assert capsys.readouterr().err == (
        "Warning: 64 workers need about 2198 MB of memory, and 1200 MB are available. Reducing to 32.\n"
    )
    assert limit_workers(settings, 1_000_000).parallel == 1


def test_the_memory_limit_of_a_container_counts(harness: RunHarness) -> None:
    if PORTABLE_CALLS:
        pytest.skip("control groups are read on Linux only")
    harness.issues(1)
    with small_memory(320_000_000) as group:
        enter = ("sh", "-c", 'echo $$ > "$0"; exec "$@"', str(group.folder / "cgroup.procs"))
        done = harness.start("--all", "--offline", "--dry-run", "-j", 10, before=enter).wait(30)
    assert done.code == 0 and "Warning: 10 workers need about 470 MB of memory, and " in done.err, done.err
