"""Bad input: a clear message, the right exit code, nothing lost and nothing partially written."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from .harness import PROGRAMS, RunHarness, snapshot

NOBODY = 65534

INVALID = "FAILED: Invalid spec format"
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def run_refused(harness: RunHarness, *args: object, code: int, **env: str) -> str:
    """Run a command that must be refused and change nothing; return its output on one line."""
    before = snapshot(harness.project, harness.home)
    siblings = sorted(harness.root.parent.iterdir())
    done = harness.run(*args, **env)
    output = done.out + done.err
    assert done.code == code, output
    assert "Traceback" not in output
    after = snapshot(harness.project, harness.home)
    assert {name: state for name, state in after.items() if "/home" not in name} == {
        name: state for name, state in before.items() if "/home" not in name
    }
    assert sorted(harness.root.parent.iterdir()) == siblings
    return " ".join(output.split())


def test_a_folder_without_issues_is_not_a_project(harness: RunHarness) -> None:
    (harness.project / "issues").rmdir()
    output = run_refused(harness, "--all", "--offline", code=3)
    assert "no project here" in output and "--repo" in output and "agentos demo" in output


def test_a_review_outside_a_project_says_so(harness: RunHarness) -> None:
    nothing = "No items are waiting for a person. "
    assert harness.run("review", program="agentos").out.startswith(nothing)
    (harness.project / "issues").rmdir()
    for words in (("review",), ("review", "--json")):
        assert "no project here" in run_refused(harness, *words, code=3, program="agentos")
    (harness.project / "agentos.toml").write_text("parallel = 2\n")
    assert harness.run("review", program="agentos").out.startswith(nothing)


def test_a_full_disk_behind_the_output_is_one_clear_line(harness: RunHarness) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [str(PROGRAMS / "agentos"), "config", "show"],
            cwd=harness.project,
            env=harness.environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    said = "Error: No space left on device. Free some space, then run the same command again\n"
    assert done.returncode == 3 and done.stderr == said


def test_a_missing_project_folder_is_named(harness: RunHarness) -> None:
    missing = harness.root / "nowhere"
    output = run_refused(harness, "--all", "--offline", "--repo", missing, code=3)
    assert str(missing) in output and "--repo PATH" in output and not missing.exists()


def test_an_empty_backlog_is_no_error(harness: RunHarness) -> None:
    done = harness.run("--all", "--offline")
    assert (
        done.code == 0 and "Nothing is pending: there are no issues. Write one, such as issues/1-" in done.out
    )
    dry = harness.run("--all", "--dry-run", "--offline")
    assert dry.code == 0 and "there are no issues" in dry.out and "agentos init" in dry.out


def test_a_long_title_is_shortened_in_a_plan(harness: RunHarness) -> None:
    (harness.project / "issues" / "042-long.md").write_text(f"# {'very ' * 1280}long\n\nText.\n")
    dry = harness.run("--all", "--dry-run", "--offline")
    assert dry.code == 0 and "LLD-42  new: very very " in dry.out and "… (6,404 characters)" in dry.out
    assert max(map(len, dry.lines)) < 250


def test_invalid_issues_fail_alone_and_cost_no_call(harness: RunHarness) -> None:
    harness.issue(40)
    folder = harness.project / "issues"
    (folder / "041-empty.md").write_text("")
    (folder / "042-no-heading.md").write_text("Only words.\n")
    with open(folder / "043-large.md", "wb") as large:
        large.truncate(200 * 1024 * 1024)
    (folder / "044-latin.md").write_bytes("# Größe\n\nEs gibt nur eine Größe.\n".encode("latin-1"))
    for name in ("045-one.md", "045-two.md"):
        (folder / name).write_text("# Twice\n\nThe same number twice.\n")
    (folder / "046-path.md").write_text('---\nnumber: "../../x"\n---\n# Escape\n\nOut of here.\n')
    (folder / "047-open.md").write_text("---\nnumber: 47\n# Never closed\n\nText.\n")
    server = harness.server()
    done = harness.run("--all", "--parallel", 3)
    assert done.code == 1
    reasons = {
        41: "issues/041-empty.md: it is empty",
        42: "no heading",
        43: "209,715,200 bytes",
        44: "issues/044-latin.md, line 1: it is not UTF-8",
        45: "claimed by issues/045-one.md and issues/045-two.md",
        46: "issues/046-path.md, line 2: number = '../../x' in its front matter is not a positive integer",
        47: "issues/047-open.md, line 1: the front matter",
    }
    for number, reason in reasons.items():
        at = done.lines.index(f"[LLD-{number}] {INVALID}")
        assert reason in done.lines[at + 1] and done.lines[at + 1].startswith(f"[LLD-{number}]   ")
    assert "1 completed, 7 failed" in done.out
    for flags in ((), ("-v",), ("--failed",)):
        shown = harness.run("status", *flags, program="agentos").lines
        for number, reason in reasons.items():
            (at,) = [place for place, line in enumerate(shown) if line.startswith(f"  LLD-{number} ")]
            assert shown[at + 1].startswith("    reason: ") and reason in shown[at + 1]
    assert {call["item"] for call in server.calls()} == {"Thing 40 can be used"}
    assert [path.name for path in harness.project.rglob("LLD-*.md")] == ["LLD-040.md"]


@pytest.mark.parametrize("count", [["0"], ["-1"], ["abc"], ["1.5"], [""]])
def test_an_invalid_worker_count_is_a_usage_error(harness: RunHarness, count: list[str]) -> None:
    harness.issue(42)
    output = run_refused(harness, "--all", "--offline", "--parallel", *count, code=2)
    assert "invalid worker count" in output and "must be 1 to 10, or auto (or leave it out for 3)" in output


def test_too_many_workers_are_capped_with_a_warning(harness: RunHarness) -> None:
    harness.issue(42)
    done = harness.run("--all", "--parallel", 11, "--dry-run")
    assert done.code == 0
    assert done.err == "Warning: Requested parallelism 11 exceeds maximum 10. Capping to 10.\n"


def test_a_worker_count_without_selected_items_is_explained(harness: RunHarness) -> None:
    harness.issue(42)
    output = run_refused(harness, "--parallel", 42, "--offline", code=2)
    assert "42 was read as the number of workers" in output
    assert "lld-workflow 42 --parallel" in output and "--all" in output
    assert "3 was read as the number of workers" in run_refused(harness, "-nj3", code=2)
    assert "nothing is selected" in run_refused(harness, code=2)
    for bare in ("--parallel", "-j"):
        output = run_refused(harness, bare, code=2)
        assert "nothing is selected: name items (lld-workflow 42)" in output and "3" not in output


NAMES = [
    "77",
    "LLD-77",
    "../../x",
    "/etc/x",
    "issues/../../x.md",
    "42\nx",
    "x" * 300,
    "🙂",
    "70-71",
    "²",
    "lld-",
]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_a_name_that_matches_no_item_is_refused(harness: RunHarness, name: str) -> None:
    harness.issue(42)
    output = run_refused(harness, name, "--dry-run", code=5)
    assert "nothing matches" in output and "LLD-42" in output


def test_a_file_without_a_number_is_refused_with_the_reason(harness: RunHarness) -> None:
    harness.issue(42)
    (harness.project / "issues" / "idea.md").write_text("# An idea\n\nOne.\n")
    output = run_refused(harness, "issues/idea.md", "--dry-run", code=5)
    assert "a file needs a number, first in its name (42-title.md) or in its front matter" in output


@pytest.mark.slow
def test_a_duplicate_number_is_reported_and_nothing_is_overwritten(
    harness: RunHarness,
) -> None:
    harness.issue(42)
    assert harness.run("--all", "--offline").code == 0
    approved = harness.document(42).read_bytes()
    harness.issue(42).rename(harness.project / "issues" / "063-another.md")
    harness.issue(42)
    for args in (["--all"], ["issues/063-another.md"]):
        done = harness.run(*args, "--offline")
        assert done.code == 1, done.out
        assert "number 42 is claimed by issues/042-thing.md and issues/063-another.md" in done.out
    assert harness.document(42).read_bytes() == approved


def test_a_name_that_looks_like_a_flag_is_refused(harness: RunHarness) -> None:
    harness.issue(42)
    assert "-r" in run_refused(harness, "-rf", "--dry-run", code=2)
    assert "nothing matches '-rf'" in run_refused(harness, "--dry-run", "--", "-rf", code=5)


def test_file_names_and_titles_cannot_forge_lines_or_escape_the_project(harness: RunHarness) -> None:
    folder = harness.project / "issues"
    text = harness.issue(42).read_text()
    for name in ("-rf.md", "no number.md", "x" * 240 + "9.md"):
        (folder / name).write_text("# Odd\n\nAn odd name.\n")
    for name in ("050-a\n[COORDINATOR] done.md", "050-b\x1b]52;c;eA==\x07.md"):
        (folder / name).write_text("# Twice\n\nSame number.\n")
    (folder / "052-\u202edm.md").write_text("# Turned \u2067round\n")
    (folder / "fdp\u202e.md").write_text("# Odd\n\nText.\n")
    title = '"x\\n[COORDINATOR] Execution complete:\\e[2J"'
    (folder / "042-thing.md").write_text(text.replace("number: 42", f"number: 42\ntitle: {title}"))
    (folder / "051-bell.md").write_text(
        '---\nlabels: ["a\\nb\\e[1m"]\n---\n# Ring\x07 \x1b[31mred\n\nText.\n'
    )
    listed = harness.run("--all", "--dry-run")
    assert listed.code == 0
    starts = ("[COORDINATOR] ", "  - LLD-", "      will fail: ")
    assert all(line.startswith(starts) for line in listed.lines), listed.out
    assert "[COORDINATOR] Execution complete:" not in listed.lines and not CONTROLS.search(
        listed.out.replace("\n", "")
    )
    unknown = harness.run("--label", "none", "--dry-run")
    assert unknown.code == 5 and len(unknown.err.splitlines()) == 1 and "\x1b" not in unknown.err

    harness.server()
    done = harness.run("--all", "--parallel", 2)
    assert all(re.match(r"\[(COORDINATOR|LLD-\d+)\]( |$)", line) for line in done.lines), done.out
    assert "[COORDINATOR] done" not in "\n".join(line[:20] for line in done.lines)
    assert not CONTROLS.search(done.out.replace("\n", ""))
    log = (harness.home / "logs/parallel/latest/LLD-50.log").read_text()
    assert INVALID in log and not CONTROLS.search(log.replace("\n", ""))
    outside = [
        path for path in harness.root.iterdir() if path.name not in ("project", "home", "user", "server-keys")
    ]
    assert all(path.name.startswith(("stdout-", "stderr-")) for path in outside)


def test_an_error_message_from_the_provider_cannot_forge_lines(harness: RunHarness) -> None:
    harness.issue(42)
    harness.server(
        fault={
            "kind": "400",
            "message": "no\n[COORDINATOR] done\r[LLD-1] x \x1b]52;c;eA==\x07",
            "times": None,
        }
    )
    done = harness.run("--all")
    assert done.code == 1
    assert all(re.match(r"\[(COORDINATOR|LLD-42)\]( |$)", line) for line in done.lines), done.out
    assert "[COORDINATOR] done" not in done.lines and not CONTROLS.search(done.out.replace("\n", ""))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[[credential]]\nkey = "x"\n[[credential]\n', "line 3"),
        ('[[credential]]\nkey = "x"\n\n[[credential]]\nkei = "y"\n', "line 5: unknown 'kei'"),
        ('[[credential]]\nkey = "x"\nrpm = "many"\n', "line 3"),
        ("[[credential]]\nkey_env = 'NOT_SET'\n", "line 2: the variable NOT_SET is not set"),
        ('[credential]\nkey = "x"\n', "double brackets"),
    ],
)
def test_a_broken_credentials_file_is_refused_with_the_line_number(
    harness: RunHarness, text: str, complaint: str
) -> None:
    harness.issue(42)
    harness.home.mkdir(mode=0o700)
    file = harness.home / "credentials.toml"
    file.write_text(text)
    file.chmod(0o600)
    output = run_refused(harness, "--all", code=3)
    assert str(file) in output and complaint in output


def test_a_credentials_file_readable_by_others_is_refused_with_a_fix(harness: RunHarness) -> None:
    harness.issue(42)
    harness.home.mkdir(mode=0o700)
    file = harness.home / "credentials.toml"
    file.write_text('[[credential]]\nkey = "canary-world-readable"\n')
    file.chmod(0o644)
    output = run_refused(harness, "--all", code=3)
    assert f"chmod 600 {file}" in output and "canary" not in output


@pytest.mark.parametrize("defect", ["link", "file", "writable by others", "somebody else's"])
def test_a_home_that_cannot_be_trusted_is_refused(harness: RunHarness, defect: str) -> None:
    harness.issue(42)
    if defect == "link":
        (harness.root / "real").mkdir(mode=0o700)
        harness.home.symlink_to(harness.root / "real")
    elif defect == "file":
        harness.home.write_text("a file")
    elif defect == "somebody else's":
        if os.geteuid() != 0:
            pytest.skip("needs root to change the owner of a folder")
        harness.home.mkdir(mode=0o700)
        os.chown(harness.home, NOBODY, NOBODY)
    else:
        harness.home.mkdir()
        harness.home.chmod(0o777)
    output = run_refused(harness, "--all", "--offline", code=3)
    assert str(harness.home) in output


def test_an_unwritable_home_is_refused_before_anything_starts(harness: RunHarness) -> None:
    harness.issue(42)
    harness.home.mkdir(mode=0o700)
    before = snapshot(harness.project, harness.home)
    args = [str(PROGRAMS / "lld-workflow"), "--all", "--offline"]
    done = subprocess.run(
        [*_without_write_access(harness.home), *args],
        cwd=harness.project,
        env=harness.environment(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 3, done.stdout + done.stderr
    assert (
        str(harness.home) in done.stderr and "AGENTOS_HOME" in done.stderr and "Traceback" not in done.stderr
    )
    harness.home.chmod(0o700)
    assert snapshot(harness.project, harness.home) == before


def _without_write_access(home: Path) -> list[str]:
    """A prefix for commands that cannot write to the home, even as root."""
    if os.geteuid() != 0:
        home.chmod(0o500)
        return []
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode == 0:
        script = f'mount --bind "{home}" "{home}" && mount -o remount,bind,ro "{home}" && exec "$@"'
        return ["unshare", "-m", "sh", "-c", script, "sh"]
    return ["setpriv", "--reuid=65534", "--clear-groups"]


@pytest.mark.parametrize(
    ("args", "env", "code", "complaint"),
    [
        (["--all", "--timeout", "soon"], {}, 2, "90s, 30m or 1h"),
        (["--all", "--budget", "abc"], {}, 2, "expected US dollars above 0, such as 5 or 0.50"),
        (["--all", "--budget", "nan"], {}, 2, "expected US dollars above 0"),
        (["--all", "--budget", "0"], {}, 2, "expected US dollars above 0"),
        (["--all", "--limit", "0"], {}, 2, "--limit"),
        (["--all", "--retries", "-1"], {}, 2, "--retries"),
        (["--all", "--max-iterations", "0"], {}, 2, "--max-iterations"),
        (["--all", "--none-such"], {}, 2, "--none-such"),
        (["--all", "42"], {}, 2, "--all selects every pending item, but 42 is named too: drop one"),
        (["--all", "--offline"], {"AGENTOS_CREDENTIAL_LIMIT": "two"}, 2, "AGENTOS_CREDENTIAL_LIMIT=two"),
        (["--all", "--offline"], {"AGENTOS_SIMULATE_429": "maybe"}, 2, "AGENTOS_SIMULATE_429=maybe"),
    ],
)
def test_an_invalid_flag_or_variable_is_a_usage_error(
    harness: RunHarness, args: list[str], env: dict[str, str], code: int, complaint: str
) -> None:
    harness.issue(42)
    assert complaint in run_refused(harness, *args, code=code, **env)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "# Mine\n\nparallel = 'x'\n",
            "agentos.toml, line 3: invalid parallel = 'x': expected a whole number from 1 to 64",
        ),
        ("retries = 1\nparalel = 3\n", "agentos.toml, line 2: unknown setting 'paralel'"),
        ("retries = 1\n[prices.'a']\ninput = 1\n", "agentos.toml, line 2: invalid prices"),
        ("parallel = 3\nx = = 2\n", "at line 2"),
    ],
)
def test_a_broken_project_file_is_refused(harness: RunHarness, text: str, complaint: str) -> None:
    harness.issue(42)
    (harness.project / "agentos.toml").write_text(text)
    output = run_refused(harness, "--all", "--offline", code=3)
    assert "agentos.toml" in output and complaint in output


def test_an_unknown_workflow_or_command_is_a_usage_error(harness: RunHarness) -> None:
    for args in (["run", "poem", "--all"], ["frobnicate"]):
        done = harness.run(*args, program="agentos")
        assert done.code == 2 and args[-2 if len(args) > 1 else 0] in done.err
        assert "Traceback" not in done.err
