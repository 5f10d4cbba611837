"""Completion in the shells themselves: a person presses Tab."""

import os
import shutil
import signal
import subprocess

import pytest

from .screens import Screen
from .stage import PROGRAMS, Stage, Terminal, title_of, until

BEGIN = {
    "bash": "source <(agentos completion bash)",
    "zsh": "autoload -U compinit; compinit -u -D; source <(agentos completion zsh)",
}
FLAGS = {"bash": ("--norc", "--noprofile", "-i"), "zsh": ("-f", "-i")}


def shell(stage: Stage, name: str) -> Terminal:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    terminal = stage.terminal(*FLAGS[name], program=path, PS1="ready> ")
    terminal.says("ready> ")
    type_in(terminal, f"{BEGIN[name]}; echo be''gun\n")
    terminal.says("begun", 30)
    return terminal


def type_in(terminal: Terminal, text: str) -> None:
    os.write(terminal.keyboard, text.encode())


@pytest.mark.parametrize("name", ["bash", "zsh"])
def test_tab_completes_commands_and_flags_of_every_program(stage: Stage, name: str) -> None:
    terminal = shell(stage, name)
    for typed, completed in (
        ("agentos repo", "agentos report"),
        ("agentos runs comp", "agentos runs compare"),
        ("lld-workflow --offl", "lld-workflow --offline"),
        ("issue-workflow --max-it", "issue-workflow --max-iterations"),
        ("agentos report --format juni", "agentos report --format junit"),
    ):
        type_in(terminal, f"{typed}\t")
        terminal.says(completed, 30)
        type_in(terminal, "\x15")


def test_bash_offers_the_runs_that_there_are(stage: Stage) -> None:
    (stage.home / "logs" / "parallel" / "20261115T221503Z").mkdir(parents=True)
    terminal = shell(stage, "bash")
    type_in(terminal, "agentos report 2026\t")
    terminal.says("agentos report 20261115T221503Z", 30)


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
    """Looks at the line as it stands: a shell goes back and overwrites what it completes in another case."""
    type_in(screen.terminal, f"{typed}\t")
    until(lambda: screen.look()[-1].rstrip() == f"ready> {completed}", 30)
    type_in(screen.terminal, "\x15")
    until(lambda: screen.look()[-1].rstrip() == "ready>", 30)


def backlog(stage: Stage) -> None:
    """One item with a document and a log, one that waits for a person, one that is closed, one brief."""
    stage.issue(40)
    stage.server()
    assert stage.run("40").code == 0
    stage.issue(41, "good", "ui")
    stage.issue(99).write_text("---\nnumber: 49\nstate: closed\n---\n# Long ago\n")
    stage.brief("7-thing.md", 7)
    assert stage.run("41", "--review", "draft").code == 0
    (stage.home / "logs/parallel/latest/LLD-41.log").unlink()
    (stage.home / "logs/parallel/latest/LLD-40.log").write_text("said before\n")


@pytest.mark.parametrize("name", ["bash", "zsh"])
def test_tab_completes_items_by_id_or_number(stage: Stage, name: str) -> None:
    backlog(stage)
    screen = Screen(shell(stage, name))
    for typed, completed in ITEMS:
        offers(screen, typed, completed)


def test_tab_after_retry_offers_what_has_failed_in_the_run_under_way(stage: Stage) -> None:
    """In three shells; neither what is at work nor what has failed in an earlier run."""
    stage.issue(39).write_text("no heading\n")
    stage.server()
    assert stage.run("39").code == 1
    stage.issues(40, 41)
    witness = stage.server("--latency", "90,90")
    running = stage.start("40", "41", "--parallel", 2, "--retries", 0)
    until(lambda: witness.ledger()["running"] == 2, 60)
    assert fish(stage, "agentos retry L") == []
    os.kill(stage.worker("LLD-40"), signal.SIGKILL)
    until(lambda: stage.events("ItemEnded"), 30)
    for name in ("bash", "zsh"):
        offers(Screen(shell(stage, name)), "agentos retry l", "agentos retry LLD-40")
    assert fish(stage, "agentos retry L") == ["LLD-40"]
    running.signal(signal.SIGINT)
    assert running.end().code == 130
    assert fish(stage, "agentos retry L") == [], "nothing is under way"


@pytest.mark.long
def test_fish_offers_items_with_their_titles(stage: Stage) -> None:
    backlog(stage)
    assert fish(stage, *(typed for typed, _ in ITEMS[3:])) == [
        f"LLD-41\t{title_of(41)}",
        "lld",
        "ui",
        f"ISSUE-7\t{title_of(7)}",
        "LLD-40",
        f"LLD-41\t{title_of(41)}",
    ]


def test_what_cannot_be_offered_is_no_error(stage: Stage) -> None:
    """No project, no run, a broken file, an unknown workflow: nothing is written into somebody's shell."""
    (stage.project / "agentos.toml").write_text("nonsense = [")
    for words in (
        "lld-workflow L",
        "agentos logs L",
        "agentos retry L",
        "agentos review L",
        "agentos run x L",
    ):
        program = words.split()[0]
        variable = f"_{program.replace('-', '_').upper()}_COMPLETE"
        surroundings = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), variable: "bash_complete"}
        done = stage.run(program=program, **surroundings)
        assert (done.out.strip(), done.err) == ("", ""), words


def test_issues_on_github_are_offered_as_the_last_run_had_them(stage: Stage) -> None:
    """A key press asks nobody on the network."""
    stage.issues(40, 41)
    stage.server()
    assert stage.run("40", "41").code == 0
    shutil.rmtree(stage.project / "issues")
    (stage.project / "agentos.toml").write_text('github = "owner/repository"\n')
    stage.surroundings["GITHUB_API_URL"] = "http://127.0.0.1:9"
    assert fish(stage, "lld-workflow L") == [f"LLD-40\t{title_of(40)}", f"LLD-41\t{title_of(41)}"]


def fish(stage: Stage, *typed: str) -> list[str]:
    path = shutil.which("fish")
    if path is None:
        pytest.skip("fish is not installed")
    asked = "; ".join(f"complete -C '{words}'" for words in typed)
    done = subprocess.run(
        [path, "--no-config", "-c", f"agentos completion fish | source; {asked}"],
        env=stage.environment(),
        cwd=stage.project,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.splitlines()


def test_fish_offers_commands_and_flags(stage: Stage) -> None:
    found = fish(stage, "agentos repo", "lld-workflow --offl")
    assert [line.split("\t")[0] for line in found] == ["report", "--offline"]


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_a_script_names_every_program(stage: Stage, name: str) -> None:
    done = stage.run("completion", name, program="agentos")
    assert done.code == 0 and done.err == ""
    for program in ("agentos", "lld-workflow", "issue-workflow"):
        assert f"_{program.replace('-', '_').upper()}_COMPLETE={name}_complete" in done.out


def test_another_shell_is_a_usage_error(stage: Stage) -> None:
    done = stage.run("completion", "tcsh", program="agentos")
    assert done.code == 2 and "bash" in done.err
    assert (PROGRAMS / "agentos").exists()
