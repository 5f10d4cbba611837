"""A person has the word: parked items, decisions, and what a crash may not undo."""

import contextlib
import os
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from .stage import Done, Stage, until


def review(stage: Stage, *words: str, **env: str) -> Done:
    return stage.run("review", *words, program="agentos", **env)


def lineage(stage: Stage, name: str, place: str = "active") -> list[str]:
    return sorted(path.name for path in (stage.project / "docs/lineage" / place / name).iterdir())


def notes(stage: Stage, name: str = "lld_workflow_42.db") -> dict[str, str]:
    (path,) = stage.home.glob(f"checkpoints/*/{name}")
    with contextlib.closing(sqlite3.connect(path)) as database:
        return dict(database.execute("SELECT name, text FROM agentos_notes"))


def editor(stage: Stage, script: str) -> str:
    """An editor that does by itself what a person would do."""
    path = stage.root / "editor"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_a_gated_draft_parks_its_item_and_an_approval_lets_the_next_run_go_on(stage: Stage) -> None:
    stage.issues(42, 43)
    witness = stage.server()
    parked = stage.run("--all", "--parallel", 2, "--review", "draft")
    assert parked.code == 0, parked.out
    assert "Parked at N2_human_edit: waits for a person" in parked.of("LLD-42")
    assert "  Parked: LLD-42 waits for a person: agentos review LLD-42" in parked.of("COORDINATOR")
    assert "2 waiting for a person (LLD-42, LLD-43)" in parked.out
    assert parked.lines[-1].endswith("lld-workflow --all --parallel 2 --review draft")
    assert stage.databases() == ["lld_workflow_42.db", "lld_workflow_43.db"]
    status = stage.run("status", program="agentos")
    assert "Parked for a person: LLD-42, LLD-43. Decide with: agentos review" in status.out
    stop = stage.run("stop", program="agentos")
    assert "LLD-42, LLD-43 wait for a person. Decide with: agentos review" in stop.err
    (row,) = stage.run("runs", program="agentos").lines
    assert "2 items: 0 approved, 0 to revise, 0 failed, 2 waiting for a person" in row

    again = stage.run("--all", "--review", "draft")
    assert again.code == 0 and len(stage.runs()) == 1
    assert "[COORDINATOR] LLD-42 waits for a person: agentos review LLD-42" in again.lines
    named = stage.run(42)
    assert named.code == 0 and "LLD-42 waits for a person" in named.out and len(witness.calls()) == 2

    decided = review(stage, "LLD-42", "--approve")
    assert decided.code == 0, decided.err
    assert decided.lines[0] == "LLD-42 is approved: it goes on to its review."
    assert decided.lines[-1] == "  lld-workflow --all --parallel 2 --review draft"
    listed = stage.run("--all", "--dry-run")
    assert "LLD-42  approved by a person, resumes at N2_human_edit" in listed.out
    assert "LLD-43 waits for a person" in listed.out
    # Without --review: what a person has decided counts all the same, and no further gate is asked for.
    done = stage.run("--all")
    assert done.code == 0 and "A person has approved the draft" in done.of("LLD-42")
    assert stage.document(42).exists() and not stage.document(43).exists()
    assert [call["role"] for call in witness.calls(42)] == ["draft", "review"]
    assert stage.databases() == ["lld_workflow_43.db"]


@pytest.mark.long
def test_words_of_a_person_reach_the_next_draft_beside_all_other_feedback(stage: Stage) -> None:
    stage.issue(42, "weak")
    witness = stage.server()
    stage.run(42, "--review", "verdict")
    assert "verdict on draft 1 (needs revision) waits" in review(stage).out
    assert review(stage, "42", "--send-back", "- Use purple for the heading of every row.").code == 0
    again = stage.run(42, "--review", "draft")
    assert "A person has sent back the verdict" in again.of("LLD-42")
    draft = (stage.project / "docs/lineage/active/42-lld/005-draft.md").read_text()
    assert "Use purple for the heading of every row." in draft and "## Failure modes" in draft
    assert review(stage, "42", "--send-back", "Use green instead.").code == 0
    assert review(stage, "42", "--approve").code == 5
    stage.run(42, "--review", "none")
    assert lineage(stage, "42-lld", "done") == [
        "001-issue.md",
        "002-draft.md",
        "003-verdict.md",
        "004-feedback.md",
        "005-draft.md",
        "006-feedback.md",
        "007-draft.md",
        "008-verdict.md",
    ]
    # Three drafts, two reviews: one draft was sent back before its review.
    assert "rounds: 2" in stage.document(42).read_text()
    assert witness.asked_twice() == [] and len(witness.answered(42)) == 5


