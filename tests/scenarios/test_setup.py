"""First steps: `agentos init`, `agentos doctor` and `agentos config show`."""

import dataclasses
import os
import re
import subprocess
import time
from importlib import resources
from pathlib import Path

import pytest

from agentos.config.file import FILE_KEYS
from agentos.config.origins import VARIABLES, line_of
from agentos.config.settings import Flags, Settings

from .harness import CompletedCommand, RunHarness, snapshot

CANARY = "canary-key-alpha-9f31"


def agentos(harness: RunHarness, *args: object, **env: str) -> CompletedCommand:
    return harness.run(*args, program="agentos", **env)


def typed(harness: RunHarness, commands: list[str]) -> CompletedCommand:
    """Run the commands one after the other in one shell."""
    done = subprocess.run(
        ["sh", "-ec", "\n".join(commands)],
        cwd=harness.project,
        env=harness.environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    return CompletedCommand(done.returncode, done.stdout, done.stderr)


def fix_for(done: CompletedCommand, what: str) -> str:
    """The numbered fix of a failed check; the check must refer to that number."""
    (number,) = re.findall(rf"^FAIL {what} .*-> fix (\d+)$", done.out, re.MULTILINE)
    (text,) = re.findall(rf"^{number}\. {what}: (.*)$", done.out, re.MULTILINE)
    return str(text)


@pytest.mark.slow
def test_a_new_project_is_ready_and_runs(harness: RunHarness) -> None:
    made = agentos(harness, "init", "shop")
    assert made.code == 0
    shop = harness.project / "shop"
    assert typed(harness, [line.partition(":")[2] for line in made.lines[-3:]]).code == 0
    assert (shop / "docs/lld/active/LLD-001.md").exists()
    (shop / "docs/lld/active/LLD-001.md").unlink()
    doctor = agentos(harness, "doctor", "--repo", shop, "--offline")
    assert doctor.code == 0, doctor.out
    assert agentos(harness, "doctor", "--repo", shop, GEMINI_API_KEY_1=CANARY).code == 0
    assert harness.run("--all", "--offline", "--repo", shop).code == 0
    assert 'status: "approved"' in (shop / "docs/lld/active/LLD-001.md").read_text()
    assert harness.run("--all", "--offline", "--repo", shop, program="issue-workflow").code == 0
    assert list((shop / "ideas/done").glob("*.md"))


def test_the_commented_settings_are_all_existing_settings(harness: RunHarness) -> None:
    agentos(harness, "init", "shop")
    path = harness.project / "shop" / "agentos.toml"
    before = agentos(harness, "config", "show", "--repo", path.parent).out
    named = set(re.findall(r"^# (\w+) = ", path.read_text(), re.MULTILINE))
    in_tables = {"input", "output", "project", "gateway"}
    assert named - in_tables == set(FILE_KEYS) - {"prices", "fleet"}
    path.write_text(re.sub(r"^# (?=\w+ = |\[)", "", path.read_text(), flags=re.MULTILINE))
    after = agentos(harness, "config", "show", "--repo", path.parent)
    assert after.code == 0 and after.out != before


def test_a_second_init_overwrites_nothing(harness: RunHarness) -> None:
    agentos(harness, "init", "shop")
    shop = harness.project / "shop"
    (shop / "agentos.toml").write_text("parallel = 2\n")
    (shop / "issues/001-example.md").rename(shop / "issues/007-mine.md")
    before = snapshot(shop)
    again = agentos(harness, "init", "shop")
    assert again.code == 0 and "kept     agentos.toml" in again.out
    assert "kept     issues/ (1 of your own, so no example)" in again.out
    assert snapshot(shop) == before
    (shop / "ideas/done").mkdir()
    for number in (7, 8):
        (shop / f"ideas/done/{number}-mine.md").write_text("# Mine\n")
    (shop / "ideas/active/1-example.md").rename(shop / "ideas/active/9-mine.md")
    assert "kept     ideas/active/ (1 of your own, so no example)" in agentos(harness, "init", "shop").out
    (shop / "ideas/active/9-mine.md").unlink()
    assert (
        "kept     ideas/active/ (2 of your own in ideas/done/, so no" in agentos(harness, "init", "shop").out
    )


def test_init_inside_a_project_says_so(harness: RunHarness) -> None:
    assert "inside" not in agentos(harness, "init").out
    inner = agentos(harness, "init", "issues/shop")
    line = f"It is inside the project {harness.project}; commands typed in it are about the new one."
    assert inner.code == 0 and line in inner.lines, inner.out


def test_init_says_why_it_cannot(harness: RunHarness) -> None:
    (harness.project / "shop").symlink_to("/nonexistent/place")
    done = agentos(harness, "init", "shop/inner")
    assert done.code == 3 and "cannot create a project in shop/inner" in done.err
    (harness.project / "docs").mkdir()
    (harness.project / "ideas").symlink_to(harness.project / "docs")
    assert agentos(harness, "init").code == 3
    assert not list((harness.project / "docs").iterdir())


def test_the_getting_started_page_counts_the_lines_of_the_settings() -> None:
    page = Path(__file__).parents[2] / "docs/how-to/begin.md"
    lines = resources.files("agentos.project_template").joinpath("agentos.toml").read_text().splitlines()
    assert f" agentos.toml:{len(lines) + 1}\n" in page.read_text()


READERS = [
    "status",
    "report",
    "logs LLD-1",
    "pause",
    "stop",
    "watch",
    "wait",
    "runs",
    "keys",
    "config show",
    "review",
]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["file", "file/below"])
def test_a_home_that_is_a_file_is_the_same_error_everywhere(harness: RunHarness, name: str) -> None:
    harness.issues(1)
    (harness.root / "file").write_text("")
    home = {"AGENTOS_HOME": str(harness.root / name)}
    results = [agentos(harness, *args.split(), **home) for args in READERS]
    results += [harness.run("--all", "--offline", **home), harness.run("--all", "--dry-run", **home)]
    results += [agentos(harness, "exec", "q", "--", "true", **home)]
    for done in results:
        assert done.code == 3 and f"Error: the home {harness.root / name} " in done.err, done
        assert done.err.endswith("expected a folder that you own; set AGENTOS_HOME to one\n")
    assert agentos(harness, "doctor", **home).code == 3


