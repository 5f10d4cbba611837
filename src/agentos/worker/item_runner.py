"""Runs one item from its checkpoint to its outcome."""

import asyncio
import errno
import functools
import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agentos.config.settings import wants_traceback
from agentos.core.errors import (
    BadRequest,
    BrokenWorkflow,
    InvalidSpec,
    ItemError,
    LimitReached,
    PreflightError,
    TrackerError,
)
from agentos.core.planning.items import ItemStatus
from agentos.core.planning.worker_task import WorkerTask
from agentos.core.protocol.events import DiskFreed, DiskFull
from agentos.core.protocol.ports import Channel, Documents
from agentos.core.protocol.results import Ending, Outcome, Verdict, failed, failed_transient
from agentos.core.text.values import calling_line, error_details, error_location, too_many_processes
from agentos.models.registry import PROVIDERS, Providers
from agentos.storage.item_store import Checkpoint, Claim, ItemStore
from agentos.storage.locks import LockTimeout, finished_outside
from agentos.worker.graph_runner import GraphRunner
from agentos.worker.model_session import STORE_POLL_INTERVAL, ModelSession
from agentos.worker.retried_errors import deciding_error, is_tried_again
from agentos.workflows.base import RetryOn
from agentos.workflows.current_item import CurrentItem, entered
from agentos.workflows.node_context import Say
from agentos.workflows.plugin import Plugin
from agentos.workflows.redo import REPLACES, fingerprint, is_redo
from agentos.workflows.registry import load_workflow

# A path is of the wrong type or not accessible: another attempt would find the same.
PERMANENT_ERRORS = (errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.EROFS)

TAKEN_OVER = Outcome(Ending.HELD_BY_OTHER_RUN, error="another worker of the fleet has taken it over")


async def run_item(
    task: WorkerTask, store: ItemStore, channel: Channel, echo: Say, load: "LoadParts | None" = None
) -> Outcome:
    """Claim the item and run it as far as it goes. Every failure becomes an outcome."""
    try:
        claim = await _claim(task, store, channel)
    except OSError as error:
        reason = f"cannot acquire the lock file {error.filename}: {error.strerror}"
        return failed(reason) if error.errno in PERMANENT_ERRORS else failed_transient(reason)
    except PreflightError as error:  # such as a symbolic link in the lock's place
        return failed(f"cannot acquire its lock: {error}")
    if isinstance(claim, Outcome):
        return claim
    retry_on: RetryOn | None = None
    try:
        runner = ItemRunner(task, store, claim, (load or load_parts)(task, store, channel, echo), echo)
        retry_on = runner.retry_on
        return await runner.run()
    except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        if store.is_lost(error):
            return TAKEN_OVER
        try:
            return _failure(error, echo, retry_on)
        except BrokenWorkflow as broken:
            return failed(str(broken), (f"asked about {error_location(error)}", *error_details(error)))
    finally:
        await store.release()


def _failure(error: BaseException, echo: Say, retry_on: RetryOn | None) -> Outcome:
    """What an error means for its item; transient if another attempt may help."""
    group, error = error, deciding_error(error, retry_on)
    match error:
        case InvalidSpec() | ItemError():
            return failed(str(error), (*error.details, *calling_line(error)))
        case LimitReached():
            return Outcome(Ending.INTERRUPTED, error=str(error))
        case TrackerError():
            return failed_transient(str(error)) if error.retryable else failed(str(error))
        case LockTimeout() | BrokenWorkflow(__cause__=OSError()):
            return failed_transient(str(error))
        case BrokenWorkflow(__cause__=BaseException() as cause):
            return failed(str(error), error_details(cause))
        case BadRequest() | PreflightError():
            return failed(str(error))
        case OSError() if error.strerror and retry_on is None:
            where = f": {error.filename}" if error.filename else ""
            is_permanent = error.errno in PERMANENT_ERRORS
            return (failed if is_permanent else failed_transient)(f"{error.strerror}{where}")
        case RuntimeError() if "start new thread" in str(error):
            return failed_transient(too_many_processes(error))
    if wants_traceback():
        echo("".join(traceback.format_exception(group)))
    is_transient = is_tried_again(error, retry_on)
    return (failed_transient if is_transient else failed)(error_location(error), error_details(error))


def exit_failure(error: SystemExit) -> Outcome:
    """The failure of a node that called `sys.exit`; its text is the reason."""
    status = "" if error.code is None else error.code
    said = status if isinstance(status, str) and status else f"its code called sys.exit({status})"
    return failed(said, error_details(SystemExit().with_traceback(error.__traceback__)))


async def _claim(task: WorkerTask, store: ItemStore, channel: Channel) -> Claim | Outcome:
    """Claim the item. Waits while the store takes no writes, for example because the disk is too full for a lock file."""
    is_waiting = False
    while True:
        try:
            claim = await store.claim()
        except Exception as error:
            if not store.is_unavailable(error):
                raise
        else:
            if is_waiting:
                channel.send(DiskFreed(task.item.id))
            return claim
        await store.release()
        if not is_waiting:
            is_waiting = True
            channel.send(DiskFull(task.item.id, store.place))
        await asyncio.sleep(STORE_POLL_INTERVAL)