def test_a_rejection_ends_the_item_with_the_persons_reasons_before_any_review(stage: Stage) -> None:
    stage.issue(42)
    witness = stage.server()
    stage.run("--all", "--review", "all")
    rejected = review(stage, "LLD-42", "--reject", "Nobody asked for this.")
    assert rejected.lines[0] == "LLD-42 is rejected: it ends as needs revision, with your reasons."
    done = stage.run("--all", "--review", "all")
    assert done.code == 0 and "0 approved, 1 needs revision" in done.out
    text = stage.revision(42).read_text()
    assert "Stopped: rejected by a person." in text and "Nobody asked for this." in text
    assert 'reviewer: "a person"' in text
    assert len(witness.calls()) == 1 and stage.databases() == []
    assert "Nothing is pending" in stage.run("--all").out


@pytest.mark.long
def test_an_edited_draft_becomes_the_draft_and_is_kept_until_the_decision(stage: Stage) -> None:
    stage.issue(42)
    stage.server()
    stage.run("--all", "--review", "verdict")

    kept = review(stage, "LLD-42", "--edit", "--reject", "no", EDITOR="false")
    assert kept.code == 1 and "edit 1" not in notes(stage) and "decision 1" not in notes(stage)
    empty = review(stage, "LLD-42", "--edit", "--approve", EDITOR=editor(stage, ': > "$1"'))
    assert empty.code == 2 and "the editor left nothing" in empty.err
    write = editor(stage, 'printf "\\n## By hand\\n\\nA line of mine.\\n" >> "$1"')
    terminal = stage.terminal("review", "42", "--edit", program="agentos", EDITOR=write)
    terminal.says("decide later?")
    os.write(terminal.keyboard, b"l\n")
    assert terminal.end().code == 0
    shown = review(stage, "LLD-42", "--show")
    assert "the draft as you edited it" in shown.out and "A line of mine." in shown.out
    assert review(stage, "LLD-42", "--approve").code == 0
    assert stage.run("--all").code == 0
    text = stage.document(42).read_text()
    assert "A line of mine." in text
    assert ', edited by a person"' in text and ', then a person"' in text
    assert "004-edited.md" in lineage(stage, "42-lld", "done")


@pytest.mark.long
def test_a_person_may_approve_what_the_reviewer_does_not(stage: Stage) -> None:
    stage.issue(45, "hopeless")
    stage.server()
    stage.run("--all", "--review", "verdict", "--max-iterations", 1)
    shown = review(stage, "LLD-45", "--show")
    assert shown.code == 0 and "Review 1: needs revision" in shown.out
    review(stage, "LLD-45", "--approve")
    done = stage.run("--all", "--review", "verdict")
    assert "1 approved, 0 need revision" in done.out and stage.document(45).exists()


def test_both_gates_of_the_issue_workflow_park_and_it_files_once(stage: Stage) -> None:
    stage.brief("17-thing.md", 17)
    stage.server()
    draft = stage.run("--all", "--review", "all", program="issue-workflow")
    assert "Parked at N3_human_edit_draft: waits for a person" in draft.of("ISSUE-17")
    assert review(stage, "ISSUE-17", "--approve").code == 0
    verdict = stage.run("--all", "--review", "all", program="issue-workflow")
    assert "Parked at N5_human_edit_verdict: waits for a person" in verdict.of("ISSUE-17")
    assert list((stage.project / "issues").glob("*.md")) == []
    assert "send-back" in review(stage, "ISSUE-17", "--send-back").err
    assert review(stage, "ISSUE-17", "--approve").code == 0
    assert stage.run("--all", program="issue-workflow").code == 0
    assert len(list((stage.project / "issues").glob("*.md"))) == 1


def test_without_a_terminal_nothing_is_asked_and_the_flags_are_named(stage: Stage) -> None:
    stage.issue(42)
    stage.server()
    stage.run("--all", "--review", "draft")
    refused = review(stage, "LLD-42")
    assert refused.code == 2 and "002-draft.md" in refused.out
    for flag in ("--approve", "--send-back", "--reject", "--edit", "--show"):
        assert flag in refused.err
    assert "decision 1" not in notes(stage)
    assert review(stage, "LLD-42", "--approve", "--reject", "x").code == 2
    assert review(stage, "--approve").code == 2
    assert review(stage, "LLD-43").code == 5
    assert stage.run("--all", "--review", "sometimes").code == 2


def test_in_a_terminal_a_person_reads_then_chooses(stage: Stage) -> None:
    stage.issue(42)
    stage.server()
    stage.run("--all", "--review", "draft")
    terminal = stage.terminal("review", "LLD-42", program="agentos")
    terminal.says("decide later?")
    assert "Low-level design: Thing 42 can be used" in terminal.screen
    os.write(terminal.keyboard, b"s\n")
    terminal.says("What is to change")
    os.write(terminal.keyboard, b"Say more.\n")
    done = terminal.end()
    assert done.code == 0 and "LLD-42 is sent back: a new draft is next." in done.out
    assert '"Say more."' in notes(stage)["decision 1"]


