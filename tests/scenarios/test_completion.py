"""Completion in the shells themselves: a person presses Tab."""

import os
import shutil
import subprocess

import pytest

from .stage import PROGRAMS, Stage, Terminal

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


def test_fish_offers_commands_and_flags(stage: Stage) -> None:
    fish = shutil.which("fish")
    if fish is None:
        pytest.skip("fish is not installed")
    script = "agentos completion fish | source; complete -C 'agentos repo'; complete -C 'lld-workflow --offl'"
    done = subprocess.run(
        [fish, "--no-config", "-c", script],
        env=stage.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == ["report", "--offline"]


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
