"""Entry points of the three programs. Almost nothing is imported here, so that an early Ctrl-C is handled."""

import contextlib
import gc
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from agentos.process_memory import deny_inspection

if TYPE_CHECKING:
    import click

NEW_OBJECTS_PER_COLLECTION = 20_000
STOPPED = "\nInterrupted before anything started. Run the same command again to start.\n"


def main() -> None:
    """The command `agentos`."""

    def load() -> "click.Command":
        from agentos.cli.group import LazyGroup

        return LazyGroup()

    _run_and_exit(load, "agentos")


def lld_workflow() -> None:
    """The command `lld-workflow`, short for `agentos run lld`."""
    _run_and_exit(lambda: _workflow_command("lld"), "lld-workflow")


def issue_workflow() -> None:
    """The command `issue-workflow`, short for `agentos run issue`."""
    _run_and_exit(lambda: _workflow_command("issue"), "issue-workflow")


def _run_and_exit(load: "Callable[[], click.Command]", name: str) -> None:
    # With Python's 700, collections that find nothing take a tenth of the time of the imports.
    gc.set_threshold(NEW_OBJECTS_PER_COLLECTION)
    try:
        deny_inspection()
        from agentos.cli.exit_codes import run_command
        from agentos.run.signals import ignore_stop_signals

        code = run_command(load(), sys.argv[1:], name)
        ignore_stop_signals()
    except KeyboardInterrupt:
        sys.stderr.write(STOPPED)
        code = 130
    if "temporalio" in sys.modules:
        # One of its threads that enters Python while the interpreter finalizes aborts the process.
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
    sys.exit(code)


def _workflow_command(name: str) -> "click.Command":
    from agentos.cli.run import workflow_command

    return workflow_command(name)
