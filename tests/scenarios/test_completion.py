"""Tab completion in real shells."""

import os
import shutil
import signal
import subprocess

import pytest

from .harness import PROGRAMS, RunHarness, Terminal, title_of, wait_until
from .screens import Screen

LOAD_COMPLETION = {
    "bash": "source <(agentos completion bash)",
    "zsh": "autoload -U compinit; compinit -u -D; source <(agentos completion zsh)",
}
FLAGS = {"bash": ("--norc", "--noprofile", "-i"), "zsh": ("-f", "-i")}


def shell(harness: RunHarness, name: str) -> Terminal:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    terminal = harness.terminal(*FLAGS[name], program=path, PS1="ready> ")
    terminal.wait_for("ready> ")
    type_in(terminal, f"{LOAD_COMPLETION[name]}; echo lo''aded\n")
    terminal.wait_for("loaded", 30)
    return terminal


def type_in(terminal: Terminal, text: str) -> None:
    os.write(terminal.keyboard, text.encode())


@pytest.mark.parametrize("name", ["bash", "zsh"])
def test_tab_completes_commands_and_flags_of_every_program(harness: RunHarness, name: str) -> None:
    terminal = shell(harness, name)
    for typed, completed in (
        ("agentos repo", "agentos report"),
        ("agentos runs comp", "agentos runs compare"),
        ("lld-workflow --offl", "lld-workflow --offline"),
        ("issue-workflow --max-it", "issue-workflow --max-iterations"),
        ("agentos report --format juni", "agentos report --format junit"),
    ):
        type_in(terminal, f"{typed}\t")
        terminal.wait_for(completed, 30)
        type_in(terminal, "\x15")


def test_bash_completes_existing_runs(harness: RunHarness) -> None:
    (harness.home / "logs" / "parallel" / "20261115T221503Z").mkdir(parents=True)
    terminal = shell(harness, "bash")
    type_in(terminal, "agentos report 2026\t")
    terminal.wait_for("agentos report 20261115T221503Z", 30)


ITEMS = (
    ("lld-workflow LLD-4", "lld-workflow LLD-41"),
    ("lld-workflow lld-4", "lld-workflow LLD-41"),
    ("lld-workflow 4", "lld-workflow 41"),
    ("lld-workflow --fresh LLD-40 LLD-4", "lld-workflow --fresh LLD-40 LLD-41"),
    ("agentos run ll", "agentos run lld"),
    ("agentos run lld --label u", "agentos run lld --label ui"),
    ("issue-workflow I", "issue-workflow ISSUE-7"),
    ("agentos logs L", "agentos logs LLD-40"),
    ("agentos review L", "agentos review LLD-41"),
)


def offers(screen: Screen, typed: str, completed: str) -> None:
    """Compare the line on the screen, since a shell may overwrite typed text to change its case."""
    type_in(screen.terminal, f"{typed}\t")
    wait_until(lambda: screen.rows()[-1].rstrip() == f"ready> {completed}", 30)
    type_in(screen.terminal, "\x15")
    wait_until(lambda: screen.rows()[-1].rstrip() == "ready>", 30)


def backlog(harness: RunHarness) -> None:
    """One item with a document and a log, one waiting for review, one closed, and one brief."""
    harness.issue(40)
    harness.server()
    assert harness.run("40").code == 0
    harness.issue(41, "good", "ui")
    harness.issue(99).write_text("---\nnumber: 49\nstate: closed\n---\n# Long ago\n")
    harness.brief("7-thing.md", 7)
    assert harness.run("41", "--review", "draft").code == 0
    (harness.home / "logs/parallel/latest/LLD-41.log").unlink()
    (harness.home / "logs/parallel/latest/LLD-40.log").write_text("earlier output\n")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bash", "zsh"])
def test_tab_completes_items_by_id_or_number(harness: RunHarness, name: str) -> None:
    backlog(harness)
    screen = Screen(shell(harness, name))
    for typed, completed in ITEMS:
        offers(screen, typed, completed)


@pytest.mark.slow
def test_tab_after_retry_offers_items_that_failed_in_the_current_run(harness: RunHarness) -> None:
    """In three shells; items that are running or that failed in an earlier run are not offered."""
    harness.issue(39).write_text("no heading\n")
    harness.server()
    assert harness.run("39").code == 1
    harness.issues(40, 41)
    server = harness.server("--latency", "90,90")
    running = harness.start("40", "41", "--parallel", 2, "--retries", 0)
    wait_until(lambda: server.ledger()["running"] == 2, 60)
    assert fish(harness, "agentos retry L") == []
    os.kill(harness.worker("LLD-40"), signal.SIGKILL)
    wait_until(lambda: harness.events("item_ended"), 30)
    for name in ("bash", "zsh"):
        offers(Screen(shell(harness, name)), "agentos retry l", "agentos retry LLD-40")
    assert fish(harness, "agentos retry L") == ["LLD-40"]
    running.signal(signal.SIGINT)
    assert running.wait().code == 130
    assert fish(harness, "agentos retry L") == [], "no run is in progress"


