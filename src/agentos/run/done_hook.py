"""Runs the user's own command when a run has ended, with the run's figures in environment variables."""

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from agentos.config.settings import environment, moved_home
from agentos.core.protocol import events
from agentos.core.protocol.results import Ending, Verdict
from agentos.core.run_state.run_stats import RunStats

TIMEOUT = 60.0  # seconds


class DoneHook:
    """A listener that gathers the figures; call `run` once the screen and the run's files are closed.

    The command is run by the shell. The figures are never part of its text, so nothing that a model or an issue says
    can become a command. It never changes the exit code of the run.
    """

    def __init__(self, command: str, echo: Callable[[str], None], *, to_stderr: bool = False) -> None:
        """`to_stderr`: stdout carries JSON events, so the command may not write there."""
        self._command = command
        self._echo = echo
        self._to_stderr = to_stderr
        self._stats = RunStats()
        self.folder = Path()

    def on_event(self, event: events.Event, at: float) -> None:
        self._stats.handle(event, at)

    def close(self) -> None:
        pass

    def run(self) -> None:
        if not self._command or self._stats.ended is None:
            return
        problem = ""
        try:
            done = subprocess.run(
                ["/bin/sh", "-c", self._command],
                stdin=subprocess.DEVNULL,
                stdout=2 if self._to_stderr else None,
                env={**environment(), **figures(self._stats, self.folder)},
                timeout=TIMEOUT,
                check=False,
            )
            problem = f"exited with {done.returncode}" if done.returncode else ""
        except subprocess.TimeoutExpired:
            problem = f"took longer than {TIMEOUT:.0f} s and was killed; append & to a long one"
        except OSError as error:
            problem = f"could not be started: {error.strerror}"
        if problem:
            self._echo(f"[COORDINATOR] The command of --on-done {problem}: {self._command}")


def figures(stats: RunStats, folder: Path) -> Mapping[str, str]:
    """The variables that the command gets; unknown values are empty."""
    assert stats.started is not None
    assert stats.ended is not None
    home = moved_home(folder.parents[2]) if len(folder.parents) > 2 else ""
    return {
        "AGENTOS_RUN": stats.started.run,
        "AGENTOS_RUN_FOLDER": str(folder),
        "AGENTOS_WORKFLOW": stats.started.workflow,
        "AGENTOS_PROJECT": stats.started.project,
        "AGENTOS_EXIT_CODE": str(stats.ended.exit_code),
        "AGENTOS_SECONDS": f"{stats.ended.seconds:.1f}",
        "AGENTOS_TOTAL": str(len(stats.rows)),
        "AGENTOS_SUCCEEDED": str(len(stats.with_ending(Ending.FINISHED))),
        "AGENTOS_APPROVED": str(len(stats.with_verdict(Verdict.APPROVED))),
        "AGENTOS_NEED_REVISION": str(len(stats.with_verdict(Verdict.NEEDS_REVISION))),
        "AGENTOS_FAILED": str(len(stats.with_ending(Ending.FAILED))),
        "AGENTOS_PARKED": str(len(stats.with_ending(Ending.PARKED))),
        "AGENTOS_INTERRUPTED": str(len(stats.with_ending(Ending.INTERRUPTED))),
        "AGENTOS_TOKENS": str(stats.usage.tokens),
        "AGENTOS_COST": "" if stats.cost is None else f"{stats.cost:.4f}",
        **({"AGENTOS_HOME": home} if home else {}),
    }
