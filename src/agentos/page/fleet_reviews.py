"""Parked items of a fleet, and what happens when a person has decided on one."""

import asyncio
import shlex
import threading
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from agentos.core.errors import AgentosError
from agentos.fleet.decisions import notify_workflows
from agentos.fleet.submission_journal import SharedReader
from agentos.page.reviews import WaitingItem
from agentos.review.queue import PendingReview, ReviewContext, pending_reviews
from agentos.storage.files import private_folder
from agentos.storage.home import Home
from agentos.storage.postgres.fleet_items import FleetDatabase
from agentos.storage.postgres.project_items import PostgresItems

NOTIFY_INTERVAL = 10.0  # seconds


@dataclass(slots=True)
class FleetReviews:
    """The parked items of all projects in Postgres. `folders` has the projects that are on this machine: if an issue has
    changed there since, its draft is outdated."""

    shared: SharedReader
    database: FleetDatabase
    home: Home
    scratch: Path
    folders: dict[str, Path]
    is_fleet: bool = True
    _items: dict[str, PostgresItems] = field(default_factory=dict)
    _unnotified: set[str] = field(default_factory=set)
    _notify_at: float = 0.0

    def session(self) -> AbstractContextManager[object]:
        if self._unnotified and time.monotonic() >= self._notify_at:
            self._notify_at = time.monotonic() + NOTIFY_INTERVAL
            threading.Thread(target=self._notify_again, daemon=True).start()
        return self.shared.session()

    def waiting(self, *, with_documents: bool) -> list[WaitingItem]:
        found = []
        with self.shared.session() as reader:
            for project in reader.projects_with_parked_items():
                context = self._context(project)
                items = self._items[project]
                reviews = (
                    pending_reviews(context)
                    if with_documents
                    else [PendingReview(record.state, record.key) for record in items.parked_records()]
                )
                found += [WaitingItem(project, context, pending) for pending in reviews]
        return found

    def command(self, waiting: WaitingItem) -> str:
        return shlex.join(["agentos", "review", waiting.pending.parked_item.item, "--fleet"])

    def notify_run(self, waiting: WaitingItem) -> str:
        """Signal the item's workflow, which would not continue otherwise. Repeated until Temporal has received it."""
        try:
            asyncio.run(notify_workflows([waiting.pending.key]))
        except AgentosError as error:
            self._unnotified.add(waiting.pending.key)
            return f"{error}. This page also retries it"
        return ""

    def _notify_again(self) -> None:
        """Runs in a separate thread, because Temporal may be slow and the page must not wait for it."""
        for key in list(self._unnotified):
            try:
                asyncio.run(notify_workflows([key]))
            except AgentosError:
                return
            self._unnotified.discard(key)

    def _context(self, project: str) -> ReviewContext:
        """A project that is not on this machine gets an empty folder, so nothing contradicts Postgres."""
        if project not in self._items:
            place = private_folder(self.scratch / f"reviews-{len(self._items)}")
            self._items[project] = PostgresItems(self.database, project, place / "documents")
            if project not in self.folders:
                self.folders[project] = private_folder(place / "project")
        return ReviewContext(self.folders[project], self.home, None, self._items[project])
