"""Carries one item, from its checkpoint to its outcome."""

import asyncio
import contextlib
import errno
import json
import os
import sqlite3
import traceback
from pathlib import Path

from agentos.core.errors import (
    BadRequest,
    BrokenWorkflow,
    InvalidSpec,
    ItemError,
    LimitReached,
    TrackerError,
)
from agentos.core.planning.plan import ItemStatus
from agentos.core.planning.worker_task import WorkerTask
from agentos.core.protocol.codec import pack, unpack
from agentos.core.protocol.commands import GrantLease, StopWorker
from agentos.core.protocol.events import DiskFreed, DiskFull
from agentos.core.protocol.ports import Channel, ModelRequest, ModelResponse
from agentos.core.protocol.results import Ending, Outcome, Verdict, failed, failed_transient
from agentos.models.leased import LeasedModel
from agentos.models.registry import PROVIDERS
from agentos.storage.checkpoints import Checkpoint, check_checkpoint, delete_checkpoint, open_checkpoint
from agentos.storage.disk_space import has_space, is_full
from agentos.storage.files import ProjectFolder
from agentos.storage.locks import Holder, ItemLocks, LockFile
from agentos.worker.graph_runner import GraphRunner
from agentos.workflows.node_context import Say
from agentos.workflows.registry import load_workflow

LOOK_FOR_ROOM = 0.5
OUR_FRAMES = 3


async def run_item(order: WorkerTask, channel: Channel, say: Say) -> Outcome:
    """Takes the item's lock, and carries the item as far as it goes."""
    locks = ItemLocks(Path(order.project))
    try:
        lock = await _lock(order, channel, locks)
    except OSError as error:
        return _without_lock(error)
    if lock is None:
        return Outcome(Ending.ELSEWHERE, error=_held_by(locks.holder(order.item.id)))
    try:
        return await ItemRunner(order, channel, say).run()
    except InvalidSpec as error:
        return failed(str(error), error.details)
    except LimitReached as error:
        return Outcome(Ending.INTERRUPTED, error=str(error))
    except TrackerError as error:
        return failed_transient(str(error)) if error.retryable else failed(str(error))
    except (ItemError, BadRequest) as error:
        return failed(str(error), getattr(error, "details", ()))
    except BrokenWorkflow as error:
        return failed_transient(str(error)) if isinstance(error.__cause__, OSError) else failed(str(error))
    except Exception as error:  # The one place where any failure becomes an outcome.
        say(traceback.format_exc(limit=-OUR_FRAMES))
        return failed_transient(f"{type(error).__name__}: {error}")
    finally:
        lock.release()


async def _lock(order: WorkerTask, channel: Channel, locks: ItemLocks) -> LockFile | None:
    """The item's lock, or None; on a full disk it is waited for, since its file may not be there yet."""
    full = False
    while True:
        try:
            locks.prepare()
            lock = locks.acquire(order.item.id, Holder(order.coordinator, order.run))
        except OSError as error:
            if not is_full(error):
                raise
        else:
            if full:
                channel.send(DiskFreed(order.item.id))
            return lock
        if not full:
            full = True
            channel.send(DiskFull(order.item.id, order.project))
        await asyncio.sleep(LOOK_FOR_ROOM)


