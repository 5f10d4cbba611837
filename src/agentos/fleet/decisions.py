"""Wakes the workflows of parked items after a person has decided. The decision itself is in Postgres."""

from collections.abc import Iterable

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from agentos.core.errors import AgentosError, PreflightError
from agentos.core.text.line_assembler import one_line
from agentos.fleet.item_workflow import DECIDED
from agentos.fleet.temporal import connect_temporal


async def notify_workflows(threads: Iterable[str]) -> None:
    """Signal all of these workflows. Raises PreflightError naming those that could not be reached, with the reason."""
    waiting = list(threads)
    try:
        missed = await signal_decided(await connect_temporal(), waiting)
    except AgentosError as error:
        missed = dict.fromkeys(waiting, str(error))
    if missed:
        raise PreflightError(
            f"the decision on {', '.join(thread.partition('/')[2] for thread in missed)} is stored, but its workflow could "
            f"not be notified ({next(iter(missed.values()))}). To notify it again, run: agentos review --fleet"
        )


async def signal_decided(client: Client, threads: Iterable[str]) -> dict[str, str]:
    """Return the workflows that could not be reached, with the reason. One that no longer exists is skipped: its item
    is submitted again. An extra signal is harmless: an item without a decision parks again."""
    missed = {}
    for thread in threads:
        try:
            await client.get_workflow_handle(thread).signal(DECIDED)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                missed[thread] = one_line(str(error))
    return missed
