"""What the page can change on a fleet, and why it cannot change the rest; also the fleet's machines and keys."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from agentos.core.errors import AgentosError, NothingMatches, PreflightError, ServiceAway, UsageError
from agentos.core.protocol import events
from agentos.core.text.secrets import Secret
from agentos.fleet.machines import Machine, gateway_keys, list_machines, polling_machines
from agentos.fleet.retry import retry_item
from agentos.fleet.temporal import cancel_items, connect_temporal
from agentos.outputs.format import count
from agentos.outputs.report.facts import plain
from agentos.page.actions import parse_request
from agentos.page.fleet_runs import FleetRuns
from agentos.page.run_view import RunView
from agentos.page.views import FLEET_LIMITS, Json
from agentos.storage.postgres.fleet_items import FleetDatabase
from agentos.storage.postgres.resubmission import Resubmitted, resubmit_failed
from agentos.storage.postgres.submissions import SubmissionRow, SubmittedItem
from agentos.workflows.registry import workflow_names

INTERVAL = 4.0  # seconds between two requests to Temporal, and to the gateway
NO_GATEWAY = "to see the keys of the gateway here, set AGENTOS_GATEWAY and AGENTOS_GATEWAY_TOKEN"

NOTHING_TO_STOP: Json = {"changed": False, "texts": ["Nothing of it is under way."]}


@dataclass(slots=True)
class _Cached:
    """The last answer of a service, refreshed at most every INTERVAL, and why it has not answered since."""

    value: object = None
    problem: str = ""
    due: float = 0.0

    def update(self, ask: Callable[[], object]) -> None:
        if time.monotonic() < self.due:
            return
        try:
            self.value, self.problem = ask(), ""
        except PreflightError as error:
            self.problem = str(error)
        self.due = time.monotonic() + INTERVAL


@dataclass(slots=True)
class FleetControl:
    """Stops and resubmits items; shows machines and keys."""

    runs: FleetRuns
    database: FleetDatabase
    gateway: str
    token: Secret | None
    is_fleet: bool = True
    _machines: _Cached = field(default_factory=_Cached)
    _keys: _Cached = field(default_factory=_Cached)

    def request(self, view: RunView, body: Json) -> Json:
        wanted = parse_request(body)
        row = self.runs.row(view.id)
        if row is None:
            raise NothingMatches(f"no submission {view.id}")
        match wanted:
            case events.StopRequested():
                return NOTHING_TO_STOP if view.is_over else self._stop(row)
            case events.RetryRequested():
                return self._retry(row, wanted.item)
            case events.PauseRequested() | events.ResumeRequested():
                raise UsageError(FLEET_LIMITS["pause"])
            case events.WorkerCountRequested():
                raise UsageError(FLEET_LIMITS["workers"])

    def _stop(self, row: SubmissionRow) -> Json:
        live = [
            item.item for item in self._items(row).values() if item.is_live and item.submission == row.number
        ]
        number = asyncio.run(_cancel(row.project, live)) if live else 0
        with self.runs.shared.session():
            self.database.end_unstarted(live, row.project)
        if not number:
            return NOTHING_TO_STOP
        return {"changed": True, "texts": [f"Stopping {count(number, 'item')}, checkpointed."]}

    def _retry(self, row: SubmissionRow, item: str) -> Json:
        found = self._items(row).get(item)
        if found is None:
            raise NothingMatches(f"{plain(item)} is not in S{row.number}")
        if found.submission != row.number:
            raise UsageError(f"{item} is in a later submission: see S{found.submission}")

        def resubmit() -> Resubmitted | None:
            with self.runs.shared.session():
                return resubmit_failed(self.database, row.project, item, round(time.time(), 3))

        number = asyncio.run(retry_item(resubmit, row.project, item))
        if number is None:
            raise UsageError(f"{item} did not fail: it is {found.text}")
        return {"changed": True, "texts": [f"{item} is queued again, as S{number}."], "run": f"S{number}"}

    def _items(self, row: SubmissionRow) -> dict[str, SubmittedItem]:
        with self.runs.shared.session() as reader:
            return reader.items(row).items

    def machines_json(self) -> Json:
        """The machines, from Postgres and Temporal, and the gateway with its keys."""
        found = self.runs.shared.ask(lambda reader: (reader.machine_items(), reader.submissions()))
        items, rows = found or ([], [])
        workflows = sorted({*workflow_names(), *(row.workflow for row in rows)})
        self._machines.update(lambda: polling_machines(workflows))
        polling = self._machines.value if isinstance(self._machines.value, dict) else {}
        problems = [self.runs.problem, self._machines.problem]
        return {
            "now": time.time(),
            "machines": [_machine_json(machine) for machine in list_machines(items, polling)],
            "gateway": self.gateway or None,
            "problems": [plain(problem) for problem in problems if problem],
        }

    def keys_json(self) -> Json:
        problem, token = "" if self.gateway and self.token else NO_GATEWAY, self.token
        if self.gateway and token:
            self._keys.update(lambda: gateway_keys(self.gateway, token))
            problem = self._keys.problem
        return {
            "now": time.time(),
            "keys": self._keys.value or [],
            "gateway": self.gateway or None,
            "problem": plain(problem) or None,
        }

    def change_key(self, name: str, body: Json) -> Json:
        raise UsageError(FLEET_LIMITS["keys"])


def _machine_json(machine: Machine) -> Json:
    return {
        "machine": plain(machine.name),
        "workflows": list(machine.workflows),
        "seen": machine.seen,
        "items": [{"run": f"S{submission}", "item": plain(item)} for submission, item in machine.running],
        "ended": machine.ended,
    }


async def _cancel(project: str, items: list[str]) -> int:
    try:
        return await cancel_items(await connect_temporal(), project, items)
    except AgentosError as error:
        raise ServiceAway(str(error)) from error
