"""Issues are filed exactly once, under a name derived from the brief."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from agentos.storage.files import ProjectFolder
from agentos.workflows.file_issue import Filing, file_issue, slug_of
from agentos.workflows.markdown import read_page

FILING = Filing("ISSUE-17", "dark-mode", ("ui",), "# Dark mode\n\nPeople want it dark.\n")


def file(project: Path, filing: Filing = FILING) -> str:
    return file_issue(project, ProjectFolder(project), filing)


def issues(project: Path) -> list[str]:
    return sorted(path.name for path in (project / "issues").iterdir())


def test_a_filed_issue_can_be_read_as_one(tmp_path: Path) -> None:
    assert file(tmp_path) == "issues/001-dark-mode.md"
    page = read_page(tmp_path / "issues/001-dark-mode.md")
    assert (page.number, page.title, page.is_open, page.labels) == (1, "Dark mode", True, ("ui",))
    assert page.problems == () and page.body.strip() == FILING.body.strip()


def test_filing_again_finds_the_existing_issue(tmp_path: Path) -> None:
    first = file(tmp_path)
    before = (tmp_path / first).read_bytes()
    assert file(tmp_path, replace(FILING, body="# Another text\n\nof a second try\n", slug="other")) == first
    assert issues(tmp_path) == ["001-dark-mode.md"] and (tmp_path / first).read_bytes() == before


def test_a_filed_issue_is_found_after_it_was_renamed(tmp_path: Path) -> None:
    (tmp_path / file(tmp_path)).rename(tmp_path / "issues/9-night.md")
    assert file(tmp_path) == "issues/9-night.md"


@pytest.mark.parametrize(
    "title", ['He said "no": --- yes', "ends with \\", "🙂 ünïcode", "a: b # c", "- [x]", "{}"]
)
def test_no_title_hides_the_marker(tmp_path: Path, title: str) -> None:
    filing = replace(FILING, body=f"# {title}\n\ntext\n")
    first = file(tmp_path, filing)
    assert file(tmp_path, filing) == first
    assert read_page(tmp_path / first).title == title


def test_front_matter_written_by_the_model_is_dropped(tmp_path: Path) -> None:
    body = "---\nnumber: 99\norigin: ISSUE-18\nstate: closed\n---\n# Dark mode\n\ntext\n"
    name = file(tmp_path, replace(FILING, body=body))
    page = read_page(tmp_path / name)
    assert (page.number, page.is_open) == (1, True) and "ISSUE-18" not in (tmp_path / name).read_text()
    assert file(tmp_path, replace(FILING, origin="ISSUE-18")) != name


def test_the_next_number_is_above_every_existing_one(tmp_path: Path) -> None:
    (tmp_path / "issues").mkdir()
    (tmp_path / "issues/3-old.md").write_text("# Old\n\ntext\n")
    (tmp_path / "issues/closed.md").write_text("---\nnumber: 41\nstate: closed\n---\n# Closed\n\ntext\n")
    (tmp_path / "issues/broken.md").write_bytes(b"\xff")
    assert file(tmp_path) == "issues/042-dark-mode.md"


def test_a_number_is_never_assigned_twice(tmp_path: Path) -> None:
    filings = [replace(FILING, origin=f"ISSUE-{number}") for number in (*range(8), *range(8))]
    with ThreadPoolExecutor(8) as pool:
        names = list(pool.map(lambda filing: file(tmp_path, filing), filings))
    assert names[:8] == names[8:] and len(set(names)) == 8
    numbers = sorted(read_page(path).number or 0 for path in (tmp_path / "issues").iterdir())
    assert numbers == list(range(1, 9))


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("17-dark-mode.md", "dark-mode"),
        ("Dark Mode!.md", "dark-mode"),
        ("17.md", "issue"),
        ("...md", "issue"),
        ("../../etc/passwd.md", "passwd"),
        ("ünïcode.md", "n-code"),
        ("x" * 200 + ".md", "x" * 60),
        ("a\nb\0c.md", "a-b-c"),
    ],
)
def test_the_slug_is_a_safe_form_of_the_file_name(name: str, slug: str) -> None:
    assert slug_of(name) == slug
