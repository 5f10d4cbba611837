"""Puts a run together and conducts it."""

import contextlib
import json
import os
import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from agentos.config.prices import price_list
from agentos.config.settings import current_folder, moved_home, trace_nothing
from agentos.core.errors import UsageError
from agentos.core.planning.gates import GATES
from agentos.core.planning.items import Item
from agentos.core.planning.plan import Plan, make_plan
from agentos.core.planning.worker_task import RoleModel, WorkerTask
from agentos.core.protocol import events
from agentos.core.protocol.codec import pack
from agentos.core.protocol.commands import StartWorker
from agentos.core.protocol.ports import Engine, Listener
from agentos.core.protocol.results import Outcome
from agentos.core.quota.credentials import Credential
from agentos.core.quota.pool import Pool
from agentos.core.scheduling.scheduler import Scheduler
from agentos.core.text.secrets import Redactor
from agentos.engines.fault_injection import Inject429Engine
from agentos.engines.process import ProcessEngine
from agentos.outputs.plan_text import explain_empty_plan, explain_skipped
from agentos.run.discovery import check_project, clean_finished, discover
from agentos.run.event_loop import Clock, EventLoop, ExternalInputs
from agentos.run.github_setup import GitHubIssues, github_issues, refuse_offline
from agentos.run.listeners import human_listeners, json_listener, open_control_socket, open_screen
from agentos.run.model_selection import check_prices, check_sdks, select_models
from agentos.run.prestart import Prestarted
from agentos.run.request import RunRequest
from agentos.run.signals import Signals
from agentos.storage.clock import host_clock
from agentos.storage.credentials.reader import no_key
from agentos.storage.credentials.watch import CredentialWatch
from agentos.storage.files import ProjectFolder
from agentos.storage.home import Home
from agentos.storage.peer_log import FilePeerLog, NoPeers
from agentos.storage.review_notes import read_parked
from agentos.storage.runs import RetentionPolicy, RunFolder, finalize_killed_runs, new_run, prune
from agentos.workflows.registry import find_workflow


def build_run(request: RunRequest, say: Callable[[str], None]) -> Plan:
    """What would run; writes nothing. Says what it waits for."""
    workflow = find_workflow(request.workflow, request.settings.project)
    home = Home(request.settings.home)
    if request.offline:
        refuse_offline(request.settings)
    if tracked := github_issues(request.settings, lambda: False, say):
        workflow = tracked.workflow(workflow)
    return make_plan(discover(workflow, request.settings.project, home), request.selection)


