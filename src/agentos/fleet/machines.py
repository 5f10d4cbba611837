"""The machines of a fleet, as Temporal and Postgres know them, and the keys of its gateway."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.service import RPCError

from agentos.config.settings import reach_loopback_directly
from agentos.core.errors import PreflightError, ServiceAway
from agentos.core.text.secrets import Secret
from agentos.fleet.gateway_access import check_gateway_address
from agentos.fleet.temporal import connect_temporal, no_answer, queue_of
from agentos.storage.postgres.submissions import MachineItem

TIMEOUT = 5.0  # seconds


@dataclass(frozen=True, slots=True)
class Machine:
    """One `agentos worker`. `seen` is when it last asked Temporal for an item; None if Temporal has forgotten it.

    `running` are its current items, as (submission, item); `ended` counts the items that it ran last.
    """

    name: str
    workflows: tuple[str, ...]
    seen: float | None
    running: tuple[tuple[int, str], ...]
    ended: int


def list_machines(items: Iterable[MachineItem], polling: dict[str, dict[str, float]]) -> list[Machine]:
    """Every machine that polls for items or has run one; busy ones first."""
    found = list(items)
    names = dict.fromkeys([*polling, *(entry.machine for entry in found)])
    machines = [
        Machine(
            name,
            tuple(sorted(polling.get(name, {}))),
            max(polling[name].values()) if polling.get(name) else None,
            tuple(
                (entry.submission, entry.item)
                for entry in found
                if entry.machine == name and entry.is_running
            ),
            sum(entry.machine == name and not entry.is_running for entry in found),
        )
        for name in names
    ]
    return sorted(machines, key=lambda machine: (not machine.running, not machine.seen, machine.name))


def polling_machines(workflows: Sequence[str]) -> dict[str, dict[str, float]]:
    """Machine -> workflow -> when it last polled. Raises ServiceAway if Temporal does not answer."""
    try:
        return asyncio.run(asyncio.wait_for(_polling_machines(workflows), TIMEOUT))
    except RPCError as error:
        raise ServiceAway(no_answer(error)) from error
    except TimeoutError as error:
        raise ServiceAway(f"Temporal did not answer within {TIMEOUT:.0f} s") from error
    except PreflightError as error:
        raise ServiceAway(str(error)) from error


async def _polling_machines(workflows: Sequence[str]) -> dict[str, dict[str, float]]:
    client = await connect_temporal()
    found: dict[str, dict[str, float]] = {}
    for workflow in workflows:
        request = DescribeTaskQueueRequest(
            namespace=client.namespace,
            task_queue=TaskQueue(name=queue_of(workflow)),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
        )
        answer = await client.workflow_service.describe_task_queue(request)
        for poller in answer.pollers:
            seen = poller.last_access_time.seconds + poller.last_access_time.nanos / 1e9
            found.setdefault(_machine(poller.identity), {})[workflow] = seen
    return found


def _machine(identity: str) -> str:
    """The SDK names a worker `pid@host`, Postgres `host:pid`."""
    pid, _, host = identity.partition("@")
    return f"{host}:{pid}" if host else identity


def gateway_keys(url: str, token: Secret) -> list[dict[str, Any]]:
    """What each key of the gateway is doing, as `agentos keys --json` shows it. Raises PreflightError for an invalid address, and
    ServiceAway."""
    check_gateway_address(url)
    reach_loopback_directly()
    headers = {"Authorization": f"Bearer {token.reveal()}"}
    try:
        response = httpx.get(f"{url}/keys", headers=headers, timeout=TIMEOUT)
        found = response.json()["keys"] if response.status_code == 200 else []
    except httpx.HTTPError as error:
        raise ServiceAway(f"the gateway {url} cannot be reached ({error})") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ServiceAway(f"{url} answered, but not as an agentos gateway: check AGENTOS_GATEWAY") from error
    if response.status_code == 401:
        raise ServiceAway(
            f"the gateway {url} does not accept AGENTOS_GATEWAY_TOKEN: issue one there with agentos gateway token NAME"
        )
    if response.status_code != 200:
        raise ServiceAway(
            f"{url} answered {response.status_code}: expected an agentos gateway of this version"
        )
    keys = [entry for entry in found if isinstance(entry, dict)]
    return sorted(keys, key=lambda entry: (str(entry.get("provider")), str(entry.get("name"))))
