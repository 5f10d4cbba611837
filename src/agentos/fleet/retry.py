"""`agentos retry --fleet`: submits a failed item again, from its checkpoint."""

import asyncio
import time

from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError

from agentos.core.errors import PreflightError
from agentos.core.planning.submission import thread_id
from agentos.fleet.item_workflow import ItemStart
from agentos.fleet.temporal import connect_temporal, no_answer, queue_of, start_item, workflow_status
from agentos.storage.postgres.fleet_items import FleetDatabase
from agentos.storage.postgres.resubmission import resubmit_failed

CLOSE_TIMEOUT = 10.0  # seconds; the workflow of an item ends right after its outcome is written
POLL_INTERVAL = 0.1  # seconds


async def retry_item(database: FleetDatabase, project: str, item: str) -> bool:
    """False if the item has not failed. Raises PreflightError if Temporal does not answer."""
    client = await connect_temporal()
    try:
        deadline = time.monotonic() + CLOSE_TIMEOUT
        while await workflow_status(client, thread_id(project, item)) is WorkflowExecutionStatus.RUNNING:
            if time.monotonic() > deadline:
                return False  # somebody else has just submitted it
            await asyncio.sleep(POLL_INTERVAL)
        again = await asyncio.to_thread(resubmit_failed, database, project, item, round(time.time(), 3))
        if again is None:
            return False
        queue = queue_of(again.workflow)
        await start_item(client, ItemStart(project, item, again.submission, again.retries, queue))
    except RPCError as error:
        raise PreflightError(f"{no_answer(error)}: run the same command again") from error
    return True
