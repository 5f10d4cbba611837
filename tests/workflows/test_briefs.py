"""A brief's number is permanent."""

import os
from pathlib import Path

import pytest

from agentos.storage.files import ProjectFolder
from agentos.workflows.issue import assign_numbers, brief_numbers


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for folder in ("ideas/active", "ideas/done"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


def add(project: Path, *names: str | bytes, folder: str = "ideas/active") -> None:
    for name in names:
        (project / folder / os.fsdecode(name)).write_text("# An idea\n\ntext\n")


def given(project: Path) -> dict[str, int]:
    assign_numbers(ProjectFolder(project))
    return brief_numbers(project)


def test_a_brief_is_numbered_by_its_file_name(project: Path) -> None:
    add(project, "17-dark-mode.md", "2-rows.md")
    assert brief_numbers(project) == {"17-dark-mode.md": 17, "2-rows.md": 2}


def test_a_brief_without_a_number_gets_the_next_free_one(project: Path) -> None:
    add(project, "17-dark-mode.md", "b.md", "a.md")
    assert brief_numbers(project) == {"17-dark-mode.md": 17, "a.md": 18, "b.md": 19}


def test_reading_numbers_writes_nothing_and_predicts_the_assignment(project: Path) -> None:
    add(project, "a.md", "b.md")
    looked = brief_numbers(project)
    assert not (project / "ideas/.numbers").exists()
    assert given(project) == looked


def test_an_assigned_number_is_permanent(project: Path) -> None:
    add(project, "m.md")
    assert given(project) == {"m.md": 1}
    add(project, "a.md", "40-z.md")
    assert given(project) == {"m.md": 1, "40-z.md": 40, "a.md": 41}
    (project / "ideas/active/40-z.md").unlink()
    (project / "ideas/active/m.md").rename(project / "ideas/done/m.md")
    assert given(project) == {"m.md": 1, "a.md": 41}


def test_the_number_of_a_deleted_brief_is_not_reused(project: Path) -> None:
    add(project, "a.md", "b.md")
    given(project)
    (project / "ideas/active/b.md").unlink()
    add(project, "c.md")
    assert given(project) == {"a.md": 1, "c.md": 3}


def test_numbers_of_finished_briefs_are_taken(project: Path) -> None:
    add(project, "30-old.md", folder="ideas/done")
    add(project, "new.md")
    assert brief_numbers(project)["new.md"] == 31


@pytest.mark.parametrize(
    "name", [" spaced .md", "two\nlines.md", "dark\rmode.md", "bänder.md", b"odd-\xff.md"]
)
def test_an_unusual_file_name_keeps_its_number(project: Path, name: str | bytes) -> None:
    add(project, name)
    first = given(project)
    add(project, "0-first.md", "another.md")
    assert given(project)[os.fsdecode(name)] == first[os.fsdecode(name)] == 1


def test_assigning_numbers_is_idempotent(project: Path) -> None:
    add(project, "a.md")
    given(project)
    before = {path: path.stat().st_mtime_ns for path in (project / "ideas/.numbers").iterdir()}
    given(project)
    assert {path: path.stat().st_mtime_ns for path in (project / "ideas/.numbers").iterdir()} == before


def test_without_a_folder_there_are_no_briefs(tmp_path: Path) -> None:
    assert brief_numbers(tmp_path) == {}
