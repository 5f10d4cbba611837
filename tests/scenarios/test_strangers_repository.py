"""A cloned repository cannot affect anything but its own documents when a user runs `lld-workflow --all` in it."""

import os
import time
from pathlib import Path

import pytest

from .harness import RunHarness

KINDS = ("fifo", "device", "folder", "loop")


def put(path: Path, kind: str) -> None:
    """Something that is no regular file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "folder":
            path.mkdir()
        case "loop":
            path.symlink_to(path.name)


def test_an_untrusted_project_runs_without_restricted_settings(harness: RunHarness) -> None:
    harness.issues(42)
    (harness.project / "agentos.toml").write_text('github = "evil/repository"\nkeep_runs = 1\n')
    done = harness.run("--all", "--offline", "--dry-run")
    assert done.code == 0
    assert "this project is not trusted: github, keep_runs. To allow: agentos trust" in done.out
    assert "  - LLD-42" in done.out


@pytest.mark.parametrize("program", ["lld-workflow", "issue-workflow"])
def test_a_run_that_depends_on_untrusted_github_settings_exits_with_3(
    harness: RunHarness, program: str
) -> None:
    (harness.project / "issues").rmdir()
    (harness.project / "ideas" / "active").mkdir(parents=True, exist_ok=True)
    (harness.project / "agentos.toml").write_text('github = "evil/repository"\n')
    done = harness.run("--all", program=program)
    assert done.code == 3 and "type agentos trust" in done.err


def test_trust_shows_the_settings_and_requires_confirmation(harness: RunHarness) -> None:
    (harness.project / "agentos.toml").write_text("keep_runs = 7\n")
    untrusted = harness.run("trust", program="agentos")
    assert untrusted.code == 3 and "keep_runs = 7" in untrusted.out and "agentos trust --yes" in untrusted.err
    shown = harness.run("config", "show", "--origin", program="agentos")
    assert "held_back" in shown.out and "is held back" in shown.out
    given = harness.run("trust", "--yes", program="agentos")
    assert given.code == 0 and "trusted until its agentos.toml changes" in given.out
    listed = harness.run("trust", "--list", program="agentos")
    assert str(harness.project) in listed.out
    assert "is held back" not in harness.run("config", "show", "--origin", program="agentos").out
    assert harness.run("trust", "--revoke", program="agentos").code == 0
    assert harness.run("trust", "--list", program="agentos").out == ""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("place", "program"),
    [
        (".agentos/prompts/lld-draft.md", "lld-workflow"),
        ("ideas/.numbers/7", "issue-workflow"),
    ],
)
def test_what_is_no_regular_file_ends_planning_with_one_line(
    harness: RunHarness, place: str, program: str, kind: str
) -> None:
    harness.brief("idea.md", 1)
    put(harness.project / place, kind)
    began = time.monotonic()
    done = harness.run("--all", "--offline", "--dry-run", program=program)
    assert done.code == 3 and time.monotonic() - began < 10
    assert done.err.startswith(f"Error: {place}: it is a ")
    assert done.err.count("\n") == 1 and "expected a regular file: move it away" in done.err


@pytest.mark.parametrize(
    ("place", "program"),
    [
        ("issues", "lld-workflow"),
        ("docs", "lld-workflow"),
        ("docs/lld", "lld-workflow"),
        (".agentos", "lld-workflow"),
        ("ideas/active", "issue-workflow"),
        ("ideas/done", "issue-workflow"),
        ("ideas/.numbers", "issue-workflow"),
    ],
)
def test_a_folder_that_is_a_link_out_of_the_project_is_named_and_not_read(
    harness: RunHarness, tmp_path: Path, place: str, program: str
) -> None:
    private = tmp_path / "private"
    (private / "prompts").mkdir(parents=True)
    (private / "042-diary.md").write_text("# Diary\n\nNobody may read this.\n")
    harness.brief("idea.md", 1)
    link = harness.project / place
    link.parent.mkdir(exist_ok=True)
    if link.is_dir():
        link.rename(tmp_path / "away")
    link.symlink_to(private)
    done = harness.run("--all", "--offline", program=program)
    assert done.code == 3 and f"{place}: it is a symbolic link, expected a folder" in done.err
    assert "Diary" not in done.out + done.err and sorted(private.iterdir()) == [
        private / "042-diary.md",
        private / "prompts",
    ]


def test_doctor_names_issues_that_are_a_link_and_does_not_read_them(
    harness: RunHarness, tmp_path: Path
) -> None:
    private = tmp_path / "private"
    private.mkdir()
    (private / "diary.md").write_text("# Diary\n\nNobody may read this.\n")
    (harness.project / "issues").rmdir()
    (harness.project / "issues").symlink_to(private)
    found = harness.run("doctor", "--offline", program="agentos")
    assert "symbolic links: issues" in found.out and "diary.md" not in found.out and found.err == ""


def test_items_that_are_no_regular_files_fail_alone_and_cost_no_call(harness: RunHarness) -> None:
    harness.issue(40)
    folder = harness.project / "issues"
    for number, kind in enumerate(KINDS, 41):
        put(folder / f"{number}-{kind}.md", kind)
    with open(os.fsencode(folder) + b"/045-\xff.md", "wb") as file:
        file.write(b"# Fine\n\nOnly its name is not.\n")
    put(harness.project / ".locks/task-LLD-46.lock", "folder")
    harness.issue(46)
    server = harness.server()
    done = harness.run("--all", "--parallel", 3)
    assert done.code == 1 and harness.document(40).exists()
    for number, reason in (
        (41, "it is a named pipe, expected a regular file"),
        (42, "it is a symbolic link, expected a regular file"),
        (44, "it is a symbolic link, expected a regular file"),
        (45, "its name is not UTF-8: rename it"),
        (46, "task-LLD-46.lock: it is a folder, expected a regular file"),
    ):
        assert any(line.startswith(f"[LLD-{number}] ") and reason in line for line in done.lines)
        assert server.calls(number) == []
    assert "1 file skipped: a folder, not a file: 43-folder.md" in done.out
    assert "Traceback" not in done.out and not harness.events("item_retried")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("place", "words", "program"),
    [
        ("credentials.toml", ("keys", "list"), "agentos"),
        ("quota/notes.jsonl", ("keys", "list"), "agentos"),
        ("logs/parallel/20200101T000000Z/events.jsonl", ("status",), "agentos"),
    ],
)
def test_what_replaced_a_file_of_the_home_is_named(
    harness: RunHarness, place: str, words: tuple[str, ...], program: str, kind: str
) -> None:
    harness.home.mkdir(mode=0o700)
    put(harness.home / place, kind)
    done = harness.run(*words, program=program)
    assert done.code == 3 and done.err.count("\n") == 1
    assert done.err.startswith(f"Error: {harness.home / place}: it is a ")


@pytest.mark.slow
@pytest.mark.parametrize("place", ["quota/notes.jsonl", "quota/pool.lock", "logs/parallel/latest"])
def test_a_folder_in_place_of_what_a_run_writes_ends_it_with_3(harness: RunHarness, place: str) -> None:
    harness.issues(42)
    server = harness.server()
    put(harness.home / place, "folder")
    harness.home.chmod(0o700)
    done = harness.run("--all")
    assert done.code == 3 and f"{harness.home / place}: it is a folder, expected" in done.err
    assert "Traceback" not in done.err and server.calls() == []


def test_a_prompt_that_is_not_utf8_is_refused_before_a_call(harness: RunHarness) -> None:
    harness.issues(42)
    prompts = harness.project / ".agentos" / "prompts"
    prompts.mkdir(parents=True)
    (prompts / "lld-review.md").write_bytes("Prüfe\nden Entwurf für $draft\n".encode("latin-1"))
    done = harness.run("--all", "--offline", "--dry-run")
    assert done.code == 3
    assert ".agentos/prompts/lld-review.md, line 1: it is not UTF-8 (byte 0xfc): save it as UTF-8" in done.err
