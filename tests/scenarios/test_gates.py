"""Human review gates: parked items, decisions, and crashes that must not undo them."""

import contextlib
import os
import shutil
import signal
import sqlite3
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from agentos.cli.review_prompt import _goes_on

from .harness import CompletedCommand, RunHarness, wait_until


def review(harness: RunHarness, *args: str, **env: str) -> CompletedCommand:
    return harness.run("review", *args, program="agentos", **env)


def lineage(harness: RunHarness, name: str, state: str = "active") -> list[str]:
    return sorted(path.name for path in (harness.project / "docs/lineage" / state / name).iterdir())


def notes(harness: RunHarness, name: str = "lld_workflow_42.db") -> dict[str, str]:
    (path,) = harness.home.glob(f"checkpoints/*/{name}")
    with contextlib.closing(sqlite3.connect(path)) as database:
        return dict(database.execute("SELECT name, text FROM agentos_notes"))


def editor(harness: RunHarness, script: str) -> str:
    """A script that stands in for the reviewer's editor."""
    path = harness.root / "editor"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.slow
def test_a_gated_draft_parks_its_item_until_an_approval(harness: RunHarness) -> None:
    harness.issues(42, 43)
    server = harness.server()
    parked = harness.run("--all", "--parallel", 2, "--review", "draft")
    assert parked.code == 0, parked.out
    assert "Parked at N2_human_edit: waiting for a person" in parked.lines_of("LLD-42")
    assert "  Parked: LLD-42 is waiting for a person: agentos review LLD-42" in parked.lines_of("COORDINATOR")
    assert "2 waiting for a person (LLD-42, LLD-43)" in parked.out
    assert parked.lines[-1].endswith("lld-workflow --all --parallel 2 --review draft")
    assert harness.databases() == ["lld_workflow_42.db", "lld_workflow_43.db"]
    status = harness.run("status", program="agentos")
    assert "Waiting for a person: LLD-42, LLD-43. Decide with: agentos review" in status.out
    stop = harness.run("stop", program="agentos")
    assert "LLD-42, LLD-43 are waiting for a person. Decide with: agentos review" in stop.err
    (row,) = harness.run("runs", program="agentos").lines
    assert "2 items: 0 approved, 0 need revision, 0 failed, 2 waiting for a person" in row

    again = harness.run("--all", "--review", "draft")
    assert again.code == 0 and len(harness.runs()) == 1
    assert "[COORDINATOR] LLD-42 is waiting for a person: agentos review LLD-42" in again.lines
    named = harness.run(42)
    assert named.code == 0 and "LLD-42 is waiting for a person" in named.out and len(server.calls()) == 2

    decided = review(harness, "LLD-42", "--approve")
    assert decided.code == 0, decided.err
    assert decided.lines[0] == "LLD-42 is approved: it goes to review."
    assert decided.lines[-1] == "  lld-workflow --all --parallel 2 --review draft"
    listed = harness.run("--all", "--dry-run")
    assert "LLD-42  approved by a person, resumes at N2_human_edit" in listed.out
    assert "LLD-43 is waiting for a person" in listed.out
    # Without --review, an earlier decision still applies, and no further gate is requested.
    done = harness.run("--all")
    assert done.code == 0 and "A person has approved the draft" in done.lines_of("LLD-42")
    assert harness.document(42).exists() and not harness.document(43).exists()
    assert [call["role"] for call in server.calls(42)] == ["draft", "review"]
    assert harness.databases() == ["lld_workflow_43.db"]


