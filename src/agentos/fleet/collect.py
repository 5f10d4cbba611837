"""Writes the documents of finished items into the project, each once, and never over a file with other content."""

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agentos.storage.files import Folder, ProjectFolder, private_folder
from agentos.storage.home import Home, project_key
from agentos.storage.postgres.fleet_items import FleetDatabase, FleetDocument, FleetItem

RECORD = "collected.json"
WRITE_TIMEOUT = 10.0  # seconds
RETRY_INTERVAL = 0.05  # seconds


@dataclass(frozen=True, slots=True)
class Conflict:
    """A project file whose content is neither the fleet's document nor an earlier version of it."""

    item: str
    path: str


class Collector:
    """Collects documents into one project folder. The home records what was written, so a document that somebody deletes
    afterwards is not written again."""

    def __init__(self, database: FleetDatabase, project: Path, home: Home) -> None:
        self.folder = project
        self._database = database
        self._project = ProjectFolder(project)
        folder = private_folder(home.path / "fleet" / project_key(project))
        self._record_folder = Folder(folder, file_mode=0o600, folder_mode=0o700)
        self.conflicts: list[Conflict] = []

    def collect_all(self, say: Callable[[str], None] = lambda text: None) -> int:
        """Collect every finished item that is not in the project yet; returns how many there were."""
        recorded, self.conflicts = self._recorded(), []
        done = [
            item
            for item in self._database.items().values()
            if item.done_at and recorded.get(item.item) != item.done_at
        ]
        return sum(self._collect(item, recorded, say) for item in done)

    def _collect(self, item: FleetItem, recorded: dict[str, str], say: Callable[[str], None]) -> bool:
        documents = self._database.documents(item.item)
        conflicts = [document.path for document in documents if self._is_foreign(document)]
        if conflicts:
            self.conflicts += [Conflict(item.item, path) for path in conflicts]
            return False
        # Write the lineage first, and last the document that marks the item as done: an interrupted collection is repeated.
        for document in sorted(documents, key=lambda each: not each.path.startswith("docs/lineage/")):
            self._write_when_free(document)
        recorded[item.item] = item.done_at
        self._record_folder.write(RECORD, json.dumps(recorded, indent=1).encode())
        say(f"{item.item}: collected")
        return True

    def _is_foreign(self, document: FleetDocument) -> bool:
        """Whether the project has a file of its own at that path. A removed document deletes only the fleet's own file."""
        if document.content is None or not self._project.exists(document.path):
            return False
        found = self._project.read(document.path)
        return found != document.content and hashlib.sha256(found).hexdigest() not in document.earlier

    def _write_when_free(self, document: FleetDocument) -> None:
        """Wait if another command is writing the same document into the same folder."""
        deadline = time.monotonic() + WRITE_TIMEOUT
        while True:
            try:
                return self._write(document)
            except FileExistsError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(RETRY_INTERVAL)

    def _write(self, document: FleetDocument) -> None:
        if document.content is not None:
            if (
                not self._project.exists(document.path)
                or self._project.read(document.path) != document.content
            ):
                self._project.write(document.path, document.content)
        elif self._project.exists(document.path):
            with contextlib.suppress(FileNotFoundError):  # another collector removed it first
                digest = hashlib.sha256(self._project.read(document.path)).hexdigest()
                if digest in document.earlier:
                    self._project.remove(document.path)

    def _recorded(self) -> dict[str, str]:
        try:
            found = json.loads(self._record_folder.read(RECORD))
        except (OSError, ValueError):
            return {}
        return {str(name): str(at) for name, at in found.items()} if isinstance(found, Mapping) else {}
