"""Several items in parallel: what runs, what is printed, what is left behind."""

import json
import os
import re
import stat
import threading
from pathlib import Path

import pytest

from .harness import CALLS, CompletedCommand, Json, RunHarness, snapshot, title_of, wait_until

TEN = {40: "good", 41: "weak", 42: "good", 43: "good", 44: "good"} | {
    45: "hopeless",
    46: "good",
    47: "weak",
    48: "good",
    49: "good",
}


def in_order(done: CompletedCommand, *texts: str) -> bool:
    """Whether the texts appear in this order on different lines."""
    places = [next(at for at, line in enumerate(done.lines) if text in line) for text in texts]
    return places == sorted(places)


def side_by_side(harness: RunHarness) -> list[int]:
    """The number of running items after each start and end in the journal."""
    now, counts = 0, []
    for event in harness.journal():
        now += {"item_started": 1, "item_ended": -1, "item_retried": -1}.get(event["type"], 0)
        counts.append(now)
    return counts


def test_ten_issues_run_three_at_a_time_until_each_has_a_verdict(harness: RunHarness) -> None:
    for number, quality in TEN.items():
        harness.issue(number, quality)
    server = harness.server("--latency", "0.3,0.5")
    most: set[int] = set()
    running = harness.start("--all", "--parallel", 3)
    while running.process.poll() is None:
        most.add(len([name for name in harness.databases() if name.endswith(".db")]))
        threading.Event().wait(0.02)
    done = running.wait()

    assert done.code == 0, done.out
    assert max(side_by_side(harness)) == 3
    assert server.ledger()["max_concurrent_all"] == 3
    assert max(server.ledger()["max_concurrent"].values()) == 1
    assert {number: len(server.answered(number)) for number in TEN} == {n: CALLS[q] for n, q in TEN.items()}
    assert [number for number in TEN if harness.document(number).exists()] == [n for n in TEN if n != 45]
    assert harness.revision(45).exists() and "Why it was not approved" in harness.revision(45).read_text()
    assert max(most) == 3 and harness.databases() == []
    assert done.lines[0] == "[COORDINATOR] Starting parallel execution of 10 items with 3 workers"
    assert "[LLD-42] >>> Executing: N1_design" in done.lines
    assert in_order(
        done,
        "[COORDINATOR] Starting parallel execution of 10 items with 3 workers",
        "[COORDINATOR] [=>        ] 1/10 workflows complete",
        "[COORDINATOR] [=====>    ] 5/10 workflows complete",
        "[COORDINATOR] [==========] 10/10 workflows complete",
        "[COORDINATOR] Execution complete:",
        "Total: 10",
        "Succeeded: 10",
        "Failed: 0",
        "Duration: ",
        "9 approved, 1 needs revision",
        "10 completed",
    )
    assert all(re.match(r"\[(COORDINATOR|LLD-4\d)\]( |$)", line) for line in done.lines)
    assert done.err == ""
    check_records(harness, done)
    check_lineage(harness)


