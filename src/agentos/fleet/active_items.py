"""The items that this worker has accepted and not yet finished, shared by the event loop and Temporal's thread."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agentos.core.planning.worker_task import CodeAccess, GitHubAccess, RoleModel
from agentos.core.protocol import events
from agentos.fleet.turns import Turn
from agentos.storage.postgres.event_writer import EventWriter, ItemClaim
from agentos.storage.postgres.fleet_items import LoadedTask

_UNFORWARDED = (events.ItemEnded, events.ItemJoined, events.ItemWithdrawn)


@dataclass(frozen=True, slots=True)
class PreparedItem:
    """What this machine gives to the item's process."""

    origin: str
    models: tuple[RoleModel, ...]
    github: GitHubAccess | None
    code: CodeAccess | None


@dataclass(slots=True)
class ActiveItem:
    """An item that this worker has accepted. When its process has exited, its `scratch` folder is deleted."""

    key: str
    turn: Turn
    claim: ItemClaim
    loaded: LoadedTask
    prepared: PreparedItem
    scratch: Path
    ended: "Future[events.ItemEnded]" = field(default_factory=Future)


class ActiveItems:
    """Temporal's thread adds items and requests their withdrawal; the coordinator's event loop takes these changes and
    removes items that have ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # protects both fields from the two threads
        self._active_items: dict[str, ActiveItem] = {}
        self._membership_changes: list[events.ItemJoined | events.ItemWithdrawn] = []
        self.wake: Callable[[], None] = lambda: None
        self.is_draining = False

    def add(self, active_item: ActiveItem) -> bool:
        """False if the worker is draining, or the item is still here from an earlier attempt or turn."""
        with self._lock:
            if active_item.key in self._active_items or self.is_draining:
                return False
            self._active_items[active_item.key] = active_item
            self._membership_changes.append(
                events.ItemJoined(active_item.key, active_item.loaded.shared.timeout)
            )
        self.wake()
        return True

    def request_withdrawal(self, active_item: ActiveItem) -> None:
        with self._lock:
            self._membership_changes.append(events.ItemWithdrawn(active_item.key))
        self.wake()

    def remove(self, key: str) -> ActiveItem | None:
        with self._lock:
            return self._active_items.pop(key, None)

    def get(self, key: str) -> ActiveItem | None:
        with self._lock:
            return self._active_items.get(key)

    def __len__(self) -> int:
        return len(self._active_items)

    def take_membership_changes(self) -> list[events.ItemJoined | events.ItemWithdrawn]:
        with self._lock:
            changes, self._membership_changes = self._membership_changes, []
        return changes


def forward_event(event: events.Event, at: float, active_items: ActiveItems, writer: EventWriter) -> None:
    """Writes an active item's event to Postgres for its followers; when the item has ended, resolves the future that its
    activity awaits."""
    active_item = active_items.get(getattr(event, "item", ""))
    if active_item is None:
        return
    if not isinstance(event, _UNFORWARDED):
        writer.write(active_item.claim, _as_published(event, active_item), at)
    if isinstance(event, events.ItemEnded):
        active_items.remove(active_item.key)
        active_item.ended.set_result(event)


def _as_published(event: Any, active_item: ActiveItem) -> events.Event:
    """The event under the item's own name. Each machine numbers its own leases, so a lease's number is extended by the claim."""
    changes: dict[str, str] = {"item": active_item.turn.item}
    if lease := getattr(event, "lease", ""):
        changes["lease"] = f"{active_item.claim.text}{lease}"
    published: events.Event = replace(event, **changes)
    return published
