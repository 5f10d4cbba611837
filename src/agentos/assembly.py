"""Puts a run together and conducts it."""

import contextlib
import json
import os
import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from agentos.audience import control_of, open_screen, people_listen, programs_listen
from agentos.casting import cast_roles, check_prices, check_sdks
from agentos.coordinator import Clock, Coordinator, Outside
from agentos.core import events
from agentos.core.commands import StartWorker
from agentos.core.credentials import Credential
from agentos.core.errors import UsageError
from agentos.core.gates import GATES
from agentos.core.items import Item
from agentos.core.orders import Order, RoleModel
from agentos.core.plan import Plan, make_plan
from agentos.core.pool import Pool
from agentos.core.ports import Engine, Listener
from agentos.core.results import Outcome
from agentos.core.run import Run
from agentos.core.secrets import Redactor
from agentos.core.wire import pack
from agentos.engines.process import ProcessEngine
from agentos.engines.simulated import RefusingEngine
from agentos.models.prices import price_list
from agentos.outputs.unplanned import explain_left_out, explain_nothing
from agentos.request import Request
from agentos.settings import current_folder, moved_home, trace_nothing
from agentos.signals import Signals
from agentos.starting import Begun
from agentos.storage.alone import Alone
from agentos.storage.clock import host_clock
from agentos.storage.credential_watch import CredentialWatch
from agentos.storage.credentials import no_key
from agentos.storage.gates import read_parked
from agentos.storage.hostlog import HostLog
from agentos.storage.layout import Home
from agentos.storage.project import ProjectFolder
from agentos.storage.runs import Keep, RunFolder, new_run, prune, tidy
from agentos.survey import check_project, survey, sweep
from agentos.tracking import GitHubIssues, github_issues, refuse_offline
from agentos.workflows.registry import find_workflow


def planned(request: Request, say: Callable[[str], None]) -> Plan:
    """What would run; writes nothing. Says what it waits for."""
    workflow = find_workflow(request.workflow, request.settings.project)
    home = Home(request.settings.home)
    if request.offline:
        refuse_offline(request.settings)
    if tracked := github_issues(request.settings, lambda: False, say):
        workflow = tracked.workflow(workflow)
    return make_plan(survey(workflow, request.settings.project, home), request.selection)


