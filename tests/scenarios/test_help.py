"""`--help` is fast and imports only what it needs."""

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.audits.commands import flags_of, leaves

from .harness import PROGRAMS, RunHarness

HEAVY = {"langgraph", "google", "pydantic", "asyncio", "rich", "h11", "yaml", "sqlite3"}
COMMANDS = [
    ["agentos", "--help"],
    ["lld-workflow", "--help"],
    ["issue-workflow", "-h"],
    ["agentos", "run", "--help"],
]


def cpu_seconds(args: list[str], env: dict[str, str]) -> float:
    """The CPU time of a command in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(args, env=env, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


@pytest.mark.parametrize("args", COMMANDS, ids=" ".join)
def test_help_imports_nothing_heavy(harness: RunHarness, args: list[str]) -> None:
    script = (PROGRAMS / args[0]).read_text()
    found = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", script, *args[1:]],
        env=harness.environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Usage:" in found.stdout
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in found.stderr.splitlines()}
    assert "click" in imported and not imported & HEAVY


@pytest.mark.parametrize("program", ["agentos", "lld-workflow"])
def test_help_takes_less_than_100_ms_more_than_bare_python(harness: RunHarness, program: str) -> None:
    env = harness.environment()
    ours = [cpu_seconds([str(PROGRAMS / program), "--help"], env) for _ in range(9)]
    bare = [cpu_seconds([sys.executable, "-c", "pass"], env) for _ in range(9)]
    # Load on the same core slows every instruction down, so the minimum is closest to the real cost.
    assert min(ours) - min(bare) < 0.1


def test_help_shows_every_flag_with_an_example(harness: RunHarness) -> None:
    output = harness.run("--help").out
    head, _, examples = output.partition("Examples:")
    for flag in (
        "--all",
        "--parallel",
        "--dry-run",
        "--offline",
        "--max-iterations",
        "--timeout",
        "--retries",
    ):
        assert flag in head and flag in examples
    for flag in ("--max-wait", "--fresh", "--failed", "--limit", "--label", "--repo", "--json"):
        assert flag in head and flag in examples


def test_a_mistyped_command_gets_a_suggestion(harness: RunHarness) -> None:
    done = harness.run("stauts", program="agentos")
    assert done.code == 2 and "did you mean status" in done.err and "agentos --help" in done.err
    other = harness.run("xyzzyx", program="agentos")
    assert other.code == 2 and "did you mean" not in other.err


def test_the_help_of_any_command_is_the_same_with_help_before_it(harness: RunHarness) -> None:
    for words in ((), ("status",), ("keys", "add"), ("set", "parallel")):
        asked = harness.run("help", *words, program="agentos")
        assert asked.code == 0 and asked.out == harness.run(*words, "--help", program="agentos").out
    asked = harness.run("help", "lld-workflow", program="agentos")
    assert asked.out == harness.run("--help").out
    assert harness.run("help", "stauts", program="agentos").code == 2
    wrong = harness.run("help", "status", "now", program="agentos")
    assert (wrong.code, wrong.err) == (2, "Error: agentos status has no command 'now': agentos help status\n")


def test_the_manual_page_is_valid_and_has_every_command_and_option(harness: RunHarness) -> None:
    page = harness.run("help", "--man", program="agentos")
    assert page.code == 0
    for name, command in leaves():
        assert name == "agentos" or f'.SS "{name} '.replace("-", r"\-") in page.out
        for option in flags_of(command) - {"--version"}:
            assert option.replace("-", r"\-") in page.out, f"{name} {option}"
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-P-c", "-P-b", "-P-u"],
        input=page.out,
        capture_output=True,
        text=True,
    )
    assert done.stderr == "" and "agentos keys add [OPTIONS]" in done.stdout
    assert "agentos help --man | man -l -" in done.stdout, "examples can be copied"


def test_help_writes_nothing(harness: RunHarness, tmp_path: Path) -> None:
    harness.run("--help", program="agentos")
    assert not harness.home.exists() and os.listdir(harness.user) == []
