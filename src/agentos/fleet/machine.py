"""`agentos worker`: composition root of one machine of a fleet. Temporal assigns items; the coordinator runs them."""

import contextlib
import json
import os
import random
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agentos.config.file import price_list
from agentos.config.settings import Settings, environment
from agentos.core.errors import PreflightError
from agentos.core.planning.submission import SharedTask
from agentos.core.planning.worker_task import FleetTask, GitHubAccess, RoleModel, WorkerTask
from agentos.core.protocol import events
from agentos.core.protocol.codec import WIRE_NAMES, pack
from agentos.core.protocol.commands import StartWorker
from agentos.core.protocol.trace_context import item_trace
from agentos.core.quota.pool import Pool
from agentos.core.scheduling.scheduler import Scheduler
from agentos.core.text.line_assembler import one_line
from agentos.core.text.secrets import Redactor, Secret
from agentos.engines.process import ProcessEngine
from agentos.fleet.active_items import ActiveItems, PreparedItem, forward_event
from agentos.fleet.code_cache import CodeCache
from agentos.fleet.gateway_access import PreparedWorker
from agentos.fleet.poller import TemporalPoller
from agentos.fleet.worker_metrics import WorkerMetrics
from agentos.http.metrics import serving_metrics
from agentos.outputs.format import prefixed
from agentos.outputs.run_log import LogLevel, LogLine, json_log_line, log_line
from agentos.platform_support import host_clock
from agentos.run.event_loop import EventLoop, ExternalInputs
from agentos.run.model_selection import resolve_role
from agentos.run.prestart import github_token
from agentos.run.session import HOST_CLOCK
from agentos.run.signals import Signals
from agentos.storage.files import scratch_folder
from agentos.storage.home import Home
from agentos.storage.peer_log import NoPeers
from agentos.storage.postgres.connecting import is_away, outages_reported
from agentos.storage.postgres.connection_limits import worker_name
from agentos.storage.postgres.event_writer import EventWriter
from agentos.storage.postgres.fleet_items import FleetDatabase, LoadedTask
from agentos.storage.postgres.schema import check_tables
from agentos.workflows.registry import find_workflow, workflow_names

if TYPE_CHECKING:
    from agentos.fleet.item_spans import ItemSpans

NEVER = 1e9  # seconds; a worker waits for keys indefinitely
WRITER_TIMEOUT = 2.0  # seconds to write the last events when a worker ends


@dataclass(frozen=True, slots=True)
class WorkerParts:
    """What the command line has prepared. `echo` prints one line; `metrics` is the address that serves metrics."""

    settings: Settings
    prepared: PreparedWorker
    conninfo: Secret
    echo: Callable[[str], None]
    metrics: tuple[str, int] | None = None
    log_json: bool = False
    traces: bool = False


