"""Entry points for the command line: plan a run, or execute it.

This module imports little, so that the fork server is started before the rest of the coordinator is loaded.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from agentos.config.settings import Settings
from agentos.core.errors import PreflightError
from agentos.outputs.writer import write_at_once
from agentos.platform_support import platform
from agentos.run.prestart import prestart
from agentos.run.signals import Signals, StoppedBeforeStart
from agentos.storage.files import is_full

if TYPE_CHECKING:
    from agentos.core.planning.plan import Plan, Selection


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What the user asked for.

    workflow: a built-in name, a plugin's name, or "module:object".
    selection: which items to run.
    command: the command line, repeated in hints on how to resume.
    selecting_words: the positions of the words of `command` that select the items.
    offline_arguments: extra arguments for the built-in model server.
    asks_review: --review was given, so that a workflow without gates is an error.
    variables: environment variables to pass to the workers, with their values.
    """

    workflow: str
    selection: "Selection"
    settings: Settings
    command: str
    offline: bool = False
    json: bool = False
    offline_arguments: tuple[str, ...] = ()
    display: str = "auto"
    asks_review: bool = False
    variables: tuple[tuple[str, str], ...] = ()
    selecting_words: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RunOrigin:
    """How a run was started, and how to reach the person who started it.

    command: what to type to start the run again.
    echo: prints one line of text for people.
    json: stdout carries JSON events, so text for people goes to stderr.
    on_done: a command line to run when the run has ended.
    notify: whether the terminal shows progress in its title and rings when a long run ends.
    keep_order: show the output of each item after that of the items before it.
    """

    command: str
    echo: Callable[[str], None]
    json: bool = False
    display: str = "auto"
    on_done: str = ""
    notify: bool = True
    keep_order: bool = False

    @property
    def text_fd(self) -> int:
        return 2 if self.json else 1


def plan_run(request: RunRequest, echo: Callable[[str], None]) -> "Plan":
    """Plan the run without writing anything; `echo` reports slow reads."""
    from agentos.run.builder import plan_only

    return plan_only(request, echo)


def run_workflow(request: RunRequest, echo: Callable[[str], None]) -> int:
    """Execute the run and return its exit code."""
    origin = RunOrigin(
        request.command,
        echo,
        request.json,
        request.display,
        request.settings.on_done,
        request.settings.notify != "none",
    )

    def run(signals: Signals) -> int:
        with prestart(request) as prestarted:
            from agentos.run.builder import RunBuilder

            signals.check()
            return RunBuilder(request, prestarted, origin).run(signals)

    try:
        return run_with_signals(origin, run)
    except OSError as error:
        if not is_full(error):
            raise
        raise PreflightError(
            f"no space left on the disk of {error.filename or request.settings.home}: free some space, "
            "then run the same command again; finished work is kept"
        ) from error


def run_with_signals(origin: RunOrigin, run: Callable[[Signals], int]) -> int:
    """Call `run`; a signal that arrives before its event loop starts is acknowledged at once and ends it."""
    # The keys are in this process's environment and memory, and programs that it starts run as the same user.
    platform().disable_core_dumps()
    acknowledge = partial(write_at_once, origin.text_fd, "[COORDINATOR] Shutting down...")
    with Signals(acknowledge).caught() as signals:
        try:
            return run(signals)
        except StoppedBeforeStart:
            from agentos.core.scheduling.control import EXIT_CODES

            origin.echo(f"[COORDINATOR] Nothing was started. Start it with: {origin.command}")
            return EXIT_CODES[signals.arrived[0]]
