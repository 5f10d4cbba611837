"""`agentos context`, `agentos prompts`, and a run in a project with code."""

import json

import pytest

from agentos.codebase.indexing import index_lock
from agentos.storage.files import private_folder
from agentos.storage.home import Home
from tests.codebase.projects import FILES, commit_all, make_project

from .harness import CompletedCommand, RunHarness


def agentos(harness: RunHarness, *words: object) -> CompletedCommand:
    return harness.run(*words, program="agentos")


def test_context_shows_what_would_be_sent_and_why(harness: RunHarness) -> None:
    harness.issue(1)
    make_project(harness.project, {**FILES, "docs/api.md": "The whole page.\n", ".env": "PASSWORD=x\n"})
    commit = commit_all(harness.project)
    (harness.project / "app/later.py").write_text("def not_committed(): ...\n")

    shown = agentos(harness, "context", "1", "--context", "docs/api.md")
    assert shown.code == 0, shown.err
    assert f"Code: commit {commit[:12]}; changes that are not committed are not seen" in shown.out
    assert "docs/api.md: you named it" in shown.out and "The whole page." in shown.out
    assert "in total, of 8,000 (code_tokens): $0.00" in shown.out
    assert "Left out: 1 may hold secrets" in shown.out
    assert "not_committed" not in shown.out and "PASSWORD" not in shown.out

    found = json.loads(agentos(harness, "context", "LLD-1", "--json").out)
    raw = agentos(harness, "context", "LLD-1", "--raw").out
    assert found["commit"] == commit and found["tokens"] == sum((len(t) + 3) // 4 for t in _halves(found))
    assert raw.strip() == found["text"].strip()


def _halves(found: dict[str, str]) -> list[str]:
    """The text as it is sent: what all items share, and what belongs to this one."""
    shared, marker, own = found["text"].partition("\n\nDefinitions in the files")
    return [shared, marker.lstrip("\n") + own] if marker else [shared, ""]


def test_a_project_with_one_file_is_described_in_the_singular(harness: RunHarness) -> None:
    harness.issue(1)
    make_project(harness.project, {"app.py": "def start(): ...\n"})
    shown = agentos(harness, "context", "1")
    assert shown.code == 0 and "the only file" in shown.out and "1 files" not in shown.out, shown.out


def test_what_cannot_be_shown_is_an_error_that_says_why(harness: RunHarness) -> None:
    harness.issue(1)
    make_project(harness.project, {**FILES, ".env": "PASSWORD=x\n"})

    assert agentos(harness, "context", "7").code == 5
    secret = agentos(harness, "context", "1", "--context", ".env")
    assert secret.code == 3 and ".env may hold secrets, so it is not sent to a model" in secret.err
    missing = harness.run("1", "--offline", "--context", "app/readers.py")
    assert (
        missing.code == 3
        and "no file app/readers.py in the project: did you mean app/reader.py?" in missing.err
    )
    outside = harness.run("1", "--offline", "--context", "../other.py")
    assert outside.code == 2 and "expected a file inside the project" in outside.err
    (harness.project / "agentos.toml").write_text("code_tokens = 0\n")
    assert "code_tokens = 0: no code is sent" in agentos(harness, "context", "1").err


def test_a_design_names_real_files_and_the_commit_it_was_written_for(harness: RunHarness) -> None:
    harness.issue(1)
    make_project(harness.project)
    commit = commit_all(harness.project)

    done = harness.run("1", "--offline")
    assert done.code == 0, done.out
    assert "Check of draft 1: no findings" in done.out
    design = harness.document(1).read_text()
    assert f'code_commit: "{commit}"' in design
    assert "| modify |" in design and "No code of the project was shown" not in design
    assert harness.events("run_started")[0]["code_tokens"] == 8000


@pytest.mark.slow  # a run waits ten seconds for its index; the parts have tests in tests/codebase
def test_a_run_starts_while_its_index_is_built_and_drafts_wait_for_it(harness: RunHarness) -> None:
    harness.issue(1)
    make_project(harness.project)
    database = Home(harness.home).code_index(harness.project)
    private_folder(database.parent)
    with index_lock(database):
        run = harness.start("1", "--offline")
        run.wait_for("Indexing continues in the background; drafts wait for it.")
        run.wait_for("Waiting for the code index")
        assert ">>> Executing: N1_design" in run.out and "Draft 1 written" not in run.out

    done = run.wait()
    assert done.code == 0 and "Check of draft 1: no findings" in done.out


@pytest.mark.slow
def test_prompts_are_copied_once_and_a_typing_mistake_in_one_stops_the_run(harness: RunHarness) -> None:
    harness.issue(1)
    ejected = agentos(harness, "prompts", "eject", "lld_review")
    assert ejected.lines[0] == "Wrote .agentos/prompts/lld_review.md"
    path = harness.project / ".agentos/prompts/lld_review.md"
    assert harness.run("1", "--offline").code == 0
    path.write_text(path.read_text() + "$isue\n")
    assert "already exists and was kept" in agentos(harness, "prompts", "eject", "lld_review").out

    stopped = harness.run("1", "--fresh", "--offline")
    assert stopped.code == 3 and "unknown variable $isue: expected one of $source" in stopped.err
    assert agentos(harness, "prompts", "eject", "draft").code == 2
