"""Composition root of `agentos exec`: runs a program for every item."""

import contextlib
import json
import os
import random
import re
import shlex
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from agentos.config.secret_variables import is_secret_name, is_secret_value, withheld_variables
from agentos.config.settings import environment, program_environment, user_home
from agentos.core.errors import PreflightError
from agentos.core.planning.exec_command import (
    ExecTask,
    SandboxSpec,
    WorkspaceSpec,
    render_command,
)
from agentos.core.planning.items import Item, ItemStatus
from agentos.core.planning.plan import Plan
from agentos.core.planning.worker_task import Variable
from agentos.core.protocol.codec import pack
from agentos.core.protocol.commands import StartWorker
from agentos.core.protocol.events import KeysFewerThanWorkers
from agentos.core.protocol.ports import Engine
from agentos.core.quota.budget import Limits
from agentos.core.quota.pool import Pool
from agentos.core.scheduling.scheduler import Scheduler
from agentos.core.text.secrets import Redactor, Secret
from agentos.engines.gateway_events import GatewayAwareEngine
from agentos.engines.process import ProcessEngine
from agentos.engines.template_client import WorkerSpec
from agentos.exec.agents import prepare_agent
from agentos.exec.done_markers import DoneMarkers
from agentos.exec.exec_plan import ExecRequest, explain_done, explain_gone, explain_none, plan_exec
from agentos.exec.sandbox import check_sandbox
from agentos.exec.taken_items import TakenItems
from agentos.exec.workspaces import contains, uncommitted_files, workspace_spec
from agentos.gateway.child import GatewayChild, start_gateway
from agentos.outputs.format import count, event_text
from agentos.outputs.logfiles import JobLog
from agentos.platform_support import host_clock
from agentos.run.api import RunOrigin, run_with_signals
from agentos.run.event_loop import EventLoop
from agentos.run.session import HOST_CLOCK, RunSession
from agentos.run.signals import Signals
from agentos.storage.credentials.reader import CredentialSource, no_key
from agentos.storage.files import private_file
from agentos.storage.home import Home
from agentos.storage.other_runs import OtherRuns
from agentos.storage.peer_log import FilePeerLog, NoPeers
from agentos.storage.peer_log_views import other_version_warning
from agentos.storage.runs import (
    RetentionPolicy,
    finalize_killed_runs,
    prune,
)

WORKER = "agentos.exec.worker:main"
SANDBOXED = (
    "Sandbox: each program may write to its own folder and /tmp, and reach the gateway; other files are read-only and there "
    "is no other network. It cannot commit to git itself, and it shares processor, memory and disk with you."
)
JOBLOG = "joblog.tsv"
ITEMS = "items"
"""The items that were read from standard input, separated by NULs."""


