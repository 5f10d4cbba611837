"""Puts a run together that calls a program for every item, then conducts it."""

import contextlib
import json
import os
import random
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from agentos.config.settings import (
    Settings,
    current_folder,
    environment,
    is_secretive,
    moved_home,
    worker_environment,
)
from agentos.core.errors import PreflightError
from agentos.core.planning.exec_command import (
    PLACES,
    ExecTask,
    Variable,
    program_items,
    record_name,
    render_command,
    workflow_name,
)
from agentos.core.planning.items import Item
from agentos.core.planning.plan import Candidate, ItemStatus, Plan, Selection, make_plan
from agentos.core.protocol import events
from agentos.core.protocol.codec import pack
from agentos.core.protocol.commands import StartWorker
from agentos.core.protocol.ports import Engine, Listener
from agentos.core.protocol.results import Ending
from agentos.core.quota.pool import Pool
from agentos.core.scheduling.run_limits import Limits
from agentos.core.scheduling.scheduler import Scheduler
from agentos.core.text.secrets import Redactor, Secret
from agentos.engines.gateway_events import GatewayAwareEngine
from agentos.engines.process import ProcessEngine
from agentos.engines.template_client import WorkerSpec
from agentos.gateway.child import GatewayChild, start_gateway
from agentos.outputs.joblog import JobLog
from agentos.run.calling import RunOrigin, run_with_signals
from agentos.run.event_loop import Clock, EventLoop, ExternalInputs
from agentos.run.listeners import human_listeners, json_listener, open_control_socket, open_screen
from agentos.run.signals import Signals
from agentos.storage.clock import host_clock
from agentos.storage.credentials.reader import CredentialSource
from agentos.storage.exec_done import DoneMarkers
from agentos.storage.files import private_file
from agentos.storage.home import Home
from agentos.storage.locks import ItemLocks
from agentos.storage.peer_log import FilePeerLog, NoPeers
from agentos.storage.runs import (
    RetentionPolicy,
    RunFolder,
    finalize_killed_runs,
    last_run_of,
    new_run,
    prune,
)

WORKER = "agentos.exec.worker:main"
JOBLOG = "joblog.tsv"


@dataclass(frozen=True, slots=True)
class ExecRequest:
    """One `agentos exec`, as asked for."""

    sources: tuple[str, ...]
    words: tuple[str, ...]
    selection: Selection
    settings: Settings
    command: str
    passing: tuple[int, ...] = ()
    any_passes: bool = False
    variables: Mapping[str, str] | None = None
    joblog: Path | None = None
    json: bool = False
    display: str = "auto"
    gateway: bool = True

    @property
    def name(self) -> str:
        return workflow_name(self.words)


def item_environment(item: Item, run: str, attempt: int) -> dict[str, str]:
    """What an item's program finds in its environment, beside what every worker finds."""
    return {
        "AGENTOS_RUN": run,
        "AGENTOS_ITEM": item.source,
        "AGENTOS_ITEM_ID": item.id,
        "AGENTOS_ATTEMPT": str(attempt),
    }


def plan_exec(request: ExecRequest) -> Plan:
    """What would run; writes nothing."""
    _check_program(request)
    home, project = Home(request.settings.home), request.settings.project
    records = home.program(project, request.name)
    done, held = DoneMarkers(records).names(), ItemLocks.inside(records).held()
    failed = _failed_before(request, home)
    candidates = [
        Candidate(
            item,
            ItemStatus.APPROVED if (name := record_name(item.source)) in done else ItemStatus.PENDING,
            failed_before=item.id in failed,
            held_by="another run" if name in held else None,
        )
        for item in program_items(request.sources, request.name)
    ]
    if request.selection.fresh:
        candidates = [_undone(candidate) for candidate in candidates]
    return make_plan(candidates, request.selection)


def run_exec(request: ExecRequest, say: Callable[[str], None]) -> int:
    """The whole run; gives the exit code."""
    caller = RunOrigin(2 if request.json else 1, say, request.command)
    return run_with_signals(caller, lambda signals: ExecRunBuilder(request, say).run(signals))


