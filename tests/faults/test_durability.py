"""Kills at durable calls, power cuts, failing syncs and slow disks."""

import signal
import time
from pathlib import Path

import pytest

from tests.chaos.decisions import Act
from tests.chaos.powercut import cut_everywhere
from tests.chaos.sweep import sweep_coordinators, sweep_designs, sweep_filings
from tests.chaos.sweep_gated_runs import sweep_gated_runs
from tests.chaos.sweep_gates import sweep_decided, sweep_parkings
from tests.chaos.sweep_gateways import ALONE, BESIDE, sweep_gateways
from tests.chaos.sweep_programs import COORDINATOR, GATEWAY, WORKER, sweep_programs
from tests.chaos.sweep_reviews import sweep_reviews
from tests.scenarios.harness import RunHarness, wait_until

from .shim import shim_for


@pytest.mark.parametrize(
    ("sweep", "call_numbers"),
    [
        (sweep_designs, (60, 190)),
        pytest.param(sweep_filings, (90, 212), marks=pytest.mark.slow),
        pytest.param(sweep_coordinators, (9, 40), marks=pytest.mark.slow),
    ],
)
def test_a_kill_at_a_durable_call_neither_loses_nor_repeats_work(
    tmp_path: Path, harness: RunHarness, sweep: object, call_numbers: tuple[int, ...]
) -> None:
    shim_for(harness)
    result = sweep(tmp_path / "sweep", call_numbers)  # type: ignore[operator]
    assert result.kills == len(call_numbers) and not result.violations, result.violations


@pytest.mark.parametrize(
    ("who", "call_numbers"),
    [
        pytest.param(COORDINATOR, (44,), marks=pytest.mark.slow),
        (WORKER, (8,)),
        pytest.param(GATEWAY, (10,), marks=pytest.mark.slow),
    ],
)
def test_a_kill_at_a_durable_call_of_exec_neither_loses_nor_repeats_a_program(
    tmp_path: Path, harness: RunHarness, who: str, call_numbers: tuple[int, ...]
) -> None:
    shim_for(harness)
    result = sweep_programs(tmp_path / "sweep", call_numbers, who)
    assert result.kills == len(call_numbers) and not result.violations, result.violations


@pytest.mark.slow
@pytest.mark.parametrize(
    ("act", "call_numbers"),
    [(Act.SEND_BACK, (15,)), pytest.param(Act.EDIT, (12, 30), marks=pytest.mark.long)],
)
def test_a_decision_is_saved_completely_and_once_wherever_its_command_is_killed(
    tmp_path: Path, harness: RunHarness, act: Act, call_numbers: tuple[int, ...]
) -> None:
    shim_for(harness)
    result = sweep_reviews(tmp_path / "sweep", call_numbers, act)
    assert result.kills == len(call_numbers) and not result.violations, result.violations


@pytest.mark.slow
def test_a_worker_killed_while_parking_asks_for_one_decision(tmp_path: Path, harness: RunHarness) -> None:
    shim_for(harness)
    result = sweep_parkings(tmp_path / "sweep", (110,))
    assert result.kills == 1 and not result.violations, result.violations


@pytest.mark.slow
@pytest.mark.parametrize(
    ("act", "call_numbers"),
    [(Act.SEND_BACK, (30,)), pytest.param(Act.REJECT, (20, 40, 80), marks=pytest.mark.long)],
)
def test_a_worker_killed_at_any_call_after_a_decision_applies_it_exactly_once(
    tmp_path: Path, harness: RunHarness, act: Act, call_numbers: tuple[int, ...]
) -> None:
    shim_for(harness)
    result = sweep_decided(tmp_path / "sweep", call_numbers, act)
    assert result.kills == len(call_numbers) and not result.violations, result.violations


@pytest.mark.slow
def test_a_coordinator_killed_in_a_run_with_gates_loses_no_decision(
    tmp_path: Path, harness: RunHarness
) -> None:
    shim_for(harness)
    result = sweep_gated_runs(tmp_path / "sweep", (50,))
    assert result.kills == 1 and not result.violations, result.violations


