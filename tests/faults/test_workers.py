"""Workflow code that harms its worker: exhausts memory, hangs, leaves processes behind."""

import shutil
import signal
from pathlib import Path

import pytest

from tests.scenarios.harness import PORTABLE_CALLS, RunHarness, descendants, wait_until

from .memory import small_memory

WORKFLOW = '''
import os, signal, subprocess, sys, time
from pathlib import Path
from typing import TypedDict
from langgraph.graph import END, START, StateGraph
from agentos.workflows import Candidate, ItemStatus, Workflow, folder_items, read_page

class State(TypedDict, total=False):
    result: str

def exhaust_memory(group=None):
    """Allocate until memory runs out, in a control group if one is given."""
    if group:
        Path(group, "cgroup.procs").write_text(str(os.getpid()))
    blocks = []
    while True:
        blocks.append(bytearray(16 * 1024 * 1024))

def hang(root):
    """On the first attempt, block all signals and loop forever."""
    try:
        (root / "hung").touch(exist_ok=False)
    except FileExistsError:
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    while True:
        pass

def leave_orphan(root):
    """Leave an orphaned grandchild behind in a session of its own."""
    code = (
        "import subprocess as s;"
        "print(s.Popen(['sleep', '300'], start_new_session=True, stdout=s.DEVNULL, stderr=s.DEVNULL).pid)"
    )
    pid = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True).stdout
    (root / "orphan.tmp").write_text(pid)
    os.rename(root / "orphan.tmp", root / "orphan")
    wait(root / "seen")

def wait(path):
    while not path.exists():
        time.sleep(0.02)

class Scripts(Workflow):
    name, prefix, folders = "scripts", "SCRIPT", ("notes",)
    def candidates(self, project):
        items = folder_items(self, project, "notes")
        return [Candidate(item, self.status(project, item)) for item in items]
    def status(self, project, item):
        return ItemStatus.APPROVED if (project / f"out/{item.id}.md").exists() else ItemStatus.PENDING
    def graph(self, context):
        def act(state):
            root = Path(context.root)
            exec(read_page(root / context.item.source).body.partition("script:")[2].strip())
            return {}
        def save(state):
            context.folder.write(f"out/{context.item.id}.md", b"done")
            return {"result": f"out/{context.item.id}.md"}
        graph = StateGraph(State)
        graph.add_node("N0_act", act)
        graph.add_node("N1_save", save)
        for edge in [(START, "N0_act"), ("N0_act", "N1_save"), ("N1_save", END)]:
            graph.add_edge(*edge)
        return graph
'''
MEMORY_LIMIT = 200 << 20  # bytes
ALL = ("run", "script_flow:Scripts", "--all", "--parallel", 3, "--offline")


@pytest.fixture
def project(harness: RunHarness) -> Path:
    (harness.project / "script_flow.py").write_text(WORKFLOW)
    (harness.project / "notes").mkdir()
    return harness.project


def write_scripts(project: Path, *scripts: str) -> None:
    """One item for each line of Python that its worker executes."""
    for number, script in enumerate(scripts, 1):
        (project / "notes" / f"{number}-script.md").write_text(f"# Script {number}\n\nscript: {script}\n")


def finished_items(project: Path) -> list[str]:
    return sorted(path.stem for path in (project / "out").glob("*.md"))


@pytest.mark.slow
def test_a_worker_killed_by_the_oom_killer_fails_only_its_own_item(
    harness: RunHarness, project: Path
) -> None:
    with small_memory(MEMORY_LIMIT) as memory:
        write_scripts(project, "wait(root / 'go')", f"exhaust_memory({str(memory.folder)!r})", "pass", "pass")
        running = harness.start(*ALL, "--retries", 1, program="agentos")
        running.wait_for("[SCRIPT-2] FAILED: its worker ended without an outcome: killed by SIGKILL", 60)
        (project / "go").touch()
        result = running.wait(60)
        assert memory.oom_kills == 2 and result.code == 1, result.out + result.err
    assert finished_items(project) == ["SCRIPT-1", "SCRIPT-3", "SCRIPT-4"]
    tries = {event["item"]: event["attempts"] for event in harness.events("item_ended")}
    assert tries == {"SCRIPT-1": 1, "SCRIPT-2": 2, "SCRIPT-3": 1, "SCRIPT-4": 1}


