"""Stopping: an immediate message, everything down in time, and the same command resumes."""

import os
import re
import signal
import time

import pytest

from .harness import ProcessHandle, RunHarness, Terminal, command_line, full_pipe, wait_until

SHUTTING_DOWN = "[COORDINATOR] Shutting down... waiting for workers to checkpoint"


def down(terminal: Terminal, seconds: float, family: list[ProcessHandle] | None = None) -> None:
    """Wait for the command and all its processes to exit."""
    family = terminal.processes() if family is None else family
    assert len(family) >= 2
    began = time.monotonic()
    terminal.wait(seconds)
    wait_until(
        lambda: not [mark for mark in family if mark.alive], max(0.1, seconds - (time.monotonic() - began))
    )


def test_ctrl_c_in_a_terminal_saves_everything_and_the_same_command_finishes(harness: RunHarness) -> None:
    harness.issues(40, 41, 42, 43)
    server = harness.server("--latency", "0.8,0.8")
    terminal = harness.terminal("--all", "--parallel", 2)
    wait_until(lambda: len(server.answered()) >= 3)
    wait_until(lambda: server.ledger()["running"] >= 1)
    began = time.monotonic()
    terminal.ctrl_c()
    terminal.wait_for(SHUTTING_DOWN, 2)
    down(terminal, 6)
    assert time.monotonic() - began < 7
    done = terminal.wait()
    assert done.code == 130
    assert "Traceback" not in done.out
    assert done.lines[-1] == "[COORDINATOR] Everything is saved. Resume with: lld-workflow --all --parallel 2"
    assert (
        "[COORDINATOR] Execution stopped:" in done.out
        and "complete:" not in done.out
        and "interrupted" in done.out
    )
    finished = [(call["item"], call["prompt_sha256"]) for call in server.answered()]

    assert harness.run("--all", "--parallel", 2).code == 0
    assert all(harness.document(number).exists() for number in (40, 41, 42, 43))
    assert len(finished) >= 3 and len(server.answered()) == 8 and not server.repeated_prompts()
    assert harness.databases() == []


@pytest.mark.slow
def test_ctrl_c_with_a_hanging_fork_server_exits_within_five_seconds(harness: RunHarness) -> None:
    harness.issues(42, 43)
    server = harness.server()
    with server.frozen():
        running = harness.start("--all", "--parallel", 2)
        running.wait_for("[LLD-43] >>> Executing: N1_design", 60)
        family = running.processes()
        fork_server = next(mark for mark in family if "agentos.engines.template" in command_line(mark.pid))
        os.kill(fork_server.pid, signal.SIGSTOP)
        began = time.monotonic()
        running.signal(signal.SIGINT)
        assert running.wait(20).code == 130
        assert time.monotonic() - began < 7
        wait_until(lambda: not [mark for mark in family if mark.alive], 2)
    assert harness.run("--all", "--parallel", 2).code == 0 and harness.document(42).exists()


@pytest.mark.slow
def test_ctrl_c_during_a_hanging_call_exits_within_five_seconds(harness: RunHarness) -> None:
    harness.issues(42, 43)
    server = harness.server(fault={"kind": "hang", "times": None})
    terminal = harness.terminal("--all", "--parallel", 2)
    wait_until(lambda: server.ledger()["running"] == 2)
    terminal.ctrl_c()
    down(terminal, 7)
    done = terminal.wait()
    assert done.code == 130 and SHUTTING_DOWN in done.out and "Traceback" not in done.out
    assert "[LLD-42] Interrupted at N1_design: checkpointed" in done.out
    assert "FAILED" not in done.out
    server.clear_faults()
    assert harness.run("--all", "--parallel", 2).code == 0
    assert len(server.answered()) == 4


def test_ctrl_c_twice_exits_at_once(harness: RunHarness) -> None:
    harness.issues(42, 43)
    server = harness.server(fault={"kind": "hang", "times": None})
    terminal = harness.terminal("--all", "--parallel", 2)
    wait_until(lambda: server.ledger()["running"] == 2)
    family = terminal.processes()
    began = time.monotonic()
    terminal.ctrl_c()
    terminal.wait_for(SHUTTING_DOWN)
    terminal.ctrl_c()
    down(terminal, 4, family)
    assert time.monotonic() - began < 4
    done = terminal.wait()
    assert done.code == 130 and "Killing LLD-42, LLD-43. Their checkpoints are kept." in done.out
    assert "Traceback" not in done.out
    assert "lld_workflow_42.db" in harness.databases()


