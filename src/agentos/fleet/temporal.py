"""Requests to Temporal. Address, namespace, TLS and API key come from `temporalio.envconfig`."""

import asyncio
import functools
import re
import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Any, TypeVar

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.envconfig import ClientConfig
from temporalio.runtime import Runtime, TelemetryConfig
from temporalio.service import RPCError, RPCStatusCode

from agentos.core.errors import PreflightError
from agentos.core.planning.submission import thread_id
from agentos.core.text.line_assembler import one_line
from agentos.fleet.item_workflow import WORKFLOW, ItemStart

DEFAULT_ADDRESS = "localhost:7233"
CONNECT_TIMEOUT = timedelta(seconds=10)
AT_ONCE = 50  # requests
POLLER_AGE = 75.0  # seconds
Argument = TypeVar("Argument")
Result = TypeVar("Result")


async def connect_temporal() -> Client:
    """Raises PreflightError with what was tried."""
    try:
        config: dict[str, Any] = dict(ClientConfig.load_client_connect_config())
    except Exception as error:
        raise PreflightError(f"Temporal's settings cannot be used: {one_line(str(error))}") from error
    config.setdefault("target_host", DEFAULT_ADDRESS)
    try:
        return await Client.connect(**config, connect_timeout=CONNECT_TIMEOUT, runtime=_silent_runtime())
    except (RuntimeError, ValueError) as error:
        raise PreflightError(
            f"Temporal cannot be used at {config['target_host']} ({_reason(error)}): check that it runs, and set "
            "TEMPORAL_ADDRESS and TEMPORAL_NAMESPACE, or a profile in Temporal's own file"
        ) from error


def _reason(error: Exception) -> str:
    """The system's own message, which the SDK wraps in several layers of Rust types."""
    text = one_line(str(error))
    inner = re.findall(r'(?:message|error): "([^"]+)"', text)
    return inner[-1] if inner else text[:200]


@functools.cache
def _silent_runtime() -> Runtime:
    """Silence the SDK's log: while Temporal restarts, it prints dozens of lines in its own format between the worker's."""
    return Runtime(telemetry=TelemetryConfig(logging=None))


def queue_of(workflow: str) -> str:
    """The task queue of a workflow, polled by the workers that have it installed."""
    return f"agentos-{workflow}"


async def has_worker(client: Client, workflow: str) -> bool:
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=queue_of(workflow)),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
    )
    found = await client.workflow_service.describe_task_queue(request)
    # Temporal lists a poller for minutes after it ended; a live one polls at least once a minute.
    since = time.time() - POLLER_AGE
    return any(poller.last_access_time.seconds >= since for poller in found.pollers)


async def start_item(client: Client, start: ItemStart) -> None:
    """Start the item's workflow, or join the one that is running."""
    await client.start_workflow(
        WORKFLOW,
        start,
        id=thread_id(start.project, start.item),
        task_queue=start.queue,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
    )


async def workflow_status(client: Client, workflow: str) -> WorkflowExecutionStatus | None:
    """The status of a workflow; None if Temporal does not know it or has forgotten it. Raises RPCError if Temporal does not answer."""
    try:
        return (await client.get_workflow_handle(workflow).describe()).status
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return None


async def cancel_items(client: Client, project: str, items: Iterable[str]) -> int:
    """Cancel the workflows of these items, which checkpoint first; returns how many there were.

    Raises PreflightError if Temporal does not answer.
    """

    async def cancel(item: str) -> bool:
        try:
            await client.get_workflow_handle(thread_id(project, item)).cancel()
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return False
        return True

    try:
        return sum(await map_bounded(cancel, items))
    except RPCError as error:
        raise PreflightError(
            f"{no_answer(error)}: some items may not have been stopped. Run the same command again"
        ) from error


def no_answer(error: RPCError) -> str:
    return f"Temporal did not answer ({one_line(error.message)[:200]})"


async def map_bounded(
    call: Callable[[Argument], Awaitable[Result]], arguments: Iterable[Argument]
) -> list[Result]:
    """The results of all calls, AT_ONCE at a time; the first error cancels the others."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(argument: Argument) -> Result:
        async with slots:
            return await call(argument)

    tasks = [asyncio.ensure_future(one(argument)) for argument in arguments]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
