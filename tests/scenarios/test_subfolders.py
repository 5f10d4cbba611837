"""Commands typed below the project's folder work on the project."""

import json
from pathlib import Path

import pytest

from .harness import CompletedCommand, RunHarness


def run_in(folder: Path, harness: RunHarness, *words: object, program: str = "agentos") -> CompletedCommand:
    folder.mkdir(parents=True, exist_ok=True)
    return harness.start(*words, program=program, before=("env", "-C", str(folder))).wait(60)


@pytest.mark.slow
def test_a_run_in_a_subfolder_finds_the_project_and_shows_paths_from_there(harness: RunHarness) -> None:
    harness.issues(40, 41)
    (harness.project / "agentos.toml").write_text("parallel = 2\n")
    below = harness.project / "src/deep/er"
    done = run_in(below, harness, "--all", "--offline", "--review", "draft", program="lld-workflow")
    assert done.code == 0, done.out + done.err
    assert f"Project: {harness.project}" in done.lines
    assert "with 2 workers" in done.out
    assert "agentos review --repo ../../.." in done.out
    listed = run_in(below, harness, "review")
    assert listed.code == 0 and "LLD-40" in listed.out, listed.out + listed.err
    assert "agentos review LLD-40\n" in listed.out
    for item in ("LLD-40", "LLD-41"):
        assert run_in(below, harness, "review", item, "--approve").code == 0
    done = run_in(below, harness, "--all", "--offline", program="lld-workflow")
    assert done.code == 0 and harness.document(40).exists(), done.out
    assert "../../../docs/lld/active" in done.out and f"{harness.project}/docs" not in done.out
    assert any(": ../../../docs/lld/active/LLD-040.md" in line for line in done.lines_of("LLD-40"))
    assert sorted(path.name for path in below.iterdir()) == []


def test_files_are_named_as_seen_from_the_current_folder(harness: RunHarness) -> None:
    harness.issues(40, 41)
    issues, docs = harness.project / "issues", harness.project / "docs"
    for folder, word in (
        (issues, "041-thing.md"),
        (docs, "../issues/041-thing.md"),
        (docs, "issues/041-thing.md"),
    ):
        plan = run_in(folder, harness, word, "--dry-run", "--json", "--offline", program="lld-workflow")
        assert plan.code == 0, plan.err
        rows = [json.loads(line) for line in plan.lines]
        assert [row["item"] for row in rows if row["type"] == "item_planned"] == ["LLD-41"]


def test_reasons_name_files_as_seen_from_the_current_folder(harness: RunHarness) -> None:
    issues = harness.project / "issues"
    (issues / "1-empty.md").write_text("")
    (issues / "login.md").write_text("# Login\n\nSlow.\n")
    for folder, repo, reason in (
        (harness.project / "src", (), "../issues/1-empty.md: it is empty"),
        (
            harness.root / "other",
            ("--repo", harness.project),
            f"../{harness.project.name}/issues/1-empty.md: it is empty",
        ),
    ):
        dry = run_in(folder, harness, "--all", "-n", "--offline", *repo, program="lld-workflow")
        assert f"will fail: {reason}" in dry.out, dry.out + dry.err
        doctor = run_in(folder, harness, "doctor", "--offline", *repo)
        assert f"  {reason}" in doctor.out, doctor.out
        done = run_in(folder, harness, "--all", "--offline", *repo, program="lld-workflow")
        assert f"[LLD-1]   {reason}: describe" in done.out, done.out
        number = run_in(folder, harness, "number", "-n", *repo)
        prefix = reason.partition("1-empty")[0]
        assert f"  {prefix}login.md -> {prefix}002-login.md" in number.out, number.out


def test_the_flag_wins_over_the_project_that_would_be_found(harness: RunHarness) -> None:
    harness.issues(40)
    other = harness.project / "other"
    (other / "issues").mkdir(parents=True)
    (other / "issues/7-seven.md").write_text("# Seven\n")
    done = run_in(
        other / "docs", harness, "--all", "--dry-run", "--offline", "--repo", "../..", program="lld-workflow"
    )
    assert "LLD-40" in done.out and "LLD-7" not in done.out


def test_doctor_and_config_look_at_the_project_around_the_current_folder(harness: RunHarness) -> None:
    harness.issues(40)
    (harness.project / "agentos.toml").write_text("retries = 7\n")
    below = harness.project / "docs/lld"
    shown = run_in(below, harness, "config", "show", "--origin")
    rows = {line.split()[0]: line for line in shown.lines}
    assert "found in a parent folder" in rows["project"] and str(harness.project) in rows["project"]
    assert rows["retries"].split()[1] == "7"
    checked = run_in(below, harness, "doctor", "--offline")
    assert checked.code == 0 and "issues/ has 1 file" in checked.out, checked.out
    assert "written to .." in checked.out


def test_errors_name_files_as_seen_from_the_current_folder(harness: RunHarness) -> None:
    (harness.project / "agentos.toml").write_text("paralel = 3\n")
    complaint = "agentos.toml, line 1: unknown setting 'paralel'"
    for folder, path in ((harness.project, ""), (harness.project / "src/deep", "../../")):
        for words in (("run", "lld", "--all"), ("config", "show"), ("trust",)):
            assert f"Error: {path}{complaint}" in run_in(folder, harness, *words).err
        assert f"settings: {path}{complaint}" in run_in(folder, harness, "doctor").out
        assert (
            "Error: no/such is not a folder"
            in run_in(folder, harness, "config", "show", "--repo", "no/such").err
        )


def test_exec_runs_where_the_user_stands_with_the_settings_of_the_project(harness: RunHarness) -> None:
    (harness.project / "agentos.toml").write_text("parallel = 4\n")
    below = harness.project / "texts"
    below.mkdir()
    for name in "abcd":
        (below / f"{name}.txt").write_text(name)
    done = run_in(below, harness, "exec", "--items", "*.txt", "--", "sh", "-c", "pwd; cat $1", "sh", "{item}")
    assert done.code == 0, done.out + done.err
    assert str(below) in done.out and "with 4 workers" in done.out


def test_a_current_folder_that_was_deleted_is_explained(harness: RunHarness) -> None:
    gone = harness.project / "gone"
    gone.mkdir()
    script = 'rmdir "$PWD"; exec "$@"'
    done = harness.start(
        "config",
        "show",
        program="agentos",
        before=("env", "-C", str(gone), "sh", "-c", script, "sh"),
    ).wait(60)
    assert done.code == 3 and "the current folder no longer exists" in done.err
    assert "Traceback" not in done.err
