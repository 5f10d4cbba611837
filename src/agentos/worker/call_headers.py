"""What a worker of a fleet says with each of its calls, for the gateway."""

from agentos.core.planning.worker_task import FleetTask
from agentos.models.refusal_base import BUDGET_HEADER

Headers = tuple[tuple[str, str], ...]


def call_headers(fleet: FleetTask | None, lease: str) -> Headers:
    """The submission's budget, which the gateway adds up over all workers."""
    if fleet is None or fleet.budget is None:
        return ()
    return ((BUDGET_HEADER, f"{fleet.account}={fleet.budget!r}"),)
