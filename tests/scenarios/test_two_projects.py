"""Two projects with the same home: a command shows the records of the project in whose folder it is typed."""

from pathlib import Path

import pytest

from .harness import TEXTS, CompletedCommand, RunHarness, title_of


def second_project(harness: RunHarness) -> Path:
    folder = harness.root / "second"
    (folder / "issues").mkdir(parents=True)
    text = TEXTS["weak"].format(number=40)
    (folder / "issues/040-thing.md").write_text(f"# {title_of(40)}\n{text}")
    return folder


def run_in(folder: Path, harness: RunHarness, *words: object, program: str = "agentos") -> CompletedCommand:
    return harness.start(*words, program=program, before=("env", "-C", str(folder))).wait(60)


@pytest.mark.slow
def test_logs_and_comparisons_keep_projects_apart(harness: RunHarness) -> None:
    harness.issues(40, 41)
    second = second_project(harness)
    assert harness.run("--all", "--offline").code == 0
    assert run_in(second, harness, "--all", "--offline", program="lld-workflow").code == 0
    assert run_in(second, harness, "exec", "a", "--", "true").code == 0

    own = run_in(second, harness, "logs", "LLD-40")
    assert own.code == 0 and "Approved after 2 reviews" in own.out and not own.err
    assert "Approved after 1 review" in harness.run("logs", "LLD-40", program="agentos").out
    other = run_in(second, harness, "logs", "LLD-41")
    assert other.code == 0 and f" on {harness.project}.\n" in other.err, "it says whose log it is"

    alone = run_in(second, harness, "runs", "compare")
    assert alone.code == 5 and "of the same workflow on the same project" in alone.err, alone.out
    assert harness.run("40", "--fresh", "--offline").code == 0
    compared = harness.run("runs", "compare", program="agentos")
    assert compared.code == 0 and "exec-" not in compared.out, compared.out
    assert "no items in common" not in compared.out
