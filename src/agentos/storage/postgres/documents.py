"""The documents of one item on a fleet: a scratch folder, and the changes not yet written to Postgres."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentos.storage.files import Folder, private_folder

Change = tuple[str, bytes | None]
"""A path and its new content; None if the file was removed."""


class ScratchDocuments:
    """The Documents port on a scratch folder. `take_changes` returns the changes since the last call, in order.

    Nodes write synchronously, but the item's connection is asynchronous. So changes are queued here and written to
    Postgres right before the node's checkpoint.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._folder = Folder(root, file_mode=0o600, folder_mode=0o700)
        self._changes: dict[str, bytes | None] = {}

    def load(self, files: dict[str, bytes]) -> None:
        """Reset to these files."""
        shutil.rmtree(self.root, ignore_errors=True)
        private_folder(self.root)
        self._changes.clear()
        for name, content in files.items():
            self._folder.write(name, content)

    def take_changes(self) -> list[Change]:
        changes, self._changes = self._changes, {}
        return list(changes.items())

    def put_back(self, changes: list[Change]) -> None:
        """Put changes that could not be written back, before later ones."""
        self._changes = {**dict(changes), **self._changes}

    def write(self, name: str, content: bytes) -> object:
        written = self._folder.write(name, content)
        self._changes[name] = content
        return written

    def read(self, name: str) -> bytes:
        return self._folder.read(name)

    def exists(self, name: str) -> bool:
        return self._folder.exists(name)

    def names(self, folder: str) -> list[str]:
        return self._folder.names(folder)

    def remove(self, name: str) -> None:
        self._folder.remove(name)
        # Recorded even if the file is not here: the project may have it.
        self._changes[name] = None

    def move(self, name: str, target: str) -> None:
        moved = self._files_below(name)
        self._folder.move(name, target)
        for path in moved:
            self._changes[path] = None
            renamed = target + path[len(name) :]
            self._changes[renamed] = self._folder.read(renamed)

    @contextmanager
    def numbering(self) -> Iterator[None]:
        """No lock is needed: numbers are assigned in the project before an item is submitted."""
        yield

    def _files_below(self, name: str) -> list[str]:
        path = self.root / name
        if path.is_file():
            return [name]
        return sorted(str(file.relative_to(self.root)) for file in path.rglob("*") if file.is_file())