@pytest.mark.parametrize(
    ("mode", "call_numbers"), [(ALONE, (9,)), pytest.param(BESIDE, (6,), marks=pytest.mark.slow)]
)
def test_a_gateway_killed_while_writing_a_note_frees_its_key_and_keeps_known_cooldowns(
    tmp_path: Path, harness: RunHarness, mode: str, call_numbers: tuple[int, ...]
) -> None:
    shim_for(harness)
    result = sweep_gateways(tmp_path / "sweep", call_numbers, mode)
    assert result.kills == len(call_numbers) and not result.violations, result.violations


@pytest.mark.slow
def test_a_kill_before_the_checkpoint_of_a_finished_item_is_deleted_repeats_nothing(
    harness: RunHarness,
) -> None:
    harness.issues(42, 43)
    server = harness.server()
    shim = shim_for(harness)
    faults = shim.environment(who="worker", kill_unlink="lld_workflow_42.db")
    killed = harness.run(42, "--retries", 0, **faults)
    assert killed.code == 1 and "killed by SIGKILL" in killed.out and shim.kills == 1
    document = harness.document(42).read_bytes()
    assert "lld_workflow_42.db" in harness.databases() and len(server.answered(42)) == 2
    again = harness.run("--all")
    assert again.code == 0, again.out
    assert harness.document(42).read_bytes() == document and len(server.calls(42)) == 2
    assert harness.databases() == [] and harness.document(43).exists()
    assert not list((harness.project / "docs/lineage/active").iterdir())


@pytest.mark.parametrize("program", [pytest.param("lld-workflow", marks=pytest.mark.slow), "issue-workflow"])
def test_a_power_cut_loses_nothing_acknowledged(harness: RunHarness, program: str) -> None:
    harness.server()
    if program == "lld-workflow":
        harness.issue(41)
        assert harness.run("--all").code == 0, "the earlier run, which leaves notes, failed"
        harness.issue(42)
    else:
        harness.brief("42-thing.md", 42)
    result = cut_everywhere(harness, shim_for(harness), program, every=9)
    assert result.calls > 200 and result.promises == 2 and result.cuts > 80
    assert not result.violations, result.violations[:5]


def test_a_document_whose_sync_fails_is_not_recorded_as_done(harness: RunHarness) -> None:
    harness.issues(42, 43)
    server = harness.server()
    shim = shim_for(harness)
    faults = shim.environment(eio="docs/lld/active", who="worker", times=1000)
    done = harness.run("--all", "--retries", 0, **faults)
    assert shim.failed_syncs >= 2
    assert done.code == 1 and "Input/output error" in done.out, done.out
    assert not list(harness.project.glob("docs/lld/active/*")) and len(harness.databases()) >= 2
    again = harness.run("--all")
    assert again.code == 0 and harness.document(42).exists() and harness.document(43).exists()
    assert not server.repeated_prompts()


def test_a_journal_whose_sync_fails_causes_one_warning(harness: RunHarness) -> None:
    harness.issues(42, 43)
    harness.server()
    shim = shim_for(harness)
    done = harness.run("--all", **shim.environment(eio="events.jsonl", who="coordinator", times=1000))
    assert shim.failed_syncs >= 2 and done.code == 0, done.out + done.err
    assert done.out.count("Cannot write log files (Input/output error)") == 1
    assert harness.document(42).exists() and harness.document(43).exists()


@pytest.mark.slow
def test_a_stop_on_a_slow_disk_takes_less_than_five_seconds(harness: RunHarness) -> None:
    harness.issues(42, 43, 44)
    server = harness.server("--latency", "0.2,0.2")
    shim = shim_for(harness)
    running = harness.start("--all", "--parallel", 3, **shim.environment(delay=150))
    wait_until(lambda: bool(server.calls()), 30)
    started = time.monotonic()
    running.signal(signal.SIGINT)
    stopped = running.wait()
    assert stopped.code == 130 and time.monotonic() - started < 5, stopped.out
    done = harness.run("--all", "--parallel", 3, **shim.environment(delay=20))
    assert done.code == 0 and all(harness.document(number).exists() for number in (42, 43, 44))
    assert not server.repeated_prompts()
