"""`agentos number`: every issue gets a number of its own, once."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentos.core.planning.items import SkipReason
from agentos.storage.files import ProjectFolder
from agentos.workflows.file_issue import number_issues, plan_numbers
from agentos.workflows.markdown import file_number, markdown_files, skipped_files

BODY = "# Login\n\nIt is slow.\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "issues").mkdir()
    return tmp_path


def add(project: Path, **files: str) -> None:
    for name, text in files.items():
        (project / "issues" / name).write_text(text)


def names(project: Path) -> list[str]:
    return sorted(path.name for path in (project / "issues").iterdir())


def test_files_without_a_number_get_the_next_ones_in_the_order_of_their_names(project: Path) -> None:
    add(project, **{"007-old.md": BODY, "login.md": BODY, "add-2fa.md": BODY, "2026-11-16-x.md": BODY})
    looked = plan_numbers(project)
    assert names(project) == ["007-old.md", "2026-11-16-x.md", "add-2fa.md", "login.md"], "looking renames"
    assert number_issues(ProjectFolder(project)) == looked
    assert names(project) == ["007-old.md", "008-2026-11-16-x.md", "009-add-2fa.md", "010-login.md"]
    assert number_issues(ProjectFolder(project)).renamings == ()


def test_a_name_that_is_an_id_keeps_its_number_if_that_is_free(project: Path) -> None:
    add(project, **{"200-old.md": BODY, "LLD-107.md": BODY, "ISSUE-107.md": BODY, "lld-0042.md": BODY})
    add(project, **{"LLD-200.md": BODY, "a-login.md": BODY})
    number_issues(ProjectFolder(project))
    expected = ["042-lld-0042.md", "107-ISSUE-107.md", "200-old.md"]
    assert names(project) == [*expected, "201-LLD-107.md", "202-LLD-200.md", "203-a-login.md"]


def test_a_date_in_a_name_is_never_read_as_part_of_its_new_number(project: Path) -> None:
    add(
        project,
        **{"2026-roadmap.md": BODY, "11-16-2026-us.md": BODY, "11_16_2026.md": BODY, "0-zero.md": BODY},
    )
    number_issues(ProjectFolder(project))
    expected = ["2026-roadmap.md", "2027-0-zero.md", "2028_11-16-2026-us.md", "2029-11_16_2026.md"]
    assert names(project) == expected
    assert [file_number(Path(name)) for name in expected] == [2026, 2027, 2028, 2029]


def test_a_folder_is_no_issue_whatever_its_name(project: Path) -> None:
    add(project, **{"3-a.md": BODY, "login.md": BODY})
    for name in ("12-x.md", "notes.md"):
        (project / "issues" / name).mkdir()
        (project / "issues" / name / "13-inner.md").write_text(BODY)
    assert [path.name for path in markdown_files(project / "issues")] == ["3-a.md", "login.md"]
    skipped = {file.source: file.reason for file in skipped_files(project, "issues")}
    assert skipped == {
        "issues/login.md": SkipReason.NO_NUMBER,
        "issues/12-x.md": SkipReason.FOLDER,
        "issues/notes.md": SkipReason.FOLDER,
        "issues/12-x.md/13-inner.md": SkipReason.SUBFOLDER,
        "issues/notes.md/13-inner.md": SkipReason.SUBFOLDER,
    }
    number_issues(ProjectFolder(project))
    assert "004-login.md" in names(project)


def test_a_number_in_use_is_never_assigned_again(project: Path) -> None:
    add(
        project, **{"named.md": "---\nnumber: 12\n---\n" + BODY, "014-old.md": "---\nnumber: 3\n---\n" + BODY}
    )
    add(project, **{"login.md": BODY})
    design = project / "docs/lld/needs-revision/LLD-020.md"
    design.parent.mkdir(parents=True)
    design.write_text("# Design\n")
    number_issues(ProjectFolder(project))
    assert names(project) == ["014-old.md", "021-login.md", "named.md"]


def test_other_markdown_endings_become_md(project: Path) -> None:
    add(project, **{"5-z.MD": BODY, "b.markdown": BODY, "c.md": BODY, "todo.txt": BODY})
    add(project, **{"named.mkd": "---\nnumber: 6\n---\n" + BODY})
    plan = number_issues(ProjectFolder(project))
    assert names(project) == ["007-b.md", "008-c.md", "5-z.md", "named.md", "todo.txt"]
    assert [file.source for file in plan.left] == ["issues/todo.txt"]
    assert plan_numbers(project).renamings == ()


def test_files_with_an_unreadable_or_shared_number_are_left_alone(project: Path) -> None:
    add(project, **{"open.md": "---\nnumber: 8\n" + BODY, "4-a.md": BODY, "4-a.MD": BODY})
    (project / "issues/link.md").symlink_to("/etc/passwd")
    plan = number_issues(ProjectFolder(project))
    assert [file.source for file in plan.left] == ["issues/4-a.MD", "issues/link.md", "issues/open.md"]
    assert names(project) == ["4-a.MD", "4-a.md", "link.md", "open.md"]


def test_no_number_is_assigned_above_the_largest(project: Path) -> None:
    add(project, **{"999999999-last.md": BODY, "login.md": BODY})
    assert [file.source for file in number_issues(ProjectFolder(project)).left] == ["issues/login.md"]


def test_two_concurrent_commands_assign_each_number_once(project: Path) -> None:
    add(project, **{f"thing-{letter}.md": BODY for letter in "abcdefgh"})
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: number_issues(ProjectFolder(project)), range(4)))
    numbers = [file_number(Path(name)) for name in names(project)]
    assert numbers == list(range(1, 9))
