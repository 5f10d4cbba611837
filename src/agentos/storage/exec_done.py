"""Records which items an `agentos exec` command has finished: one permanent marker file per item."""

import json
from pathlib import Path

from agentos.core.planning.exec_command import record_name
from agentos.core.planning.plan import Item
from agentos.storage.files import Folder, private_folder

SUFFIX = ".done"


class DoneMarkers:
    """The markers of one command in one project; the folder also holds the command's locks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def prepare(self) -> None:
        private_folder(self._folder)

    def names(self) -> set[str]:
        """The record names of all finished items. Reads only."""
        return {path.name.removesuffix(SUFFIX) for path in self._folder.glob(f"*{SUFFIX}")}

    def is_done(self, item: Item) -> bool:
        return (self._folder / self._name(item)).exists()

    def set(self, item: Item, seconds: float) -> None:
        """Marks the item as done. The marker is on disk when this returns."""
        text = json.dumps({"item": item.source, "seconds": round(seconds, 3)})
        Folder(self._folder, file_mode=0o600).write(self._name(item), text.encode())

    def clear(self, item: Item) -> None:
        Folder(self._folder).remove(self._name(item))

    def _name(self, item: Item) -> str:
        return record_name(item.source) + SUFFIX
