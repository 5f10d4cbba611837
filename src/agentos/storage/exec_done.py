"""Which items of a program are done: one mark each, that stays."""

import json
from pathlib import Path

from agentos.core.planning.exec_command import record_name
from agentos.core.planning.items import Item
from agentos.storage.files import Folder, private_folder

ENDING = ".done"


class DoneMarkers:
    """The marks of one command in one project, in the folder that its locks are in too."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def prepare(self) -> None:
        private_folder(self._folder)

    def names(self) -> set[str]:
        """The record names of all that is done; reads only."""
        return {path.name.removesuffix(ENDING) for path in self._folder.glob(f"*{ENDING}")}

    def is_done(self, item: Item) -> bool:
        return (self._folder / self._name(item)).exists()

    def set(self, item: Item, seconds: float) -> None:
        """On disk when this returns."""
        text = json.dumps({"item": item.source, "seconds": round(seconds, 3)})
        Folder(self._folder, file_mode=0o600).write(self._name(item), text.encode())

    def clear(self, item: Item) -> None:
        Folder(self._folder).remove(self._name(item))

    def _name(self, item: Item) -> str:
        return record_name(item.source) + ENDING