def test_a_run_that_is_under_way_takes_a_decision_up_by_itself(stage: Stage) -> None:
    stage.issues(42, 43)
    witness = stage.server(fault={"kind": "hang", "matching": "Thing 43", "role": "draft"})
    running = stage.start("--all", "--parallel", 2, "--review", "draft")
    running.says("[LLD-42] Parked at N2_human_edit")
    until(lambda: len(witness.calls(43)) == 1)
    decided = review(stage, "LLD-42", "--approve")
    assert "is under way and takes it up" in decided.out
    running.says("A person has decided on LLD-42 (approve). Going on with it.")
    running.says("[LLD-42] Approved after 1 review")
    assert stage.document(42).exists()
    running.signal(signal.SIGTERM)
    assert running.end().code == 143
    assert [call["role"] for call in witness.calls(42)] == ["draft", "review"]


def test_a_worker_killed_after_the_decision_neither_loses_nor_repeats_it(stage: Stage) -> None:
    stage.issue(42)
    witness = stage.server()
    stage.run("--all", "--review", "draft")
    review(stage, "LLD-42", "--send-back", "Say more.")
    witness.add_fault(kind="hang", role="draft")
    running = stage.start("--all", "--review", "draft")
    until(lambda: len(witness.calls(42)) == 2)
    os.kill(stage.worker("LLD-42"), signal.SIGKILL)
    done = running.end()
    assert done.code == 0 and "attempt 2 of 3" in done.out
    assert "[LLD-42] Parked at N2_human_edit: waits for a person" in done.lines
    assert lineage(stage, "42-lld") == ["001-issue.md", "002-draft.md", "003-feedback.md", "004-draft.md"]
    assert '"number": 2' in notes(stage)["parking"] and "decision 2" not in notes(stage)


@pytest.mark.long
def test_a_coordinator_killed_at_any_moment_of_a_resumption_applies_a_decision_once(stage: Stage) -> None:
    stage.issue(42)
    witness = stage.server("--latency", "0.2,0.2")
    stage.run("--all", "--review", "draft")
    review(stage, "LLD-42", "--send-back", "Say more.")
    injected = 0
    for pause in (0.0, 0.02):
        running = stage.start("--all", "--review", "draft")
        with contextlib.suppress(AssertionError):
            running.says("[LLD-42] >>> Executing: N2_human_edit")
            time.sleep(pause)
        injected += running.process.poll() is None
        running.signal(signal.SIGKILL)
        running.end()
    assert injected
    stage.run("--all", "--review", "draft")
    assert lineage(stage, "42-lld") == ["001-issue.md", "002-draft.md", "003-feedback.md", "004-draft.md"]
    assert review(stage, "LLD-42", "--approve").code == 0
    assert stage.run("--all").code == 0 and stage.document(42).exists()
    assert len({call["prompt_sha256"] for call in witness.answered(42)}) == 3


def test_a_decision_is_whole_or_not_there_however_its_command_is_killed(stage: Stage) -> None:
    stage.issue(42)
    stage.server()
    stage.run("--all", "--review", "draft")
    for pause in (0.05, 0.1, 0.15, 0.2, 0.25, 0.3):
        running = stage.start("review", "LLD-42", "--send-back", "Say more.", program="agentos")
        time.sleep(pause)
        running.signal(signal.SIGKILL)
        running.end()
    decided = "decision 1" in notes(stage)
    assert review(stage, "LLD-42", "--send-back", "Say more.").code == (5 if decided else 0)
    stage.run("--all", "--review", "draft")
    assert lineage(stage, "42-lld").count("003-feedback.md") == 1 and "decision 2" not in notes(stage)


def test_an_item_that_died_while_parking_is_parked_by_the_next_run(stage: Stage) -> None:
    stage.issue(42)
    witness = stage.server()
    stage.run("--all", "--review", "draft")
    (path,) = stage.home.glob("checkpoints/*/lld_workflow_42.db")
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM agentos_notes WHERE name = 'parking'")
    assert "LLD-42" not in review(stage).out
    again = stage.run("--all", "--review", "draft")
    assert "waits for a person" in again.out and "LLD-42" in review(stage).out
    assert len(witness.calls()) == 1


def test_a_draft_of_a_text_that_has_changed_is_not_decided_on(stage: Stage) -> None:
    path = stage.issue(42)
    stage.server()
    stage.run("--all", "--review", "draft")
    path.write_text(path.read_text() + "\n- And a fourth row.\n")
    refused = review(stage, "LLD-42", "--approve")
    assert refused.code == 2 and "start over with: lld-workflow 42 --fresh" in refused.err
    assert stage.run(42, "--fresh").code == 0 and stage.document(42).exists()


def test_a_wrong_word_for_the_gates_in_the_project_file_is_named(stage: Stage) -> None:
    stage.issue(42)
    Path(stage.project / "agentos.toml").write_text('review = "drafts"\n')
    refused = stage.run("--all")
    assert refused.code == 3 and "one of none, draft, verdict, all" in refused.err
    Path(stage.project / "agentos.toml").write_text('review = "draft"\n')
    stage.server()
    assert "waits for a person" in stage.run("--all").out