@pytest.mark.long
def test_a_reviewers_comments_reach_the_next_draft_with_all_other_feedback(harness: RunHarness) -> None:
    harness.issue(42, "weak")
    server = harness.server()
    harness.run(42, "--review", "verdict")
    assert "verdict on draft 1 (needs revision) waiting since" in review(harness).out
    assert review(harness, "42", "--send-back", "- Use purple for the heading of every row.").code == 0
    again = harness.run(42, "--review", "draft")
    assert "A person has sent back the verdict" in again.lines_of("LLD-42")
    draft = (harness.project / "docs/lineage/active/42-lld/005-draft.md").read_text()
    assert "Use purple for the heading of every row." in draft and "## Failure modes" in draft
    assert review(harness, "42", "--send-back", "Use green instead.").code == 0
    assert review(harness, "42", "--approve").code == 5
    harness.run(42, "--review", "none")
    assert lineage(harness, "42-lld", "done") == [
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
    assert "rounds: 2" in harness.document(42).read_text()
    assert server.repeated_prompts() == [] and len(server.answered(42)) == 5


@pytest.mark.slow
def test_a_rejection_ends_the_item_with_its_reasons_before_any_review(harness: RunHarness) -> None:
    harness.issue(42)
    server = harness.server()
    harness.run("--all", "--review", "all")
    swapped = review(harness, "--reject", "LLD-42")
    assert swapped.code == 2 and '"LLD-42" was read as the text of --reject' in swapped.err
    rejected = review(harness, "LLD-42", "--reject", "Nobody asked for this.")
    assert rejected.lines[0] == "LLD-42 is rejected: it ends as needs revision, with your reason."
    done = harness.run("--all", "--review", "all")
    assert done.code == 0 and "0 approved, 1 needs revision" in done.out
    text = harness.revision(42).read_text()
    assert "Stopped: rejected by a person." in text and "Nobody asked for this." in text
    assert 'reviewer: "a person"' in text
    assert len(server.calls()) == 1 and harness.databases() == []
    assert "Nothing is pending" in harness.run("--all").out
    again = harness.run("--all", "--fresh", "--review", "all")
    assert "1 waiting for a person (LLD-42)" in again.out, "a new draft, and nothing of the old decision"


@pytest.mark.long
def test_an_edited_draft_becomes_the_draft_and_is_kept_until_the_decision(harness: RunHarness) -> None:
    harness.issue(42)
    harness.server()
    harness.run("--all", "--review", "verdict")

    kept = review(harness, "LLD-42", "--edit", "--reject", "no", EDITOR="false")
    assert kept.code == 1 and "edit 1" not in notes(harness) and "decision 1" not in notes(harness)
    empty = review(harness, "LLD-42", "--edit", "--approve", EDITOR=editor(harness, ': > "$1"'))
    assert empty.code == 2 and "the edited text is empty" in empty.err
    write = editor(harness, 'printf "\\n## By hand\\n\\nA line of mine.\\n" >> "$1"')
    terminal = harness.terminal("review", "42", "--edit", program="agentos", EDITOR=write, PAGER="cat")
    terminal.wait_for("decide later?")
    os.write(terminal.keyboard, b"l\n")
    assert terminal.wait().code == 0
    shown = review(harness, "LLD-42", "--show")
    assert "the draft as you edited it" in shown.out and "A line of mine." in shown.out
    assert review(harness, "LLD-42", "--approve").code == 0
    assert harness.run("--all").code == 0
    text = harness.document(42).read_text()
    assert "A line of mine." in text
    assert ', edited by a person"' in text and ', then a person"' in text
    assert "004-edited.md" in lineage(harness, "42-lld", "done")


@pytest.mark.long
def test_a_person_can_approve_what_the_model_reviewer_does_not(harness: RunHarness) -> None:
    harness.issue(45, "hopeless")
    harness.server()
    harness.run("--all", "--review", "verdict", "--max-iterations", 1)
    shown = review(harness, "LLD-45", "--show")
    assert shown.code == 0 and "Review 1: needs revision" in shown.out
    review(harness, "LLD-45", "--approve")
    done = harness.run("--all", "--review", "verdict")
    assert "1 approved, 0 need revision" in done.out and harness.document(45).exists()


@pytest.mark.slow
def test_both_gates_of_the_issue_workflow_park_and_the_issue_is_filed_once(harness: RunHarness) -> None:
    harness.brief("17-thing.md", 17)
    harness.server()
    draft = harness.run("--all", "--review", "all", program="issue-workflow")
    assert "Parked at N3_human_edit_draft: waiting for a person" in draft.lines_of("ISSUE-17")
    assert review(harness, "ISSUE-17", "--approve").code == 0
    verdict = harness.run("--all", "--review", "all", program="issue-workflow")
    assert "Parked at N5_human_edit_verdict: waiting for a person" in verdict.lines_of("ISSUE-17")
    assert list((harness.project / "issues").glob("*.md")) == []
    assert "send-back" in review(harness, "ISSUE-17", "--send-back").err
    assert review(harness, "ISSUE-17", "--approve").code == 0
    assert harness.run("--all", program="issue-workflow").code == 0
    assert len(list((harness.project / "issues").glob("*.md"))) == 1


@pytest.mark.slow
def test_without_a_terminal_review_names_the_flags_instead_of_prompting(harness: RunHarness) -> None:
    harness.issue(42)
    harness.server()
    harness.run("--all", "--review", "draft")
    refused = review(harness, "LLD-42")
    assert refused.code == 2 and not refused.out, "the error is not below a long draft"
    assert not review(harness, "LLD-42", "--edit").out
    answered = review(harness, "LLD-42", "--answer", '{"a": 1}')
    assert answered.code == 2 and "LLD-42 waits for a review, not for an answer: expected --a" in answered.err
    for flag in ("--approve", "--send-back", "--reject", "--edit", "--show"):
        assert flag in refused.err
    assert "decision 1" not in notes(harness)
    assert review(harness, "LLD-42", "--approve", "--reject", "x").code == 2
    assert review(harness, "--approve").code == 2
    assert review(harness, "LLD-43").code == 5
    assert harness.run("--all", "--review", "sometimes").code == 2


def test_in_a_terminal_review_shows_the_draft_and_prompts(harness: RunHarness) -> None:
    harness.issue(42)
    harness.server()
    harness.run("--all", "--review", "draft")
    left = harness.terminal("review", "LLD-42", program="agentos", PAGER="cat")
    left.wait_for("decide later?")
    os.write(left.keyboard, b"q\n")
    assert "Nothing was decided. Come back with: agentos review LLD-42" in left.wait().out
    terminal = harness.terminal("review", "LLD-42", program="agentos", PAGER="cat")
    terminal.wait_for("decide later?")
    assert "Low-level design: Thing 42 can be used" in terminal.screen
    os.write(terminal.keyboard, b"s\n")
    terminal.wait_for("What should change")
    os.write(terminal.keyboard, b"Say more.\n")
    done = terminal.wait()
    assert done.code == 0 and "LLD-42 is sent back: a new draft will be written." in done.out
    assert '"Say more."' in notes(harness)["decision 1"]


def test_a_running_run_picks_up_a_decision_by_itself(harness: RunHarness) -> None:
    harness.issues(42, 43)
    server = harness.server(fault={"kind": "hang", "matching": "Thing 43", "role": "draft"})
    running = harness.start("--all", "--parallel", 2, "--review", "draft")
    running.wait_for("[LLD-42] Parked at N2_human_edit")
    wait_until(lambda: len(server.calls(43)) == 1)
    decided = review(harness, "LLD-42", "--approve")
    assert "is in progress and picks it up" in decided.out
    running.wait_for("LLD-42 was reviewed by a person (approve). Resuming it.")
    running.wait_for("[LLD-42] Approved after 1 review")
    assert harness.document(42).exists()
    running.signal(signal.SIGTERM)
    assert running.wait().code == 143
    assert [call["role"] for call in server.calls(42)] == ["draft", "review"]


@pytest.mark.slow
def test_a_worker_killed_after_a_decision_applies_it_exactly_once(harness: RunHarness) -> None:
    harness.issue(42)
    server = harness.server()
    harness.run("--all", "--review", "draft")
    review(harness, "LLD-42", "--send-back", "Say more.")
    server.add_fault(kind="hang", role="draft")
    running = harness.start("--all", "--review", "draft")
    wait_until(lambda: len(server.calls(42)) == 2)
    os.kill(harness.worker("LLD-42"), signal.SIGKILL)
    done = running.wait()
    assert done.code == 0 and "attempt 2 of 3" in done.out
    assert "[LLD-42] Parked at N2_human_edit: waiting for a person" in done.lines
    assert lineage(harness, "42-lld") == ["001-issue.md", "002-draft.md", "003-feedback.md", "004-draft.md"]
    assert '"number": 2' in notes(harness)["parking"] and "decision 2" not in notes(harness)


@pytest.mark.long
def test_a_coordinator_killed_while_resuming_applies_a_decision_once(
    harness: RunHarness,
) -> None:
    harness.issue(42)
    server = harness.server("--latency", "0.2,0.2")
    harness.run("--all", "--review", "draft")
    review(harness, "LLD-42", "--send-back", "Say more.")
    injected = 0
    for pause in (0.0, 0.02):
        running = harness.start("--all", "--review", "draft")
        with contextlib.suppress(AssertionError):
            running.wait_for("[LLD-42] >>> Executing: N2_human_edit")
            time.sleep(pause)
        injected += running.process.poll() is None
        running.signal(signal.SIGKILL)
        running.wait()
    assert injected
    harness.run("--all", "--review", "draft")
    assert lineage(harness, "42-lld") == ["001-issue.md", "002-draft.md", "003-feedback.md", "004-draft.md"]
    assert review(harness, "LLD-42", "--approve").code == 0
    assert harness.run("--all").code == 0 and harness.document(42).exists()
    assert len({call["prompt_sha256"] for call in server.answered(42)}) == 3


@pytest.mark.slow
def test_a_decision_is_saved_completely_or_not_at_all_when_its_command_is_killed(harness: RunHarness) -> None:
    harness.issue(42)
    harness.server()
    harness.run("--all", "--review", "draft")
    for pause in (0.05, 0.1, 0.15, 0.2, 0.25, 0.3):
        running = harness.start("review", "LLD-42", "--send-back", "Say more.", program="agentos")
        time.sleep(pause)
        running.signal(signal.SIGKILL)
        running.wait()
    decided = "decision 1" in notes(harness)
    assert review(harness, "LLD-42", "--send-back", "Say more.").code == (5 if decided else 0)
    harness.run("--all", "--review", "draft")
    assert lineage(harness, "42-lld").count("003-feedback.md") == 1 and "decision 2" not in notes(harness)


@pytest.mark.slow
def test_an_item_killed_while_parking_is_parked_by_the_next_run(harness: RunHarness) -> None:
    harness.issue(42)
    server = harness.server()
    harness.run("--all", "--review", "draft")
    (path,) = harness.home.glob("checkpoints/*/lld_workflow_42.db")
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM agentos_notes WHERE name = 'parking'")
    assert "LLD-42" not in review(harness).out
    again = harness.run("--all", "--review", "draft")
    assert "is waiting for a person" in again.out and "LLD-42" in review(harness).out
    assert len(server.calls()) == 1


@pytest.mark.slow
def test_a_draft_of_an_outdated_issue_cannot_be_decided_on(harness: RunHarness) -> None:
    path = harness.issue(42)
    harness.server()
    harness.run("--all", "--review", "draft", "--offline")
    path.write_text(path.read_text() + "\n- And a fourth row.\n")
    refused = review(harness, "LLD-42", "--approve")
    assert (
        refused.code == 2
        and "start over with: lld-workflow 42 --fresh --offline --review draft" in refused.err
    )
    assert harness.run(42, "--fresh").code == 0 and harness.document(42).exists()


@pytest.mark.slow
def test_an_approval_of_a_text_that_changed_later_is_dropped_with_a_word(harness: RunHarness) -> None:
    path, waiting = harness.issue(42), harness.issue(43)
    words = ("--all", "--review", "draft", "--offline")
    harness.run(*words)
    assert review(harness, "LLD-42", "--approve").code == 0
    for changed in (path, waiting):
        changed.write_text(changed.read_text() + "\n- And a fourth row.\n")
    listed = review(harness).lines
    assert listed[0].startswith("LLD-43  draft 1 waiting since ")
    assert listed[0].endswith(
        "; its file has changed since, so start over with: lld-workflow 43 --fresh --offline --review draft"
    )
    starts_over = (
        "LLD-42  approved; its file has changed since, so it will start over without this decision; "
    )
    assert listed[1].startswith(starts_over)
    dropped = (
        "[COORDINATOR] LLD-42 was approved by a person, but issues/042-thing.md has changed since: "
        "it starts over, without that decision"
    )
    kept = (
        "[COORDINATOR] LLD-43 is waiting for a person, but issues/043-thing.md has changed since: "
        "redo it with --fresh 43"
    )
    planned = harness.run(*words, "--dry-run")
    assert "  - LLD-42  approved by a person, but changed since: starts over: " in planned.out
    done = harness.run(*words)
    for shown in (planned, done):
        assert dropped in shown.lines and kept in shown.lines
    assert "LLD-43 starts over: --fresh drops a parked draft" in harness.run(*words, "--fresh", "-n").out
    assert "Parked at N2_human_edit" in done.out


@pytest.mark.slow
def test_a_parked_item_whose_issue_is_gone_is_named_and_can_be_dropped(harness: RunHarness) -> None:
    paths = [harness.issue(number) for number in (42, 43)]
    harness.issue(44)
    words = ("42-44", "--review", "draft", "--offline")
    harness.run(*words)
    assert review(harness, "LLD-43", "--approve").code == 0
    for path in paths:
        path.unlink()
    gone = "its file is gone, so nothing can continue it: restore the file, or drop the item with: "
    listed = review(harness).lines
    assert listed[0].endswith(f"{gone}agentos review LLD-42 --reject")
    assert listed[-2] == f"LLD-43  approved; {gone}agentos review LLD-43 --reject"
    assert listed[-1] == "Read one and decide: agentos review LLD-44"
    refused = review(harness, "LLD-42", "--approve")
    assert refused.code == 2 and gone in refused.err
    for command in (words, ("--all", "--offline"), ("43", "44", "--dry-run")):
        named = harness.run(*command)
        said = "LLD-43 is parked, but its file is gone: restore it, or drop the item with: agentos review LLD-43 --reject"
        assert f"[COORDINATOR] {said}" in named.lines and named.code == 0
    assert harness.run("43").code == 5
    for number in (42, 43):
        done = review(harness, f"LLD-{number}", "--reject")
        assert done.out == f"LLD-{number} is rejected: it is dropped, because its file is gone.\n", done
    assert [line.split()[0] for line in review(harness).lines[:-1]] == ["LLD-44"]
    assert harness.databases() == ["lld_workflow_44.db"]
    assert (harness.project / "docs/lineage/done/42-lld/002-draft.md").exists()


@pytest.mark.slow
def test_an_invalid_gate_in_the_project_file_is_reported(harness: RunHarness) -> None:
    harness.issue(42)
    Path(harness.project / "agentos.toml").write_text('review = "drafts"\n')
    refused = harness.run("--all")
    assert refused.code == 3 and "one of none, draft, verdict, all" in refused.err
    Path(harness.project / "agentos.toml").write_text('review = "draft"\n')
    harness.server()
    assert "is waiting for a person" in harness.run("--all").out


@pytest.mark.slow
def test_several_items_are_decided_at_once(harness: RunHarness) -> None:
    harness.issues(40, 41, 43)
    harness.server()
    harness.run("--all", "--parallel", "--review", "draft")
    done = review(harness, "--approve", "LLD-40..42")
    assert done.code == 0, done.err
    assert [line.partition(" is ")[0] for line in done.lines if " is approved" in line] == [
        "LLD-40",
        "LLD-41",
    ]
    assert done.lines[2:] == ["Resume with:", "  lld-workflow --all --parallel --review draft"], "said once"
    assert review(harness, "--approve", "40..42").code == 5, "both are decided"
    assert review(harness, "--approve", "LLD-43..40").code == 2
    mixed = review(harness, "--approve", "LLD-40", "LLD-43")
    assert mixed.code == 5 and "LLD-40 no longer waits" in mixed.err and "LLD-43 is approved" in mixed.out
    assert harness.run("--all", "--parallel").code == 0
    assert all(harness.document(number).exists() for number in (40, 41, 43))


@pytest.mark.slow
def test_status_knows_which_items_still_wait_for_a_decision(harness: RunHarness) -> None:
    harness.issues(40, 41, 42)
    assert harness.run(40, 41, "--review", "draft", "--offline").code == 0
    resume = "Resume with: lld-workflow 40 41 --review draft --offline"

    def status(*args: str) -> CompletedCommand:
        return harness.run("status", *args, program="agentos")

    assert review(harness, "LLD-40", "--approve").code == 0
    assert "Waiting for a person: LLD-41. Decide with: agentos review\n" in status().out
    assert harness.run(42, "--offline").code == 0
    assert status().lines[-3:] == [
        "Every item reached a verdict. Earlier runs: agentos runs",
        "Waiting for a person since other runs: LLD-41. Decide with: agentos review",
        "Decided, but not resumed: LLD-40. See how: agentos review",
    ]
    first = harness.runs()[0].name
    assert review(harness, "LLD-41", "--approve").code == 0
    assert status(first).lines[-1] == f"Decided: LLD-40, LLD-41. {resume}"
    stopped = harness.run("stop", "--run", first, program="agentos")
    assert f"LLD-40, LLD-41 are decided. {resume}" in stopped.err
    assert harness.run(40, 41, "--offline").code == 0
    assert status().lines[-1] == "Every item reached a verdict. Earlier runs: agentos runs"
    assert status(first).lines[-1] == "Later runs have continued the parked items. List them: agentos runs"


@pytest.mark.slow
def test_the_command_that_resumes_keeps_its_options_when_the_run_is_pruned(harness: RunHarness) -> None:
    harness.issues(40, 41)
    assert harness.run(40, "--review", "draft", "--offline").code == 0
    (parked,) = harness.runs()
    assert harness.run(41, "--review", "draft", "--offline").code == 0
    shutil.rmtree(parked)
    command = "lld-workflow 40 --offline --review draft"
    assert review(harness, "LLD-40", "--approve").lines[-1].strip() == command
    harness.issue(41, "weak")
    listed = review(harness).out
    assert "lld-workflow 41 --fresh --offline --review draft" in listed, listed


def test_a_draft_cannot_be_edited_without_a_terminal_and_an_editor(harness: RunHarness) -> None:
    harness.issue(42)
    assert harness.run(42, "--review", "draft", "--offline").code == 0
    refused = harness.start(
        "review",
        "LLD-42",
        "--edit",
        "--approve",
        program="agentos",
        before=("env", "-u", "EDITOR", "-u", "VISUAL"),
    ).wait(30)
    assert refused.code == 2 and "no editor: stdin is not a terminal" in refused.err
    assert "decision 1" not in notes(harness)


def test_the_next_item_is_the_one_that_follows_in_the_list(harness: RunHarness) -> None:
    harness.issues(40, 41, 42)
    harness.server()
    harness.run("--all", "--parallel", 3, "--review", "draft")
    terminal = harness.terminal("review", "LLD-41", program="agentos", PAGER="cat")
    terminal.wait_for("LLD-41: Approve, send back")
    terminal.press("n\n")
    terminal.wait_for("LLD-42: Approve, send back")
    terminal.press("n\n")
    terminal.wait_for("LLD-40: Approve, send back")
    terminal.press("l\n")
    assert terminal.wait().code == 0


@pytest.mark.slow
def test_the_prompt_pages_compares_explains_and_goes_on_to_the_next_item(harness: RunHarness) -> None:
    harness.issues(40, 41)
    harness.server()
    harness.run("--all", "--parallel", 2, "--review", "draft")
    pager = editor(harness, "cat; echo END OF PAGER")
    terminal = harness.terminal(
        "review", "LLD-40", program="agentos", PAGER=pager, EDITOR="sed -i s/Thing/Gadget/"
    )
    terminal.wait_for("END OF PAGER")
    terminal.wait_for("LLD-40: Approve, send back")
    terminal.wait_for("? for all keys")
    terminal.press("?\n")
    terminal.wait_for("next item, without deciding on this one")
    terminal.press("d\n")
    terminal.wait_for("This is the first draft of LLD-40")
    terminal.press("e\n")
    terminal.wait_for("Your edited draft was saved.")
    terminal.press("d\n")
    terminal.wait_for("+# Low-level design: Gadget 40 can be used")
    terminal.press("a\n")
    terminal.wait_for("1 more waiting. Go on with LLD-41?")
    terminal.press("y\n")
    terminal.wait_for("LLD-41: Thing 41 can be used")
    wait_until(lambda: terminal.screen.count("? for all keys") == 6)
    terminal.press("n\n")
    terminal.wait_for("This is the last one that is waiting.")
    terminal.press("l\n")
    assert terminal.wait().code == 0
    assert "decision 1" in notes(harness, "lld_workflow_40.db")
    assert "decision 1" not in notes(harness, "lld_workflow_41.db")


@pytest.mark.parametrize(
    ("typed", "goes_on"), [("\n", True), ("Yes\n", True), ("n\n", False), ("q\n", False)]
)
def test_q_is_a_no_to_the_next_item(typed: str, goes_on: bool) -> None:
    with CliRunner().isolation(input=typed):
        assert _goes_on("2 more waiting. Go on with LLD-41?") is goes_on


@pytest.mark.slow
def test_a_new_draft_is_compared_with_the_one_that_was_sent_back(harness: RunHarness) -> None:
    harness.issue(42, "weak")
    harness.server()
    harness.run("--all", "--review", "draft")
    assert "there is nothing to compare it with" in review(harness, "LLD-42", "--diff").out
    assert review(harness, "LLD-42", "--send-back", "Say what happens when it fails.").code == 0
    harness.run("--all", "--review", "draft")
    found = review(harness, "LLD-42", "--diff")
    assert found.code == 0 and found.lines[0] == "--- 002-draft.md", found.out
    assert any(line.startswith("+") and "fail" in line for line in found.lines[2:])
