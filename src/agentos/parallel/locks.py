"""A lock per task, between processes and between threads."""

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from agentos.storage.locks import Holder, ItemLocks, LockFile

LOOK_AGAIN = 0.02


class TaskLock:
    """Held until it is released or its process dies; never taken from a living holder.

    Not reentrant: whoever holds a task waits for it like anybody else.
    """

    def __init__(self, project_dir: str | Path) -> None:
        self._locks = ItemLocks(Path(project_dir))
        self._held: dict[str, tuple[str, LockFile]] = {}
        # Protects the locks held by this object from threads that share it.
        self._change = threading.Lock()

    def acquire(self, task_id: str, holder_id: str = "worker-0", timeout: float = 300) -> bool:
        """Waits for the task, at most so many seconds; 0 looks once."""
        deadline = time.monotonic() + timeout
        self._locks.prepare()
        while True:
            if lock := self._locks.acquire(task_id, Holder(os.getpid(), holder_id)):
                with self._change:
                    self._held[task_id] = (holder_id, lock)
                return True
            if (left := deadline - time.monotonic()) <= 0:
                return False
            time.sleep(min(LOOK_AGAIN, left))

    def release(self, task_id: str, holder_id: str | None = None) -> bool:
        """Whether there was something to release: held by this object, and by this holder if one is named."""
        with self._change:
            holder, lock = self._held.get(task_id, (None, None))
            if lock is None or holder_id not in (None, holder):
                return False
            del self._held[task_id]
        lock.release()
        return True

    @contextlib.contextmanager
    def lock(self, task_id: str, holder_id: str = "worker-0", timeout: float = 300) -> Iterator[bool]:
        """For the length of a block; says whether the task could be had."""
        had = self.acquire(task_id, holder_id, timeout)
        try:
            yield had
        finally:
            if had:
                self.release(task_id, holder_id)

    def clean_all_stale_locks(self) -> int:
        """Clears the notes of holders that are gone; says how many. A lock itself is never stale."""
        return self._locks.clear_notes()
