"""A run from outside: what would be done, and doing it.

Little is loaded here, so that what takes long to begin can begin before the rest is loaded.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from agentos.core.errors import PreflightError
from agentos.run.calling import RunOrigin, run_with_signals
from agentos.run.prestart import prestart
from agentos.run.request import RunRequest
from agentos.run.signals import Signals
from agentos.storage.disk_space import is_full

if TYPE_CHECKING:
    from agentos.core.planning.plan import Plan


def plan_run(request: RunRequest, say: Callable[[str], None]) -> "Plan":
    """What would run; writes nothing. Says what it waits for."""
    from agentos.run.builder import build_run

    return build_run(request, say)


def run_workflow(request: RunRequest, say: Callable[[str], None]) -> int:
    """The whole run; gives the exit code."""

    def conduct(signals: Signals) -> int:
        with prestart(request) as prestarted:
            from agentos.run.builder import RunBuilder

            signals.check()
            return RunBuilder(request, prestarted, say).run(signals)

    try:
        return run_with_signals(RunOrigin(2 if request.json else 1, say, request.command), conduct)
    except OSError as error:
        if not is_full(error):
            raise
        raise PreflightError(
            f"no space left on the disk of {error.filename or request.settings.home}: free some; "
            "what was done is kept, and the same command goes on"
        ) from error