class RunBuilder:
    """Builds the parts of one run, in the order in which they are needed."""

    def __init__(self, request: RunRequest, prestarted: Prestarted, say: Callable[[str], None]) -> None:
        self._request = request
        self._prestarted = prestarted
        self._settings = request.settings
        self._say = say
        self._home = Home(self._settings.home)
        self._workflow = find_workflow(request.workflow, self._settings.project)
        self._redact = Redactor()
        self._items: dict[str, Item] = {}
        self._roles: tuple[RoleModel, ...] = ()
        self._prices = price_list(self._settings.prices)
        self._redone: set[str] = set()
        self._run_id = ""
        self._tracked: GitHubIssues | None = None

    def run(self, signals: Signals) -> int:
        with contextlib.ExitStack() as stack:
            self._reach_github(signals)
            check_project(self._workflow, self._settings.project)
            self._home.open()
            source, server = self._prestarted.source, self._prestarted.server
            signals.check()
            log = None if server else self._host_log(stack)
            engine = self._engine(log, stack)
            plan = self._plan()
            signals.check()
            if not plan.entries:
                finalize_killed_runs(self._home.runs)
                return explain_empty_plan(plan, self._request.selection, self._say)
            explain_skipped(plan, self._say)
            brought = source.adjusted(server.credentials()) if server else self._prestarted.credentials
            pool = Pool(self._check_credentials(brought))
            self._select_models(pool)
            signals.check()
            listeners = self._listeners(self._folder(stack), stack)
            signals.wake = engine.wake
            run = Scheduler(plan.ids, pool, self._settings.limits(self._prices), random.random, host_clock())
            clock = Clock(host_clock, time.time)
            watch = (lambda: None) if server else CredentialWatch(source, self._check_credentials)
            outside = ExternalInputs(
                signals.arrived,
                watch,
                self._decisions,
                open_control_socket(self._home.runs / self._run_id, engine, stack, self._say),
                lambda: self._sleep(signals),
            )
            return EventLoop(run, engine, listeners, clock, log or NoPeers()).run(
                self._started(plan, pool), outside
            )

    def _reach_github(self, signals: Signals) -> None:
        if self._request.offline:
            refuse_offline(self._settings)
        self._tracked = github_issues(
            self._settings, lambda: bool(signals.arrived), self._say, self._prestarted.token
        )
        if self._tracked:
            self._redact.learn([self._tracked.access.token])
            self._workflow = self._tracked.workflow(self._workflow)

    def _plan(self) -> Plan:
        settings = self._settings
        candidates = discover(self._workflow, settings.project, self._home)
        plan = make_plan(candidates, self._request.selection)
        if settings.database and len(plan.entries) > 1:
            raise UsageError(
                f"AGENTOS_WORKFLOW_DB names one database, but {len(plan.entries)} items are selected; "
                "unset it, or name one item"
            )
        self._items = {entry.item.id: entry.item for entry in plan.entries}
        if self._tracked and plan.entries:
            self._tracked.look_for_filed(self._workflow)
        self._redone = {entry.item.id for entry in plan.entries if entry.redo}
        self._workflow.prepare(ProjectFolder(settings.project))
        clean_finished(self._workflow, settings.project, self._home, candidates)
        prune(self._home.runs, RetentionPolicy(runs=settings.keep_runs), time.time())
        return plan

    def _host_log(self, stack: contextlib.ExitStack) -> FilePeerLog:
        name = f"{os.getpid()}-{time.time_ns()}"
        return stack.enter_context(contextlib.closing(FilePeerLog(self._home.quota, name)))

    def _check_credentials(self, credentials: list[Credential]) -> list[Credential]:
        self._redact.learn(credential.secret for credential in credentials)
        if not any(credential.enabled for credential in credentials):
            raise no_key("gemini", self._home.credentials)
        check_sdks(credentials)
        return credentials

    def _select_models(self, pool: Pool) -> None:
        """Who plays which role; every role needs a key, and with a budget, a price."""
        have = tuple(dict.fromkeys(pool.keys.providers()))
        found = select_models(self._settings, have, offline=self._request.offline)
        if found.unserved_role:
            raise no_key(found.unserved_role.providers[0], self._home.credentials)
        self._roles = found.roles
        if not self._request.offline:
            check_prices(self._settings, self._roles, self._prices)

    def _engine(self, log: FilePeerLog | None, stack: contextlib.ExitStack) -> Engine:
        after = self._settings.simulate_429
        engine = self._processes(log) if self._settings.engine == "process" else self._inline()
        stack.callback(engine.close)
        return engine if after is None else Inject429Engine(engine, after)

    def _inline(self) -> Engine:
        """In this process, where a debugger can follow; nothing is isolated."""
        trace_nothing()
        from agentos.engines.inline import InlineChannel, InlineEngine, awaited
        from agentos.worker.item_runner import run_item

        async def work(command: StartWorker, channel: InlineChannel) -> Outcome:
            return await run_item(self._worker_task(command), channel, channel.say)

        return InlineEngine(awaited(work), self._redact)

    def _processes(self, log: FilePeerLog | None) -> Engine:
        spec = replace(self._prestarted.spec, inherited=(log.liveness_fd,) if log else ())
        return ProcessEngine(
            spec,
            lambda command: json.dumps(pack(self._worker_task(command))),
            self._redact,
            self._prestarted.template,
        )

    def _worker_task(self, command: StartWorker) -> WorkerTask:
        item, settings, tracked = self._items[command.item], self._settings, self._tracked
        filed = tracked.of(item) if tracked else None
        return WorkerTask(
            run=self._run_id,
            coordinator=os.getpid(),
            project=str(settings.project),
            workflow=self._request.workflow,
            origin=self._workflow.origin,
            item=item,
            database=str(self._database(item)),
            max_iterations=settings.max_iterations,
            models=self._roles,
            fresh=self._request.selection.fresh and command.attempt == 1,
            redo=item.id in self._redone,
            gates=GATES[settings.review],
            text=tracked.texts.get(item.source) if tracked else None,
            github=tracked.access if tracked and filed else None,
            filed=filed,
        )

    def _database(self, item: Item) -> Path:
        settings = self._settings
        return settings.database or self._home.checkpoint(settings.project, self._workflow.name, item.number)

    def _decisions(self, parked: list[str]) -> list[events.ItemDecided]:
        found = [(item, read_parked(self._database(self._items[item]))) for item in parked]
        return [
            events.ItemDecided(item, kept.decision.action.value)
            for item, kept in found
            if kept and kept.decision
        ]

    def _folder(self, stack: contextlib.ExitStack) -> RunFolder:
        folder = stack.enter_context(contextlib.closing(new_run(self._home.runs, time.time())))
        self._run_id = folder.id
        return folder

    def _listeners(self, folder: RunFolder, stack: contextlib.ExitStack) -> list[Listener]:
        people = self._shown = open_screen(
            self._request.display, 2 if self._request.json else 1, self._redact
        )
        listeners = human_listeners(folder.path, self._redact, people, stack)
        if self._settings.step_summary:
            from agentos.outputs.stepsummary import StepSummary

            listeners.append(StepSummary(folder.id, self._settings.step_summary, self._redact, people.write))
            stack.callback(listeners[-1].close)
        return listeners + (json_listener(self._redact, stack) if self._request.json else [])

    def _sleep(self, signals: Signals) -> None:
        """The shell has the terminal meanwhile."""
        self._shown.suspend()
        signals.sleep()
        self._shown.resume()

    def _started(self, plan: Plan, pool: Pool) -> events.RunStarted:
        return events.RunStarted(
            run=self._run_id,
            workflow=self._workflow.name,
            project=str(self._settings.project),
            items=plan.ids,
            workers=self._settings.parallel,
            keys=tuple(pool.keys.names()),
            command=self._request.command,
            project_path=_place(self._settings.project),
            titles=tuple(entry.item.title for entry in plan.entries),
            offline=self._request.offline,
            cwd=current_folder(),
            home=moved_home(self._settings.home),
        )


def _place(project: Path) -> str:
    """The way from here to the project, for what people may type next; empty when we are there."""
    way = os.path.relpath(project)
    return "" if way == "." else f"{way if not way.startswith('../..') else project}/"
