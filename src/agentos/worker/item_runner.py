"""Runs one item from its checkpoint to its outcome."""

import asyncio
import errno
import os
import sqlite3
import traceback
from pathlib import Path

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
from agentos.core.planning.worker_task import WorkerTask
from agentos.core.protocol.events import DiskFreed, DiskFull
from agentos.core.protocol.ports import Channel
from agentos.core.protocol.results import Ending, Outcome, failed, failed_transient
from agentos.core.text.values import error_location, too_many_processes
from agentos.storage.checkpoints import Checkpoint, check_checkpoint, delete_checkpoint, open_checkpoint
from agentos.storage.files import ProjectFolder, is_full, private_folder
from agentos.storage.locks import Holder, ItemLocks, LockFile, LockTimeout, held_outcome
from agentos.worker.graph_runner import GraphRunner
from agentos.worker.model_session import DISK_POLL_INTERVAL, ModelSession
from agentos.workflows.base import finished_verdict
from agentos.workflows.node_context import Say
from agentos.workflows.registry import load_workflow

# Something else lies in the place of a file or folder, or it may not be used: another attempt finds the same.
PERMANENT_ERRORS = (errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.EROFS)


async def run_item(task: WorkerTask, channel: Channel, echo: Say) -> Outcome:
    """Lock the item and run it as far as it goes. Every failure becomes an outcome."""
    locks = [ItemLocks(Path(task.project))]
    previous = locks[0].holder(task.item.id)
    try:
        if task.locks:
            locks.append(ItemLocks.inside(private_folder(Path(task.locks))))
        lock = await _acquire_lock(task, channel, locks)
    except OSError as error:
        reason = f"cannot acquire the lock file {error.filename}: {error.strerror}"
        return failed(reason) if error.errno in PERMANENT_ERRORS else failed_transient(reason)
    except PreflightError as error:  # such as a symbolic link in the lock's place
        return failed(f"cannot acquire its lock: {error}")
    if lock is None:
        holders = (folder.holder(task.item.id) for folder in reversed(locks))
        return held_outcome(next(filter(None, holders), None))
    try:
        # If the same run had the lock before, that worker of ours may have died right after finishing the item.
        is_retry = previous is not None and previous.run == task.run
        return await ItemRunner(task, channel, echo, is_retry).run()
    except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        return _failure(error, echo)
    finally:
        _release_all(lock)


def _failure(error: BaseException, echo: Say) -> Outcome:
    """What an error means for its item. Transient if trying again may help."""
    match error:
        case InvalidSpec() | ItemError():
            return failed(str(error), error.details)
        case LimitReached():
            return Outcome(Ending.INTERRUPTED, error=str(error))
        case TrackerError():
            return failed_transient(str(error)) if error.retryable else failed(str(error))
        case BrokenWorkflow() if isinstance(error.__cause__, OSError):
            return failed_transient(str(error))
        case LockTimeout():
            return failed_transient(str(error))
        case BadRequest() | PreflightError():
            return failed(str(error))
        case OSError() if error.strerror:
            where = f": {error.filename}" if error.filename else ""
            is_permanent = error.errno in PERMANENT_ERRORS
            return (failed if is_permanent else failed_transient)(f"{error.strerror}{where}")
        case RuntimeError() if "start new thread" in str(error):
            return failed_transient(too_many_processes(error))
    if wants_traceback():
        echo("".join(traceback.format_exception(error)))
    return failed_transient(error_location(error))


async def _acquire_lock(task: WorkerTask, channel: Channel, locks: list[ItemLocks]) -> list[LockFile] | None:
    """The item's locks, or None if another run holds one. Waits while the disk is too full to create their files."""
    is_waiting = False
    while True:
        try:
            lock = _acquire_all(task, locks)
        except OSError as error:
            if not is_full(error):
                raise
        else:
            if is_waiting:
                channel.send(DiskFreed(task.item.id))
            return lock
        if not is_waiting:
            is_waiting = True
            channel.send(DiskFull(task.item.id, task.project))
        await asyncio.sleep(DISK_POLL_INTERVAL)


def _acquire_all(task: WorkerTask, locks: list[ItemLocks]) -> list[LockFile] | None:
    acquired: list[LockFile] = []
    for folder in locks:
        folder.prepare()
        lock = folder.acquire(task.item.id, Holder(task.coordinator, task.run))
        if lock is None:
            _release_all(acquired)
            return None
        acquired.append(lock)
    return acquired


def _release_all(locks: list[LockFile]) -> None:
    for lock in locks:
        lock.release()


class ItemRunner:
    """Runs the graph of one locked item, and repeats it from its checkpoint after the disk was full."""

    def __init__(self, task: WorkerTask, channel: Channel, echo: Say, is_retry: bool) -> None:
        self._task = task
        self._is_retry = is_retry
        self._item = task.item
        self._echo = echo
        self._start_fresh = task.fresh
        self._database = Path(task.database)
        self._workflow = load_workflow(task.origin, task.project if ":" in task.workflow else "")
        self._documents = ProjectFolder(Path(task.project), echo)
        self._session = ModelSession(task, channel)
        self._graph_runner = GraphRunner(task, self._workflow, self._documents, self._session, echo)

    async def run(self) -> Outcome:
        listener = asyncio.create_task(self._session.listen())
        listener.add_done_callback(_exit_if_channel_lost)
        try:
            while True:
                try:
                    return await self._run_from_checkpoint()
                except (OSError, sqlite3.Error) as error:
                    if not self._session.is_disk_full(error):
                        raise
                if not await self._session.wait_for_disk():
                    return Outcome(Ending.INTERRUPTED)
        finally:
            listener.cancel()

    async def _run_from_checkpoint(self) -> Outcome:
        # It may have been finished between the plan and our lock.
        verdict = finished_verdict(self._workflow, Path(self._task.project), self._item, self._database)
        if verdict and not self._task.redo:
            self._clean_up()
            if self._is_retry:
                return Outcome(Ending.FINISHED, verdict, earlier_attempt=True)
            return Outcome(Ending.FINISHED_BY_OTHER_RUN, verdict, error="another run finished it")
        if self._start_fresh:
            self._clean_up()
            self._start_fresh = False
        if moved := check_checkpoint(self._database):
            self._echo(f"Its checkpoint was damaged: kept as {moved.name}, starting over")
        outcome = await self._run_graph()
        if outcome.ending is Ending.FINISHED:
            self._clean_up()
        return outcome

    async def _run_graph(self) -> Outcome:
        """Run from the checkpoint, or from the start if the item's text has changed since."""
        while True:
            async with open_checkpoint(self._database) as checkpoint:
                if await self._is_current(checkpoint):
                    return await self._graph_runner.run(checkpoint)
            self._echo("Its text has changed since its checkpoint: starting over")
            self._clean_up()

    async def _is_current(self, checkpoint: Checkpoint) -> bool:
        digest = await checkpoint.noted("digest")
        if digest is None:
            await checkpoint.note("digest", self._item.digest)
        return digest in (None, self._item.digest)

    def _clean_up(self) -> None:
        self._workflow.tidy(self._documents, self._item.number)
        delete_checkpoint(self._database)


def _exit_if_channel_lost(listener: "asyncio.Task[None]") -> None:
    """A worker that no longer hears its coordinator (out of memory, or a bug) would wait forever."""
    if not listener.cancelled() and listener.exception():
        os._exit(1)