def test_a_tilde_in_the_home_setting_is_expanded(harness: RunHarness) -> None:
    harness.issues(1)
    assert harness.run("--all", "--offline", AGENTOS_HOME="~/mine").code == 0
    assert (harness.user / "mine/logs/parallel/latest").exists() and not (harness.project / "~").exists()


def test_doctor_names_a_fix_for_each_problem_and_changes_nothing(harness: RunHarness) -> None:
    harness.issues(1)
    harness.home.mkdir(mode=0o700)
    (harness.home / "logs").mkdir(mode=0o755)
    (harness.home / "config.toml").write_text("parallel = 99\n")
    (harness.home / "config.toml").chmod(0o600)
    (harness.project / "docs").write_text("a file")
    before = snapshot(harness.project)
    done = agentos(harness, "doctor")
    assert done.code == 3
    assert fix_for(done, "permissions") == f"type chmod -R go= {harness.home}"
    assert "config.toml, line 1: invalid parallel = 99" in fix_for(done, "settings")
    assert "make" in fix_for(done, "documents")
    assert done.lines[-1] == "Fix these, then run: agentos doctor"
    assert {
        name: seen for name, seen in snapshot(harness.project).items() if not name.endswith("project")
    } == {name: seen for name, seen in before.items() if not name.endswith("project")}


def test_doctor_quotes_the_home_and_leaves_out_what_is_in_worktrees(harness: RunHarness) -> None:
    harness.issues(1)
    home = harness.root / "my home"
    for folder in (home, home / "worktrees", home / "worktrees/shop", home / "copies"):
        folder.mkdir(mode=0o700)
    (home / "worktrees/shop/a.txt").write_text("")
    (home / "worktrees/shop/a.txt").chmod(0o644)
    (home / "copies/shop").mkdir()
    (home / "copies/shop").chmod(0o755)
    assert agentos(harness, "doctor", "--offline", AGENTOS_HOME=str(home)).code == 0
    (home / "copies").chmod(0o755)
    done = agentos(harness, "doctor", "--offline", AGENTOS_HOME=str(home))
    assert done.code == 3 and fix_for(done, "permissions") == f"type chmod -R go= '{home}'"


def test_doctor_finds_nothing_wrong_in_a_project_with_a_workflow_of_its_own(harness: RunHarness) -> None:
    assert agentos(harness, "init", "--workflow").code == 0
    done = agentos(harness, "doctor", "--offline")
    assert done.code == 0 and "essays.py has a workflow" in done.out, done.out
    assert done.lines[-1].endswith("Start with: agentos run essays:workflow --all --parallel --offline")


def test_doctor_lists_issues_that_every_run_skips(harness: RunHarness) -> None:
    harness.issue(42)
    for name in ("README.md", "idea.md"):
        (harness.project / "issues" / name).write_text("# An idea\n\nOne.\n")
    done = agentos(harness, "doctor", "--offline")
    assert "1 file skipped: no number: idea.md" in done.out and done.code == 3, done.out


def test_doctor_without_key_or_project_says_what_to_do(harness: RunHarness) -> None:
    done = agentos(harness, "doctor")
    assert done.code == 3
    assert fix_for(done, "keys").startswith("set GEMINI_API_KEY_1, or type: agentos keys add")
    assert fix_for(done, "project").startswith("go to a project, or create one: agentos init")
    assert not harness.home.exists()