class RunsGraph(Protocol):
    """Runs an item's graph as far as it goes."""

    async def run(self, checkpoint: Checkpoint) -> Outcome: ...


@dataclass(frozen=True, slots=True)
class RunnerParts:
    """What an item runner needs: the item's workflow, models and graph."""

    workflow: Plugin
    session: ModelSession
    graph: RunsGraph


LoadParts = Callable[[WorkerTask, ItemStore, Channel, Say], RunnerParts]


def load_parts(
    task: WorkerTask, store: ItemStore, channel: Channel, echo: Say, providers: Providers = PROVIDERS
) -> RunnerParts:
    workflow = load_workflow(task.origin, task.project if ":" in task.workflow else "")
    session = ModelSession(task, channel, store, providers)
    return RunnerParts(workflow, session, GraphRunner(task, workflow, store, session, echo))


class ItemRunner:
    """Runs the graph of one claimed item, and resumes it from its checkpoint once the store takes writes again."""

    def __init__(
        self, task: WorkerTask, store: ItemStore, claim: Claim, parts: "RunnerParts", echo: Say
    ) -> None:
        self._task = task
        self._store = store
        self._claim = claim
        self._item = task.item
        self._echo = echo
        self._start_fresh = task.fresh and claim.is_first
        self._workflow = parts.workflow
        self._session = parts.session
        self._graph_runner = parts.graph
        self._outcome: Outcome | None = None

    @property
    def retry_on(self) -> RetryOn | None:
        return self._workflow.options.retry_on

    async def run(self) -> Outcome:
        listener = asyncio.create_task(self._session.listen())
        listener.add_done_callback(_exit_if_channel_lost)
        self._count_recovered_answers()
        try:
            while True:
                try:
                    return await self._run_from_checkpoint()
                except Exception as error:
                    if not self._store.is_unavailable(error):
                        raise
                if not await self._session.wait_for_store():
                    return Outcome(Ending.INTERRUPTED)
        finally:
            listener.cancel()

    def _count_recovered_answers(self) -> None:
        """Called before anything else: an item that starts over loses its answers, but what they cost stays spent."""
        task = self._task
        if task.runs and (answers := self._store.kept_answers()):
            from agentos.worker.uncounted_calls import uncounted_calls

            for call in uncounted_calls(task.item.id, answers, Path(task.runs), task.run):
                self._session.send(call)

    async def _run_from_checkpoint(self) -> Outcome:
        # It may have been finished between the plan and our claim.
        verdict = await self._earlier_verdict()
        if verdict and not (self._task.redo and self._claim.is_first):
            await self._store.clean_up(self._tidy)
            if self._outcome:  # it was recorded, although the store could not confirm that
                return self._outcome
            if self._claim.is_retry:
                return Outcome(Ending.FINISHED, verdict, earlier_attempt=True)
            return finished_outside(verdict)
        if self._start_fresh:
            await self._store.clean_up(self._tidy)
            self._start_fresh = False
        if moved := await self._store.check():
            self._echo(f"Its checkpoint was damaged: kept as {moved}, starting over")
        outcome = await self._run_graph()
        if outcome.ending is Ending.FINISHED:
            self._outcome = outcome
            await self._store.finish(self._tidy, outcome)
        return outcome

    async def _earlier_verdict(self) -> Verdict | None:
        """None for an item with problems, which fails with these problems instead."""
        if self._item.problems:
            return None
        project = self._store.documents.root
        return await self._store.earlier_verdict(
            lambda: self._workflow.status(project, self._item),
            lambda notes: is_redo(notes, self._workflow, project, self._item),
        )

    async def _run_graph(self) -> Outcome:
        """Run from the checkpoint, or from the start if the item's text has changed since then."""
        while True:
            self._session.restart_graph()
            async with self._store.open() as checkpoint:
                if await self._is_current(checkpoint):
                    complete = functools.partial(self._session.complete, checkpoint)
                    with entered(CurrentItem(self._item.id, asyncio.get_running_loop(), complete)):
                        return await self._graph_runner.run(checkpoint)
            self._echo("Its text has changed since its checkpoint: starting over")
            await self._store.clean_up(self._tidy)

    async def _is_current(self, checkpoint: Checkpoint) -> bool:
        digest = await checkpoint.noted("digest")
        if digest is None:
            if replaced := self._replaced():
                await checkpoint.note(REPLACES, replaced)
            await checkpoint.note("digest", self._item.digest)
        return digest in (None, self._item.digest)

    def _replaced(self) -> str:
        """The fingerprint of the approved documents that this item replaces."""
        if self._task.fleet:
            return self._task.fleet.replaces
        project = self._store.documents.root
        if self._item.problems:
            return ""
        is_approved = self._workflow.status(project, self._item) is ItemStatus.APPROVED
        return fingerprint(self._workflow, project, self._item) if is_approved else ""

    def _tidy(self, documents: Documents) -> None:
        self._workflow.tidy(documents, self._item.number)


def _exit_if_channel_lost(listener: "asyncio.Task[None]") -> None:
    """A worker whose channel is lost (out of memory, or a bug) would wait forever."""
    if not listener.cancelled() and listener.exception():
        os._exit(1)
