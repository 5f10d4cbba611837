"""`--fleet`: plans like every run, then submits the items to the fleet."""

import asyncio
import contextlib
import hashlib
import sqlite3
import tempfile
import uuid
import zlib
from dataclasses import dataclass
from pathlib import Path

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError

from agentos.config.settings import Settings, worker_environment
from agentos.core.errors import PreflightError, UsageError
from agentos.core.planning.gates import GATES
from agentos.core.planning.items import Item
from agentos.core.planning.plan import Plan, PlanEntry, make_plan
from agentos.core.planning.submission import CodeShipment, ItemTask, RoleSettings, SharedTask, thread_id
from agentos.core.planning.worker_task import CallTimeout
from agentos.fleet.decisions import signal_decided
from agentos.fleet.item_workflow import ItemStart
from agentos.fleet.temporal import (
    has_worker,
    map_bounded,
    no_answer,
    queue_of,
    start_item,
    workflow_status,
)
from agentos.outputs.plan_text import explain_empty_plan, explain_skipped
from agentos.regular_files import list_folder, read_regular
from agentos.run.api import RunOrigin, RunRequest
from agentos.run.code_setup import CodeSetup
from agentos.run.discovery import check_project, discover
from agentos.run.github_setup import GitHubIssues, connect_github, refuse_untrusted
from agentos.run.model_selection import resolve_role
from agentos.run.signals import Signals
from agentos.storage.files import ProjectFolder
from agentos.storage.home import Home
from agentos.storage.postgres.fleet_items import FleetDatabase
from agentos.storage.postgres.project_items import PostgresItems
from agentos.workflows.node_context import PROJECT_PROMPTS
from agentos.workflows.redo import fingerprint
from agentos.workflows.registry import find_workflow

MAX_INDEX = 512 * 1024 * 1024  # bytes
INDEX_WAIT = 3600.0  # seconds; a submission waits for the code index, because workers cannot


def fleet_project(settings: Settings) -> str:
    if not settings.fleet.project:
        raise PreflightError(
            "no project name for the fleet: the folder's path differs on every machine, so give the project a name in "
            'agentos.toml: [fleet] project = "shop"'
        )
    return settings.fleet.project


def check_request(request: RunRequest) -> None:
    """Reject what a fleet cannot do, and say what works instead."""
    settings = request.settings
    if ":" in request.workflow:
        raise UsageError(
            f"{request.workflow} is a file of this machine, which the workers do not have: install the workflow on every "
            "worker as a package with the entry point group agentos.workflows, and name it; or run it here without --fleet"
        )
    if request.offline:
        raise UsageError(
            "--offline answers on this machine, but the workers call the gateway: start that with agentos gateway "
            "--offline, or run here without --fleet"
        )
    if settings.database:
        raise UsageError(
            "AGENTOS_WORKFLOW_DB names a file of this machine: unset it, or run here without --fleet"
        )
    if request.workflow == "issue" and not settings.github:
        raise UsageError(
            'issue on a fleet files at GitHub: set github = "owner/repository" in agentos.toml, or run here without '
            "--fleet to file into issues/"
        )


@dataclass(frozen=True, slots=True)
class Submitted:
    """What was submitted. `own` are the items of this submission; the other `items` were already under way. `redone` are
    those with a verdict that `--fresh` starts over."""

    submission: int
    project: str
    plan: Plan
    items: tuple[str, ...]
    own: tuple[str, ...]
    titles: tuple[str, ...]
    skipped: tuple[str, ...]
    code_tokens: int
    redone: tuple[str, ...]


