"""Submits an item again as it was, from what Postgres has of it: the project's folder is not needed."""

import asyncio
from dataclasses import replace

from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError

from agentos.core.errors import NothingMatches, PreflightError, UsageError
from agentos.fleet.item_workflow import ItemStart
from agentos.fleet.temporal import connect_temporal, no_answer, queue_of, start_item, workflow_status
from agentos.storage.postgres.fleet_items import FleetDatabase
from agentos.storage.postgres.submissions import SubmittedItem


def resubmit(database: FleetDatabase, project: str, row: SubmittedItem) -> int:
    """Returns the number of the new submission, which goes on from the item's checkpoint."""
    if row.is_live and asyncio.run(_is_running(row.thread)):
        raise UsageError(
            f"{row.item} is {row.state} on the fleet: only what has ended can be submitted again"
        )
    loaded = database.load(row.thread, row.submission)
    if loaded is None:
        raise NothingMatches(f"{row.item} is not in Postgres any more")
    number = database.submit(loaded.shared, [replace(loaded.task, fresh=False)], None)
    start = ItemStart(project, row.item, number, loaded.shared.retries, queue_of(loaded.shared.workflow))
    try:
        asyncio.run(_start(start))
    except (RPCError, PreflightError) as error:
        reason = no_answer(error) if isinstance(error, RPCError) else str(error)
        raise PreflightError(
            f"{row.item} was submitted as S{number}, but {reason}: submit it again"
        ) from error
    return number


async def _is_running(thread: str) -> bool:
    try:
        return await workflow_status(await connect_temporal(), thread) is WorkflowExecutionStatus.RUNNING
    except RPCError as error:
        raise PreflightError(f"{no_answer(error)}: nothing was submitted. Try again") from error


async def _start(start: ItemStart) -> None:
    await start_item(await connect_temporal(), start)
