"""Stopping: a message at once, everything down in time, and the same command goes on."""

import signal
import time

import pytest

from .stage import Mark, Stage, Terminal, full_pipe, until

SHUTTING_DOWN = "[COORDINATOR] Shutting down... waiting for workers to checkpoint"


def down(terminal: Terminal, seconds: float, family: list[Mark] | None = None) -> None:
    """Waits for the end of the command, and of all its processes with it."""
    family = terminal.processes() if family is None else family
    assert len(family) >= 2
    began = time.monotonic()
    terminal.end(seconds)
    until(lambda: not [mark for mark in family if mark.alive], max(0.1, seconds - (time.monotonic() - began)))


def test_ctrl_c_in_a_terminal_saves_everything_and_the_same_command_finishes(stage: Stage) -> None:
    stage.issues(40, 41, 42, 43)
    witness = stage.server("--latency", "0.8,0.8")
    terminal = stage.terminal("--all", "--parallel", 2)
    until(lambda: len(witness.answered()) >= 3)
    until(lambda: witness.ledger()["running"] >= 1)
    began = time.monotonic()
    terminal.ctrl_c()
    terminal.says(SHUTTING_DOWN, 2)
    down(terminal, 6)
    assert time.monotonic() - began < 7
    done = terminal.end()
    assert done.code == 130
    assert "Traceback" not in done.out
    assert done.lines[-1] == "[COORDINATOR] Everything is saved. Go on with: lld-workflow --all --parallel 2"
    assert "[COORDINATOR] Execution complete:" in done.out and "interrupted" in done.out
    finished = [(call["item"], call["prompt_sha256"]) for call in witness.answered()]

    assert stage.run("--all", "--parallel", 2).code == 0
    assert all(stage.document(number).exists() for number in (40, 41, 42, 43))
    assert len(finished) >= 3 and len(witness.answered()) == 8 and not witness.asked_twice()
    assert stage.databases() == []


def test_ctrl_c_while_a_call_hangs_is_over_in_five_seconds(stage: Stage) -> None:
    stage.issues(42, 43)
    witness = stage.server(fault={"kind": "hang", "times": None})
    terminal = stage.terminal("--all", "--parallel", 2)
    until(lambda: witness.ledger()["running"] == 2)
    terminal.ctrl_c()
    down(terminal, 7)
    done = terminal.end()
    assert done.code == 130 and SHUTTING_DOWN in done.out and "Traceback" not in done.out
    assert "[LLD-42] Interrupted at N1_design: checkpointed" in done.out
    assert "FAILED" not in done.out
    witness.clear_faults()
    assert stage.run("--all", "--parallel", 2).code == 0
    assert len(witness.answered()) == 4


def test_ctrl_c_twice_is_over_at_once(stage: Stage) -> None:
    stage.issues(42, 43)
    witness = stage.server(fault={"kind": "hang", "times": None})
    terminal = stage.terminal("--all", "--parallel", 2)
    until(lambda: witness.ledger()["running"] == 2)
    family = terminal.processes()
    began = time.monotonic()
    terminal.ctrl_c()
    terminal.says(SHUTTING_DOWN)
    terminal.ctrl_c()
    down(terminal, 4, family)
    assert time.monotonic() - began < 4
    done = terminal.end()
    assert done.code == 130 and "Killing LLD-42, LLD-43: their checkpoints stay." in done.out
    assert "Traceback" not in done.out
    assert "lld_workflow_42.db" in stage.databases()


def test_ten_times_ctrl_c_is_still_130_without_a_traceback(stage: Stage) -> None:
    stage.issues(42, 43)
    witness = stage.server(fault={"kind": "hang", "times": None})
    terminal = stage.terminal("--all", "--parallel", 2)
    until(lambda: witness.ledger()["running"] == 2)
    for _ in range(10):
        terminal.ctrl_c()
        assert terminal.screen  # read on, as a terminal does: Ctrl-C throws away what nobody has read
        time.sleep(0.01)
    done = terminal.end(8)
    assert done.code == 130, done.out
    assert "Traceback" not in done.out and "Execution complete:" in done.out


