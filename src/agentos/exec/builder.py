"""Composition root of `agentos exec`: runs a program for every item."""

import contextlib
import json
import os
import random
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agentos.config.settings import (
    Settings,
    environment,
    is_secret_name,
    worker_environment,
)
from agentos.core.errors import PreflightError
from agentos.core.planning.exec_command import (
    PLACEHOLDERS,
    ExecTask,
    Variable,
    exec_items,
    record_name,
    render_command,
    workflow_name,
)
from agentos.core.planning.plan import Candidate, Item, ItemStatus, Plan, Selection, make_plan
from agentos.core.protocol.codec import pack
from agentos.core.protocol.commands import StartWorker
from agentos.core.protocol.ports import Engine
from agentos.core.protocol.results import Ending, Outcome, TakenItem
from agentos.core.quota.budget import Limits
from agentos.core.quota.pool import Pool
from agentos.core.scheduling.scheduler import Scheduler
from agentos.core.text.secrets import Redactor, Secret
from agentos.engines.gateway_events import GatewayAwareEngine
from agentos.engines.process import ProcessEngine
from agentos.engines.template_client import WorkerSpec
from agentos.gateway.child import GatewayChild, start_gateway
from agentos.outputs.joblog import JobLog
from agentos.run.api import RunOrigin, run_with_signals
from agentos.run.event_loop import EventLoop
from agentos.run.session import HOST_CLOCK, RunSession
from agentos.run.signals import Signals
from agentos.storage.clock import host_clock
from agentos.storage.credentials.reader import CredentialSource
from agentos.storage.exec_done import DoneMarkers
from agentos.storage.files import private_file
from agentos.storage.home import Home
from agentos.storage.locks import ItemLocks, held_outcome
from agentos.storage.peer_log import FilePeerLog, NoPeers
from agentos.storage.peer_log_views import other_version_warning
from agentos.storage.runs import (
    RetentionPolicy,
    failed_before,
    finalize_killed_runs,
    prune,
)

WORKER = "agentos.exec.worker:main"
JOBLOG = "joblog.tsv"


@dataclass(frozen=True, slots=True)
class ExecRequest:
    """What the user asked `agentos exec` for.

    sources: the items, as files or plain words.
    program: the words after `--`, with their placeholders.
    retry_codes, retry_any: exit codes after which an item is tried again.
    variables: additional environment variables of the program.
    repo: the folder the user named; None: where they stand, with the settings of the project around it.
    """

    sources: tuple[str, ...]
    program: tuple[str, ...]
    selection: Selection
    settings: Settings
    command: str
    retry_codes: tuple[int, ...] = ()
    retry_any: bool = False
    variables: Mapping[str, str] | None = None
    joblog: Path | None = None
    json: bool = False
    display: str = "auto"
    gateway: bool = True
    repo: Path | None = None

    @property
    def name(self) -> str:
        return workflow_name(self.program)


def plan_exec(request: ExecRequest) -> Plan:
    """What would run. Writes nothing."""
    _check_program(request)
    home, project = Home(request.settings.home), request.settings.project
    records = home.program(project, request.name)
    done, held = DoneMarkers(records).names(), ItemLocks.inside(records).held()
    failed = failed_before(home.runs, request.name, project, required=request.selection.failed)
    candidates = []
    for item in exec_items(request.sources, request.name):
        name = record_name(item.source)
        is_done = name in done and not request.selection.fresh
        candidates.append(
            Candidate(
                item,
                ItemStatus.APPROVED if is_done else ItemStatus.PENDING,
                failed_before=item.id in failed,
                held_by="another run" if name in held else None,
            )
        )
    return make_plan(candidates, request.selection)


def run_exec(request: ExecRequest, echo: Callable[[str], None]) -> int:
    """Execute the run and return its exit code."""
    origin = RunOrigin(request.command, echo, request.json, request.display)
    return run_with_signals(origin, ExecRunBuilder(request, origin).run)


def explain_none(plan: Plan, selection: Selection, echo: Callable[[str], None]) -> int:
    """Say why nothing runs and what to type instead; returns the exit code."""
    for candidate in plan.elsewhere:
        echo(f"[COORDINATOR] {candidate.item.id} is being worked on by {candidate.held_by}")
    if plan.elsewhere:
        echo("[COORDINATOR] List runs: agentos runs")
    elif selection.failed:
        echo(
            "[COORDINATOR] No selected item failed in the last run. To run every pending item, leave out --failed"
        )
    else:
        echo("[COORDINATOR] Nothing is pending: every item is done. Redo them with --fresh")
    return 0