class FleetWorker:
    """Runs the items that Temporal assigns to this machine, until a signal stops it.

    The main thread runs the scheduler and the processes, as in every run; `TemporalPoller` has its own thread.
    """

    def __init__(self, parts: WorkerParts) -> None:
        self._settings = parts.settings
        self._prepared = parts.prepared
        self._credentials = parts.prepared.credentials
        self._conninfo = parts.conninfo
        self._echo = parts.echo
        self._metrics_address = parts.metrics
        self._log_json = parts.log_json
        self._has_traces = parts.traces
        self._redact = Redactor(credential.secret for credential in self._credentials)
        self._redact.add([parts.conninfo] if parts.conninfo.reveal() else [])
        self._active_items = ActiveItems()
        self._is_stopping = False
        self._machine = f"{socket.gethostname()}:{os.getpid()}"
        self._workflows = workflow_names()
        self._database = FleetDatabase(
            parts.conninfo, name=worker_name(parts.settings.parallel), say=self._warn
        )

    def run(self, signals: Signals) -> int:
        settings = self._settings
        with contextlib.ExitStack() as stack:
            stack.callback(self._database.close)
            self._database.wait_for_connection(signals.check, time.sleep)
            with outages_reported():
                check_tables(self._database.connection)
            scratch = stack.enter_context(scratch_folder(Home(settings.home).path / "fleet", "worker-"))
            self._code = CodeCache(scratch / "code", self._database)
            self._writer = EventWriter(self._conninfo, self._redact)
            stack.callback(self._writer.close, WRITER_TIMEOUT)
            engine = ProcessEngine(
                self._prepared.spec,
                lambda command: json.dumps(pack(self._worker_task(command))),
                self._redact,
                self._prepared.fork_server,
            )
            stack.callback(engine.close)
            self._active_items.wake = engine.wake
            metrics = WorkerMetrics(self._active_items)
            self._traces = self._open_traces(stack)
            self._poller = TemporalPoller(
                *(self._active_items, self._writer, self._database, self._prepare, scratch, self._machine),
                *(self._workflows, settings.parallel),
                partial(serving_metrics, metrics.numbers, *self._metrics_address)
                if self._metrics_address
                else None,
                on_turn_end=self._traces.on_turn_end if self._traces else lambda *_: None,
            )
            self._poller.start()
            stack.callback(self._poller.join)
            stack.callback(self._poller.drain)
            limits = replace(settings.limits(price_list()), retries=0, max_wait=NEVER, budget=None)
            scheduler = Scheduler((), Pool(self._credentials), limits, random.random, host_clock())
            scheduler.keep_open()
            signals.check()
            signals.wake = engine.wake
            loop = EventLoop(scheduler, engine, [self, metrics], HOST_CLOCK, NoPeers())
            greeting = (
                f"{self._machine} runs {settings.parallel} items at a time; workflows: "
                f"{', '.join(self._workflows)}. Ctrl-C hands its items to the other workers and ends it."
            )
            self._log(LogLine(HOST_CLOCK.wall(), "", LogLevel.INFO, greeting), "worker_started")
            started = events.RunStarted("", "", "", (), settings.parallel, ())
            inputs = ExternalInputs(
                signals.arrived, membership=lambda: self._take_membership_changes(signals)
            )
            code = loop.run(started, inputs)
        if self._poller.failure:
            raise PreflightError(
                f"Temporal gives this worker no items ({one_line(str(self._poller.failure))[:200]}): check TEMPORAL_NAMESPACE "
                "and the permissions of this worker, then start it again"
            ) from self._poller.failure
        return code

    def _open_traces(self, stack: contextlib.ExitStack) -> "ItemSpans | None":
        """Load OpenTelemetry only if traces were requested."""
        if not self._has_traces:
            return None
        from agentos.fleet.item_spans import ItemSpans
        from agentos.outputs.span_export import SpanWriter

        spans = stack.enter_context(
            contextlib.closing(SpanWriter("agentos-worker", self._machine, self._warn))
        )
        return ItemSpans(spans.write, self._machine)

    def _take_membership_changes(self, signals: Signals) -> list[events.ItemJoined | events.ItemWithdrawn]:
        """If polling has failed for good, hand over the items in progress, as after SIGTERM."""
        if self._poller.failure and not self._is_stopping:
            self._is_stopping = True
            signals.arrived.append("SIGTERM")
        return self._active_items.take_membership_changes()

    # Listener of the run.

    def on_event(self, event: events.Event, at: float) -> None:
        if isinstance(event, events.ShutdownStarted):
            self._is_stopping = True
            self._poller.drain()
        # A worker's run starts without items, so its start is not worth a line.
        if not isinstance(event, events.RunStarted) and (line := log_line(event, at)):
            self._log(line, WIRE_NAMES[type(event)])
        if self._traces and (active_item := self._active_items.get(getattr(event, "item", ""))):
            self._traces.on_event(active_item, event, at)
        forward_event(event, at, self._active_items, self._writer)

    def close(self) -> None:
        pass

    def _warn(self, text: str) -> None:
        line = LogLine(HOST_CLOCK.wall(), "", LogLevel.WARNING, text)
        self._log(line, WIRE_NAMES[events.DiskWaitStarted])

    def _log(self, line: LogLine, event: str) -> None:
        if self._log_json:
            self._echo(json_log_line(replace(line, text=self._redact(line.text)), event))
        else:
            self._echo(self._redact(prefixed(f"[{line.item or 'WORKER'}]", line.text)))

    # The task of an item's process.

    def _worker_task(self, command: StartWorker) -> WorkerTask:
        active_item = self._active_items.get(command.item)
        assert active_item is not None
        shared, task = active_item.loaded.shared, active_item.loaded.task
        return WorkerTask(
            run=f"S{active_item.turn.submission}",
            coordinator=os.getpid(),
            project=str(active_item.scratch / "project"),
            workflow=shared.workflow,
            origin=active_item.prepared.origin,
            item=task.item,
            database="",
            max_iterations=shared.max_iterations,
            models=active_item.prepared.models,
            call_timeouts=shared.call_timeouts,
            fresh=task.fresh,
            redo=task.redo,
            gates=shared.gates,
            text=task.text,
            github=active_item.prepared.github,
            filed=task.filed,
            code=active_item.prepared.code,
            store=str(active_item.scratch / "store.db"),
            fleet=FleetTask(
                self._conninfo,
                active_item.claim.thread_id,
                active_item.claim.claim,
                self._machine,
                active_item.key,
                (*shared.prompts, *task.inputs),
                shared.account,
                shared.budget,
                item_trace(shared.account, active_item.claim.claim[0], active_item.claim.thread_id).trace
                if self._has_traces
                else "",
                task.replaces,
            ),
        )

    def _prepare(self, loaded: LoadedTask) -> PreparedItem:
        """Do everything that may fail for an item before its process starts. Called in the poller's thread, where an
        error ends only this item."""
        shared, task = loaded.shared, loaded.task
        try:
            return PreparedItem(
                find_workflow(shared.workflow, Path("/")).origin,
                self._roles(shared),
                self._github(shared) if task.filed else None,
                self._code.access(shared),
            )
        except Exception as error:
            if not is_away(error):
                key, text = f"{shared.project}.{task.item.id}", f"Cannot start here: {one_line(str(error))}"
                line = LogLine(HOST_CLOCK.wall(), key, LogLevel.ERROR, text)
                self._log(line, WIRE_NAMES[events.WorkerStartFailed])
            raise

    def _roles(self, shared: SharedTask) -> tuple[RoleModel, ...]:
        providers = [credential.provider for credential in self._credentials]
        return tuple(
            replace(
                resolve_role(role.role, role.models, providers),
                max_output_tokens=role.max_output_tokens,
                effort=role.effort,
            )
            for role in shared.roles
        )

    def _github(self, shared: SharedTask) -> GitHubAccess:
        own = self._settings.github_url
        if shared.github_url != own:
            # A submission must not choose where this machine's token is sent.
            raise PreflightError(
                f"its issues are at {shared.github_url}, but this worker's token is for {own}: set GITHUB_API_URL on the worker"
            )
        token = github_token(shared.github, shared.github_url, environment())
        self._redact.add([token])
        return GitHubAccess(shared.github, shared.github_url, token)