def test_ctrl_c_again_and_again_to_the_very_end_is_still_130(stage: Stage) -> None:
    stage.issues(42, 43)
    witness = stage.server(fault={"kind": "hang", "times": None})
    running = stage.start("--all", "--parallel", 2)
    until(lambda: witness.ledger()["running"] == 2)
    pressed = 0
    while running.process.poll() is None and pressed < 4000:
        running.signal(signal.SIGINT)
        pressed += 1
        time.sleep(0.005)
    done = running.end()
    assert done.code == 130 and pressed > 10 and "Traceback" not in done.err, done.err
    assert "Execution complete:" in done.out


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)]
)
def test_a_signal_stops_the_run_with_its_own_code(stage: Stage, number: signal.Signals, code: int) -> None:
    stage.issues(42, 43)
    witness = stage.server("--latency", "1.9,1.9")
    running = stage.start("--all")
    until(lambda: bool(witness.calls(42)))
    family = running.processes()
    running.signal(number)
    done = running.end(8)
    assert done.code == code and SHUTTING_DOWN in done.lines
    assert done.lines[-1] == "[COORDINATOR] Everything is saved. Go on with: lld-workflow --all"
    until(lambda: not [mark for mark in family if mark.alive], 1)
    assert done.err == "" and "FAILED" not in done.out
    assert "lld_workflow_42.db" in stage.databases()


def test_a_stop_while_waiting_for_a_key_keeps_the_item(stage: Stage) -> None:
    stage.issue(42)
    witness = stage.server(fault={"kind": "429-minute", "role": "review", "retry_delay": 8, "times": 4})
    running = stage.start("--all")
    running.says("All keys rate limited.")
    running.signal(signal.SIGINT)
    done = running.end(6)
    assert done.code == 130
    assert "[LLD-42] Interrupted at N3_review: checkpointed" in done.lines
    assert stage.run("--all").code == 0
    assert [call["role"] for call in witness.answered()] == ["draft", "review"]


@pytest.mark.parametrize("moment", ["early", "template", "word", "worker"])
def test_ctrl_c_during_the_start_leaves_no_process_and_no_half_item(stage: Stage, moment: str) -> None:
    stage.issues(42, 43)
    witness = stage.server("--latency", "0.3,0.3")
    terminal = stage.terminal("--all", "--parallel", 2)
    match moment:
        case "early":
            time.sleep(0.2)
        case "template":
            until(terminal.processes)
        case "word":
            terminal.says("[COORDINATOR]")
        case "worker":
            until(lambda: stage.events("WorkerStarted"))
    family = terminal.processes()
    terminal.ctrl_c()
    done = terminal.end(8)
    until(lambda: not [mark for mark in family if mark.alive], 2)
    # An interpreter that has not reached our code yet ends in its own way.
    ours = done.code == 130 and "Traceback" not in done.out
    assert ours or (moment == "early" and done.code == -signal.SIGINT and ", in _finish" not in done.out), (
        done.out
    )
    again = stage.run("--all", "--parallel", 2)
    assert again.code == 0, again.out
    assert len(witness.answered()) == 4 and not witness.asked_twice()


def test_a_stalled_stdout_does_not_keep_a_stop_from_working(stage: Stage) -> None:
    stage.issues(42, 43)
    witness = stage.server(fault={"kind": "hang", "times": None})
    with full_pipe() as stalled:
        running = stage.start("--all", "--parallel", 2, stdout=stalled)
        until(lambda: witness.ledger()["running"] == 2)
        family = running.processes()
        running.signal(signal.SIGINT)
        until(lambda: not [mark for mark in family if mark.alive], 7)
        assert running.end(5).code == 130
    assert stage.summary()["exit_code"] == 130