def json_lines(path: Path) -> list[Json]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def check_records(harness: RunHarness, done: CompletedCommand) -> None:
    folder = harness.home / "logs/parallel/latest"
    assert folder.is_symlink() and re.fullmatch(r"\d{8}T\d{6}Z", os.readlink(folder))
    summary = harness.summary()
    assert summary["exit_code"] == 0 and len(summary["items"]) == 10
    assert {row["item"]: row["state"] for row in summary["items"]}["LLD-45"] == "needs revision"
    for number in TEN:
        log = (folder / f"LLD-{number}.log").read_text().splitlines()
        assert log == done.lines_of(f"LLD-{number}")[: len(log)] and ">>> Executing: N4_finalize" in log
        facts = json_lines(folder / f"workflow-audit-{number}.jsonl")
        assert {fact["item"] for fact in facts} == {f"LLD-{number}"} and facts[-1]["type"] == "item_ended"
    merged = json_lines(folder / "workflow-audit.jsonl")
    assert {fact["item"] for fact in merged} == {f"LLD-{number}" for number in TEN}
    assert [fact["at"] for fact in merged] == sorted(fact["at"] for fact in merged)
    for path in [harness.home, *harness.home.rglob("*")]:
        if not path.is_symlink():
            assert stat.S_IMODE(path.lstat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def check_lineage(harness: RunHarness) -> None:
    lineage = harness.project / "docs/lineage/done/41-lld"
    assert sorted(path.name for path in lineage.iterdir()) == [
        "001-issue.md",
        "002-draft.md",
        "003-verdict.md",
        "004-draft.md",
        "005-verdict.md",
    ]
    assert not any((harness.project / "docs/lineage/active").iterdir())


@pytest.mark.slow
def test_briefs_become_issues_three_at_a_time_and_keep_their_numbers(harness: RunHarness) -> None:
    for number in (17, 21, 22, 23):
        harness.brief(f"{number}-thing.md", number)
    harness.brief("quiet-hours.md", 99)
    harness.brief("shinier.md", 98, "hopeless")
    server = harness.server("--latency", "0.4,0.4")
    done = harness.run("--all", "--parallel", program="issue-workflow")

    assert done.code == 0, done.out
    assert done.lines[0] == "[COORDINATOR] Starting parallel execution of 6 items with 3 workers"
    assert max(side_by_side(harness)) == 3 and server.ledger()["max_concurrent_all"] == 3
    filed = sorted(path.name for path in (harness.project / "issues").iterdir())
    assert len(filed) == 5 and len({name[:3] for name in filed}) == 5
    assert "ISSUE-17" in "".join((harness.project / "issues" / name).read_text() for name in filed)
    assert [path.name for path in (harness.project / "ideas/active").iterdir()] == ["shinier.md"]
    assert len(list((harness.project / "ideas/done").iterdir())) == 5
    assert (harness.project / "docs/issues/needs-revision/ISSUE-025.md").exists()
    assert harness.databases() == []

    harness.brief("another-one.md", 97)
    listed = harness.run("--all", "--dry-run", program="issue-workflow")
    assert [line.split()[1] for line in listed.lines if line.startswith("  - ")] == ["ISSUE-26"]
    again = harness.run("25", "--dry-run", program="issue-workflow")
    assert "ISSUE-25" in again.out and title_of(98) in again.out


def test_a_dry_run_lists_in_order_with_reasons_and_writes_nothing(harness: RunHarness) -> None:
    harness.issues(42, 7, 100)
    harness.brief("quiet-hours.md", 99)
    before = snapshot(harness.project, harness.home, harness.user)
    done = harness.run("--all", "--parallel", 3, "--dry-run")
    assert done.code == 0
    assert done.lines[0] == "[COORDINATOR] Dry run mode - would process 3 items:"
    listed = done.lines[1:4]
    assert [line.split()[1] for line in listed] == ["LLD-7", "LLD-42", "LLD-100"]
    assert all(line.startswith("  - LLD-") and "new" in line for line in listed)
    assert harness.run("--all", "-n", program="issue-workflow").lines[1].startswith("  - ISSUE-1 ")
    assert snapshot(harness.project, harness.home, harness.user) == before and not harness.home.exists()


def test_a_dry_run_says_where_checkpoints_resume_and_changes_nothing(
    harness: RunHarness,
) -> None:
    harness.issues(42, 43)
    harness.server(fault={"kind": "400", "matching": "Thing 42", "role": "review", "times": None})
    failed = harness.run("--all", "--parallel", 2)
    assert failed.code == 1 and "9 completed" not in failed.out
    assert "1 completed, 1 failed (LLD-42)" in failed.out
    assert harness.databases()[0] == "lld_workflow_42.db"
    before = snapshot(harness.project, harness.home, harness.user)
    done = harness.run("--all", "--dry-run")
    assert next(line for line in done.lines if line.startswith("  - ")).startswith(
        "  - LLD-42  failed before, resumes at N3_review"
    )
    assert snapshot(harness.project, harness.home, harness.user) == before


@pytest.mark.slow
def test_each_item_has_its_own_database_which_is_kept_only_after_a_failure(harness: RunHarness) -> None:
    harness.issues(42, 43, 44)
    server = harness.server(
        "--latency", "0.8,0.8", fault={"kind": "400", "matching": "Thing 43", "role": "review", "times": None}
    )
    running = harness.start("--all", "--parallel", 3)
    names = {f"lld_workflow_{number}.db" for number in (42, 43, 44)}
    wait_until(lambda: names <= set(harness.databases()))
    done = running.wait()
    assert done.code == 1
    assert "[LLD-43] FAILED: " in done.out
    assert "2 completed, 1 failed (LLD-43)" in done.out
    assert [name for name in harness.databases() if not name.endswith(("-wal", "-shm"))] == [
        "lld_workflow_43.db"
    ]
    folder = next(harness.home.glob("checkpoints/*"))
    assert re.fullmatch(r"project-[0-9a-f]{8}", folder.name)

    server.clear_faults()
    again = harness.run("--failed")
    assert again.code == 0 and again.lines[0].endswith("Starting execution of 1 item with 1 worker")
    assert harness.databases() == [] and harness.document(43).exists()
    assert not server.repeated_prompts()
    nothing = harness.run("--all")
    assert nothing.code == 0 and "Nothing is pending" in nothing.out


@pytest.mark.slow
def test_when_nothing_is_selected_the_last_line_says_why_and_what_to_type(harness: RunHarness) -> None:
    harness.issue(42, "good", "ui")
    failed = harness.run("--failed", "--offline")
    assert failed.code == 0 and "Nothing is pending" not in failed.out
    assert failed.lines[-1].endswith("To run every pending item, replace --failed with --all")
    assert harness.run("--label", "ui", "--offline").code == 0
    harness.issue(43)
    labelled = harness.run("--label", "ui", "--offline").lines[-1]
    assert labelled.endswith("Nothing is pending with label ui. See what was done: agentos status")


@pytest.mark.slow
def test_a_given_database_is_used_for_one_item_and_refused_for_several(harness: RunHarness) -> None:
    harness.issues(42, 43)
    harness.server("--latency", "0.3,0.3")
    mine = harness.root / "mine.db"
    refused = harness.run("--all", AGENTOS_WORKFLOW_DB=str(mine))
    assert refused.code == 2 and "AGENTOS_WORKFLOW_DB" in refused.err
    assert not mine.exists() and not harness.document(42).exists()
    running = harness.start("42", AGENTOS_WORKFLOW_DB=str(mine))
    wait_until(mine.exists)
    done = running.wait()
    assert done.code == 0 and harness.document(42).exists()
    assert not list(harness.root.glob("mine.db*")) and harness.databases() == []


def test_json_prints_one_event_per_line_and_nothing_else_on_stdout(harness: RunHarness) -> None:
    harness.issues(42, 43)
    harness.server()
    done = harness.run("--all", "--parallel", 2, "--json")
    events = [json.loads(line) for line in done.lines]
    assert done.code == 0
    assert events[0]["type"] == "run_started" and events[-1]["type"] == "run_ended"
    assert {"line_written", "item_ended", "lease_granted"} <= {event["type"] for event in events}
    assert "[COORDINATOR] Execution complete:" in done.err
    nothing = harness.run("--all", "--json")
    assert (nothing.code, nothing.out) == (0, "") and "Nothing is pending" in nothing.err


def listed(harness: RunHarness, *args: object) -> list[str]:
    done = harness.run(*args, "--dry-run")
    assert done.code == 0, done.err
    return [line.split()[1] for line in done.lines if line.startswith("  - ")]


@pytest.mark.slow
def test_items_are_selected_by_number_id_range_file_label_and_limit(harness: RunHarness) -> None:
    for number in (40, 41, 42, 43):
        harness.issue(number, "good", "ui" if number % 2 else "api", "all")
    (harness.project / "issues" / "050-closed.md").write_text("---\nstate: closed\n---\n# Closed\n\nAway.\n")
    assert listed(harness, "--all") == ["LLD-40", "LLD-41", "LLD-42", "LLD-43"]
    assert listed(harness, "--all", "--limit", 2) == ["LLD-40", "LLD-41"]
    assert listed(harness, "--label", "ui") == ["LLD-41", "LLD-43"]
    assert listed(harness, "--all", "--label", "all", "--label", "api") == ["LLD-40", "LLD-42"]
    assert listed(harness, "42", "lld-41") == ["LLD-42", "LLD-41"]
    assert listed(harness, "41-42", "42") == ["LLD-41", "LLD-42"]
    assert listed(harness, "issues/042-thing.md") == ["LLD-42"]
    assert listed(harness, str(harness.project / "issues/043-thing.md")) == ["LLD-43"]
    for args in (["--label", "none-such"], ["77"], ["60-70"], ["issues/none.md"], ["LLD-4"]):
        refused = harness.run(*args, "--dry-run")
        assert refused.code == 5 and args[-1] in refused.err


@pytest.mark.slow
def test_a_needs_revision_item_is_selected_again_when_changed_or_named(
    harness: RunHarness,
) -> None:
    harness.issue(42, "hopeless")
    server = harness.server()
    assert harness.run("--all").code == 0
    assert harness.revision(42).exists() and len(server.calls()) == 4
    assert "Nothing is pending" in harness.run("--all").out
    assert listed(harness, "--all", "--fresh") == ["LLD-42"]
    named = harness.run("42")
    assert named.code == 0 and "1 needs revision" in named.out and len(server.calls()) == 8
    harness.issue(42, "good")
    assert listed(harness, "--all") == ["LLD-42"]
    assert harness.run("--all").code == 0
    assert harness.document(42).exists() and not harness.revision(42).exists()
    assert len(server.calls()) == 10


@pytest.mark.slow
def test_fresh_starts_over_and_selects_an_approved_item_only_by_name(harness: RunHarness) -> None:
    harness.issues(42, 43)
    server = harness.server(fault={"kind": "400", "matching": "Thing 43", "role": "review"})
    assert harness.run("--all").code == 1
    assert len(server.calls(42)) == 2 and len(server.calls(43)) == 2
    assert listed(harness, "--all", "--fresh") == ["LLD-43"]
    approved = harness.run("42")
    assert approved.code == 0 and "already approved" in approved.out and "--fresh 42" in approved.out
    fresh = harness.run("--fresh", 42, 43, "--parallel", 2)
    assert fresh.code == 0
    assert [call["role"] for call in server.calls(42)] == ["draft", "review"] * 2
    assert [call["role"] for call in server.calls(43)] == ["draft", "review"] * 2
    assert harness.document(42).exists() and harness.document(43).exists()
