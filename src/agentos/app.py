"""A run from outside: what would be done, and doing it.

Little is loaded here, so that what takes long to begin can begin before the rest is loaded.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from agentos.calling import Caller, conduct_for
from agentos.core.errors import PreflightError
from agentos.request import Request
from agentos.signals import Signals
from agentos.starting import begin
from agentos.storage.room import is_full

if TYPE_CHECKING:
    from agentos.core.plan import Plan


def plan_run(request: Request, say: Callable[[str], None]) -> "Plan":
    """What would run; writes nothing. Says what it waits for."""
    from agentos.assembly import planned

    return planned(request, say)


def run_workflow(request: Request, say: Callable[[str], None]) -> int:
    """The whole run; gives the exit code."""

    def conduct(signals: Signals) -> int:
        with begin(request) as begun:
            from agentos.assembly import Assembly

            signals.check()
            return Assembly(request, begun, say).conduct(signals)

    try:
        return conduct_for(Caller(2 if request.json else 1, say, request.command), conduct)
    except OSError as error:
        if not is_full(error):
            raise
        raise PreflightError(
            f"no space left on the disk of {error.filename or request.settings.home}: free some; "
            "what was done is kept, and the same command goes on"
        ) from error
