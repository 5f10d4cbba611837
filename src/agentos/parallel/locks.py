"""Locks tasks between processes and threads."""

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from agentos.storage.locks import Holder, ItemLocks, LockFile

POLL_INTERVAL = 0.02  # seconds


class TaskLock:
    """Locks by task id, in the `.locks` folder of a project, so that no two processes work on the same task.

        locks = TaskLock(project_dir)
        with locks.lock("LLD-42", timeout=0) as acquired:
            if acquired:
                ...

    A task id is a name or a number; 7 and "7" are the same task.

    A lock is held until it is released or its process dies, however it dies. It is never taken from a living process,
    so there are no stale locks and no timeouts to tune. It also excludes agentos itself, which uses the same locks.

    Good at: one task, one worker, on one machine. Bad at: network file systems, where flock may not be reliable. Not
    reentrant: a holder that acquires its own task again waits like everybody else.
    """

    def __init__(self, project_dir: str | Path) -> None:
        self._locks = ItemLocks(Path(project_dir))
        self._held: dict[str, tuple[str, LockFile]] = {}
        # Protects `_held` from the threads that share this object.
        self._lock = threading.Lock()

    def acquire(self, task_id: str | int, holder_id: str = "worker-0", timeout: float = 300) -> bool:
        """Waits up to `timeout` seconds; 0 tries once. Returns whether the lock was acquired.

        `holder_id` is written beside the lock, so that others can see who holds it.
        """
        task_id = str(task_id)
        deadline = time.monotonic() + timeout
        self._locks.prepare()
        while True:
            if lock := self._locks.acquire(task_id, Holder(os.getpid(), holder_id)):
                with self._lock:
                    self._held[task_id] = (holder_id, lock)
                return True
            if (left := deadline - time.monotonic()) <= 0:
                return False
            time.sleep(min(POLL_INTERVAL, left))

    def release(self, task_id: str | int, holder_id: str | None = None) -> bool:
        """Returns whether a lock was released: held through this object, and by `holder_id` if one is given."""
        task_id = str(task_id)
        with self._lock:
            holder, lock = self._held.get(task_id, (None, None))
            if lock is None or holder_id not in (None, holder):
                return False
            del self._held[task_id]
        lock.release()
        return True

    @contextlib.contextmanager
    def lock(self, task_id: str | int, holder_id: str = "worker-0", timeout: float = 300) -> Iterator[bool]:
        """Holds the lock for the block. Yields whether it was acquired: check it."""
        acquired = self.acquire(task_id, holder_id, timeout)
        try:
            yield acquired
        finally:
            if acquired:
                self.release(task_id, holder_id)

    def clean_all_stale_locks(self) -> int:
        """Removes the notes of holders that are gone, and returns how many. The locks themselves never go stale."""
        return self._locks.clear_notes()
