"""Progress in the title and the task bar of a terminal, and its bell."""

from agentos.config.settings import TerminalInfo, terminal_info
from agentos.core.protocol import events
from agentos.core.protocol.results import Ending, Outcome, Usage, Verdict
from agentos.core.run_state.run_stats import RunStats
from agentos.outputs.terminal_status import BELL, TerminalStatus

ALL = TerminalInfo(titles=True, progress=True)


def run_stats() -> RunStats:
    stats = RunStats()
    stats.handle(events.RunStarted("run", "lld", "/p", ("LLD-1", "LLD-2"), 1, ("key-1",)), 100.0)
    return stats


def test_title_and_progress_change_with_the_run_and_are_restored_at_its_end() -> None:
    stats, status = run_stats(), TerminalStatus(ALL)
    assert status.update(RunStats()) == ""
    first = "\x1b[22;2t\x1b]2;0/2 lld - agentos\x1b\\\x1b]9;4;1;0\x1b\\"
    assert status.update(stats) == first and status.update(stats) == ""
    stats.handle(
        events.ItemEnded("LLD-1", Outcome(Ending.FINISHED, Verdict.APPROVED), 1.0, Usage(), 1), 101.0
    )
    assert status.update(stats) == "\x1b]2;1/2 lld - agentos\x1b\\\x1b]9;4;1;50\x1b\\"
    stats.handle(events.RunPaused(), 102.0)
    assert status.update(stats) == "\x1b]2;1/2 lld, paused - agentos\x1b\\\x1b]9;4;4;50\x1b\\"
    stats.handle(events.RunEnded(0, 30.0, 0.0), 130.0)
    assert status.update(stats) == "\x1b[23;2t\x1b]9;4;0\x1b\\" and status.restore() == ""


def test_the_bell_rings_for_long_runs_only_and_notifications_can_be_turned_off() -> None:
    stats = run_stats()
    stats.handle(events.RunEnded(0, 9.0, 0.0), 109.0)
    assert TerminalStatus(ALL).bell(stats) == ""
    stats.handle(events.RunEnded(0, 11.0, 0.0), 111.0)
    assert TerminalStatus(ALL).bell(stats) == BELL
    silent = TerminalStatus(ALL.without_notifications())
    assert silent.bell(stats) == "" == silent.update(run_stats())


def test_only_terminals_that_are_known_to_show_progress_get_it() -> None:
    assert terminal_info({"TERM": "xterm-256color", "VTE_VERSION": "8000"}).progress
    assert terminal_info({"TERM": "xterm-256color", "WT_SESSION": "x"}).progress
    assert not terminal_info({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}).progress
    assert not terminal_info({"TERM": "tmux-256color", "VTE_VERSION": "8000"}).progress
    assert not terminal_info({"TERM": "xterm", "VTE_VERSION": "many"}).progress
    assert terminal_info({"TERM": "tmux-256color"}).titles and not terminal_info({"TERM": "linux"}).titles