class Submitter:
    """Plans and submits. Reads everything that a worker needs from the project, once."""

    def __init__(self, request: RunRequest, origin: RunOrigin, database: FleetDatabase) -> None:
        self._request = request
        self._settings = request.settings
        self._origin = origin
        self._database = database
        self._name = fleet_project(request.settings)
        self._home = Home(request.settings.home)
        self._workflow = find_workflow(request.workflow, request.settings.project)
        refuse_untrusted(request.settings, self._workflow)
        self._github: GitHubIssues | None = None

    async def submit(self, signals: Signals, client: Client) -> Submitted | int:
        """Return what was submitted, or the exit code if there is nothing to do."""
        plan = await asyncio.to_thread(self._plan, signals)  # reads GitHub's issues with its own event loop
        if not plan.entries:
            return explain_empty_plan(plan, self._request.selection, self._origin.echo)
        explain_skipped(plan, self._origin.echo)
        signals.check()
        under_way = await self._under_way(client, plan)
        entries = [
            entry for entry in plan.entries if under_way.get(entry.item.id) in (None, entry.item.digest)
        ]
        for entry in plan.entries:
            if entry not in entries:
                self._say(
                    f"{entry.item.id} is under way with another text, and left out. Wait for it, or stop every item of the project: "
                    "agentos stop --fleet"
                )
        if not entries:
            self._say("Nothing was submitted.")
            return 0
        own = [entry for entry in entries if entry.item.id not in under_way]
        try:
            is_served = await has_worker(client, self._workflow.name)
        except RPCError as error:  # such as a namespace that does not exist: before anything is stored
            raise PreflightError(
                f"{no_answer(error)}: nothing was submitted. Check TEMPORAL_NAMESPACE, then run the same command again"
            ) from error
        with contextlib.ExitStack() as stack:
            shipment, code = self._code(stack, signals)
        shared = self._shared(shipment)
        submission = await asyncio.to_thread(
            self._database.submit, shared, [self._task(entry) for entry in own], code
        )
        try:
            await self._start(client, submission, entries)
            await self._signal_joined(client, [entry.item.id for entry in entries if entry not in own])
        except RPCError as error:
            raise PreflightError(
                f"Submitted as S{submission}, but {no_answer(error)}: run the same command again"
            ) from error
        if not is_served:
            self._say(
                f"Submitted, but no worker takes {self._workflow.name} items. Start one anywhere: agentos worker --parallel 3"
            )
        return Submitted(
            submission,
            self._name,
            plan,
            tuple(entry.item.id for entry in entries),
            tuple(entry.item.id for entry in own),
            tuple(entry.item.title for entry in entries),
            tuple(file.source for file in plan.skipped),
            shipment.tokens if shipment else 0,
            tuple(entry.item.id for entry in own if entry.redo and self._request.selection.fresh),
        )

    def _plan(self, signals: Signals) -> Plan:
        settings, selection = self._settings, self._request.selection
        self._github = connect_github(settings, lambda: bool(signals.arrived), self._origin.echo)
        if self._github:
            self._workflow = self._github.workflow(self._workflow)
        check_project(self._workflow, settings.project)
        self._workflow.prepare(ProjectFolder(settings.project, self._say))
        with tempfile.TemporaryDirectory(prefix="agentos-") as scratch:
            items = PostgresItems(self._database, self._name, Path(scratch) / "documents")
            found = discover(
                self._workflow, settings.project, self._home, items, only_failed=selection.failed
            )
        plan = make_plan(found, selection, self._workflow.skipped(settings.project))
        if self._github and plan.entries:
            self._github.read_issues(self._workflow, self._home.issue_index(settings.project))
        return plan

    async def _under_way(self, client: Client, plan: Plan) -> dict[str, str]:
        """Items that somebody has submitted and that have not ended, with the digest of their text."""
        rows = await asyncio.to_thread(self._database.items, list(plan.ids))
        live = {row.item: row.digest for row in rows.values() if row.is_live}
        try:
            found = await map_bounded(lambda item: workflow_status(client, thread_id(self._name, item)), live)
        except RPCError as error:
            raise PreflightError(
                f"{no_answer(error)}: nothing was submitted. Run the same command again"
            ) from error
        return {
            item: digest
            for (item, digest), status in zip(live.items(), found, strict=True)
            if status is WorkflowExecutionStatus.RUNNING
        }

    async def _start(self, client: Client, submission: int, entries: list[PlanEntry]) -> None:
        queue, retries = queue_of(self._workflow.name), self._settings.retries
        await map_bounded(
            lambda entry: start_item(
                client, ItemStart(self._name, entry.item.id, submission, retries, queue)
            ),
            entries,
        )

    async def _signal_joined(self, client: Client, joined: list[str]) -> None:
        """Wake items that still wait at a gate although a decision is stored: its author could not signal them."""
        items = PostgresItems(self._database, self._name, Path())
        decided = await asyncio.to_thread(items.decided) if joined else []
        await signal_decided(client, {thread_id(self._name, item) for item in joined}.intersection(decided))

    def _shared(self, code: CodeShipment | None) -> SharedTask:
        settings = self._settings
        wanted = {"drafter": settings.drafter, "reviewer": settings.reviewer}
        wanted |= {role.name: role.models for role in settings.roles}
        for role, models in wanted.items():
            resolve_role(role, models, ())  # raises for a model of an unknown provider
        return SharedTask(
            project=self._name,
            workflow=self._workflow.name,
            max_iterations=settings.max_iterations,
            retries=settings.retries,
            timeout=settings.timeout,
            gates=GATES[settings.review],
            roles=tuple(
                RoleSettings(role, models, settings.output_limit(role), settings.effort_of(role))
                for role, models in wanted.items()
            ),
            call_timeouts=tuple(CallTimeout(*entry) for entry in settings.call_timeouts().items()),
            prompts=tuple(self._prompts()),
            code=code,
            github=settings.github,
            github_url=settings.github_url,
            account=f"{self._name}-{uuid.uuid4().hex[:12]}",
            budget=settings.budget,
        )

    def _prompts(self) -> list[tuple[str, str]]:
        project = self._settings.project
        names = sorted(
            name for name in list_folder(project / PROJECT_PROMPTS, project) if name.endswith(".md")
        )
        return [
            (f"{PROJECT_PROMPTS}/{name}", _text(read_regular(project / PROJECT_PROMPTS / name, project)))
            for name in names
        ]

    def _task(self, entry: PlanEntry) -> ItemTask:
        item = entry.item
        github = self._github
        text = github.texts.get(item.source) if github else None
        filed = github.filed_issue(item) if github else None
        replaces = fingerprint(self._workflow, self._settings.project, item) if entry.redo else ""
        return ItemTask(
            *(item, text, self._request.selection.fresh, entry.redo),
            *(tuple(self._inputs(item)), filed, replaces),
        )

    def _inputs(self, item: Item) -> list[tuple[str, str]]:
        """The item's source, if it is a file of the project."""
        project = self._settings.project
        path = project / item.source
        if not item.source or item.source.startswith("/") or not path.is_file():
            return []
        return [(item.source, _text(read_regular(path, project)))]

    def _code(
        self, stack: contextlib.ExitStack, signals: Signals
    ) -> tuple[CodeShipment | None, bytes | None]:
        if not self._workflow.uses_code:
            return None, None
        setup = CodeSetup(self._settings, worker_environment(), self._origin.echo)
        prepared = setup.prepare(stack, signals.check, INDEX_WAIT)
        if prepared is None:
            return None, None
        access = prepared.access
        content = zlib.compress(_copy_of(Path(access.index)), 6)
        digest = hashlib.sha256(content).hexdigest()
        return CodeShipment(digest, access.snapshot, access.commit, access.tokens, access.named), content

    def _say(self, text: str) -> None:
        self._origin.echo(f"[COORDINATOR] {text}")


def _copy_of(index: Path) -> bytes:
    """A consistent copy of the database in one file, without a write-ahead log."""
    with tempfile.TemporaryDirectory(prefix="agentos-") as folder:
        target = Path(folder) / "index.db"
        with contextlib.closing(sqlite3.connect(index)) as database:
            database.execute("VACUUM INTO ?", (str(target),))
        return read_regular(target, limit=MAX_INDEX)


def _text(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")
