"""Composition root of `agentos exec`: runs a program for every item."""

import contextlib
import json
import os
import random
import re
import shlex
import shutil
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from agentos.config.secret_variables import is_secret_name, is_secret_value, withheld_variables
from agentos.config.settings import Settings, environment, program_environment, user_home
from agentos.core.errors import PreflightError, UsageError
from agentos.core.planning.exec_command import (
    ExecTask,
    SandboxSpec,
    WorkspaceKind,
    WorkspaceSpec,
    exec_items,
    has_placeholder,
    record_name,
    render_command,
    workflow_name,
)
from agentos.core.planning.items import Candidate, Column, Gone, Item, ItemStatus
from agentos.core.planning.plan import Plan, Selection, gone_item, make_plan
from agentos.core.planning.worker_task import Variable
from agentos.core.protocol.codec import pack
from agentos.core.protocol.commands import StartWorker
from agentos.core.protocol.events import KeysFewerThanWorkers
from agentos.core.protocol.ports import Engine
from agentos.core.protocol.results import Ending, Outcome, TakenItem
from agentos.core.quota.budget import Limits
from agentos.core.quota.pool import Pool
from agentos.core.scheduling.scheduler import Scheduler
from agentos.core.text.secrets import Redactor, Secret
from agentos.engines.gateway_events import GatewayAwareEngine
from agentos.engines.process import ProcessEngine
from agentos.engines.template_client import WorkerSpec
from agentos.exec.agents import AgentChoice, prepare_agent
from agentos.exec.sandbox import check_sandbox
from agentos.exec.worker import DoneMarkers
from agentos.exec.workspaces import contains, uncommitted_files, workspace_spec
from agentos.gateway.child import GatewayChild, start_gateway
from agentos.outputs.format import count, event_text, name_list
from agentos.outputs.logfiles import JobLog
from agentos.platform_support import host_clock
from agentos.run.api import RunOrigin, run_with_signals
from agentos.run.event_loop import EventLoop
from agentos.run.session import HOST_CLOCK, RunSession
from agentos.run.signals import Signals
from agentos.storage.credentials.reader import CredentialSource, no_key
from agentos.storage.files import private_file
from agentos.storage.home import Home
from agentos.storage.locks import Holder, ItemLocks, finished_outcome, held_outcome
from agentos.storage.other_runs import OtherRuns
from agentos.storage.peer_log import FilePeerLog, NoPeers
from agentos.storage.peer_log_views import other_version_warning
from agentos.storage.runs import (
    RetentionPolicy,
    failed_before,
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


@dataclass(frozen=True, slots=True)
class ExecRequest:
    """What the user asked `agentos exec` for.

    sources: the items, as files or plain words.
    program: the words after `--`, with their placeholders.
    retry_codes, retry_any: exit codes after which an item is tried again.
    variables: additional environment variables of the program.
    piped: the items that came from standard input, which the command alone cannot repeat.
    repo: the folder the user named; None: where they stand, with the settings of the project around it.
    isolation: what each item gets to work in; None: the project itself.
    agent: the agent that `program` starts, if the user named one of those that we know.
    columns: the rows of the items that come from a table.
    rerun_changed: whether items are done again if their content changed since.
    keep_order: whether output is shown in the order of the items.
    sandbox: whether programs are kept from everything but their folder and the gateway.
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
    piped: tuple[str, ...] = ()
    repo: Path | None = None
    isolation: WorkspaceKind | None = None
    offline: bool = False
    max_wait: float | None = None  # seconds
    agent: AgentChoice | None = None
    columns: Mapping[str, tuple[Column, ...]] | None = None
    rerun_changed: bool = False
    keep_order: bool = False
    sandbox: bool = False

    @property
    def name(self) -> str:
        """Derived from what the user typed, because the flags that we add for an agent may change between versions."""
        return workflow_name((self.agent.name, *self.agent.words) if self.agent else self.program)


def plan_exec(request: ExecRequest) -> Plan:
    """Plan the run without writing anything."""
    _check_program(request)
    home, project = Home(request.settings.home), request.settings.project
    records = home.program(project, request.name)
    markers, held = DoneMarkers(records), ItemLocks.inside(records).held()
    done = markers.names()
    failed = failed_before(home.runs, request.name, project, required=request.selection.failed)
    candidates = []
    for item in exec_items(request.sources, request.name, request.columns):
        name = record_name(item.source)
        is_done = name in done and not request.selection.fresh
        is_changed = is_done and request.rerun_changed and markers.is_outdated(item, project)
        status = ItemStatus.APPROVED if is_done else ItemStatus.PENDING
        candidates.append(
            Candidate(
                item,
                ItemStatus.OUTDATED if is_changed else status,
                failed_before=item.id in failed,
                held_by="another run" if name in held else None,
            )
        )
    known = {candidate.item.id for candidate in candidates}
    gone = sorted(failed - known) if request.selection.failed else ()
    candidates += [gone_item(item, request.name, Gone.FAILED) for item in gone]
    plan = make_plan(candidates, request.selection)
    if request.selection.failed:
        return plan
    return replace(plan, done=tuple(each for each in candidates if each.status is ItemStatus.APPROVED))


def explain_gone(plan: Plan, echo: Callable[[str], None]) -> None:
    """Name the items that `--failed` does not find again, such as files that a pattern matched before."""
    if plan.gone:
        names = name_list([candidate.item.id for candidate in plan.gone])
        echo(f"[COORDINATOR] Failed in the last run, but not among these items: {names}")


def explain_done(plan: Plan, echo: Callable[[str], None]) -> None:
    """Count the items that need not run again."""
    if plan.done:
        already, them = ("items are", "them") if len(plan.done) > 1 else ("item is", "it")
        echo(f"[COORDINATOR] {len(plan.done)} {already} already done; redo {them} with --fresh")


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


def explain_none(plan: Plan, selection: Selection, echo: Callable[[str], None]) -> int:
    """Say why nothing runs and what to type instead; returns the exit code."""
    explain_gone(plan, echo)
    for candidate in plan.held:
        echo(f"[COORDINATOR] {candidate.item.id} is being worked on by {candidate.held_by}")
    if plan.held:
        echo("[COORDINATOR] List runs: agentos runs")
    elif selection.failed and not plan.gone:
        echo(
            "[COORDINATOR] No selected item failed in the last run. To run every pending item, leave out --failed"
        )
    elif not plan.gone:
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
        self._changed: set[str] = set()
        self._run_id = ""
        self._other_runs = OtherRuns(self._home.runs, began=time.time())
        self._gateway: GatewayChild | None = None
        self._agent_variables: dict[str, str] = {}
        self._workspace: WorkspaceSpec | None = None

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
            self._changed = {entry.item.id for entry in plan.entries if ItemStatus.OUTDATED in entry.reason}
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
            inputs = session.external_inputs(engine, taken=self._taken_items)
            return loop.run(started, replace(inputs, ended_elsewhere=self._ended_elsewhere))

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
        passed = (Secret(value) for name, value in variables.items() if _is_secret(name, value))
        self._redact.add(passed)
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
            redo=command.attempt == 1 and self._is_redone(item, self._holder(item)),
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

    def _taken_items(self, items: list[str]) -> list[TakenItem]:
        """Those of these items that another run holds or has ended."""
        found = ((item, self._outcome_of_other_run(self._items[item])) for item in items)
        return [TakenItem(item, outcome) for item, outcome in found if outcome]

    def _ended_elsewhere(self, queued: list[str]) -> list[TakenItem]:
        ended = self._other_runs.ended_items()
        taken = self._taken_items([item for item in queued if item in ended])
        return [found for found in taken if found.outcome.ending is not Ending.HELD_BY_OTHER_RUN]

    def _outcome_of_other_run(self, item: Item) -> Outcome | None:
        holder = self._holder(item)
        if ItemLocks.inside(self._records).is_held(record_name(item.source)):
            return held_outcome(holder)
        if holder is None or holder.run == self._run_id:
            return None
        if outcome := self._other_runs.outcome(item.id, holder):
            return outcome
        if self._is_redone(item, holder) or not DoneMarkers(self._records).is_done(item):
            return None
        return finished_outcome()

    def _holder(self, item: Item) -> Holder | None:
        return ItemLocks.inside(self._records).holder(record_name(item.source))

    def _is_redone(self, item: Item, holder: Holder | None) -> bool:
        """Whether to run the item again although it is done; False once another run has redone it."""
        is_wanted = self._request.selection.fresh or item.id in self._changed
        return is_wanted and not self._other_runs.have_worked_on(item.id, holder)

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


def _is_secret(name: str, value: str) -> bool:
    return is_secret_name(name) or is_secret_value(value)


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


def _check_program(request: ExecRequest) -> None:
    """Raise PreflightError if there is no such program; one whose name depends on the item is not checked."""
    program = request.program[0]
    columns = {column.name for row in (request.columns or {}).values() for column in row}
    if len(request.program) == 1 and not request.agent:
        _check_unquoted(request.settings.project, program, columns)
    if has_placeholder(program, columns):
        return
    path = str(request.settings.project / program) if "/" in program else program
    if shutil.which(path) is None:
        problem = "does not exist or is not executable" if "/" in program else "is not on the PATH"
        if request.agent:
            raise PreflightError(f"{program!r} {problem}; install it with: {request.agent.client.package}")
        raise PreflightError(f"{program!r} {problem}; expected a program after --")


def _check_unquoted(project: Path, program: str, columns: Collection[str]) -> None:
    """Raise UsageError if the command was quoted as a single word, as in `"./check.sh {item}"`."""
    first, *others = program.split()
    if not others or has_placeholder(first, columns) or shutil.which(str(project / program)):
        return
    if shutil.which(str(project / first) if "/" in first else first):
        raise UsageError(
            f"{program!r} is one word, which names no program; without the quotes it is a program and its "
            f"arguments: -- {program}"
        )
