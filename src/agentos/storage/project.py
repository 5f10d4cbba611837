"""A project's folder, as the workflows see it."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from agentos.storage.files import Folder
from agentos.storage.locks import ItemLocks


class ProjectFolder(Folder):
    """A folder that can also serialise the giving out of numbers."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._locks = ItemLocks(root)

    @contextlib.contextmanager
    def numbering(self) -> Iterator[None]:
        self._locks.prepare()
        lock = self._locks.numbering()
        lock.wait()
        try:
            yield
        finally:
            lock.release()