class ExecRunBuilder:
    """Builds the parts of one run, in the order in which they are needed."""

    def __init__(self, request: ExecRequest, say: Callable[[str], None]) -> None:
        self._request = request
        self._settings = request.settings
        self._say = say
        self._home = Home(self._settings.home)
        self._records = self._home.program(self._settings.project, request.name)
        self._redact = Redactor()
        self._items: dict[str, Item] = {}
        self._run_id = ""
        self._gateway: GatewayChild | None = None

    def _tidy(self) -> None:
        """What a run that was killed has left, also when none follows it."""
        finalize_killed_runs(self._home.runs)
        if self._home.quota.is_dir():
            with contextlib.suppress(OSError):
                FilePeerLog(self._home.quota, f"{os.getpid()}-{time.time_ns()}").close()

    def run(self, signals: Signals) -> int:
        with contextlib.ExitStack() as stack:
            plan = plan_exec(self._request)
            if not plan.entries:
                self._tidy()
                return explain_none(plan, self._request.selection, self._say)
            self._home.open()
            self._items = {entry.item.id: entry.item for entry in plan.entries}
            # Before the run has a folder: one that is refused leaves none.
            listeners = self._joblog(self._request.joblog, stack) if self._request.joblog else []
            DoneMarkers(self._records).prepare()
            engine = self._engine(stack)
            prune(self._home.runs, RetentionPolicy(runs=self._settings.keep_runs), time.time())
            signals.check()
            listeners = self._listeners(self._folder(stack), stack) + listeners
            signals.wake = engine.wake
            run = Scheduler(plan.ids, Pool(()), self._limits(), random.random, host_clock())
            coordinator = EventLoop(run, engine, listeners, Clock(host_clock, time.time), NoPeers())
            requests = open_control_socket(self._home.runs / self._run_id, engine, stack, self._say)
            outside = ExternalInputs(
                signals.arrived, lambda: None, requests=requests, sleep=lambda: self._sleep(signals)
            )
            return coordinator.run(self._started(plan), outside)

    def _sleep(self, signals: Signals) -> None:
        """The shell has the terminal meanwhile."""
        self._shown.suspend()
        signals.sleep()
        self._shown.resume()

    def _engine(self, stack: contextlib.ExitStack) -> Engine:
        found = CredentialSource(self._home.credentials, environment()).read()
        secrets = tuple(credential.secret for credential in found)
        self._redact.learn(secrets)
        given = self._request.variables or {}
        self._redact.learn(Secret(value) for name, value in given.items() if is_secretive(name))
        spec = WorkerSpec(WORKER, ("agentos.exec.worker",), worker_environment(secrets))
        engine = ProcessEngine(spec, self._exec_task, self._redact)
        stack.enter_context(contextlib.closing(engine)).warm_up()
        if not self._request.gateway or not any(credential.enabled for credential in found):
            return engine
        arguments = ("--repo", str(self._settings.project))
        self._gateway = start_gateway(environment(), arguments, subprocess.DEVNULL)
        stack.callback(self._gateway.close)
        return GatewayAwareEngine(engine, self._gateway.events(), self._items)

    def _exec_task(self, command: StartWorker) -> str:
        item, request = self._items[command.item], self._request
        keys = self._gateway.environment(item.id) if self._gateway else {}
        variables = {
            **item_environment(item, self._run_id, command.attempt),
            **keys,
            **(request.variables or {}),
        }
        task = ExecTask(
            run=self._run_id,
            coordinator=os.getpid(),
            item=item,
            command=render_command(request.words, item),
            place=str(self._settings.project),
            records=str(self._records),
            variables=tuple(Variable(name, Secret(value)) for name, value in variables.items()),
            retry_codes=request.passing,
            retry_any=request.any_passes,
            redo=request.selection.fresh and command.attempt == 1,
        )
        return json.dumps(pack(task))

    def _folder(self, stack: contextlib.ExitStack) -> RunFolder:
        folder = stack.enter_context(contextlib.closing(new_run(self._home.runs, time.time())))
        self._run_id = folder.id
        return folder

    def _listeners(self, folder: RunFolder, stack: contextlib.ExitStack) -> list[Listener]:
        self._shown = open_screen(self._request.display, 2 if self._request.json else 1, self._redact)
        listeners = human_listeners(folder.path, self._redact, self._shown, stack)
        if self._request.json:
            listeners += json_listener(self._redact, stack)
        return listeners + self._joblog(folder.path / JOBLOG, stack)

    def _joblog(self, path: Path, stack: contextlib.ExitStack) -> list[Listener]:
        commands = {
            name: shlex.join(render_command(self._request.words, item)) for name, item in self._items.items()
        }
        try:
            log = JobLog(private_file(path), commands, self._redact)
        except OSError as error:
            raise PreflightError(
                f"cannot write to {path}: {error.strerror}; name another with --joblog"
            ) from error
        stack.callback(log.close)
        return [log]

    def _limits(self) -> Limits:
        settings = self._settings
        return Limits(settings.parallel, settings.retries, settings.timeout, settings.max_wait)

    def _started(self, plan: Plan) -> events.RunStarted:
        return events.RunStarted(
            run=self._run_id,
            workflow=self._request.name,
            project=str(self._settings.project),
            items=plan.ids,
            workers=self._settings.parallel,
            keys=(),
            command=self._request.command,
            cwd=current_folder(),
            home=moved_home(self._settings.home),
        )


def explain_none(plan: Plan, selection: Selection, say: Callable[[str], None]) -> int:
    """Nothing runs: says why, and what would."""
    for candidate in plan.elsewhere:
        say(f"[COORDINATOR] {candidate.item.id} is being worked on by {candidate.held_by}")
    if plan.elsewhere:
        say("[COORDINATOR] See the runs: agentos runs")
    elif selection.failed:
        say("[COORDINATOR] None of these failed in the last run. For every pending item, leave out --failed")
    else:
        say("[COORDINATOR] Nothing is pending: every item is done. Do them again with --fresh")
    return 0


def _undone(candidate: Candidate) -> Candidate:
    return replace(candidate, status=ItemStatus.PENDING)


def _failed_before(request: ExecRequest, home: Home) -> set[str]:
    stats = last_run_of(home.runs, request.name, request.settings.project)
    return {row.item for row in stats.ending(Ending.FAILED)} if stats else set()


def _check_program(request: ExecRequest) -> None:
    """Before anything starts: is there such a program?"""
    program = request.words[0]
    if any(f"{{{place}}}" in program for place in ("", *PLACES)):
        return
    path = str(request.settings.project / program) if "/" in program else program
    if shutil.which(path) is None:
        what = "is not there, or may not be executed" if "/" in program else "is not on the PATH"
        raise PreflightError(f"{program!r} {what}; expected a program after --")
