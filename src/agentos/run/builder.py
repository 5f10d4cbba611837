"""Composition root of `agentos run`: plans the run, builds its parts and drives its event loop."""

import contextlib
import json
import os
import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from agentos.config.file import price_list
from agentos.config.project import project_prefix, repo_option
from agentos.config.settings import disable_tracing, environment, worker_environment
from agentos.core.errors import UsageError
from agentos.core.planning.gates import GATES
from agentos.core.planning.items import Item
from agentos.core.planning.plan import Plan, make_plan
from agentos.core.planning.worker_task import CallTimeout, RoleModel, WorkerTask
from agentos.core.protocol import events
from agentos.core.protocol.codec import pack
from agentos.core.protocol.commands import StartWorker
from agentos.core.protocol.ports import Engine
from agentos.core.protocol.results import Ending, Outcome, TakenItem
from agentos.core.quota.credentials import Credential
from agentos.core.quota.pool import Pool
from agentos.core.scheduling.scheduler import Scheduler
from agentos.core.text.secrets import Redactor, Secret
from agentos.engines.fault_injection import Inject429Engine
from agentos.engines.process import ProcessEngine
from agentos.outputs.format import seen_from
from agentos.outputs.plan_text import explain_empty_plan, explain_skipped
from agentos.platform_support import host_clock
from agentos.run.api import RunOrigin, RunRequest
from agentos.run.code_setup import CodeSetup, PreparedCode
from agentos.run.discovery import check_project, clean_finished, discover, gone_items, written_folders
from agentos.run.event_loop import EventLoop
from agentos.run.github_setup import GitHubIssues, connect_github, refuse_offline, refuse_untrusted
from agentos.run.model_selection import check_prices, select_models
from agentos.run.prestart import Prestarted
from agentos.run.session import HOST_CLOCK, RunSession
from agentos.run.signals import Signals
from agentos.run.worker_variables import WorkerVariables
from agentos.storage.credentials.reader import CredentialWatch, no_key
from agentos.storage.file_items import FileItems, FileItemStore, verdict_of
from agentos.storage.files import ProjectFolder
from agentos.storage.home import Home
from agentos.storage.locks import Holder, ItemLocks, finished_outside, held_outcome
from agentos.storage.other_runs import OtherRuns
from agentos.storage.peer_log import FilePeerLog, NoPeers
from agentos.storage.peer_log_views import other_version_warning
from agentos.storage.project_access import check_access
from agentos.storage.review_notes import DecisionWatch
from agentos.storage.runs import RetentionPolicy, finalize_killed_runs, prune
from agentos.workflows.plugin import Plugin
from agentos.workflows.registry import find_workflow


def plan_only(request: RunRequest, echo: Callable[[str], None]) -> Plan:
    """Plan the run without writing anything; `echo` reports slow reads."""
    workflow = _find_workflow(request)
    if request.offline:
        refuse_offline(request.settings)
    if github := connect_github(request.settings, lambda: False, echo):
        workflow = github.workflow(workflow)
    home, selection = Home(request.settings.home), request.selection
    items = FileItems(request.settings.project, home)
    project = request.settings.project
    candidates = discover(workflow, project, home, items, only_failed=selection.failed)
    if not github:
        candidates += gone_items(workflow, home, items, candidates, failed=selection.failed)
    return make_plan(candidates, selection, workflow.skipped(request.settings.project))


def _find_workflow(request: RunRequest) -> Plugin:
    workflow = find_workflow(request.workflow, request.settings.project)
    refuse_untrusted(request.settings, workflow)
    if request.asks_review and not workflow.gates:
        raise UsageError(
            f"the workflow {workflow.name!r} has no gates, so --review cannot park its items: drop --review; "
            "a graph's own interrupt() parks them without it"
        )
    return workflow


