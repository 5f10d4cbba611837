"""The items that a command has finished: one permanent marker file per item, beside the locks."""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

from agentos.core.errors import PreflightError
from agentos.core.planning.exec_command import record_name
from agentos.core.planning.items import Item
from agentos.regular_files import open_regular, read_regular
from agentos.storage.files import Folder, private_folder

MARKER_SUFFIX = ".done"


class DoneMarkers:
    """Records which items a command has finished in one project: one permanent marker file per item, beside the locks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def prepare(self) -> None:
        private_folder(self._folder)

    def names(self) -> set[str]:
        """The record names of all finished items. Reads only."""
        return {path.name.removesuffix(MARKER_SUFFIX) for path in self._folder.glob(f"*{MARKER_SUFFIX}")}

    def is_done(self, item: Item) -> bool:
        return (self._folder / self._name(item)).exists()

    def is_outdated(self, item: Item, project: Path) -> bool:
        """Whether the item's file or row has changed since the item was done."""
        try:
            text = read_regular(self._folder / self._name(item), self._folder)
            digests = json.loads(text).get("digests", ())
        except (OSError, ValueError, AttributeError, PreflightError):
            return False
        return bool(digests) and content_digest(item, project) not in digests

    def set(self, item: Item, seconds: float, digests: tuple[str, ...] = ()) -> None:
        """Mark the item, with its content, as done. The marker is on disk when this returns."""
        record = {"item": item.source, "seconds": round(seconds, 3), "digests": digests}
        text = json.dumps(record)
        Folder(self._folder, file_mode=0o600).write(self._name(item), text.encode())

    def clear(self, item: Item) -> None:
        Folder(self._folder).remove(self._name(item))

    def clear_all(self, items: Iterable[Item], before: float) -> None:
        """The same for many items, without waiting for the disk; those done since the wall time `before` stay done."""
        for item in items:
            marker = self._folder / self._name(item)
            with contextlib.suppress(FileNotFoundError):
                if marker.stat().st_mtime < before:
                    marker.unlink()

    def _name(self, item: Item) -> str:
        return record_name(item.source) + MARKER_SUFFIX


def content_digest(item: Item, project: Path) -> str:
    """A hash of the item's row and of its file, if it is one."""
    digest = hashlib.sha256(json.dumps([[column.name, column.value] for column in item.columns]).encode())
    with contextlib.suppress(OSError, PreflightError, ValueError):
        descriptor = open_regular(project / item.source, follow=True)
        try:
            while chunk := os.read(descriptor, 1 << 20):
                digest.update(chunk)
        finally:
            os.close(descriptor)
    return digest.hexdigest()
