"""Reading Markdown files as pages: whatever the file contains, reading it never raises."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentos.core.planning.items import SkipReason
from agentos.workflows.markdown import (
    MAX_BYTES,
    Page,
    file_number,
    markdown_files,
    read_page,
    skipped_files,
)

BODY = "# Dark mode\n\nPeople want it dark.\n"


def page(tmp_path: Path, content: str | bytes, name: str = "042-dark-mode.md") -> Page:
    (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return read_page(tmp_path / name)


def test_without_front_matter_number_and_title_come_from_file_name_and_heading(tmp_path: Path) -> None:
    found = page(tmp_path, BODY)
    assert (found.number, found.title, found.is_open, found.labels) == (42, "Dark mode", True, ())
    assert found.body == BODY and found.problems == ()


@pytest.mark.parametrize(
    "front",
    [
        '+++\nnumber = 7\ntitle = "Night"\nstate = "closed"\nlabels = ["ui", "css"]\n+++\n',
        "---\nnumber: 7\ntitle: Night\nstate: Closed\nlabels: [ui, css]\n---\n",
        '---\nnumber: 7\ntitle: "Night"\nstate: closed\nlabels: ui, css\n---\n',
    ],
    ids=["toml", "yaml", "labels in a string"],
)
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_front_matter_takes_precedence(tmp_path: Path, front: str, ending: str) -> None:
    found = page(tmp_path, (front + BODY).replace("\n", ending))
    assert (found.number, found.title, found.is_open, found.labels) == (7, "Night", False, ("ui", "css"))
    assert found.body == BODY and found.problems == ()


@pytest.mark.parametrize("state", ["clsoed", "done", "'in progress'", "7", "[closed]"])
def test_a_state_that_is_not_known_is_a_problem_of_an_issue(tmp_path: Path, state: str) -> None:
    found = page(tmp_path, f"---\nnumber: 7\nstate: {state}\n---\n{BODY}")
    assert found.state_problem.startswith("line 3: state = ") and found.problems == ()
    assert found.state_problem.endswith(" in its front matter is not open or closed")


@pytest.mark.parametrize(
    ("state", "is_open"), [("CLOSED", False), ("'closed '", False), ("Open", True), ("", True)]
)
def test_a_known_state_is_read_in_any_case(tmp_path: Path, state: str, is_open: bool) -> None:
    found = page(tmp_path, f"---\nstate: {state}\n---\n{BODY}")
    assert (found.is_open, found.state_problem) == (is_open, "")


def test_fields_that_are_probably_misspelt_are_named(tmp_path: Path) -> None:
    assert page(tmp_path, f"---\nnumber: 7\nState: closed\n---\n{BODY}").ignored == (
        "line 3: 'State' in its front matter is ignored: the field is called state",
    )
    assert "'status'" in page(tmp_path, f"+++\nstatus = 'closed'\n+++\n{BODY}").ignored[0]
    for front in (
        "status: doing\nstate: open",
        "author: me\norigin: ISSUE-3",
        "number: 7\ntitle: x\nlabels: ui",
    ):
        assert page(tmp_path, f"---\n{front}\n---\n{BODY}").ignored == ()


@pytest.mark.parametrize(
    ("written", "number"), [("010", 10), ("042", 42), ("008", 8), ("0x1f", 31), ("7", 7)]
)
def test_leading_zeros_of_a_number_do_not_make_it_octal(tmp_path: Path, written: str, number: int) -> None:
    found = page(tmp_path, f"---\nnumber: {written}\n---\n{BODY}", "dark.md")
    assert (found.number, found.problems) == (number, ())


@pytest.mark.parametrize("fence", ["---", "+++"])
def test_spaces_after_a_fence_of_the_front_matter_are_ignored(tmp_path: Path, fence: str) -> None:
    line = "number = 7" if fence == "+++" else "number: 7"
    for content in (f"{fence} \n{line}\n{fence}\n{BODY}", f"{fence}\n{line}\n{fence}\t\n{BODY}"):
        found = page(tmp_path, content)
        assert (found.number, found.title, found.body, found.problems) == (7, "Dark mode", BODY, ())


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    assert page(tmp_path, b"\xef\xbb\xbf---\nnumber: 7\n---\n" + BODY.encode()).number == 7


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "it is empty"),
        (" \n\n", "it is empty"),
        ("---\nnumber: 7\n---\n", "it has only front matter"),
        ("---\nnumber: 7\n---", "it has only front matter"),
        ("just text\n", "it has no heading"),
        ("#hashtag\n", "it has no heading"),
        ("# Dark mode\n", "nothing follows its heading 'Dark mode'"),
        ("---\nnumber: 7\n" + BODY, "front matter opened by --- is not closed"),
        ("+++\nnumber = 7\n" + BODY, "front matter opened by +++ is not closed"),
        ("+++\nnumber = \n+++\n" + BODY, "line 2: its TOML front matter cannot be read: Invalid value"),
        ("---\nnumber: [\n---\n" + BODY, "line 3: its YAML front matter cannot be read"),
        ("---\n- 1\n---\n" + BODY, "its YAML front matter is a list"),
        ("---\nnumber: 0\n---\n" + BODY, "number = 0 in its front matter"),
        ("---\nnumber: -3\n---\n" + BODY, "line 2: number = -3 in its front matter"),
        ("---\nnumber: true\n---\n" + BODY, "number = True in its front matter"),
        ("---\nnumber: '7'\n---\n" + BODY, "number = '7' in its front matter"),
        (b"# Dark\n\n\xff\n", "line 3: it is not UTF-8 (byte 0xff)"),
        (b"# Dark\n" + b"x" * MAX_BYTES, "a spec has at most 1,048,576"),
    ],
)
def test_problems_describe_what_is_wrong(tmp_path: Path, content: str | bytes, problem: str) -> None:
    found = page(tmp_path, content)
    assert any(problem in said for said in found.problems)
    assert found.title


def test_an_unreadable_file_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "042.md").mkdir()
    assert "cannot be read" in read_page(tmp_path / "042.md").problems[0]
    assert "cannot be read" in read_page(tmp_path / "gone.md").problems[0]


@pytest.mark.parametrize(
    "front",
    [
        "+++\na = " + "[" * 20_000 + "\n+++\n",
        "+++\na = " + "1" * 5_000 + "\n+++\n",
        "---\n" + "[" * 100_000 + "\n---\n",
        "---\n" + "? " * 100_000 + "\n---\n",
        "---\na: !!timestamp x\n---\n",
        "---\na: !!bool x\n---\n",
        "---\na: !!int ''\n---\n",
        "---\na: !!float ''\n---\n",
        "---\na: 2026-13-45\n---\n",
        "---\na: " + "1" * 5_000 + "\n---\n",
        "---\n? [a]\n: b\n---\n",
        "---\na: !!python/object/apply:os.system [x]\n---\n",
        "---\na: *b\n---\n",
    ],
)
def test_hostile_front_matter_is_a_problem_and_never_raises(tmp_path: Path, front: str) -> None:
    found = page(tmp_path, front + BODY)
    assert len(found.problems) == 1 and "cannot be read" in found.problems[0]
    assert len(found.problems[0]) < 500


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 12)
)


@pytest.mark.parametrize("name", ["number", "title", "state", "labels"])
def test_a_yaml_alias_bomb_is_harmless(tmp_path: Path, name: str) -> None:
    found = page(tmp_path, f"---\n{BOMB}{name}: *a11\n---\n{BODY}")
    assert found.number == 42 and all(len(said) < 500 for said in found.problems)


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("# Dark mode #", "Dark mode"),
        ("###### Dark   mode ##  ", "Dark   mode"),
        ("#\tTabbed", "Tabbed"),
        ("# C# and F#", "C# and F#"),
        ("   # Indented", "Indented"),
        ("```\n# no heading\n```\n# After code", "After code"),
        ("~~~~ sh\n~~~\n# no heading\n~~~~\n# After code", "After code"),
        ("``` `inline` ```\n# After inline code", "After inline code"),
        ("```\n# never closed", "042-dark-mode"),
        ("    # indented code\n# After it", "After it"),
    ],
)
def test_headings_follow_markdown_rules(tmp_path: Path, line: str, title: str) -> None:
    assert page(tmp_path, f"{line}\n\ntext\n").title == title


def test_a_heading_with_many_spaces_is_parsed_quickly(tmp_path: Path) -> None:
    assert page(tmp_path, f"# a{' ' * 200_000}b\n\ntext\n").title.startswith("a ")


pieces = st.sampled_from(
    [
        b"---\n",
        b"+++\n",
        b"number: ",
        b"number = ",
        b"7\n",
        b"# ",
        b"a: &b [*b]\n",
        b"!!bool ",
        b'"',
        b"[",
        b"\xff",
    ]
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=80) | st.lists(pieces | st.binary(max_size=4), max_size=12).map(b"".join))
def test_arbitrary_bytes_never_raise(tmp_path: Path, content: bytes) -> None:
    found = page(tmp_path, content)
    assert found.path.name == "042-dark-mode.md" and (found.number or 0) > 0


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("042-dark.md", 42),
        ("42.md", 42),
        ("42_dark.md", 42),
        ("7 wonders.md", 7),
        ("1-2.md", 1),
        ("2026-roadmap.md", 2026),
        ("2026-13-45-parts.md", 2026),
        ("123456789.md", 123456789),
    ],
)
def test_the_number_is_what_the_file_name_begins_with(name: str, number: int) -> None:
    assert file_number(Path(name)) == number


@pytest.mark.parametrize(
    "name",
    [
        "dark.md",
        "add-2fa.md",
        "dark-42.md",
        "0-zero.md",
        "000.md",
        "v2.md",
        "2026-11-16-x.md",
        "2026_11_16.md",
        "2026.1.5-x.md",
        "20261116-x.md",
        "16.11.2026-x.md",
        "11-16-2026.md",
        "9" * 10 + ".md",
        "\u0664\u0662-dark.md",
    ],
)
def test_digits_in_other_places_and_dates_are_not_numbers(name: str) -> None:
    assert file_number(Path(name)) is None


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Dark mode\n=========\n\ntext\n", "Dark mode"),
        ("Dark mode\n---\n\ntext\n", "Dark mode"),
        ("intro\n\n  C# in it \n  ===  \ntext\n", "C# in it"),
        ("# First\n\nSecond\n======\n\ntext\n", "First"),
        ("First\n=====\n\n# Second\n\ntext\n", "First"),
        ("Some intro.\n---\n\n# The title\n\ntext\n", "The title"),
        ("Some intro.\n---\n\nThe title\n===\n\ntext\n", "The title"),
        ("Dark mode\n---\n\n## Details\n\ntext\n", "Dark mode"),
        ("- a point\n---\n\n# After a rule\n\ntext\n", "After a rule"),
        ("> quoted\n---\n\n# After a quote\n\ntext\n", "After a quote"),
        ("1. one\n---\n\n# After a list\n\ntext\n", "After a list"),
    ],
)
def test_an_underlined_line_is_a_heading(tmp_path: Path, text: str, title: str) -> None:
    found = page(tmp_path, text)
    assert found.title == title and found.problems == ()


def test_an_underlined_heading_alone_is_not_a_spec(tmp_path: Path) -> None:
    assert "nothing follows its heading 'Dark mode'" in page(tmp_path, "Dark mode\n=====\n").problems[0]
    assert "no heading" in page(tmp_path, "text\n\n---\n\nmore\n").problems[0]


def test_files_that_are_not_items_are_listed_with_the_reason(tmp_path: Path) -> None:
    folder = tmp_path / "issues"
    (folder / "archive").mkdir(parents=True)
    (folder / "524.md").mkdir()
    for name in (
        "1-a.md",
        "login.md",
        "add-2fa.md",
        "2026-11-16-x.md",
        "2-b.MD",
        "c.markdown",
        "todo.txt",
        "3",
        "README.md",
        "Readme.txt",
        "screen.png",
        ".hidden.md",
    ):
        (folder / name).write_text(BODY)
    (folder / "numbered.md").write_text("---\nnumber: 9\n---\n" + BODY)
    (folder / "open.md").write_text("---\nnumber: 8\n" + BODY)
    (folder / "latin.md").write_bytes(b"# \xff\n\ntext\n")
    inner = folder / "backlog" / "2026"
    inner.mkdir(parents=True)
    for name in ("7-deep.md", "README.md", "notes.txt", ".hidden.md"):
        (inner / name).write_text(BODY)
    (folder / "backlog" / "6-x.MD").write_text(BODY)
    (folder / "linked").symlink_to(inner)
    (folder / ".git").mkdir()
    (folder / ".git" / "8-x.md").write_text(BODY)
    found = skipped_files(tmp_path, "issues")
    by_reason = {
        reason: [file.source.removeprefix("issues/") for file in found if file.reason is reason]
        for reason in SkipReason
    }
    assert by_reason == {
        SkipReason.NO_NUMBER: ["2026-11-16-x.md", "add-2fa.md", "login.md"],
        SkipReason.UNREADABLE: ["latin.md", "open.md"],
        SkipReason.SUFFIX: ["2-b.MD", "3", "c.markdown", "todo.txt"],
        SkipReason.SUBFOLDER: ["backlog/6-x.MD", "backlog/2026/7-deep.md"],
        SkipReason.FOLDER: ["524.md"],
    }
    numbers = {file.source: file.number for file in found}
    assert numbers["issues/2-b.MD"] == 2 and numbers["issues/524.md"] == 524
    assert numbers["issues/login.md"] is None and numbers["issues/backlog/2026/7-deep.md"] == 7
    assert {file.reason for file in skipped_files(tmp_path, "issues", numbered=False)} == {
        SkipReason.SUFFIX,
        SkipReason.SUBFOLDER,
        SkipReason.FOLDER,
    }
    assert skipped_files(tmp_path, "nothing") == []


def test_markdown_files_are_sorted_and_exclude_hidden_ones(tmp_path: Path) -> None:
    for name in ("b.md", "a.md", ".hidden.md", "c.txt", "d.MD"):
        (tmp_path / name).touch()
    assert [path.name for path in markdown_files(tmp_path)] == ["a.md", "b.md"]
    assert markdown_files(tmp_path / "nothing") == []