class Assembly:
    """Builds the parts of one run, in the order in which they are needed."""

    def __init__(self, request: Request, begun: Begun, say: Callable[[str], None]) -> None:
        self._request = request
        self._begun = begun
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

    def conduct(self, signals: Signals) -> int:
        with contextlib.ExitStack() as stack:
            self._reach_github(signals)
            check_project(self._workflow, self._settings.project)
            self._home.open()
            source, server = self._begun.source, self._begun.server
            signals.check()
            log = None if server else self._host_log(stack)
            engine = self._engine(log, stack)
            plan = self._plan()
            signals.check()
            if not plan.entries:
                tidy(self._home.runs)
                return explain_nothing(plan, self._request.selection, self._say)
            explain_left_out(plan, self._say)
            brought = source.adjusted(server.credentials()) if server else self._begun.credentials
            pool = Pool(self._usable(brought))
            self._cast(pool)
            signals.check()
            listeners = self._listeners(self._folder(stack), stack)
            signals.wake = engine.wake
            run = Run(plan.ids, pool, self._settings.limits(self._prices), random.random, host_clock())
            clock = Clock(host_clock, time.time)
            watch = (lambda: None) if server else CredentialWatch(source, self._usable)
            outside = Outside(
                signals.arrived,
                watch,
                self._decisions,
                control_of(self._home.runs / self._run_id, engine, stack, self._say),
                lambda: self._sleep(signals),
            )
            return Coordinator(run, engine, listeners, clock, log or Alone()).conduct(
                self._started(plan, pool), outside
            )

    def _reach_github(self, signals: Signals) -> None:
        if self._request.offline:
            refuse_offline(self._settings)
        self._tracked = github_issues(
            self._settings, lambda: bool(signals.arrived), self._say, self._begun.token
        )
        if self._tracked:
            self._redact.learn([self._tracked.access.token])
            self._workflow = self._tracked.workflow(self._workflow)

    def _plan(self) -> Plan:
        settings = self._settings
        candidates = survey(self._workflow, settings.project, self._home)
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
        sweep(self._workflow, settings.project, self._home, candidates)
        prune(self._home.runs, Keep(runs=settings.keep_runs), time.time())
        return plan

    def _host_log(self, stack: contextlib.ExitStack) -> HostLog:
        name = f"{os.getpid()}-{time.time_ns()}"
        return stack.enter_context(contextlib.closing(HostLog(self._home.quota, name)))

    def _usable(self, credentials: list[Credential]) -> list[Credential]:
        self._redact.learn(credential.secret for credential in credentials)
        if not any(credential.enabled for credential in credentials):
            raise no_key("gemini", self._home.credentials)
        check_sdks(credentials)
        return credentials

    def _cast(self, pool: Pool) -> None:
        """Who plays which role; every role needs a key, and with a budget, a price."""
        have = tuple(dict.fromkeys(pool.keys.providers()))
        found = cast_roles(self._settings, have, offline=self._request.offline)
        if found.unplayed:
            raise no_key(found.unplayed.providers[0], self._home.credentials)
        self._roles = found.roles
        if not self._request.offline:
            check_prices(self._settings, self._roles, self._prices)

    def _engine(self, log: HostLog | None, stack: contextlib.ExitStack) -> Engine:
        after = self._settings.simulate_429
        engine = self._processes(log) if self._settings.engine == "process" else self._inline()
        stack.callback(engine.close)
        return engine if after is None else RefusingEngine(engine, after)

    def _inline(self) -> Engine:
        """In this process, where a debugger can follow; nothing is isolated."""
        trace_nothing()
        from agentos.carrying import carry
        from agentos.engines.inline import InlineChannel, InlineEngine, awaited

        async def work(command: StartWorker, channel: InlineChannel) -> Outcome:
            return await carry(self._order(command), channel, channel.say)

        return InlineEngine(awaited(work), self._redact)

    def _processes(self, log: HostLog | None) -> Engine:
        recipe = replace(self._begun.recipe, inherited=(log.life,) if log else ())
        return ProcessEngine(
            recipe,
            lambda command: json.dumps(pack(self._order(command))),
            self._redact,
            self._begun.template,
        )

    def _order(self, command: StartWorker) -> Order:
        item, settings, tracked = self._items[command.item], self._settings, self._tracked
        filed = tracked.of(item) if tracked else None
        return Order(
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
            events.ItemDecided(item, kept.decision.act.value)
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
        listeners = people_listen(folder.path, self._redact, people, stack)
        if self._settings.step_summary:
            from agentos.outputs.stepsummary import StepSummary

            listeners.append(StepSummary(folder.id, self._settings.step_summary, self._redact, people.write))
            stack.callback(listeners[-1].close)
        return listeners + (programs_listen(self._redact, stack) if self._request.json else [])

    def _sleep(self, signals: Signals) -> None:
        """The shell has the terminal meanwhile."""
        self._shown.rest()
        signals.sleep()
        self._shown.wake()

    def _started(self, plan: Plan, pool: Pool) -> events.RunStarted:
        return events.RunStarted(
            run=self._run_id,
            workflow=self._workflow.name,
            project=str(self._settings.project),
            items=plan.ids,
            workers=self._settings.parallel,
            keys=tuple(pool.keys.names()),
            command=self._request.command,
            place=_place(self._settings.project),
            titles=tuple(entry.item.title for entry in plan.entries),
            offline=self._request.offline,
            folder=current_folder(),
            home=moved_home(self._settings.home),
        )


def _place(project: Path) -> str:
    """The way from here to the project, for what people may type next; empty when we are there."""
    way = os.path.relpath(project)
    return "" if way == "." else f"{way if not way.startswith('../..') else project}/"
