"""Words in, exit code out. Little is loaded here, so that an early Ctrl-C finds somebody to deal with it."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click

STOPPED = "\nStopped before anything began. The same command starts it again.\n"


def main() -> None:
    """The command `agentos`."""
    _finish(_group, "agentos")


def lld_workflow() -> None:
    """The command `lld-workflow`: `agentos run lld`."""
    _finish(lambda: _workflow("lld"), "lld-workflow")


def issue_workflow() -> None:
    """The command `issue-workflow`: `agentos run issue`."""
    _finish(lambda: _workflow("issue"), "issue-workflow")


def _finish(load: "Callable[[], click.Command]", name: str) -> None:
    try:
        from agentos.cli.exit_codes import run_command
        from agentos.run.signals import ignore_stop_signals

        code = run_command(load(), sys.argv[1:], name)
        ignore_stop_signals()
    except KeyboardInterrupt:
        sys.stderr.write(STOPPED)
        code = 130
    sys.exit(code)


def _group() -> "click.Command":
    from agentos.cli.group import LazyGroup

    return LazyGroup()


def _workflow(name: str) -> "click.Command":
    from agentos.cli.run import workflow_command

    return workflow_command(name)
