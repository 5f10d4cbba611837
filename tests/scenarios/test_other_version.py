"""Runs and notes of another version of agentos: one clear line, never a traceback."""

import json

import pytest

from .harness import RunHarness

OLD_RUN = "20250101T000000Z"
LINE = f"run {OLD_RUN} was written by another version of agentos (journal format 1, this version reads 2)"


@pytest.fixture
def old(harness: RunHarness) -> RunHarness:
    """A home with one run and one file of notes from before wire names."""
    harness.issues(42)
    run = harness.home / "logs/parallel" / OLD_RUN
    run.mkdir(parents=True)
    started = {"at": 1.0, "type": "RunStarted", "workflow": "lld", "project": str(harness.project)}
    ended = {"at": 2.0, "type": "ItemEnded", "item": "LLD-42", "outcome": {"ending": "failed"}}
    (run / "events.jsonl").write_text(f"{json.dumps(started)}\n{json.dumps(ended)}\n")
    quota = harness.home / "quota"
    quota.mkdir()
    note = {"type": "CallSent", "run": "old", "lease": "l-1", "boot": "b", "clock": 1.0, "wall": 1.0}
    (quota / "notes.jsonl").write_text(f"{json.dumps(note)}\n")
    return harness


@pytest.mark.parametrize(
    "args", [("status",), ("report",), ("watch",), ("runs", "compare", OLD_RUN, "latest")]
)
def test_a_command_that_needs_an_old_journal_says_so_in_one_line(
    old: RunHarness, args: tuple[str, ...]
) -> None:
    if args[0] == "runs":
        newer = old.home / "logs/parallel" / "20250102T000000Z"
        newer.mkdir()
    done = old.run(*args, program="agentos")
    assert done.code == 3 and LINE in done.err and "Traceback" not in done.err
    assert len(done.err.splitlines()) == 1, done.err


def test_the_list_of_runs_marks_an_old_run(old: RunHarness) -> None:
    done = old.run("runs", program="agentos")
    assert done.code == 0 and f"{OLD_RUN:<20} (written by another version of agentos)" in done.out


def test_a_log_of_an_old_run_can_still_be_read(old: RunHarness) -> None:
    (old.home / "logs/parallel" / OLD_RUN / "LLD-42.log").write_text("hello\n")
    done = old.run("logs", "LLD-42", program="agentos")
    assert (done.code, done.out) == (0, "hello\n")


def test_keys_says_that_old_notes_are_ignored(old: RunHarness) -> None:
    done = old.run("keys", program="agentos")
    assert done.code == 0 and done.err.count("another version of agentos wrote it") == 1


def test_failed_items_of_an_old_run_cannot_be_selected(old: RunHarness) -> None:
    done = old.run("--failed", "42")
    assert done.code == 3 and LINE in done.err


@pytest.mark.slow
def test_a_run_ignores_old_records_and_says_once_that_the_notes_are_dropped(old: RunHarness) -> None:
    old.server()
    first, second = old.run("42"), old.run("42", "--fresh")
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert (first.out + first.err).count("another version of agentos wrote it") == 1, first.out
    assert "another version" not in second.out + second.err
