"""Run folders."""

import os
import stat
from pathlib import Path

import pytest

from agentos.core.protocol import events
from agentos.core.protocol.codec import EventEncoder
from agentos.core.protocol.results import Ending, Outcome, Usage, Verdict, failed
from agentos.storage.files import TMP_PREFIX
from agentos.storage.journal import Journal
from agentos.storage.runs import (
    RetentionPolicy,
    RunFolder,
    failed_before,
    is_alive,
    last_run_of,
    load_run_stats,
    load_run_totals,
    new_run,
    prune,
    run_folders,
)

WALL = 1782892800.0


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "parallel"


def finished(runs: Path, wall: float, size: int = 10) -> Path:
    run = new_run(runs, wall)
    (run.path / "LLD-1.log").write_bytes(b"x" * size)
    run.close()
    os.utime(run.path, (wall, wall))
    return run.path


def write_journal(run: RunFolder, *run_events: events.Event) -> None:
    journal = Journal(run.path, EventEncoder(str), print)
    for event in run_events:
        journal.on_event(event, WALL)
    journal.close()
    run.close()


def started(project: str, workflow: str = "lld") -> events.RunStarted:
    return events.RunStarted("r", workflow, project, ("LLD-1",), 1, ("key-1",))


def test_a_run_is_named_by_its_start_time_in_utc(runs: Path) -> None:
    run = new_run(runs, WALL)
    assert run.id == "20260701T080000Z"
    run.close()


def test_runs_started_in_the_same_second_get_a_suffix_and_stay_in_order(runs: Path) -> None:
    made = [new_run(runs, WALL) for _ in range(11)]
    assert [run.id for run in made[:3]] == ["20260701T080000Z", "20260701T080000Z-2", "20260701T080000Z-3"]
    assert run_folders(runs) == [run.path for run in reversed(made)]
    for run in made:
        run.close()


def test_latest_points_to_the_newest_run(runs: Path) -> None:
    for wall in (WALL, WALL + 1):
        path = finished(runs, wall)
        assert (runs / "latest").resolve() == path
    assert runs / "latest" not in run_folders(runs)
    assert [name for name in os.listdir(runs) if name.startswith(".")] == []


def test_the_unfinished_files_of_a_killed_run_are_finalized(runs: Path) -> None:
    killed, living = new_run(runs, WALL), new_run(runs, WALL + 1)
    for run in (killed, living):
        (run.path / ".gathered.jsonl").write_text("{}\n")
        (run.path / f"{TMP_PREFIX}0").write_text("half")
        os.mknod(run.path / "door.sock", stat.S_IFSOCK | 0o600)
    before = sorted(os.listdir(living.path))
    killed.close()
    assert prune(runs, RetentionPolicy(), WALL + 2) == []
    assert sorted(os.listdir(killed.path)) == ["gathered.jsonl", "run.lock"]
    assert sorted(os.listdir(living.path)) == before and len(before) == 4
    living.close()


def test_the_leftover_link_of_a_run_that_died_early_is_removed(runs: Path) -> None:
    living = new_run(runs, 0.0)
    markers = [runs / f".latest-{name}" for name in (living.id, "19700101T000000Z-9")]
    for mark in markers:
        mark.symlink_to("anywhere")
    new_run(runs, 1.0).close()
    assert markers[0].is_symlink() and not markers[1].is_symlink()
    living.close()


def test_a_run_is_alive_while_its_process_holds_the_lock(runs: Path) -> None:
    run = new_run(runs, WALL)
    assert is_alive(run.path) and is_alive(run.path)
    run.close()
    assert not is_alive(run.path) and not is_alive(runs / "nothing")


def test_the_oldest_runs_above_the_maximum_number_are_pruned(runs: Path) -> None:
    paths = [finished(runs, WALL + number) for number in range(5)]
    assert prune(runs, RetentionPolicy(runs=3), WALL + 10) == [paths[1], paths[0]]
    assert run_folders(runs) == paths[:1:-1]


def test_runs_above_the_maximum_total_size_are_pruned(runs: Path) -> None:
    paths = [finished(runs, WALL + number, size=1000) for number in range(4)]
    assert prune(runs, RetentionPolicy(bytes=2500), WALL + 10) == [paths[1], paths[0]]


