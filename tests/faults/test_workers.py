"""What the code of a workflow may do to its worker: eat all memory, leave processes behind."""

import shutil
import signal
from pathlib import Path

import pytest

from tests.scenarios.harness import RunHarness, descendants, wait_until

from .memory import small_memory

WORKFLOW = '''
import os, signal, subprocess, sys, time
from pathlib import Path
from typing import TypedDict
from langgraph.graph import END, START, StateGraph
from agentos.workflows import Candidate, ItemStatus, Workflow, folder_items, read_page

class State(TypedDict, total=False):
    result: str

def eat(group=None):
    """All the memory there is, or that of a control group that it enters."""
    if group:
        Path(group, "cgroup.procs").write_text(str(os.getpid()))
    hoard = []
    while True:
        hoard.append(bytearray(16 * 1024 * 1024))

def hang(root):
    """Once: nothing is said, no signal is heard, and the interpreter is busy."""
    try:
        (root / "hung").touch(exist_ok=False)
    except FileExistsError:
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    while True:
        pass

def leave(root):
    """A grandchild in a session of its own, whose parent is gone."""
    code = (
        "import subprocess as s;"
        "print(s.Popen(['sleep', '300'], start_new_session=True, stdout=s.DEVNULL, stderr=s.DEVNULL).pid)"
    )
    said = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True).stdout
    (root / "left.tmp").write_text(said)
    os.rename(root / "left.tmp", root / "left")
    wait(root / "seen")

def wait(path):
    while not path.exists():
        time.sleep(0.02)

class Deeds(Workflow):
    name, prefix, folders = "deeds", "DEED", ("notes",)
    def candidates(self, project):
        items = folder_items(self, project, "notes")
        return [Candidate(item, self.status(project, item)) for item in items]
    def status(self, project, item):
        return ItemStatus.APPROVED if (project / f"out/{item.id}.md").exists() else ItemStatus.PENDING
    def graph(self, context):
        def act(state):
            root = Path(context.root)
            exec(read_page(root / context.item.source).body.partition("deed:")[2].strip())
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
ROOM = 200 << 20
ALL = ("run", "deeds_flow:Deeds", "--all", "--parallel", 3, "--offline")


@pytest.fixture
def project(harness: RunHarness) -> Path:
    (harness.project / "deeds_flow.py").write_text(WORKFLOW)
    (harness.project / "notes").mkdir()
    return harness.project


def deeds(project: Path, *words: str) -> None:
    for number, word in enumerate(words, 1):
        (project / "notes" / f"{number}-deed.md").write_text(f"# Deed {number}\n\ndeed: {word}\n")


def done(project: Path) -> list[str]:
    return sorted(path.stem for path in (project / "out").glob("*.md"))


@pytest.mark.slow
def test_a_worker_that_the_kernel_ends_for_want_of_memory_loses_its_own_item_alone(
    harness: RunHarness, project: Path
) -> None:
    with small_memory(ROOM) as memory:
        deeds(project, "wait(root / 'go')", f"eat({str(memory.folder)!r})", "pass", "pass")
        running = harness.start(*ALL, "--retries", 1, program="agentos")
        running.wait_for("[DEED-2] FAILED: its worker ended without an outcome: killed by SIGKILL", 60)
        (project / "go").touch()
        ended = running.wait(60)
        assert memory.ended == 2 and ended.code == 1, ended.out + ended.err
    assert done(project) == ["DEED-1", "DEED-3", "DEED-4"]
    tries = {event["item"]: event["attempts"] for event in harness.events("item_ended")}
    assert tries == {"DEED-1": 1, "DEED-2": 2, "DEED-3": 1, "DEED-4": 1}


@pytest.mark.long
def test_a_worker_that_runs_out_of_memory_loses_its_own_item_alone(
    harness: RunHarness, project: Path
) -> None:
    if shutil.which("prlimit") is None:
        pytest.skip("needs prlimit (package util-linux), to take memory away")
    deeds(project, "pass", "eat()", "pass", "pass")
    limit = ("prlimit", f"--as={2 << 30}")
    ended = harness.start(*ALL, "--retries", 1, program="agentos", before=limit).wait(90)
    assert ended.code == 1 and "FAILED: MemoryError" in ended.out, ended.out + ended.err
    assert done(project) == ["DEED-1", "DEED-3", "DEED-4"]
    tries = {event["item"]: event["attempts"] for event in harness.events("item_ended")}
    assert tries == {"DEED-1": 1, "DEED-2": 2, "DEED-3": 1, "DEED-4": 1}
    deeds(project, "pass", "pass", "pass", "pass")
    assert harness.run(*ALL, program="agentos").code == 0 and len(done(project)) == 4


@pytest.mark.slow
def test_a_worker_that_ends_well_without_an_outcome_has_failed(harness: RunHarness, project: Path) -> None:
    deeds(project, "os._exit(0)", "pass")
    ended = harness.start(*ALL, "--retries", 1, program="agentos").wait(60)
    assert ended.code == 1 and done(project) == ["DEED-2"], ended.out
    assert "[DEED-1] FAILED: its worker ended without an outcome: exit status 0" in ended.lines
    tries = {event["item"]: event["attempts"] for event in harness.events("item_ended")}
    assert tries == {"DEED-1": 2, "DEED-2": 1}


@pytest.mark.slow
def test_no_core_file_and_no_debugger_sees_what_a_worker_holds(harness: RunHarness, project: Path) -> None:
    asked = "ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), resource.getrlimit(resource.RLIMIT_CORE)"
    deeds(project, f"import ctypes, resource; (root / 'said').write_text(str(({asked})))")
    assert harness.run(*ALL, program="agentos").code == 0
    assert (project / "said").read_text() == "(0, (0, 0))"


@pytest.mark.slow
def test_a_worker_that_hangs_and_hears_no_signal_is_killed_and_tried_again(
    harness: RunHarness, project: Path
) -> None:
    deeds(project, "hang(root)", "pass")
    ended = harness.start(*ALL, "--timeout", "3s", program="agentos").wait(60)
    assert ended.code == 0 and done(project) == ["DEED-1", "DEED-2"], ended.out
    assert "ran out of time (--timeout)" in ended.out and "attempt 2 of 3" in ended.out
    tries = {event["item"]: event["attempts"] for event in harness.events("item_ended")}
    assert tries == {"DEED-1": 2, "DEED-2": 1}


@pytest.mark.slow
@pytest.mark.parametrize("presses", [1, 2])
def test_a_worker_that_hears_no_stop_is_killed_after_four_seconds_or_by_the_second_ctrl_c(
    harness: RunHarness, project: Path, presses: int
) -> None:
    deeds(project, "hang(root)")
    running = harness.start(*ALL, program="agentos")
    wait_until((project / "hung").exists)
    running.signal(signal.SIGINT)
    running.wait_for("Shutting down")
    if presses == 2:
        running.signal(signal.SIGINT)
    ended = running.wait()
    assert ended.code == 130 and "Killing DEED-1: " in ended.out, ended.out
    prestarted, killed, over = (
        harness.events(kind)[0]["at"] for kind in ("shutdown_started", "workers_killed", "run_ended")
    )
    assert (killed - prestarted < 4) == (presses == 2) and over - prestarted < 7
    assert harness.run(*ALL, program="agentos").code == 0 and done(project) == ["DEED-1"]


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("pass", 0),
        pytest.param("os._exit(3)", 1, marks=pytest.mark.slow),
        pytest.param("os.kill(os.getpid(), signal.SIGKILL)", 1, marks=pytest.mark.slow),
    ],
)
def test_a_grandchild_that_a_worker_leaves_is_gone_before_the_run_is_over(
    harness: RunHarness, project: Path, ending: str, code: int
) -> None:
    deeds(project, f"leave(root); {ending}", "wait(root / 'go')")
    running = harness.start(*ALL, "--retries", 0, program="agentos")
    wait_until((project / "left").exists, 30)
    left = next(mark for mark in descendants(running.pid) if mark.pid == int((project / "left").read_text()))
    (project / "seen").touch()
    wait_until(lambda: any(event["item"] == "DEED-1" for event in harness.events("item_ended")), 30)
    wait_until(lambda: not left.alive, 2.0)
    assert running.process.poll() is None and descendants(running.pid)
    (project / "go").touch()
    assert running.wait(30).code == code
    assert done(project) == (["DEED-1", "DEED-2"] if code == 0 else ["DEED-2"])
