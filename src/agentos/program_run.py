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

from agentos.audience import control_of, open_screen, people_listen, programs_listen
from agentos.calling import Caller, conduct_for
from agentos.coordinator import Clock, Coordinator, Outside
from agentos.core import events
from agentos.core.commands import StartWorker
from agentos.core.errors import PreflightError
from agentos.core.items import Item
from agentos.core.limits import Limits
from agentos.core.plan import Candidate, Plan, Selection, Standing, make_plan
from agentos.core.pool import Pool
from agentos.core.ports import Engine, Listener
from agentos.core.programs import PLACES, Errand, Variable, called, program_items, record_name, workflow_name
from agentos.core.results import Ending
from agentos.core.run import Run
from agentos.core.secrets import Redactor, Secret
from agentos.core.wire import pack
from agentos.engines.counting import CountingEngine
from agentos.engines.launch import Recipe
from agentos.engines.process import ProcessEngine
from agentos.gateway.child import GatewayChild, start_gateway
from agentos.outputs.joblog import JobLog
from agentos.settings import (
    Settings,
    current_folder,
    environment,
    is_secretive,
    moved_home,
    worker_environment,
)
from agentos.signals import Signals
from agentos.storage.alone import Alone
from agentos.storage.clock import host_clock
from agentos.storage.credentials import CredentialSource
from agentos.storage.files import private_file
from agentos.storage.hostlog import HostLog
from agentos.storage.layout import Home
from agentos.storage.locks import ItemLocks
from agentos.storage.marks import Marks
from agentos.storage.runs import Keep, RunFolder, last_run_of, new_run, prune, tidy

WORKER = "agentos.program_worker:main"
JOBLOG = "joblog.tsv"


@dataclass(frozen=True, slots=True)
class ProgramRequest:
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


def surroundings(item: Item, run: str, attempt: int) -> dict[str, str]:
    """What an item's program finds in its environment, beside what every worker finds."""
    return {
        "AGENTOS_RUN": run,
        "AGENTOS_ITEM": item.source,
        "AGENTOS_ITEM_ID": item.id,
        "AGENTOS_ATTEMPT": str(attempt),
    }


def plan_programs(request: ProgramRequest) -> Plan:
    """What would run; writes nothing."""
    _check_program(request)
    home, project = Home(request.settings.home), request.settings.project
    records = home.program(project, request.name)
    done, held = Marks(records).names(), ItemLocks.inside(records).held()
    failed = _failed_before(request, home)
    candidates = [
        Candidate(
            item,
            Standing.APPROVED if (name := record_name(item.source)) in done else Standing.PENDING,
            failed_before=item.id in failed,
            held_by="another run" if name in held else None,
        )
        for item in program_items(request.sources, request.name)
    ]
    if request.selection.fresh:
        candidates = [_undone(candidate) for candidate in candidates]
    return make_plan(candidates, request.selection)


def run_programs(request: ProgramRequest, say: Callable[[str], None]) -> int:
    """The whole run; gives the exit code."""
    caller = Caller(2 if request.json else 1, say, request.command)
    return conduct_for(caller, lambda signals: _Programs(request, say).conduct(signals))