@pytest.mark.long
def test_fish_offers_items_with_their_titles(harness: RunHarness) -> None:
    backlog(harness)
    assert fish(harness, *(typed for typed, _ in ITEMS[3:])) == [
        f"LLD-41\t{title_of(41)}",
        "lld",
        "ui",
        f"ISSUE-7\t{title_of(7)}",
        "LLD-40",
        f"LLD-41\t{title_of(41)}",
    ]


def test_completion_never_prints_an_error(harness: RunHarness) -> None:
    """No project, no run, a broken file, an unknown workflow: nothing is printed into the shell."""
    (harness.project / "agentos.toml").write_text("nonsense = [")
    for line in (
        "lld-workflow L",
        "agentos logs L",
        "agentos retry L",
        "agentos review L",
        "agentos run x L",
    ):
        program = line.split()[0]
        variable = f"_{program.replace('-', '_').upper()}_COMPLETE"
        extra_env = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), variable: "bash_complete"}
        done = harness.run(program=program, **extra_env)
        assert (done.out.strip(), done.err) == ("", ""), line


def test_github_issues_are_completed_from_the_last_run(harness: RunHarness) -> None:
    """Completion never uses the network."""
    harness.issues(40, 41)
    harness.server()
    assert harness.run("40", "41").code == 0
    shutil.rmtree(harness.project / "issues")
    (harness.project / "agentos.toml").write_text('github = "owner/repository"\n')
    harness.extra_env["GITHUB_API_URL"] = "http://127.0.0.1:9"
    assert fish(harness, "lld-workflow L") == [f"LLD-40\t{title_of(40)}", f"LLD-41\t{title_of(41)}"]


def fish(harness: RunHarness, *typed: str) -> list[str]:
    path = shutil.which("fish")
    if path is None:
        pytest.skip("fish is not installed")
    commands = "; ".join(f"complete -C '{line}'" for line in typed)
    done = subprocess.run(
        [path, "--no-config", "-c", f"agentos completion fish | source; {commands}"],
        env=harness.environment(),
        cwd=harness.project,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.splitlines()


def test_fish_offers_commands_and_flags(harness: RunHarness) -> None:
    found = fish(harness, "agentos repo", "lld-workflow --offl")
    assert [line.split("\t")[0] for line in found] == ["report", "--offline"]


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_the_completion_script_covers_every_program(harness: RunHarness, name: str) -> None:
    done = harness.run("completion", name, program="agentos")
    assert done.code == 0 and done.err == ""
    for program in ("agentos", "lld-workflow", "issue-workflow"):
        assert f"_{program.replace('-', '_').upper()}_COMPLETE={name}_complete" in done.out


def test_an_unsupported_shell_is_a_usage_error(harness: RunHarness) -> None:
    done = harness.run("completion", "tcsh", program="agentos")
    assert done.code == 2 and "bash" in done.err
    assert (PROGRAMS / "agentos").exists()


def test_completion_is_installed_once_and_loaded_by_a_new_shell(harness: RunHarness) -> None:
    start_file = harness.user / ".bashrc"
    start_file.write_text("PS1='ready> '")
    for _ in range(2):
        done = harness.run("completion", "--install", program="agentos", SHELL="/bin/bash")
        assert done.code == 0, done.err
    assert "~/.bashrc reads it already" in done.out
    lines = start_file.read_text().splitlines()
    assert lines[0] == "PS1='ready> '" and len(lines) == 3
    path = shutil.which("bash")
    assert path
    terminal = harness.terminal("-i", program=path)
    terminal.wait_for("ready> ")
    type_in(terminal, "lld-workflow --offl\t")
    terminal.wait_for("lld-workflow --offline", 30)


def test_fish_gets_a_file_for_each_program_and_an_unknown_shell_is_asked_for(harness: RunHarness) -> None:
    assert harness.run("completion", "fish", "--install", program="agentos").code == 0
    files = harness.user / ".config/fish/completions"
    assert sorted(path.name for path in files.iterdir()) == [
        "agentos.fish",
        "issue-workflow.fish",
        "lld-workflow.fish",
    ]
    done = harness.run("completion", "--install", program="agentos", SHELL="/bin/dash")
    assert done.code == 2 and "your shell is dash: name one of bash, zsh, fish" in done.err
