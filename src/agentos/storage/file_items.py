"""The item store of one machine: a database and two locks per item, and the documents in the project itself."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from agentos.core.planning.items import ItemStatus
from agentos.core.planning.worker_task import WorkerTask
from agentos.core.protocol.ports import Documents
from agentos.core.protocol.results import Outcome, Verdict
from agentos.storage.checkpoints import (
    SqliteCheckpoint,
    check_checkpoint,
    delete_checkpoint,
    leftovers,
    open_checkpoint,
    read_answers,
    read_notes,
    write_note,
)
from agentos.storage.files import ProjectFolder, has_space, is_full, private_folder
from agentos.storage.home import Home
from agentos.storage.item_store import Claim, IsRedo, ParkedRecord, Tidy
from agentos.storage.locks import Holder, ItemLocks, LockFile, held_outcome
from agentos.storage.review_notes import review_state

PARKING_TIMEOUT = 5.0  # seconds that a decision waits for a worker to release its item


class FileItemStore:
    """The files of one item. The locks end with the process, so a process that dies need not call `release`."""

    def __init__(self, task: WorkerTask, announce: Callable[[str], None]) -> None:
        self.documents: Documents = ProjectFolder(Path(task.project), announce)
        self.thread_id = task.item.id
        self.place = task.project
        self._item = task.item.id
        self._database = Path(task.database)
        self._folders = (self._database.parent, Path(task.project))
        self._holder = Holder(task.coordinator, task.run)
        self._home_locks = task.locks
        self._locks = [ItemLocks(Path(task.project))]
        self._acquired: list[LockFile] = []
        self._previous: Holder | None = None

    async def claim(self) -> Claim | Outcome:
        if len(self._locks) == 1:
            self._previous = self._locks[0].holder(self._item)
            if self._home_locks:
                self._locks.append(ItemLocks.inside(private_folder(Path(self._home_locks))))
        for folder in self._locks:
            folder.prepare()
            lock = folder.acquire(self._item, self._holder)
            if lock is None:
                await self.release()
                holders = (folder.holder(self._item) for folder in reversed(self._locks))
                return held_outcome(next(filter(None, holders), None))
            self._acquired.append(lock)
        return Claim(is_retry=self._previous is not None and self._previous.run == self._holder.run)

    async def release(self) -> None:
        while self._acquired:
            self._acquired.pop().release()

    async def earlier_verdict(self, status: Callable[[], ItemStatus], is_redo: IsRedo) -> Verdict | None:
        verdict = verdict_of(status(), self._database)
        return None if verdict and is_redo(read_notes(self._database)) else verdict

    async def check(self) -> str:
        moved = check_checkpoint(self._database)
        return moved.name if moved else ""

    def open(self) -> AbstractAsyncContextManager[SqliteCheckpoint]:
        return open_checkpoint(self._database)

    def kept_answers(self) -> list[str]:
        return read_answers(self._database)

    async def clean_up(self, tidy: Tidy) -> None:
        tidy(self.documents)
        delete_checkpoint(self._database)

    async def finish(self, tidy: Tidy, outcome: Outcome) -> None:
        # The document itself records that the item is done.
        await self.clean_up(tidy)

    def is_unavailable(self, error: BaseException) -> bool:
        return is_full(error, *self._folders)

    def is_lost(self, error: BaseException) -> bool:
        return False  # a file lock cannot be taken from its holder

    async def unavailable(self) -> str:
        return next((str(folder) for folder in self._folders if not has_space(folder)), "")


class FileItems:
    """The items of one project on this machine. `database` is the only one to look at if AGENTOS_WORKFLOW_DB names it."""

    def __init__(self, project: Path, home: Home, database: Path | None = None) -> None:
        self.documents: Documents = ProjectFolder(project)
        self._home = home
        self._project = project
        self._locks = ItemLocks(project)
        self._database = database

    def key(self, workflow: str, number: int) -> str:
        return str(self._database or self._home.checkpoint(self._project, workflow, number))

    def keys(self) -> set[str]:
        return {str(path) for path in self._files()}

    def held(self) -> dict[str, str]:
        found = self._locks.held()
        return {item: holder.text if holder else "another process" for item, holder in found.items()}

    def notes(self, key: str) -> Mapping[str, str]:
        return read_notes(Path(key))

    def parked(self) -> list[ParkedRecord]:
        found = ((str(path), review_state(read_notes(path))) for path in self._files())
        return [ParkedRecord(key, state) for key, state in found if state]

    @contextlib.contextmanager
    def deciding(self, key: str, item: str) -> Iterator[Mapping[str, str] | None]:
        """Hold the item's lock. Wait for it, because a worker that parks its item still holds it for a moment."""
        self._locks.prepare()
        deadline = time.monotonic() + PARKING_TIMEOUT
        while (lock := self._locks.acquire(item, Holder(os.getpid(), "review"))) is None:
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        if lock is None:
            yield None
            return
        try:
            yield self.notes(key)
        finally:
            lock.release()

    def write_note(self, key: str, name: str, text: str) -> None:
        write_note(Path(key), name, text)

    def clean_finished(self, finished: Mapping[str, str], tidy: Callable[[str], None]) -> None:
        left = leftovers(self._home.checkpoints(self._project))
        for item, key in finished.items():
            if Path(key).name not in left:
                continue
            self._locks.prepare()
            if lock := self._locks.acquire(item, Holder(0, "sweep")):
                try:
                    tidy(item)
                    delete_checkpoint(Path(key))
                finally:
                    lock.release()

    def _files(self) -> list[Path]:
        folder = self._home.checkpoints(self._project)
        return [self._database] if self._database else sorted(folder.glob("*.db"))


def verdict_of(status: ItemStatus, database: Path) -> Verdict | None:
    """The verdict implied by an item's status; `database` is its checkpoint."""
    if status is ItemStatus.APPROVED:
        return Verdict.APPROVED
    # With a checkpoint it is still in progress: this attempt, or another that a person requested.
    if status is ItemStatus.UNCHANGED and not database.exists():
        return Verdict.NEEDS_REVISION
    return None