class ItemRunner:
    """One item at work: listens to its coordinator while the graph goes on."""

    def __init__(self, order: WorkerTask, channel: Channel, say: Say) -> None:
        self._task = order
        self._say = say
        self._item = order.item
        self._fresh = order.fresh
        self._channel = channel
        self._database = Path(order.database)
        self._workflow = load_workflow(order.origin, order.project if ":" in order.workflow else "")
        self._documents = ProjectFolder(Path(order.project))
        self._model = LeasedModel(self._item.id, order.models, PROVIDERS, channel.send)
        self._stopping = asyncio.Event()
        self._graph_runner = GraphRunner(
            task=order,
            workflow=self._workflow,
            folder=self._documents,
            ask=self._ask,
            send_event=channel.send,
            say=say,
            stopping=self._stopping,
            stop_waiting=self._model.stop_waiting,
        )
        self._places = (self._database.parent, Path(order.project))

    async def run(self) -> Outcome:
        listening = asyncio.create_task(self._listen())
        listening.add_done_callback(_exit_if_channel_lost)
        try:
            return await self._run_with_disk_space()
        finally:
            listening.cancel()

    async def _run_with_disk_space(self) -> Outcome:
        """Goes on from the checkpoint as often as a disk was full and has space again."""
        while True:
            try:
                return await self._run_locked()
            except (OSError, sqlite3.Error) as error:
                if not is_full(error, *self._places):
                    raise
            if not await self._wait_for_disk():
                return Outcome(Ending.INTERRUPTED)

    async def _run_locked(self) -> Outcome:
        if verdict := self._verdict_before():
            self._clear_up()
            return Outcome(Ending.FINISHED, verdict, error="was finished already")
        self._make_ready()
        outcome = await self._open_and_run_graph()
        if outcome.ending is Ending.FINISHED:
            self._clear_up()
        return outcome

    def _verdict_before(self) -> Verdict | None:
        """Another run may have finished it between our plan and our lock; what has a problem is told that instead."""
        if self._task.redo or self._item.problems:
            return None
        standing = self._workflow.status(Path(self._task.project), self._item)
        if standing is ItemStatus.APPROVED:
            return Verdict.APPROVED
        # With a checkpoint it is still under way: this one, or another try that somebody asked for.
        if standing is ItemStatus.UNCHANGED and not self._database.exists():
            return Verdict.NEEDS_REVISION
        return None

    def _make_ready(self) -> None:
        if self._fresh:
            self._clear_up()
            self._fresh = False
        if aside := check_checkpoint(self._database):
            self._say(f"Its checkpoint was damaged: kept as {aside.name}, starting over")

    def _clear_up(self) -> None:
        self._workflow.tidy(self._documents, self._item.number)
        delete_checkpoint(self._database)

    async def _wait_for_disk(self) -> bool:
        """Waits until there is space again; false when it is stopped before."""
        full = next((place for place in self._places if not has_space(place)), self._places[0])
        self._channel.send(DiskFull(self._item.id, str(full)))
        # At least one pause: what was to be written may be more than what is tried here.
        while not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), LOOK_FOR_ROOM)
            if all(map(has_space, self._places)):
                break
        else:
            return False
        self._channel.send(DiskFreed(self._item.id))
        return True

    async def _open_and_run_graph(self) -> Outcome:
        async with open_checkpoint(self._database) as checkpoint:
            if await self._is_outdated(checkpoint):
                self._say("Its text has changed since its checkpoint: starting over")
            else:
                return await self._graph_runner.run(checkpoint)
        self._clear_up()
        async with open_checkpoint(self._database) as checkpoint:
            await self._is_outdated(checkpoint)
            return await self._graph_runner.run(checkpoint)

    async def _is_outdated(self, checkpoint: Checkpoint) -> bool:
        kept = await checkpoint.noted("digest")
        if kept is None:
            await checkpoint.note("digest", self._item.digest)
        return kept is not None and kept != self._item.digest

    async def _ask(self, checkpoint: Checkpoint, call: str, question: ModelRequest) -> ModelResponse:
        """Each answer is kept before it is used: a crash after this does not pay again."""
        if (kept := await checkpoint.noted(f"answer {call}")) is not None:
            answer: ModelResponse = unpack(ModelResponse, json.loads(kept))
            return answer
        answer = await self._model.complete(call, question)
        await self._keep(checkpoint, f"answer {call}", json.dumps(pack(answer)))
        return answer

    async def _keep(self, checkpoint: Checkpoint, name: str, text: str) -> None:
        """What was paid for waits in memory while the disk is full."""
        while True:
            try:
                return await checkpoint.note(name, text)
            except sqlite3.Error as error:
                if not is_full(error, *self._places) or not await self._wait_for_disk():
                    raise

    async def _listen(self) -> None:
        while True:
            match await self._channel.next():
                case GrantLease() as grant:
                    self._model.grant(grant)
                case StopWorker():
                    self._stopping.set()
                case None:
                    # The coordinator is gone. Everything finished is on disk; nothing may outlive it.
                    os._exit(1)
                case _:
                    pass


def _exit_if_channel_lost(listening: "asyncio.Task[None]") -> None:
    """A worker that cannot hear its coordinator any more, for want of memory or by a bug, would wait for ever."""
    if not listening.cancelled() and listening.exception():
        os._exit(1)


def _without_lock(error: OSError) -> Outcome:
    """A link in the place of a lock stays one; descriptors may be there again."""
    text = f"its lock cannot be taken ({error.strerror}): {error.filename}"
    return failed(text) if error.errno == errno.ELOOP else failed_transient(text)


def _held_by(holder: Holder | None) -> str:
    return (
        f"another run works on it (process {holder.pid}, run {holder.run})"
        if holder
        else "another run works on it"
    )
