"""`agentos exec --sandbox`: what a program inside can do, and what it cannot, with the real bubblewrap."""

import shutil
import subprocess
from pathlib import Path

import pytest

from .harness import CompletedCommand, RunHarness
from .test_exec_gateway import AGENT
from .test_worktrees import git

TRIAL = ("bwrap", "--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--", "true")
works = shutil.which("bwrap") is not None and subprocess.run(TRIAL, check=False).returncode == 0
needs_bubblewrap = pytest.mark.skipif(not works, reason="needs a working bubblewrap (package bubblewrap)")

PROBE = """import os, socket, sys
def attempt(name, act):
    try:
        act()
        print(name, "yes")
    except OSError as error:
        print(name, "no")
attempt("own folder", lambda: open("mine.txt", "w").write("x"))
attempt("tmp", lambda: open("/tmp/anything", "w").write("x"))
attempt("system", lambda: open("/etc/theirs.txt", "w").write("x"))
try:
    open(os.path.join(sys.argv[1], "theirs.txt"), "w").write("x")
except OSError:
    pass
attempt("ssh keys", lambda: open(os.path.join(sys.argv[1], ".ssh", "id")).read())
attempt("keys of agentos", lambda: open(os.path.join(sys.argv[2], "credentials.toml")).read())
attempt("git hooks", lambda: open(".git/hooks/post-commit", "w").write("x"))
attempt("git file", lambda: open(".git", "r+").write("x"))
attempt("internet", lambda: socket.create_connection(("192.0.2.1", 80), timeout=2))
server = int(sys.argv[3])
attempt("other ports of this machine", lambda: socket.create_connection(("127.0.0.1", server), timeout=2))
"""


def run(harness: RunHarness, *words: object) -> CompletedCommand:
    return harness.run("exec", "--sandbox", *words, program="agentos")


@pytest.fixture
def project(harness: RunHarness) -> Path:
    root = harness.project
    (root / "probe.py").write_text(PROBE)
    (root / "agent.py").write_text(AGENT)
    (harness.user / ".ssh").mkdir(parents=True, exist_ok=True)
    (harness.user / ".ssh" / "id").write_text("private")
    git(root, "init", "--quiet", "--initial-branch=main")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "-m", "Start")
    return root


@needs_bubblewrap
@pytest.mark.parametrize("isolation", [(), ("--worktree",), ("--copy",)])
def test_only_the_items_folder_is_writable_and_only_the_gateway_is_reached(
    harness: RunHarness, project: Path, isolation: tuple[str, ...]
) -> None:
    harness.server()
    harness.home.mkdir(exist_ok=True)
    (harness.home / "credentials.toml").write_text("")
    (harness.home / "credentials.toml").chmod(0o600)
    port = harness.urls[-1].rpartition(":")[2]
    words = ("python3", "probe.py", str(harness.user), str(harness.home), port)
    done = run(harness, *isolation, "red", "--", *words)
    assert done.code == 0, done.out + done.err
    allowed = [line for line in done.lines_of("red") if line.endswith(" yes")]
    assert allowed == ["own folder yes", "tmp yes"], done.out
    assert len([line for line in done.lines_of("red") if line.endswith(" no")]) == 7
    assert not (harness.user / "theirs.txt").exists()
    assert "Sandbox: each program may write to its own folder" in done.out
    if isolation == ("--worktree",):
        assert git(project, "show", "agentos/red:mine.txt") == "x"


@needs_bubblewrap
def test_a_program_in_the_sandbox_uses_the_keys_through_the_gateway(
    harness: RunHarness, project: Path
) -> None:
    server = harness.server()
    done = run(harness, "red", "green", "--parallel", "2", "--", "python3", "agent.py", "{item}")
    assert done.code == 0, done.out + done.err
    assert any(line.startswith("tokens ") for line in done.lines_of("red"))
    assert len(server.answered()) == 2 and harness.summary()["usage"]["calls"] == 2


@needs_bubblewrap
def test_a_project_below_tmp_is_readable_from_a_worktree(harness: RunHarness, project: Path) -> None:
    (project / "untracked.md").write_text("a task\n")
    words = ("sh", "-c", 'git status --porcelain && cat "$0"; touch "$0"')
    done = run(harness, "--worktree", "--no-gateway", "untracked.md", "--", *words, "{item}")
    lines = done.lines_of("untracked")
    assert lines[0] == "a task" and "Read-only" in lines[1], done.out


@needs_bubblewrap
def test_exit_codes_and_signals_of_a_program_in_the_sandbox_are_its_own(
    harness: RunHarness, project: Path
) -> None:
    failed = run(harness, "red", "--no-gateway", "--", "sh", "-c", "exit 7")
    assert failed.code == 1 and "FAILED: exit status 7" in failed.lines_of("red")
    killed = run(harness, "red", "--no-gateway", "--retries", "0", "--", "sh", "-c", "kill -9 $$")
    assert killed.code == 1 and "FAILED: killed by SIGKILL" in killed.lines_of("red"), killed.out


def test_without_bubblewrap_the_error_says_what_to_install(harness: RunHarness) -> None:
    tools = harness.root / "tools"
    tools.mkdir()
    for name in ("sh", "git", "true"):
        (tools / name).symlink_to(shutil.which(name) or "")
    done = harness.run("exec", "--sandbox", "red", "--", "true", program="agentos", PATH=str(tools))
    assert done.code == 3 and "apt install bubblewrap" in done.err
