"""`--fleet`: submits items to other machines, follows them and collects their documents."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace

from agentos.config.project import project_prefix
from agentos.config.settings import fleet_access
from agentos.core.text.secrets import Redactor
from agentos.fleet.collect import Collector
from agentos.fleet.follow import FleetFollower, Followed
from agentos.fleet.submit import Submitter, check_request, fleet_project
from agentos.fleet.temporal import connect_temporal
from agentos.outputs.format import count
from agentos.run.api import RunOrigin, RunRequest
from agentos.run.session import RunSession
from agentos.run.signals import Signals
from agentos.storage.home import Home
from agentos.storage.postgres.connecting import outages_reported
from agentos.storage.postgres.connection_limits import connection_limits
from agentos.storage.postgres.fleet_items import FleetDatabase
from agentos.storage.postgres.schema import check_tables
from agentos.workflows.registry import find_workflow


def run_on_fleet(request: RunRequest, origin: RunOrigin, signals: Signals, *, detach: bool) -> int:
    """Submit, follow and collect; returns the exit code."""
    check_request(request)
    name = fleet_project(request.settings)
    database = FleetDatabase(fleet_access().postgres, name)
    with contextlib.closing(database), outages_reported():
        check_tables(database.connection)
        return asyncio.run(_run(request, origin, signals, database, detach))


async def _run(
    request: RunRequest, origin: RunOrigin, signals: Signals, database: FleetDatabase, detach: bool
) -> int:
    settings = request.settings
    client = await connect_temporal()
    collector = Collector(database, settings.project, Home(settings.home).open())
    collector.collect_all(lambda text: origin.echo(f"[COORDINATOR] {text}"))
    cursor = database.horizon()
    submitted = await Submitter(request, origin, database).submit(signals, client)
    if isinstance(submitted, int):
        return report_conflicts(collector, origin.echo) or submitted
    if detach:
        joined = len(submitted.items) - len(submitted.own)
        others = f" {count(joined, 'more is', 'more are')} under way already." if joined else ""
        origin.echo(
            f"[COORDINATOR] Submitted {count(len(submitted.own), 'item')} (S{submitted.submission}).{others} "
            f"Follow and collect with: {origin.command.replace(' --detach', '')}"
        )
        return report_conflicts(collector, origin.echo)
    with contextlib.ExitStack() as stack:
        capacities = connection_limits(database.connection).workers
        session = RunSession(Home(settings.home), origin, Redactor(), signals, stack)
        started = replace(
            session.run_started(request.workflow, settings, submitted.plan),
            items=submitted.items,
            titles=submitted.titles,
            skipped=submitted.skipped,
            code_tokens=submitted.code_tokens,
            has_review=bool(find_workflow(request.workflow, settings.project).gates),
            project_path=project_prefix(settings.project),
            redone=submitted.redone,
            selecting_words=request.selecting_words if submitted.redone else (),
            workers=sum(capacities),
            machines=len(capacities),
        )
        floors = dict.fromkeys(submitted.own, submitted.submission)
        followed = Followed(submitted.project, submitted.items, floors, submitted.own)
        follower = FleetFollower(session.listeners, database, client, collector, followed)
        code = await follower.run(started, cursor, signals)
    conflicts = report_conflicts(collector, origin.echo)
    return code or conflicts


def report_conflicts(collector: Collector, echo: Callable[[str], None]) -> int:
    for conflict in collector.conflicts:
        echo(
            f"[COORDINATOR] {conflict.item} is done, but {conflict.path} has other content, which is not overwritten. "
            "Move it away, then: agentos collect"
        )
    return int(bool(collector.conflicts))