def test_ten_times_ctrl_c_still_exits_with_130_without_a_traceback(harness: RunHarness) -> None:
    harness.issues(42, 43)
    server = harness.server(fault={"kind": "hang", "times": None})
    terminal = harness.terminal("--all", "--parallel", 2)
    wait_until(lambda: server.ledger()["running"] == 2)
    for _ in range(10):
        terminal.ctrl_c()
        assert terminal.screen  # read on, as a terminal does: Ctrl-C throws away what nobody has read
        time.sleep(0.01)
    done = terminal.wait(8)
    assert done.code == 130, done.out
    assert "Traceback" not in done.out and re.search("Execution (stopped|complete):", done.out)


def test_repeated_ctrl_c_until_exit_still_gives_130(harness: RunHarness) -> None:
    harness.issues(42, 43)
    server = harness.server(fault={"kind": "hang", "times": None})
    running = harness.start("--all", "--parallel", 2)
    wait_until(lambda: server.ledger()["running"] == 2)
    pressed = 0
    while running.process.poll() is None and pressed < 4000:
        running.signal(signal.SIGINT)
        pressed += 1
        time.sleep(0.005)
    done = running.wait()
    # How many fit in depends on the machine; the second one kills the workers.
    assert done.code == 130 and pressed > 2 and "Traceback" not in done.err, done.err
    assert re.search("Execution (stopped|complete):", done.out)


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGTERM, 143),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow),
    ],
)
def test_each_signal_stops_the_run_with_its_own_exit_code(
    harness: RunHarness, number: signal.Signals, code: int
) -> None:
    harness.issues(42, 43)
    server = harness.server("--latency", "1.9,1.9")
    running = harness.start("--all")
    wait_until(lambda: bool(server.calls(42)))
    family = running.processes()
    running.signal(number)
    done = running.wait(8)
    assert done.code == code and SHUTTING_DOWN in done.lines
    assert done.lines[-1] == "[COORDINATOR] Everything is saved. Resume with: lld-workflow --all"
    wait_until(lambda: not [mark for mark in family if mark.alive], 1)
    assert done.err == "" and "FAILED" not in done.out
    assert "lld_workflow_42.db" in harness.databases()


@pytest.mark.slow
def test_a_stop_while_waiting_for_a_key_keeps_the_item(harness: RunHarness) -> None:
    harness.issue(42)
    server = harness.server(fault={"kind": "429-minute", "role": "review", "retry_delay": 8, "times": 4})
    running = harness.start("--all")
    running.wait_for("All keys rate limited.")
    running.signal(signal.SIGINT)
    done = running.wait(6)
    assert done.code == 130
    assert "[LLD-42] Interrupted at N3_review: checkpointed" in done.lines
    assert harness.run("--all").code == 0
    assert [call["role"] for call in server.answered()] == ["draft", "review"]


@pytest.mark.parametrize(
    "moment",
    [
        "early",
        pytest.param("template", marks=pytest.mark.slow),
        pytest.param("word", marks=pytest.mark.slow),
        pytest.param("worker", marks=pytest.mark.slow),
    ],
)
def test_ctrl_c_during_startup_leaves_no_process_and_no_partial_item(
    harness: RunHarness, moment: str
) -> None:
    harness.issues(42, 43)
    server = harness.server("--latency", "0.3,0.3")
    terminal = harness.terminal("--all", "--parallel", 2)
    match moment:
        case "early":
            time.sleep(0.2)
        case "template":
            wait_until(terminal.processes)
        case "word":
            terminal.wait_for("[COORDINATOR]")
        case "worker":
            wait_until(lambda: harness.events("worker_started"))
    family = terminal.processes()
    terminal.ctrl_c()
    done = terminal.wait(8)
    wait_until(lambda: not [mark for mark in family if mark.alive], 2)
    # An interpreter that has not reached our code yet exits with its own traceback.
    ours = done.code == 130 and "Traceback" not in done.out
    assert ours or (moment == "early" and done.code == -signal.SIGINT and ", in _finish" not in done.out), (
        done.out
    )
    again = harness.run("--all", "--parallel", 2)
    assert again.code == 0, again.out
    assert len(server.answered()) == 4 and not server.repeated_prompts()


@pytest.mark.slow
def test_a_stop_works_with_a_stalled_stdout(harness: RunHarness) -> None:
    harness.issues(42, 43)
    server = harness.server(fault={"kind": "hang", "times": None})
    with full_pipe() as stalled:
        running = harness.start("--all", "--parallel", 2, stdout=stalled)
        wait_until(lambda: server.ledger()["running"] == 2)
        family = running.processes()
        running.signal(signal.SIGINT)
        wait_until(lambda: not [mark for mark in family if mark.alive], 7)
        assert running.wait(5).code == 130
    assert harness.summary()["exit_code"] == 130