@pytest.mark.long
def test_a_worker_that_runs_out_of_memory_fails_only_its_own_item(harness: RunHarness, project: Path) -> None:
    if shutil.which("prlimit") is None:
        pytest.skip("needs prlimit (package util-linux) to limit memory")
    write_scripts(project, "pass", "exhaust_memory()", "pass", "pass")
    limit = ("prlimit", f"--as={2 << 30}")
    result = harness.start(*ALL, "--retries", 1, program="agentos", before=limit).wait(90)
    assert result.code == 1 and "FAILED: MemoryError" in result.out, result.out + result.err
    assert finished_items(project) == ["SCRIPT-1", "SCRIPT-3", "SCRIPT-4"]
    tries = {event["item"]: event["attempts"] for event in harness.events("item_ended")}
    assert tries == {"SCRIPT-1": 1, "SCRIPT-2": 2, "SCRIPT-3": 1, "SCRIPT-4": 1}
    write_scripts(project, "pass", "pass", "pass", "pass")
    assert harness.run(*ALL, program="agentos").code == 0 and len(finished_items(project)) == 4


@pytest.mark.slow
def test_a_worker_that_exits_with_0_but_no_outcome_has_failed(harness: RunHarness, project: Path) -> None:
    write_scripts(project, "os._exit(0)", "pass")
    result = harness.start(*ALL, "--retries", 1, program="agentos").wait(60)
    assert result.code == 1 and finished_items(project) == ["SCRIPT-2"], result.out
    assert "[SCRIPT-1] FAILED: its worker ended without an outcome: exit status 0" in result.lines
    tries = {event["item"]: event["attempts"] for event in harness.events("item_ended")}
    assert tries == {"SCRIPT-1": 2, "SCRIPT-2": 1}


@pytest.mark.slow
def test_a_worker_cannot_be_dumped_or_traced(harness: RunHarness, project: Path) -> None:
    query = "ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), resource.getrlimit(resource.RLIMIT_CORE)"
    write_scripts(project, f"import ctypes, resource; (root / 'limits').write_text(str(({query})))")
    assert harness.run(*ALL, program="agentos").code == 0
    assert (project / "limits").read_text() == "(0, (0, 0))"


@pytest.mark.slow
def test_a_hanging_worker_that_ignores_signals_is_killed_and_retried(
    harness: RunHarness, project: Path
) -> None:
    write_scripts(project, "hang(root)", "pass")
    result = harness.start(*ALL, "--timeout", "3s", program="agentos").wait(60)
    assert result.code == 0 and finished_items(project) == ["SCRIPT-1", "SCRIPT-2"], result.out
    assert "ran out of time (--timeout)" in result.out and "attempt 2 of 3" in result.out
    tries = {event["item"]: event["attempts"] for event in harness.events("item_ended")}
    assert tries == {"SCRIPT-1": 2, "SCRIPT-2": 1}


@pytest.mark.slow
@pytest.mark.parametrize("presses", [1, 2])
def test_a_worker_that_ignores_a_stop_is_killed_after_four_seconds_or_on_the_second_ctrl_c(
    harness: RunHarness, project: Path, presses: int
) -> None:
    write_scripts(project, "hang(root)")
    running = harness.start(*ALL, program="agentos")
    wait_until((project / "hung").exists)
    running.signal(signal.SIGINT)
    running.wait_for("Shutting down")
    if presses == 2:
        running.signal(signal.SIGINT)
    result = running.wait()
    assert result.code == 130 and "Killing SCRIPT-1. " in result.out, result.out
    stopped_at, killed_at, ended_at = (
        harness.events(kind)[0]["at"] for kind in ("shutdown_started", "workers_killed", "run_ended")
    )
    assert (killed_at - stopped_at < 4) == (presses == 2) and ended_at - stopped_at < 7
    assert harness.run(*ALL, program="agentos").code == 0 and finished_items(project) == ["SCRIPT-1"]


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("pass", 0),
        pytest.param("os._exit(3)", 1, marks=pytest.mark.slow),
        pytest.param("os.kill(os.getpid(), signal.SIGKILL)", 1, marks=pytest.mark.slow),
    ],
)
def test_a_grandchild_left_by_a_worker_is_killed_before_the_run_ends(
    harness: RunHarness, project: Path, ending: str, code: int
) -> None:
    if PORTABLE_CALLS:
        pytest.skip("only Linux adopts what has left the worker's process group")
    write_scripts(project, f"leave_orphan(root); {ending}", "wait(root / 'go')")
    running = harness.start(*ALL, "--retries", 0, program="agentos")
    wait_until((project / "orphan").exists, 30)
    orphan = next(
        process
        for process in descendants(running.pid)
        if process.pid == int((project / "orphan").read_text())
    )
    (project / "seen").touch()
    wait_until(lambda: any(event["item"] == "SCRIPT-1" for event in harness.events("item_ended")), 30)
    wait_until(lambda: not orphan.alive, 2.0)
    assert running.process.poll() is None and descendants(running.pid)
    (project / "go").touch()
    assert running.wait(30).code == code
    assert finished_items(project) == (["SCRIPT-1", "SCRIPT-2"] if code == 0 else ["SCRIPT-2"])