def test_runs_above_the_maximum_age_are_pruned_but_never_the_newest(runs: Path) -> None:
    paths = [finished(runs, WALL + number) for number in range(3)]
    assert prune(runs, RetentionPolicy(seconds=100.0), WALL + 1000) == [paths[1], paths[0]]
    assert run_folders(runs) == [paths[2]]


def test_a_living_run_is_never_pruned(runs: Path) -> None:
    alive = new_run(runs, WALL)
    finished(runs, WALL + 1)
    assert prune(runs, RetentionPolicy(runs=1), WALL + 2) == []
    alive.close()
    assert prune(runs, RetentionPolicy(runs=1), WALL + 2) == [alive.path]


def test_the_newest_run_of_each_workflow_on_an_existing_project_is_never_pruned(
    runs: Path, tmp_path: Path
) -> None:
    here, gone = str(tmp_path), str(tmp_path / "gone")
    kinds = [("lld", gone), ("lld", here), ("lld", here), ("issue", here)]
    kinds += [("exec-0123abcd", here), ("exec-4567cdef", here)]
    made = [new_run(runs, WALL + number) for number in range(len(kinds))]
    for run, (workflow, project) in zip(made, kinds, strict=True):
        write_journal(run, started(project, workflow))
    paths = [run.path for run in made]
    tight = RetentionPolicy(runs=1, bytes=0, seconds=-1.0)
    assert prune(runs, tight, WALL + 10) == [paths[4], paths[1], paths[0]]
    assert run_folders(runs) == [paths[5], paths[3], paths[2]]


def test_the_failed_items_of_the_last_run_are_found(runs: Path, tmp_path: Path) -> None:
    ended = events.ItemEnded("LLD-1", failed("Invalid spec format"), 1.0, Usage(), 1)
    fine = events.ItemEnded("LLD-2", Outcome(Ending.FINISHED, Verdict.APPROVED, 1), 1.0, Usage(), 1)
    write_journal(new_run(runs, WALL), started(str(tmp_path)), ended, fine)
    write_journal(new_run(runs, WALL + 1), started("/elsewhere"))
    write_journal(new_run(runs, WALL + 2), started(str(tmp_path), "issue"))
    finished(runs, WALL + 3)
    found = last_run_of(runs, "lld", tmp_path)
    assert found is not None and found.rows["LLD-1"].status == "failed"
    assert failed_before(runs, "lld", tmp_path) == {"LLD-1"}
    assert last_run_of(runs, "lld", tmp_path / "other") is None
    assert failed_before(runs, "lld", tmp_path / "other") == set()


def test_a_run_without_a_journal_has_empty_statistics(runs: Path) -> None:
    assert load_run_stats(finished(runs, WALL)).rows == {}
    assert run_folders(runs.parent / "nothing") == []


def test_the_totals_of_an_ended_run_are_those_of_its_whole_journal(runs: Path, tmp_path: Path) -> None:
    run, usage = new_run(runs, WALL), Usage(2, 100, 50)
    write_journal(
        run,
        started(str(tmp_path)),
        events.NodeStarted("LLD-1", "N1_design", 1),
        events.CallCompleted("LLD-1", "key-1", "m", usage, 0.25),
        events.ItemEnded("LLD-1", Outcome(Ending.FINISHED, Verdict.APPROVED, 1), 3.0, usage, 1),
        events.RunEnded(0, 4.0, 0.0),
    )
    totals, stats = load_run_totals(run.path), load_run_stats(run.path)
    assert totals and (totals.over, totals.cost, totals.usage) == (stats.over, stats.cost, stats.usage) == (
        1,
        0.25,
        usage,
    )
    assert totals.ended == stats.ended and totals.with_verdict(Verdict.APPROVED)


def test_a_run_that_has_not_ended_has_no_totals(runs: Path, tmp_path: Path) -> None:
    run = new_run(runs, WALL)
    write_journal(run, started(str(tmp_path)))
    assert load_run_totals(run.path) is None
    assert load_run_totals(finished(runs, WALL + 1)) is None
