"""The connection to Temporal: address, namespace, TLS and API key come from `temporalio.envconfig`."""

import contextlib
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.envconfig import ClientConfig
from temporalio.service import RPCError

from agentos.core.errors import PreflightError
from agentos.core.planning.submission import thread_id
from agentos.core.text.line_assembler import one_line
from agentos.fleet.item_workflow import WORKFLOW, ItemStart

DEFAULT_ADDRESS = "localhost:7233"
CONNECT_TIMEOUT = timedelta(seconds=10)


async def connect_temporal() -> Client:
    """Raises PreflightError with what was tried."""
    try:
        config: dict[str, Any] = dict(ClientConfig.load_client_connect_config())
    except Exception as error:
        raise PreflightError(f"Temporal's settings cannot be used: {one_line(str(error))}") from error
    config.setdefault("target_host", DEFAULT_ADDRESS)
    try:
        return await Client.connect(**config, connect_timeout=CONNECT_TIMEOUT)
    except RuntimeError as error:
        raise PreflightError(
            f"Temporal cannot be used at {config['target_host']} ({one_line(str(error))[:200]}): check that it runs, and set "
            "TEMPORAL_ADDRESS and TEMPORAL_NAMESPACE, or a profile in Temporal's own file"
        ) from error


def queue_of(workflow: str) -> str:
    """The task queue of a workflow: its workers are those that have it installed."""
    return f"agentos-{workflow}"


async def has_worker(client: Client, workflow: str) -> bool:
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=queue_of(workflow)),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
    )
    found = await client.workflow_service.describe_task_queue(request)
    return bool(found.pollers)


async def start_item(client: Client, start: ItemStart) -> None:
    """Starts the item's workflow; if one is running, that is joined."""
    await client.start_workflow(
        WORKFLOW,
        start,
        id=thread_id(start.project, start.item),
        task_queue=start.queue,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
    )


async def cancel_items(client: Client, project: str, items: Iterable[str]) -> int:
    """Cancels the workflows of these items, checkpointed; returns how many there were."""
    found = 0
    for item in items:
        with contextlib.suppress(RPCError):
            await client.get_workflow_handle(thread_id(project, item)).cancel()
            found += 1
    return found