class ExecRunBuilder:
    """Builds the parts of one run in the order in which they are needed, and runs it."""

    def __init__(self, request: ExecRequest, origin: RunOrigin) -> None:
        self._request = request
        self._origin = origin
        self._settings = request.settings
        self._home = Home(self._settings.home)
        self._records = self._home.program(self._settings.project, request.name)
        self._redact = Redactor()
        self._items: dict[str, Item] = {}
        self._run_id = ""
        self._gateway: GatewayChild | None = None

    def run(self, signals: Signals) -> int:
        """Run to the end and return the exit code; before the first program starts, a signal ends it cleanly."""
        with contextlib.ExitStack() as stack:
            plan = plan_exec(self._request)
            if not plan.entries:
                self._clean_up_killed_runs()
                return explain_none(plan, self._request.selection, self._origin.echo)
            self._home.open()
            self._items = {entry.item.id: entry.item for entry in plan.entries}
            # Opened before the run folder is created, so that a path that cannot be written leaves none behind.
            joblogs = []
            if path := self._request.joblog:
                joblogs.append(stack.enter_context(contextlib.closing(self._open_joblog(path))))
            DoneMarkers(self._records).prepare()
            engine = self._build_engine(stack)
            prune(self._home.runs, RetentionPolicy(runs=self._settings.keep_runs), time.time())
            signals.check()
            session = RunSession(self._home, self._origin, self._redact, signals, stack)
            self._run_id = session.run_id
            session.add_listener(self._open_joblog(session.folder / JOBLOG))
            session.listeners.extend(joblogs)
            scheduler = Scheduler(plan.ids, Pool(()), self._limits(), random.random, host_clock())
            loop = EventLoop(scheduler, engine, session.listeners, HOST_CLOCK, NoPeers())
            started = session.run_started(self._request.name, self._settings, plan)
            return loop.run(started, session.external_inputs(engine, taken=self._taken_items))

    def _clean_up_killed_runs(self) -> None:
        """Clean up after killed runs also when no run follows."""
        finalize_killed_runs(self._home.runs)
        if self._home.quota.is_dir():
            with contextlib.suppress(OSError):
                if warning := other_version_warning(self._home.quota):
                    self._origin.echo(f"[COORDINATOR] {warning}")
                FilePeerLog(self._home.quota, f"{os.getpid()}-{time.time_ns()}").close()

    def _build_engine(self, stack: contextlib.ExitStack) -> Engine:
        credentials = CredentialSource(self._home.credentials, environment()).read()
        secrets = tuple(credential.secret for credential in credentials)
        self._redact.add(secrets)
        variables = self._request.variables or {}
        self._redact.add(Secret(value) for name, value in variables.items() if is_secret_name(name))
        spec = WorkerSpec(WORKER, ("agentos.exec.worker",), worker_environment(secrets))
        engine = ProcessEngine(spec, self._exec_task, self._redact)
        stack.enter_context(contextlib.closing(engine)).warm_up()
        if not self._request.gateway or not any(credential.enabled for credential in credentials):
            return engine
        arguments = ("--repo", str(self._settings.project)) if self._request.repo else ()
        self._gateway = start_gateway(environment(), arguments, subprocess.DEVNULL)
        stack.callback(self._gateway.close)
        return GatewayAwareEngine(engine, self._gateway.events(), self._items)

    def _exec_task(self, command: StartWorker) -> str:
        item, request = self._items[command.item], self._request
        variables = {
            **_item_environment(item, self._run_id, command.attempt),
            **(self._gateway.environment(item.id) if self._gateway else {}),
            **(request.variables or {}),
        }
        task = ExecTask(
            run=self._run_id,
            coordinator=os.getpid(),
            item=item,
            command=render_command(request.program, item),
            working_dir=str(self._settings.project),
            records_dir=str(self._records),
            variables=tuple(Variable(name, Secret(value)) for name, value in variables.items()),
            retry_codes=request.retry_codes,
            retry_any=request.retry_any,
            redo=request.selection.fresh and command.attempt == 1,
        )
        return json.dumps(pack(task))

    def _taken_items(self, items: list[str]) -> list[TakenItem]:
        """Of these items, those that another run holds or has finished."""
        found = ((item, self._outcome_elsewhere(self._items[item])) for item in items)
        return [TakenItem(item, outcome) for item, outcome in found if outcome]

    def _outcome_elsewhere(self, item: Item) -> Outcome | None:
        locks, name = ItemLocks.inside(self._records), record_name(item.source)
        holder = locks.holder(name)
        if locks.is_held(name):
            return held_outcome(holder)
        is_ours = holder is None or holder.run == self._run_id or self._request.selection.fresh
        if is_ours or not DoneMarkers(self._records).is_done(item):
            return None
        return Outcome(Ending.FINISHED_ELSEWHERE, error="another run finished it")

    def _open_joblog(self, path: Path) -> JobLog:
        commands = {
            name: shlex.join(render_command(self._request.program, item))
            for name, item in self._items.items()
        }
        try:
            return JobLog(private_file(path), commands, self._redact)
        except OSError as error:
            raise PreflightError(
                f"cannot write to {path}: {error.strerror}; name another file with --joblog"
            ) from error

    def _limits(self) -> Limits:
        settings = self._settings
        return Limits(settings.parallel, settings.retries, settings.timeout, settings.max_wait)


def _item_environment(item: Item, run: str, attempt: int) -> dict[str, str]:
    """The variables that every program gets for its item."""
    return {
        "AGENTOS_RUN": run,
        "AGENTOS_ITEM": item.source,
        "AGENTOS_ITEM_ID": item.id,
        "AGENTOS_ATTEMPT": str(attempt),
    }


def _check_program(request: ExecRequest) -> None:
    """Raise PreflightError if there is no such program; one whose name depends on the item is not checked."""
    program = request.program[0]
    if any(f"{{{name}}}" in program for name in ("", *PLACEHOLDERS)):
        return
    path = str(request.settings.project / program) if "/" in program else program
    if shutil.which(path) is None:
        problem = "does not exist or is not executable" if "/" in program else "is not on the PATH"
        raise PreflightError(f"{program!r} {problem}; expected a program after --")
