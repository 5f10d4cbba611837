"""`agentos retry --fleet`: submits a failed item again, from its checkpoint."""

import asyncio
import time
from collections.abc import Callable

from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError

from agentos.core.errors import PreflightError
from agentos.core.planning.submission import thread_id
from agentos.fleet.item_workflow import ItemStart
from agentos.fleet.temporal import connect_temporal, no_answer, queue_of, start_item, workflow_status
from agentos.storage.postgres.resubmission import Resubmitted

CLOSE_TIMEOUT = 10.0  # seconds; an item's workflow ends right after its outcome is written
POLL_INTERVAL = 0.1  # seconds


async def retry_item(resubmit: Callable[[], Resubmitted | None], project: str, item: str) -> int | None:
    """The number of the new submission; None if the item has not failed. Raises PreflightError if Temporal does not answer.

    `resubmit` is called in a thread, once no workflow of the item is running.
    """
    client = await connect_temporal()
    try:
        deadline = time.monotonic() + CLOSE_TIMEOUT
        while await workflow_status(client, thread_id(project, item)) is WorkflowExecutionStatus.RUNNING:
            if time.monotonic() > deadline:
                return None  # somebody else has just submitted it
            await asyncio.sleep(POLL_INTERVAL)
        again = await asyncio.to_thread(resubmit)
        if again is None:
            return None
        queue = queue_of(again.workflow)
        await start_item(client, ItemStart(project, item, again.submission, again.retries, queue))
    except RPCError as error:
        raise PreflightError(f"{no_answer(error)}: run the same command again") from error
    return again.submission


async def is_under_way(project: str, item: str) -> bool:
    """Whether the item has a workflow. Raises PreflightError if Temporal does not answer."""
    try:
        status = await workflow_status(await connect_temporal(), thread_id(project, item))
    except RPCError as error:
        raise PreflightError(f"{no_answer(error)}: run the same command again") from error
    return status is WorkflowExecutionStatus.RUNNING