def run_exec(request: ExecRequest, echo: Callable[[str], None]) -> int:
    """Execute the run and return its exit code."""
    origin = RunOrigin(
        request.command,
        echo,
        request.json,
        request.display,
        request.settings.on_done,
        request.settings.notify != "none",
        request.keep_order,
    )
    return run_with_signals(origin, ExecRunBuilder(request, origin).run)


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
        self._other_runs = OtherRuns(self._home.runs, began=time.time())
        self._gateway: GatewayChild | None = None
        self._agent_variables: dict[str, str] = {}
        self._workspace: WorkspaceSpec | None = None
        self._taken_items: TakenItems

    def run(self, signals: Signals) -> int:
        """Run to the end and return the exit code; before the first program starts, a signal ends it cleanly."""
        with contextlib.ExitStack() as stack:
            plan = plan_exec(self._request)
            if not plan.entries:
                self._clean_up_killed_runs()
                return explain_none(plan, self._request.selection, self._origin.echo)
            explain_gone(plan, self._origin.echo)
            explain_done(plan, self._origin.echo)
            if self._request.sandbox:
                check_sandbox()
                self._origin.echo(f"[COORDINATOR] {SANDBOXED}")
            self._home.open()
            self._workspace = self._prepare_workspaces()
            self._items = {entry.item.id: entry.item for entry in plan.entries}
            self._taken_items = TakenItems(self._records, self._items, self._redone(plan), self._other_runs)
            # Opened before the run folder is created, so that a path that cannot be written leaves no run folder
            # behind.
            joblogs = []
            if path := self._request.joblog:
                joblogs.append(stack.enter_context(contextlib.closing(self._open_joblog(path))))
            markers = DoneMarkers(self._records)
            markers.prepare()
            self._say_what_is_withheld()
            engine = self._build_engine(stack)
            prune(self._home.runs, RetentionPolicy(runs=self._settings.keep_runs), time.time())
            signals.check()
            session = RunSession(self._home, self._origin, self._redact, signals, stack)
            self._run_id = session.run_id
            self._other_runs.own_run = self._run_id
            if self._request.selection.fresh:
                # If the run is interrupted, the same command without --fresh then resumes with the rest.
                markers.clear_all(self._items.values(), self._other_runs.began)
            session.add_listener(self._open_joblog(session.folder / JOBLOG))
            session.listeners.extend(joblogs)
            scheduler = Scheduler(plan.ids, Pool(()), self._limits(), random.random, host_clock())
            loop = EventLoop(scheduler, engine, session.listeners, HOST_CLOCK, NoPeers())
            started = session.run_started(self._request.name, self._settings, plan)
            if self._request.piped:
                started = replace(started, command=self._keep_items(session.folder))
            inputs = session.external_inputs(engine, taken=self._taken_items.held_or_ended)
            return loop.run(started, replace(inputs, ended_elsewhere=self._taken_items.ended))

    def _redone(self, plan: Plan) -> set[str]:
        """The ids of the items to run again although they are done."""
        is_fresh = self._request.selection.fresh
        return {entry.item.id for entry in plan.entries if is_fresh or ItemStatus.OUTDATED in entry.reason}

    def _say_what_is_withheld(self) -> None:
        names = [
            name for name in withheld_variables(environment()) if name not in (self._request.variables or {})
        ]
        if names:
            self._origin.echo(
                f"[COORDINATOR] Not passed to the programs, as they may hold or select credentials: {', '.join(names)}. "
                f"To pass one: --env {names[0]}"
            )

    def _keep_items(self, folder: Path) -> str:
        """Save the items that were piped in, and return the command that reads them from that file."""
        path = folder / ITEMS
        with open(private_file(path), "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write("\0".join((*self._request.piped, "")))
        option = f"--items-from {shlex.quote(str(path))}"
        return re.sub(r"--items-from[ =]-(?= |$)", lambda found: option, self._request.command, count=1)

    def _clean_up_killed_runs(self) -> None:
        """Clean up after killed runs even if nothing runs."""
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
        self._redact.add(
            Secret(value)
            for name, value in variables.items()
            if is_secret_name(name) or is_secret_value(value)
        )
        spec = WorkerSpec(WORKER, ("agentos.exec.worker",), program_environment(secrets))
        engine = ProcessEngine(spec, self._exec_task, self._redact)
        stack.enter_context(contextlib.closing(engine)).warm_up()
        self._prepare_agent({credential.provider for credential in credentials if credential.enabled})
        slots = sum(credential.concurrency for credential in credentials if credential.enabled)
        if not self._request.gateway or not (slots or self._request.offline):
            return engine
        if slots < min(self._settings.parallel, len(self._items)) and not self._request.offline:
            self._say(event_text(KeysFewerThanWorkers(slots, self._settings.parallel), time.time()))
        self._gateway = start_gateway(
            environment(), self._gateway_arguments(), self._redact, self._say, self._settings.budget
        )
        stack.callback(self._gateway.close)
        return GatewayAwareEngine(engine, self._gateway.events(), self._items, self._gateway.settle)

    def _prepare_agent(self, providers: set[str]) -> None:
        agent, home = self._request.agent, self._home
        if agent is None:
            return
        if not self._request.offline and not providers & set(agent.client.providers):
            raise no_key(agent.client.providers[0], home.credentials)
        self._agent_variables = prepare_agent(agent.name, home.agents, user_home())

    def _gateway_arguments(self) -> tuple[str, ...]:
        request = self._request
        return (
            *(("--repo", str(self._settings.project)) if request.repo else ()),
            *(("--offline",) if request.offline else ()),
            *(("--max-wait", f"{request.max_wait:g}s") if request.max_wait is not None else ()),
        )

    def _say(self, text: str | None) -> None:
        self._origin.echo(f"[COORDINATOR] {text}")

    def _exec_task(self, command: StartWorker) -> str:
        item, request = self._items[command.item], self._request
        gateway_url = self._gateway.url if self._gateway else ""
        variables = {
            **_item_environment(item, self._run_id, command.attempt),
            **(self._gateway.environment(item.id) if self._gateway else {}),
            **self._agent_variables,
            **(request.agent.client.environment(gateway_url) if request.agent else {}),
            **(request.agent.client.exec_variables if request.agent else {}),
            **(request.variables or {}),
        }
        task = ExecTask(
            run=self._run_id,
            coordinator=os.getpid(),
            item=item,
            command=render_command(request.program, self._visible_item(item), gateway_url),
            working_dir=str(self._settings.project),
            records_dir=str(self._records),
            variables=tuple(Variable(name, Secret(value)) for name, value in variables.items()),
            retry_codes=request.retry_codes,
            retry_any=request.retry_any,
            redo=command.attempt == 1 and self._taken_items.is_redone(item),
            workspace=self._workspace,
            sandbox=self._sandbox() if request.sandbox else None,
        )
        return json.dumps(pack(task))

    def _sandbox(self) -> SandboxSpec:
        port = urlsplit(self._gateway.url).port if self._gateway else None
        folders = tuple(value for name, value in self._agent_variables.items() if name.endswith("_HOME"))
        project = self._workspace.source if self._workspace else str(self._settings.project)
        return SandboxSpec(str(self._home.path), str(user_home()), project, port or 0, folders)

    def _prepare_workspaces(self) -> WorkspaceSpec | None:
        if self._request.isolation is None:
            return None
        spec = workspace_spec(self._home, self._settings.project, self._request.isolation)
        if left_out := uncommitted_files(spec):
            self._origin.echo(
                f"[COORDINATOR] {count(left_out, 'uncommitted file')} in {spec.source}: the worktrees start from "
                f"{spec.base} without them. Commit them first if the items need them."
            )
        return spec

    def _visible_item(self, item: Item) -> Item:
        """The item as its program sees it: a file that is not in the workspace keeps its path in the project."""
        source = self._settings.project / item.source
        if self._workspace is None or not source.exists() or contains(self._workspace, item.source):
            return item
        return replace(item, source=str(source))

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
        return Limits(
            settings.parallel,
            settings.retries,
            settings.timeout,
            settings.max_wait,
            max_parallel=settings.max_parallel,
        )


def _item_environment(item: Item, run: str, attempt: int) -> dict[str, str]:
    """The variables that describe the item to its program."""
    return {
        "AGENTOS_RUN": run,
        "AGENTOS_ITEM": item.source,
        "AGENTOS_ITEM_ID": item.id,
        "AGENTOS_ATTEMPT": str(attempt),
        **{
            f"AGENTOS_COLUMN_{re.sub('[^A-Z0-9]', '_', column.name.upper())}": column.value
            for column in item.columns
            if "\0" not in column.value
        },
    }