class RunBuilder:
    """Builds the parts of one run in the order in which they are needed, and runs it."""

    def __init__(self, request: RunRequest, prestarted: Prestarted, origin: RunOrigin) -> None:
        self._request = request
        self._prestarted = prestarted
        self._origin = origin
        self._settings = request.settings
        self._home = Home(self._settings.home)
        self._workflow = _find_workflow(request)
        self._redact = Redactor()
        self._variables = WorkerVariables(self._workflow, dict(request.variables), self._redact, self._say)
        self._pool_secrets: list[Secret] = []
        self._prices = price_list(self._settings.prices)
        self._github: GitHubIssues | None = None
        self._items: dict[str, Item] = {}
        self._redone: set[str] = set()
        self._roles: tuple[RoleModel, ...] = ()
        self._code: PreparedCode | None = None
        self._run_id = ""
        self._other_runs = OtherRuns(self._home.runs, began=time.time())

    def run(self, signals: Signals) -> int:
        """Run to the end and return the exit code; before the first worker starts, a signal ends it cleanly."""
        with contextlib.ExitStack() as stack:
            self._connect_github(signals)
            check_project(self._workflow, self._settings.project)
            check_access(self._settings.project, written_folders(self._workflow))
            self._home.open()
            signals.check()
            peers = None if self._prestarted.server else self._open_peer_log(stack)
            engine = self._build_engine(peers, stack)
            plan = self._plan()
            signals.check()
            repo = repo_option(self._settings.project, environment())
            if not plan.entries:
                finalize_killed_runs(self._home.runs)
                kept_as_files = "" if self._github else self._workflow.name
                return explain_empty_plan(
                    plan, self._request.selection, self._echo_from_here, repo, kept_as_files
                )
            explain_skipped(plan, self._echo_from_here, repo)
            pool = self._build_pool()
            self._select_models(pool)
            self._variables.check(self._pool_secrets)
            engine = self._variables.with_gateway(
                engine, self._settings, plan.ids, stack, offline=self._request.offline
            )
            signals.check()
            self._prepare_code(signals, stack)
            session = self._open_session(signals, stack)
            scheduler = Scheduler(
                plan.ids, pool, self._settings.limits(self._prices), random.random, host_clock()
            )
            scheduler.set_roles(self._roles)
            loop = EventLoop(scheduler, engine, session.listeners, HOST_CLOCK, peers or NoPeers())
            inputs = session.external_inputs(
                engine,
                (lambda: None)
                if self._prestarted.server
                else CredentialWatch(self._prestarted.source, self._check_credentials),
                DecisionWatch(lambda item: self._database(self._items[item]), time.time),
                self._taken_items,
                self._code.look_after if self._code else lambda: None,
            )
            inputs = replace(inputs, ended_elsewhere=self._ended_elsewhere)
            return loop.run(self._run_started(session, plan, pool), inputs)

    def _connect_github(self, signals: Signals) -> None:
        if self._request.offline:
            refuse_offline(self._settings)
        self._github = connect_github(
            self._settings, lambda: bool(signals.arrived), self._origin.echo, self._prestarted.token
        )
        if self._github:
            self._redact.add([self._github.access.token])
            self._workflow = self._github.workflow(self._workflow)

    def _prepare_code(self, signals: Signals, stack: contextlib.ExitStack) -> None:
        if self._workflow.uses_code:
            is_quiet = self._settings.display == "none"
            echo = (lambda text: None) if is_quiet else self._origin.echo
            setup = CodeSetup(self._settings, worker_environment(), echo)
            self._code = setup.prepare(stack, signals.check)

    def _open_peer_log(self, stack: contextlib.ExitStack) -> FilePeerLog:
        name = f"{os.getpid()}-{time.time_ns()}"
        if warning := other_version_warning(self._home.quota):
            self._origin.echo(f"[COORDINATOR] {warning}")
        return stack.enter_context(contextlib.closing(FilePeerLog(self._home.quota, name)))

    def _plan(self) -> Plan:
        settings = self._settings
        selection = self._request.selection
        items = FileItems(settings.project, self._home)
        candidates = discover(
            self._workflow, settings.project, self._home, items, only_failed=selection.failed
        )
        if not self._github:
            candidates += gone_items(self._workflow, self._home, items, candidates, failed=selection.failed)
        plan = make_plan(candidates, selection, self._workflow.skipped(settings.project))
        if settings.database and len(plan.entries) > 1:
            raise UsageError(
                f"AGENTOS_WORKFLOW_DB names one database, but {len(plan.entries)} items are selected; "
                "unset it, or name one item"
            )
        self._items = {entry.item.id: entry.item for entry in plan.entries}
        self._redone = {entry.item.id for entry in plan.entries if entry.redo}
        if self._github and plan.entries:
            self._github.read_issues(self._workflow, self._home.issue_index(settings.project))
        self._workflow.prepare(ProjectFolder(settings.project, self._say))
        clean_finished(self._workflow, items, candidates)
        prune(self._home.runs, RetentionPolicy(runs=settings.keep_runs), time.time())
        return plan

    def _say(self, text: str) -> None:
        self._origin.echo(f"[COORDINATOR] {text}")

    def _echo_from_here(self, text: str) -> None:
        """Paths in a plan are relative to the project."""
        self._origin.echo(seen_from(project_prefix(self._settings.project), text))

    def _taken_items(self, items: list[str]) -> list[TakenItem]:
        """Those of these items that another run holds or has ended, according to locks, journals and documents."""
        project = self._settings.project
        locks = [ItemLocks(project), ItemLocks.inside(self._home.locks(project))]
        found = ((item, self._outcome_of_other_run(self._items[item], locks)) for item in items)
        return [TakenItem(item, outcome) for item, outcome in found if outcome]

    def _ended_elsewhere(self, queued: list[str]) -> list[TakenItem]:
        ended = self._other_runs.ended_items()
        taken = self._taken_items([item for item in queued if item in ended])
        return [found for found in taken if found.outcome.ending is not Ending.HELD_BY_OTHER_RUN]

    def _outcome_of_other_run(self, item: Item, locks: list[ItemLocks]) -> Outcome | None:
        for folder in locks:
            if folder.is_held(item.id):
                return held_outcome(folder.holder(item.id))
        holder, database = locks[0].holder(item.id), self._database(item)
        # An item that only this run has touched is free. One with a checkpoint is left to its worker to resume or delete.
        if holder is None or holder.run == self._run_id:
            return None
        if outcome := self._other_runs.outcome(item.id, holder):
            return outcome
        if self._is_redone(item, holder) or database.exists():
            return None
        try:
            if item.problems:
                return None
            verdict = verdict_of(self._workflow.status(self._settings.project, item), database)
        except Exception:  # from the user's own workflow; the item's worker reports it
            return None
        if verdict is None:
            return None
        return finished_outside(verdict)

    def _is_redone(self, item: Item, holder: Holder | None) -> bool:
        """Whether to run the item again although it has a verdict; False once another run has redone it."""
        return item.id in self._redone and not self._other_runs.have_worked_on(item.id, holder)

    def _build_pool(self) -> Pool:
        source, server = self._prestarted.source, self._prestarted.server
        credentials = source.adjusted(server.credentials()) if server else self._prestarted.credentials
        return Pool(self._check_credentials(credentials))

    def _check_credentials(self, credentials: list[Credential]) -> list[Credential]:
        """Return the credentials if a run can use them, and redact their secrets from now on."""
        self._pool_secrets = [credential.secret for credential in credentials]
        self._redact.add(self._pool_secrets)
        if not any(credential.enabled for credential in credentials):
            raise no_key("gemini", self._home.credentials)
        return credentials

    def _select_models(self, pool: Pool) -> None:
        """Select the models. Every role needs a key and, with a budget, a price."""
        providers = tuple(dict.fromkeys(pool.keys.providers()))
        selection = select_models(self._settings, providers, offline=self._request.offline)
        if selection.unserved_role:
            raise no_key(selection.unserved_role.providers[0], self._home.credentials)
        self._roles = selection.roles
        for warning in selection.warnings:
            self._say(warning)
        if not self._request.offline:
            check_prices(self._settings, self._roles, self._prices)

    def _build_engine(self, peers: FilePeerLog | None, stack: contextlib.ExitStack) -> Engine:
        engine = self._process_engine(peers) if self._settings.engine == "process" else self._inline_engine()
        stack.callback(engine.close)
        calls_before_429 = self._settings.simulate_429
        return engine if calls_before_429 is None else Inject429Engine(engine, calls_before_429)

    def _process_engine(self, peers: FilePeerLog | None) -> Engine:
        return ProcessEngine(
            replace(self._prestarted.spec, inherited=(peers.liveness_fd,) if peers else ()),
            lambda command: json.dumps(pack(self._worker_task(command))),
            self._redact,
            self._prestarted.fork_server,
        )

    def _inline_engine(self) -> Engine:
        """Workers as threads of this process, for debuggers; nothing is isolated."""
        disable_tracing()
        from agentos.engines.inline import InlineChannel, InlineEngine, run_async
        from agentos.worker.item_runner import run_item

        async def work(command: StartWorker, channel: InlineChannel) -> Outcome:
            task, echo = self._worker_task(command), channel.write_output
            return await run_item(task, FileItemStore(task, echo), channel, echo)

        return InlineEngine(run_async(work), self._redact)

    def _worker_task(self, command: StartWorker) -> WorkerTask:
        item, settings, github = self._items[command.item], self._settings, self._github
        filed = github.filed_issue(item) if github else None
        holder = ItemLocks(settings.project).holder(item.id)
        is_fresh = self._request.selection.fresh and command.attempt == 1
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
            call_timeouts=tuple(CallTimeout(*entry) for entry in settings.call_timeouts().items()),
            fresh=is_fresh and not self._other_runs.have_worked_on(item.id, holder),
            redo=self._is_redone(item, holder),
            gates=GATES[settings.review],
            text=github.texts.get(item.source) if github else None,
            github=github.access if github and filed else None,
            filed=filed,
            locks=str(self._home.locks(settings.project)),
            code=self._code.access if self._code else None,
            store=str(self._home.graph_store(settings.project, self._workflow.name)),
            runs=str(self._home.runs),
            variables=self._variables.of(item.id),
            gateway=self._variables.gateway_url,
        )

    def _database(self, item: Item) -> Path:
        settings = self._settings
        return settings.database or self._home.checkpoint(settings.project, self._workflow.name, item.number)

    def _open_session(self, signals: Signals, stack: contextlib.ExitStack) -> RunSession:
        session = RunSession(self._home, self._origin, self._redact, signals, stack)
        self._run_id = session.run_id
        self._other_runs.own_run = self._run_id
        if path := self._settings.step_summary:
            from agentos.outputs.report.markdown import StepSummary

            session.add_listener(StepSummary(session.run_id, path, self._redact, session.display.write))
        return session

    def _run_started(self, session: RunSession, plan: Plan, pool: Pool) -> events.RunStarted:
        is_fresh = self._request.selection.fresh
        return replace(
            session.run_started(self._workflow.name, self._settings, plan),
            keys=tuple(pool.keys.names()),
            project_path=project_prefix(self._settings.project),
            titles=tuple(entry.item.title for entry in plan.entries),
            skipped=tuple(file.source for file in plan.skipped),
            offline=self._request.offline,
            has_review=bool(self._workflow.gates),
            code_tokens=self._code.access.tokens if self._code else 0,
            redone=tuple(entry.item.id for entry in plan.entries if entry.redo) if is_fresh else (),
            selecting_words=self._request.selecting_words if is_fresh else (),
            source_tokens=tuple(entry.item.source_tokens for entry in plan.entries),
        )