@pytest.mark.slow
def test_doctor_reports_an_unusable_model_like_a_run_would(harness: RunHarness) -> None:
    harness.issues(1)
    settings = harness.project / "agentos.toml"
    for text, expected, code in (
        ('drafter = "foo"', "drafter = 'foo': unknown provider", 3),
        ('reviewer = "anthropic/claude-x"', "agentos keys add --provider anthropic", 4),
        ('drafter = "gemini/unheard-of"\nbudget = 1', "--budget needs the price of unheard-of", 3),
    ):
        settings.write_text(f"{text}\n")
        done = agentos(harness, "doctor", GEMINI_API_KEY_1=CANARY)
        assert done.code == 3 and expected in fix_for(done, "models"), done.out
        assert harness.run("--all", GEMINI_API_KEY_1=CANARY).code == code, "a run does not begin"
        assert agentos(harness, "doctor", "--offline").code == 0
    settings.write_text('drafter = "gemini/gemini-2.5-flash"\n')
    done = agentos(harness, "doctor", GEMINI_API_KEY_1=CANARY)
    assert done.code == 0 and "drafter gemini-2.5-flash; reviewer gemini-2.5-pro" in done.out, done.out


@pytest.mark.slow
def test_doctor_does_not_count_on_keys_that_were_all_rejected(harness: RunHarness) -> None:
    harness.issues(1)
    harness.server(fault={"kind": "401", "times": 99})
    assert agentos(harness, "doctor").code == 0
    for _ in range(2):
        assert harness.run("--all").code == 4
        done = agentos(harness, "doctor")
        assert done.code == 3 and "key-1 (quarantined), key-2 (quarantined)" in done.out, done.out
        assert "agentos keys check" in fix_for(done, "keys")


def test_doctor_notices_a_clock_that_is_behind_its_own_records(harness: RunHarness) -> None:
    run = harness.home / "logs" / "parallel" / "20991231T000000Z"
    run.mkdir(parents=True)
    ahead = time.time() + 7200
    os.utime(run, (ahead, ahead))
    done = agentos(harness, "doctor")
    assert "timedatectl set-ntp true" in fix_for(done, "clock")


def test_doctor_refuses_a_home_that_others_could_use(harness: RunHarness) -> None:
    harness.home.mkdir(mode=0o777)
    harness.home.chmod(0o777)
    done = agentos(harness, "doctor")
    assert done.code == 3 and "chmod 700" in fix_for(done, "home")


def test_doctor_lists_locked_items(harness: RunHarness) -> None:
    harness.issues(1)
    harness.server("--latency", "60,60")
    running = harness.start("1")
    running.wait_for("Executing: N1_design", 60)
    assert "held by active runs: LLD-1" in agentos(harness, "doctor").out


def test_every_setting_says_where_it_comes_from(harness: RunHarness) -> None:
    harness.home.mkdir(mode=0o700)
    (harness.home / "config.toml").write_text("retries = 1\nparallel = 4\n\ntimeout = 60\n")
    project = harness.project / "agentos.toml"
    project.write_text('# words\nparallel = 2\ndrafter = [\n  "gemini/a",\n  "gemini/b",\n]\nbudget = 3\n')
    done = agentos(
        harness,
        *("config", "show", "--origin", "--budget", "7"),
        AGENTOS_CREDENTIAL_LIMIT="2",
        GEMINI_API_KEY_1=CANARY,
    )
    assert done.code == 0 and CANARY not in done.out
    found = {line.split()[0]: re.split(r"  +", line)[1:] for line in done.lines}
    assert found["budget"] == ["7", "flag --budget"]
    assert found["credential_limit"] == ["2", "environment AGENTOS_CREDENTIAL_LIMIT"]
    assert found["parallel"] == ["2", "agentos.toml:2"]
    assert found["drafter"] == ["gemini/a, gemini/b", "agentos.toml:3"]
    assert found["timeout"] == ["60 (1m)", f"{harness.home}/config.toml:4"]
    assert found["retries"] == ["1", f"{harness.home}/config.toml:1"]
    assert found["max_wait"] == ["3600 (1h)", "default"]
    assert found["project"][1] == "this folder"
    assert found["fleet"] == ["-", "default"]


def test_config_alone_shows_the_settings(harness: RunHarness) -> None:
    alone, shown = agentos(harness, "config"), agentos(harness, "config", "show")
    assert alone.code == 0 and alone.out == shown.out and "parallel " in alone.out


def test_config_show_reports_a_bad_setting_like_a_run_would(harness: RunHarness) -> None:
    (harness.project / "agentos.toml").write_text("paralel = 3\n")
    done = agentos(harness, "config", "show")
    assert done.code == 3 and "unknown setting 'paralel'" in done.err


def test_every_setting_has_a_source() -> None:
    """Every setting comes from a flag, a file or a variable, and `config show` knows which."""
    fields = {field.name for field in dataclasses.fields(Settings)} - {"project"}
    flags = {field.name for field in dataclasses.fields(Flags)}
    assert fields - flags - set(FILE_KEYS) - {"held_back"} <= set(VARIABLES) <= fields


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("parallel = 3", 1),
        ("\n\n# parallel = 9\nparallel = 3\n", 4),
        ('drafter = """\nparallel = 9\n"""\nparallel = 3', 4),
        ("[prices.x]\ninput = 1\n", None),
        ("", None),
    ],
)
def test_the_line_of_a_setting_is_found_as_the_parser_reads_it(
    tmp_path: Path, text: str, line: int | None
) -> None:
    (tmp_path / "agentos.toml").write_text(text)
    assert line_of(tmp_path / "agentos.toml", "parallel") == line