class _Programs:
    """Builds the parts of one run, in the order in which they are needed."""

    def __init__(self, request: ProgramRequest, say: Callable[[str], None]) -> None:
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
        tidy(self._home.runs)
        if self._home.quota.is_dir():
            with contextlib.suppress(OSError):
                HostLog(self._home.quota, f"{os.getpid()}-{time.time_ns()}").close()

    def conduct(self, signals: Signals) -> int:
        with contextlib.ExitStack() as stack:
            plan = plan_programs(self._request)
            if not plan.entries:
                self._tidy()
                return explain_none(plan, self._request.selection, self._say)
            self._home.open()
            self._items = {entry.item.id: entry.item for entry in plan.entries}
            # Before the run has a folder: one that is refused leaves none.
            listeners = self._joblog(self._request.joblog, stack) if self._request.joblog else []
            Marks(self._records).prepare()
            engine = self._engine(stack)
            prune(self._home.runs, Keep(runs=self._settings.keep_runs), time.time())
            signals.check()
            listeners = self._listeners(self._folder(stack), stack) + listeners
            signals.wake = engine.wake
            run = Run(plan.ids, Pool(()), self._limits(), random.random, host_clock())
            coordinator = Coordinator(run, engine, listeners, Clock(host_clock, time.time), Alone())
            requests = control_of(self._home.runs / self._run_id, engine, stack, self._say)
            outside = Outside(
                signals.arrived, lambda: None, requests=requests, sleep=lambda: self._sleep(signals)
            )
            return coordinator.conduct(self._started(plan), outside)

    def _sleep(self, signals: Signals) -> None:
        """The shell has the terminal meanwhile."""
        self._shown.rest()
        signals.sleep()
        self._shown.wake()

    def _engine(self, stack: contextlib.ExitStack) -> Engine:
        found = CredentialSource(self._home.credentials, environment()).read()
        secrets = tuple(credential.secret for credential in found)
        self._redact.learn(secrets)
        given = self._request.variables or {}
        self._redact.learn(Secret(value) for name, value in given.items() if is_secretive(name))
        recipe = Recipe(WORKER, ("agentos.program_worker",), worker_environment(secrets))
        engine = ProcessEngine(recipe, self._order, self._redact)
        stack.enter_context(contextlib.closing(engine)).warm_up()
        if not self._request.gateway or not any(credential.enabled for credential in found):
            return engine
        arguments = ("--repo", str(self._settings.project))
        self._gateway = start_gateway(environment(), arguments, subprocess.DEVNULL)
        stack.callback(self._gateway.close)
        return CountingEngine(engine, self._gateway.events(), self._items)

    def _order(self, command: StartWorker) -> str:
        item, request = self._items[command.item], self._request
        keys = self._gateway.environment(item.id) if self._gateway else {}
        variables = {
            **surroundings(item, self._run_id, command.attempt),
            **keys,
            **(request.variables or {}),
        }
        errand = Errand(
            run=self._run_id,
            coordinator=os.getpid(),
            item=item,
            words=called(request.words, item),
            place=str(self._settings.project),
            records=str(self._records),
            variables=tuple(Variable(name, Secret(value)) for name, value in variables.items()),
            passing=request.passing,
            any_passes=request.any_passes,
            redo=request.selection.fresh and command.attempt == 1,
        )
        return json.dumps(pack(errand))

    def _folder(self, stack: contextlib.ExitStack) -> RunFolder:
        folder = stack.enter_context(contextlib.closing(new_run(self._home.runs, time.time())))
        self._run_id = folder.id
        return folder

    def _listeners(self, folder: RunFolder, stack: contextlib.ExitStack) -> list[Listener]:
        self._shown = open_screen(self._request.display, 2 if self._request.json else 1, self._redact)
        listeners = people_listen(folder.path, self._redact, self._shown, stack)
        if self._request.json:
            listeners += programs_listen(self._redact, stack)
        return listeners + self._joblog(folder.path / JOBLOG, stack)

    def _joblog(self, path: Path, stack: contextlib.ExitStack) -> list[Listener]:
        commands = {name: shlex.join(called(self._request.words, item)) for name, item in self._items.items()}
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
            folder=current_folder(),
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
    return replace(candidate, standing=Standing.PENDING)


def _failed_before(request: ProgramRequest, home: Home) -> set[str]:
    tally = last_run_of(home.runs, request.name, request.settings.project)
    return {row.item for row in tally.ending(Ending.FAILED)} if tally else set()


def _check_program(request: ProgramRequest) -> None:
    """Before anything starts: is there such a program?"""
    program = request.words[0]
    if any(f"{{{place}}}" in program for place in ("", *PLACES)):
        return
    path = str(request.settings.project / program) if "/" in program else program
    if shutil.which(path) is None:
        what = "is not there, or may not be executed" if "/" in program else "is not on the PATH"
        raise PreflightError(f"{program!r} {what}; expected a program after --")
