"""Every error is one clear line with the right exit code, whatever the machine lacks; never a traceback."""

import os
import signal

import pytest

from tests.scenarios.harness import CompletedCommand, RunHarness, wait_until

from .other_users import open_to_all, user
from .shim import shim_for

NUMBER = "9" * 5000


def one_line(done: CompletedCommand) -> str:
    assert done.err.startswith(("Error: ", "Usage: ")) and "Traceback" not in done.out + done.err
    assert len(done.err) < 1000
    return done.err


def test_a_disk_without_locks_is_named(harness: RunHarness) -> None:
    harness.issues(42)
    faults = shim_for(harness).environment(no_locks=1)
    server = harness.server()
    done = harness.run("--all", **faults)
    assert done.code == 3 and "has no file locks (No locks available)" in one_line(done)
    assert "move the project, or AGENTOS_HOME, to a local disk" in done.err and server.calls() == []
    checked = harness.run("doctor", "--offline", program="agentos", **faults)
    assert checked.code == 3 and f"do not work in {harness.project}" in checked.out and checked.err == ""


def test_the_fork_server_of_a_killed_coordinator_ends_without_a_word(harness: RunHarness) -> None:
    harness.issues(40, 41)
    server = harness.server()
    with server.frozen():
        run = harness.start("--all", "--parallel", 2)
        wait_until(lambda: len(harness.events("worker_started")) >= 2)
        processes = run.processes()
        run.signal(signal.SIGSTOP)  # what the fork server sends from now on is never read
        for pid in (event["pid"] for event in harness.events("worker_started")):
            os.kill(pid, signal.SIGKILL)
        run.signal(signal.SIGKILL)
        run.wait()
        wait_until(lambda: not any(process.alive for process in processes))
    assert "Traceback" not in run.err and "recv_fds" not in run.err + run.out


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("AGENTOS_CREDENTIAL_LIMIT", NUMBER, "expected a whole number"),
        ("AGENTOS_KEY_CONCURRENCY", NUMBER, "expected a whole number"),
        ("AGENTOS_SIMULATE_429", NUMBER, "expected true, false or a number"),
        ("GITHUB_API_URL", "https://[", "expected an address that begins with https://"),
        ("GITHUB_API_URL", "https://host:port", "expected an address that begins with https://"),
        ("GEMINI_BASE_URL_1", "http://[", "expected an address such as https://"),
        ("GEMINI_BASE_URL_1", "http://host:99999", "expected an address such as https://"),
        ("GEMINI_BASE_URL_1", "nonsense", "expected an address such as https://"),
    ],
)
def test_an_unusable_value_in_the_environment_is_a_usage_error(
    harness: RunHarness, name: str, value: str, expected: str
) -> None:
    harness.issues(42)
    done = harness.run("--all", **{"GEMINI_API_KEY_1": "some-key-12345", name: value})
    assert done.code == 2 and f"invalid {name}={value[:8]}" in one_line(done) and expected in done.err


def test_a_variable_whose_number_has_5000_digits_is_not_a_key(harness: RunHarness) -> None:
    harness.issues(42)
    done = harness.run("--all", **{f"GEMINI_API_KEY_{NUMBER}": "some-key-12345"})
    assert done.code == 4 and "Traceback" not in done.err


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "class Flow:\n    def __getattr__(self, name): raise ValueError('no ' + name)\n",
            "ValueError: no name",
        ),
        ("def __getattr__(name): raise OSError('gone')\n", "OSError: gone"),
        (
            "class Stop(BaseException): pass\nclass Flow:\n    def __init__(self): raise Stop('now')\n",
            "Stop: now",
        ),
        ("class Stop(BaseException): pass\nraise Stop('import')\n", "Stop: import"),
        (
            "class Flow:\n    name, prefix, status, graph = 'flow', 'F', None, None\n"
            "    def candidates(self, project): raise SystemExit('bye')\n",
            "candidates() raised SystemExit: bye",
        ),
    ],
)
def test_whatever_a_workflow_raises_is_attributed_to_it(
    harness: RunHarness, source: str, expected: str
) -> None:
    (harness.project / "flows.py").write_text(source)
    done = harness.run("run", "flows:Flow", "--all", "--dry-run", program="agentos")
    assert done.code == 3 and "the workflow at flows:Flow" in one_line(done) and expected in done.err


NODE = """
from pathlib import Path
from langgraph.graph import END, START, StateGraph
from agentos.core.planning.plan import Candidate, Item, ItemStatus
class Stop(BaseException): pass
class Flow:
    name, prefix = "flow", "F"
    def candidates(self, project):
        return [Candidate(Item("F-1", "flow", 1, "x", ""), ItemStatus.PENDING)]
    def status(self, project, item): return ItemStatus.PENDING
    def graph(self, context):
        graph = StateGraph(dict)
        graph.add_node("only", self.fail)
        graph.add_edge(START, "only"); graph.add_edge("only", END)
        return graph
    def fail(self, state): raise {error}
"""


@pytest.mark.slow
@pytest.mark.parametrize("error", ["Stop('now')", "KeyError('colour')", "RecursionError()"])
def test_whatever_a_node_raises_is_one_line_with_its_place_unless_asked_for_more(
    harness: RunHarness, error: str
) -> None:
    (harness.project / "flows.py").write_text(NODE.replace("{error}", error))
    args = ("run", "flows:Flow", "--all", "--offline", "--retries", "0")
    done = harness.run(*args, program="agentos")
    assert done.code == 1 and "Traceback" not in done.out + done.err, done.out
    line = NODE.splitlines().index("    def fail(self, state): raise {error}") + 1
    assert f"FAILED: {error.partition('(')[0]}: " in done.out and f"(flows.py, line {line})" in done.out
    shown = harness.run(*args, program="agentos", AGENTOS_DEBUG="1")
    assert "Traceback (most recent call last)" in shown.out


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_a_user_who_may_start_too_few_processes_is_told_the_limit(limit: int) -> None:
    """Processes, then threads: the limit binds every user but root."""
    with open_to_all() as harness:
        harness.issues(42)
        limited = user(harness, 54330 + limit, limits=f"prlimit --pid $$ --nproc={limit}")
        done = limited.run("--all", "--offline")
        assert done.code == 3 and "raise the limit of processes (ulimit -u 256)" in one_line(done), done.err


@pytest.mark.parametrize("limit", [5, 8])
def test_programs_run_with_few_processes_left_or_say_what_is_missing(limit: int) -> None:
    with open_to_all() as harness:
        limited = user(harness, 54340 + limit, limits=f"prlimit --pid $$ --nproc={limit}")
        done = limited.run("exec", "a", "b", "--parallel", 2, "--", "true", program="agentos")
        assert "Traceback" not in done.out + done.err
        assert done.code == 0 or "raise the limit of processes (ulimit -u 256)" in done.out, done.out
